"""Libraries that our libraries load wherever they are installed, and a daemon has no use for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


def leave_out(*packages: str) -> None:
    """From now on this process finds no such package, unless it has it already."""
    sys.meta_path.insert(0, _Absent(packages))


class _Absent(MetaPathFinder):
    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if fullname in self._packages:
            raise ModuleNotFoundError(f"{fullname} is left out here", name=fullname)
