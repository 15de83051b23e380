"""Memory that is free goes back to the system, and nothing that is used is lost."""

import os
import subprocess
import sys

import pytest

GIVES_BACK = """
import hashlib, psutil
import numpy as np, pyarrow as pa, scipy.sparse
from fedboost.ground.kernels import kernel
from fedboost.runtime.process import memory

@kernel
def doubled(x):
    return 2 * x

assert doubled(3) == 6
held = [bytes(1000) for _ in range(200_000)]
kept, table = held[::1000], pa.table({"x": np.arange(10**6)})
del held
before = psutil.Process().memory_info().rss
memory.release_all_memory()
assert psutil.Process().memory_info().rss < before - 150_000_000, before
assert doubled(4) == 8 and len(kept) == 200
assert table["x"].to_pylist()[-1] == 10**6 - 1
assert scipy.sparse.eye_array(3).sum() == 3
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such calls")
def test_what_is_free_goes_back_and_what_is_used_stays():
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    subprocess.run([sys.executable, "-c", GIVES_BACK], env=environment, check=True)


# Arrays of the size of a column of a million rows, between which small ones stay.
WORK = """
import re
from pathlib import Path
import numpy as np
from fedboost.runtime.process import memory

{first}
def resident():
    return int(re.search(r"VmRSS:\\s+([0-9]+)", Path("/proc/self/status").read_text())[1]) * 1024

np.ones(30 << 20, np.uint8)  # raises glibc's own bound once it is freed
before, kept = resident(), []
for _ in range(20):
    large = [np.ones(8 << 20, np.uint8) for _ in range(4)]
    kept.append(np.ones(1 << 17, np.uint8))
    large.pop()
    kept += large[:1] if len(kept) < 2 else []
    del large
{last}
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such calls")
@pytest.mark.parametrize(
    ("first", "last"),
    [("", "memory.release_memory()"), ("memory.map_large_arrays_apart()", "")],
    ids=["given back", "kept apart"],
)
def test_arrays_that_are_freed_leave_little(first, last):
    script = WORK.format(first=first, last=last)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    needed = (20 << 17) + (8 << 20)
    assert int(run.stdout) < needed + (16 << 20)
