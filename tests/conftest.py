"""What every test may use: tiers, the order of groups, the public data sets, found or skipped."""

import faulthandler
import gc
import inspect
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from tests import tiers
from tests.tiers import Tier

ROOT = Path(__file__).resolve().parent.parent
# Where folders of tests lie, if there is room: stores of daemons wait for the disk at every write.
MEMORY, MEMORY_MIN = Path("/dev/shm"), 2 << 30  # bytes
SILENCE_S_MAX = 600  # a test that hangs has shown itself by then (pyproject.toml)
# What takes longest is begun first, so that all processes end together.
FIRST = ("tests/e2e", "tests/faults", "tests/equivalence", "tests/vectors")


def data_dir() -> Path:
    """Where the public data sets lie: FEDBOOST_DATA, or shared/data beside the project."""
    return Path(os.environ.get("FEDBOOST_DATA", ROOT.parent / "shared" / "data"))


def pytest_addoption(parser):
    """`--rewrite`: golden transcripts and vectors are written anew; look at the difference."""
    parser.addoption("--rewrite", action="store_true", help="write golden files anew")
    parser.addoption("--all", action="store_true", help="run every product of parameters")
    parser.addoption("--long", action="store_true", help="run all, and what takes minutes too")
    parser.addoption("--shard", default="1/1", help="I/N: the I-th of N parts of the tests")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Of several processes each runs whole groups: what a group shares is made once."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist, config.option.loadscopereorder = "loadgroup", False


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Tells the tier to all that is collected; properties have few examples but in `--all`."""
    gc.disable()  # until all is collected: nothing is let go before
    chosen = Tier.LONG if config.getoption("--long") else Tier(config.getoption("--all"))
    tiers.begin(chosen)
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_MIN:
        os.environ.setdefault("TMPDIR", str(MEMORY))
        tempfile.tempdir = None  # to be looked up anew
    # A shell ignores Ctrl-C for what it starts with `&`, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A busy machine is no reason for a property to fail.
    settings.register_profile("all", deadline=None)
    settings.register_profile("change", deadline=None, max_examples=tiers.examples(tiers.EXAMPLES))
    if tiers.runs(Tier.ALL):
        settings.load_profile("all")
        return
    settings.load_profile("change")
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = tiers.number("properties")


def pytest_sessionstart(session):
    """Says how to run the same sample again."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not tiers.runs(Tier.ALL):
        reporter.write_line(f"a sample, chosen by {tiers.SEED}={tiers.seed()}; --all runs all")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Keeps the tests of this tier and shard, in groups of what shares expensive things."""
    known = tiers.chosen(items)
    place, shards = map(int, config.getoption("--shard").split("/"))
    kept = [item for n, item in enumerate(known) if n * shards // len(known) == place - 1]
    dropped = set(items) - set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item in dropped])
    for item in kept:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group_of(item)))
    if not config.pluginmanager.has_plugin("randomly"):
        kept.sort(key=begins)
    items[:] = kept


def pytest_collection_finish(session):
    """Leaves what is imported and collected out of every later search for garbage."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """Notes the processor time of fixtures, in the report that --junitxml writes."""
    return (yield from timed(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Notes the processor time of the test itself."""
    return (yield from timed(item))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Runs a test that awaits to its end, on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    from tests.support.federated import now  # what few tests need

    names = pyfuncitem._fixtureinfo.argnames
    now(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def timed(item):
    """Adds the seconds that this process and its ended children have used to a test's own."""
    before = used_s()
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu_s", f"{used_s() - before:.4f}"))


def used_s():
    """Processor time of this process and of its ended children."""
    return sum(os.times()[:4])


def group_of(item):
    """A toy's ground is laid once; what else is shared, modules share."""
    toy = getattr(item, "callspec", None) and item.callspec.params.get("toy")
    return f"toy {toy}" if toy else item.nodeid.partition("::")[0]


def begins(item):
    """The place of a test's folder in the order in which all are begun."""
    indices = [n for n, folder in enumerate(FIRST) if item.nodeid.startswith(folder)]
    return indices[0] if indices else len(FIRST)


def pytest_runtest_logreport(report):
    """Ends the run where no test has ended for long: a test hangs, or a process has been lost."""
    if "PYTEST_XDIST_WORKER" not in os.environ and not tiers.runs(Tier.LONG):
        faulthandler.dump_traceback_later(SILENCE_S_MAX, exit=True)


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
