"""Memory available to this process: its container's limit, or the machine's memory."""

from __future__ import annotations

import os
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
OURS = Path("/proc/self/cgroup")
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")  # of the two versions of control groups


def machine_bytes() -> int:
    """Return the memory of this machine, without limits of control groups."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def allowed_bytes(groups: Path = GROUPS, ours: Path = OURS) -> int:
    """Return the least of the machine's memory and the limits of our control group and above."""
    limits = [machine_bytes()]
    folders = [groups]
    try:
        paths = [line.split(":", 2)[2] for line in ours.read_text().splitlines()]
    except (OSError, IndexError):
        paths = []
    for path in paths:
        group = groups / path.strip("/")
        folders += [group, *(parent for parent in group.parents if groups in parent.parents)]
    for folder in folders:
        for name in LIMITS:
            try:
                limits.append(int((folder / name).read_text()))
            except (OSError, ValueError):  # no such file, or "max"
                continue
    return min(limits)
