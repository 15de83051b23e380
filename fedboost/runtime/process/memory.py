"""How much memory this process has held at most."""

from __future__ import annotations

import re
import resource
from pathlib import Path

UNIT_BYTES = 1024  # Linux counts in KiB
STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """The peak of this program's resident memory.

    Not what getrusage says where the kernel tells better: that includes, for a process begun by a
    larger one, the parent's memory at that moment.
    """
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found is not None:
        return int(found[1]) * UNIT_BYTES
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT_BYTES
