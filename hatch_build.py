"""Writes the commit of a checkout into the wheels and sdists that are built from it."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))
from fedboost.ground.build_version import COMMIT_FILE, PACKAGE, checked_out_commit


class CommitHook(BuildHookInterface):
    """Adds the file that `fedboost.ground.build_version` reads; an sdist's own file stays.

    Nothing is added without git, and to an installed checkout, which asks git when it runs.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file."""
        if version == "editable" or (PACKAGE / COMMIT_FILE).exists():
            return
        if commit := checked_out_commit():
            self.folder = tempfile.TemporaryDirectory()
            path = Path(self.folder.name, COMMIT_FILE)
            path.write_text(f"{commit}\n")
            build_data["force_include"][str(path)] = f"fedboost/{COMMIT_FILE}"
