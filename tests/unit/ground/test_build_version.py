"""A build says its commit wherever one is known, and the package's version everywhere."""

import re
import subprocess

import pytest

from fedboost import __version__
from fedboost.ground import build_version as builds


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The folder of a package of ours, which is not part of a checkout yet."""
    folder = tmp_path / "fedboost"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.setattr(builds, "PACKAGE", folder)
    builds.build_version.cache_clear()
    yield folder
    builds.build_version.cache_clear()


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_without_git_and_without_a_file_it_is_the_packages_version(package):
    assert builds.build_version() == __version__


def test_a_build_has_the_commit_that_was_written_into_it(package):
    (package / builds.COMMIT_FILE).write_text("1a2b3c4d5e6f\n")
    assert builds.build_version() == f"{__version__}+g1a2b3c4d5e6f"


def test_a_checkout_has_the_commit_that_is_checked_out_and_says_what_differs(package):
    git(package.parent, "init")
    assert builds.build_version() == __version__  # there is no commit yet
    git(package.parent, "add", ".")
    git(package.parent, "commit", "-m", "first")
    builds.build_version.cache_clear()
    clean = builds.build_version()
    assert re.fullmatch(re.escape(__version__) + r"\+g[0-9a-f]{12}", clean)
    (package / "__init__.py").write_text("x = 1\n")
    builds.build_version.cache_clear()
    assert builds.build_version() == f"{clean}.dirty"


def test_without_the_git_command_it_is_the_packages_version(package, monkeypatch):
    (package.parent / ".git").mkdir()
    monkeypatch.setenv("PATH", str(package))
    assert builds.build_version() == __version__
