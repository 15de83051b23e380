"""What a process has freed, the system has back."""

import re
import subprocess
import sys

# Arrays of the size of a column of a million rows, between which small ones stay.
WORK = """
import re, sys
from pathlib import Path
import numpy as np
from fedboost.runtime.process.memory import give_back, keep_little

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

if "keep_little" in sys.argv:
    keep_little()
np.ones(30 << 20, np.uint8)  # raises glibc's own bound once it is freed
before, kept = resident(), []
for _ in range(20):
    large = [np.ones(8 << 20, np.uint8) for _ in range(4)]
    kept.append(np.ones(1 << 17, np.uint8))
    large.pop()
    kept += large[:1] if len(kept) < 2 else []
    del large
if "give_back" in sys.argv:
    give_back()
print(resident() - before)
"""


def left(*words):
    run = subprocess.run(
        [sys.executable, "-c", WORK, *words], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"-?\d+\n", run.stdout)
    return int(run.stdout)


def test_arrays_that_are_freed_leave_little():
    needed = (20 << 17) + (8 << 20)
    assert left("keep_little") < needed + (4 << 20)
    assert left("give_back") < needed + (16 << 20)
