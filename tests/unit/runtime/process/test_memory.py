"""Memory that is free goes back to the system, and nothing that is used is lost."""

import os
import subprocess
import sys

import pytest

GIVES_BACK = """
import hashlib, psutil
import numpy as np, pyarrow as pa, scipy.sparse
from fedboost.kernels import kernel
from fedboost.runtime.process import memory

@kernel
def doubled(x):
    return 2 * x

assert doubled(3) == 6
held = [bytes(1000) for _ in range(200_000)]
kept, table = held[::1000], pa.table({"x": np.arange(10**6)})
del held
before = psutil.Process().memory_info().rss
memory.give_back()
assert psutil.Process().memory_info().rss < before - 150_000_000, before
assert doubled(4) == 8 and len(kept) == 200
assert table["x"].to_pylist()[-1] == 10**6 - 1
assert scipy.sparse.eye_array(3).sum() == 3
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such calls")
def test_what_is_free_goes_back_and_what_is_used_stays():
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    subprocess.run([sys.executable, "-c", GIVES_BACK], env=environment, check=True)
