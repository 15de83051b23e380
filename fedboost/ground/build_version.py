"""Version of the running build: the package's, and the commit of a build between two releases."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import fedboost

PACKAGE = Path(fedboost.__file__).parent
COMMIT_FILE = "COMMIT"  # in the package; hatch_build.py writes it into wheels and sdists
DIGITS = 12  # of a commit
GIT_S = 5.0


@cache
def build_version() -> str:
    """Return the version of this build, such as ``0.2.0+g1a2b3c4d5e6f``.

    It is the package's version alone for a release, and where no commit is known.
    """
    commit = _recorded_commit() or checked_out_commit()
    return f"{fedboost.__version__}+g{commit}" if commit else fedboost.__version__


def _recorded_commit() -> str:
    try:
        return (PACKAGE / COMMIT_FILE).read_text().strip()
    except OSError:
        return ""


def checked_out_commit() -> str:
    """Return the commit of the checkout that this package is part of; empty without git.

    It ends with ``.dirty`` if files differ from the commit's.
    """
    if not (PACKAGE.parent / ".git").exists():
        return ""
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "-uno"]
    try:
        done = subprocess.run(
            command, cwd=PACKAGE.parent, capture_output=True, text=True, timeout=GIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    head, *lines = done.stdout.splitlines()
    commit = head.removeprefix("# branch.oid ")
    if commit == "(initial)":
        return ""
    changed = any(not line.startswith("#") for line in lines)
    return f"{commit[:DIGITS]}{'.dirty' * changed}"
