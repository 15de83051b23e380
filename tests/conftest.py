"""What every test may use: the public data sets, found or skipped with a reason."""

import faulthandler
import os
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no reason for a property to fail.
settings.register_profile("fedboost", deadline=None)
settings.load_profile("fedboost")

ROOT = Path(__file__).resolve().parent.parent


def data_dir() -> Path:
    """Where the public data sets lie: FEDBOOST_DATA, or shared/data beside the project."""
    return Path(os.environ.get("FEDBOOST_DATA", ROOT.parent / "shared" / "data"))


def pytest_addoption(parser):
    """`--rewrite`: golden transcripts and vectors are written anew; look at the difference."""
    parser.addoption("--rewrite", action="store_true", help="write golden files anew")
    parser.addoption("--long", action="store_true", help="run the tests that take minutes too")
    parser.addoption("--shard", default="1/1", help="I/N: the I-th of N parts of the tests")


def pytest_collection_modifyitems(config, items):
    """Tests marked long run with `--long` only; of several shards each test is in one."""
    place, shards = map(int, config.getoption("--shard").split("/"))
    kept = [n * shards // len(items) == place - 1 for n in range(len(items))]
    config.hook.pytest_deselected(
        items=[i for i, keep in zip(items, kept, strict=True) if not keep]
    )
    items[:] = [item for item, keep in zip(items, kept, strict=True) if keep]
    if not config.getoption("--long"):
        for item in items:
            if "long" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="takes minutes: run it with --long"))


def pytest_unconfigure(config):
    """A thread or process that our code left behind is shown and ends the run; it cannot hang."""
    if not hasattr(config, "workerinput"):  # one of several processes waits for the others
        faulthandler.dump_traceback_later(60, exit=True)


@pytest.fixture
def golden(request):
    """A function that holds a text to the golden file at a path, or writes it with --rewrite."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--rewrite"):
            path.write_text(text)
        assert path.exists(), f"{path.name} is not there; write it with --rewrite"
        assert text == path.read_text(), "rewrite with --rewrite, and explain the difference"

    return compare


@pytest.fixture(scope="session")
def data_file():
    """A function from a data set's file name to its path; skips, or fails in CI, if absent."""

    def find(name: str) -> Path:
        path = data_dir() / name
        if path.exists():
            return path
        reason = f"the data set {name} is not there: set FEDBOOST_DATA to its folder"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)

    return find
