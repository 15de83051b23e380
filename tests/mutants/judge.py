"""Tests run on mutants, in processes forked from one that has imported and collected them all."""

import contextlib
import gc
import math
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

from tests.mutants.book import Book, Verdict
from tests.mutants.live import Imported
from tests.mutants.points import ROOT, Mutant

SAVED_EVERY = 100  # tests, while they are recorded
WALL_S = 120  # nothing heard from a test for so long beyond twenty times what it took
MEMORY_BYTES = 10 << 30
LEFT_OUT = ("cacheprovider", "randomly", "faulthandler")
PLAIN = ["-s", "-n0", "--disable-warnings", *(f"-pno:{plugin}" for plugin in LEFT_OUT)]
Item = Any


@dataclass(frozen=True)
class Limits:
    """Processor seconds after which a mutant is left, and after which a test is taken to hang."""

    mutant_s: float
    hang_s: float  # beyond five times what the test took when it was recorded


class Tests:
    """Pytest's hooks: the collected tests go to a job in place of being run."""

    def __init__(self, job: Callable[[dict[str, Item]], None]) -> None:
        self._job = job

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: Any) -> None:
        """Let Hypothesis stop at the first failing example: nobody reads it."""
        used = settings.get_profile(settings.get_current_profile_name())
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutants", used, database=None, phases=phases)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: Any) -> bool:
        """Hand over the tests; none where a file could not be imported."""
        if session.testsfailed:
            raise session.Interrupted("tests could not be imported")
        session.config._tmp_path_factory.getbasetemp()
        self._job({item.nodeid: item for item in session.items})
        return True


def with_tests(
    arguments: list[str],
    job: Callable[[dict[str, Item]], None],
    before: Callable[[], None] = lambda: None,
) -> int:
    """Collect tests in a process of their own and give them to a job there; its exit status."""

    def collect() -> int:
        before()
        folder = tempfile.mkdtemp(prefix="fedboost-mutants-")
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{folder}/hypothesis"
        temporary = [f"--basetemp={folder}/tests", "-o", "tmp_path_retention_policy=none"]
        status = pytest.main([*PLAIN, *temporary, *arguments], plugins=[Tests(job)])
        shutil.rmtree(folder, ignore_errors=True)
        return int(status)

    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        _leave_with(collect)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _leave_with(run: Callable[[], int]) -> None:
    """End this forked process with what a function returns, and with nothing of its parent's."""
    status = 70
    try:
        status = run()
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(status)


def passes(item: Item, following: Item | None) -> bool:
    """Run one test."""
    reports = runtestprotocol(item, log=False, nextitem=following)
    return not any(report.failed for report in reports)


def record(book: Book, items: dict[str, Item]) -> None:
    """Run the tests that are new to the book, and note their seconds and the lines they run."""
    new = [item for name, item in items.items() if name not in book.seconds]
    if not new:
        return
    process = os.fork()
    if process == 0:
        _leave_with(lambda: _record(book, new))
    if os.waitpid(process, 0)[1] != 0:
        raise RuntimeError("tests could not be recorded; see above")
    book.read()


def _record(book: Book, new: list[Item]) -> int:
    imported = Imported()
    lines = coverage.Coverage(
        data_file=str(book.lines),
        source=[str(ROOT / "fedboost")],
        config_file=False,
        messages=False,
    )
    if book.lines.exists():
        lines.load()
    lines.start()
    waiting: list[tuple[str, float, bool]] = []
    say = os.fdopen(os.dup(1), "w")
    _quiet()
    file = ""
    for nth, item in enumerate(new):
        if item.nodeid.split("::")[0] != file:  # what one file computed is not hidden in a cache
            file = item.nodeid.split("::")[0]
            for cache in imported.caches:
                cache.cache_clear()
        lines.switch_context(item.nodeid)
        started = time.process_time()
        sound = passes(item, new[nth + 1] if nth + 1 < len(new) else None)
        waiting.append((item.nodeid, time.process_time() - started, sound))
        if len(waiting) == SAVED_EVERY or nth + 1 == len(new):
            lines.switch_context("")
            lines.save()
            for test in waiting:
                book.add_test(*test)
            waiting.clear()
            say.write(f"recorded {nth + 1} of {len(new)} tests\n")
            say.flush()
    lines.stop()
    return 0


def _quiet() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


class Judge:
    """Runs chosen tests on one mutant after another."""

    def __init__(self, book: Book, items: dict[str, Item], limits: Limits) -> None:
        self._book, self._items, self._limits = book, items, limits
        self._imported = Imported()
        self._passed_alone: set[str] = set()
        gc.collect()
        gc.freeze()

    def verdict(
        self, mutant: Mutant, tier: str, tests: Iterable[str], live: bool = True
    ) -> Verdict:
        """Run tests on a mutant until one fails; only one that passes without it counts."""
        tests = [test for test in tests if test in self._items]
        while True:
            chosen = [test for test in tests if test not in self._book.unsound]
            got = self._run(chosen, mutant if live else None)
            how, begun, seconds = got
            by = chosen[begun - 1] if how in ("caught", "ended") and begun else ""
            if not by or not live or self._sound(by):
                return Verdict(mutant.key, tier, how, by, begun, len(chosen), round(seconds, 2))

    def _sound(self, test: str) -> bool:
        """Whether a test passes without a mutant, alone."""
        if test not in self._passed_alone:
            if self._run([test], None)[0] != "survived":
                self._book.add_test(test, self._book.seconds.get(test, 1.0), sound=False)
                return False
            self._passed_alone.add(test)
        return True

    def _run(self, tests: list[str], mutant: Mutant | None) -> tuple[str, int, float]:
        """Run tests in a fork; how they ended, how many began, CPU seconds."""
        hear, tell = os.pipe()
        process = os.fork()
        if process == 0:
            os.setpgid(0, 0)
            os.close(hear)
            _leave_with(lambda: self._child(tests, mutant, tell))
        os.close(tell)
        how, begun = self._listen(hear, tests)
        os.close(hear)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        _, _, used = os.wait4(process, 0)
        return how, begun, used.ru_utime + used.ru_stime

    def _listen(self, hear: int, tests: list[str]) -> tuple[str, int]:
        """Follow a child's letters: b for a test begun, then how it ended; silence is one way."""
        begun = 0
        while True:
            known = self._book.seconds.get(tests[begun - 1], 1.0) if tests else 1.0
            if not select.select([hear], [], [], WALL_S + 20 * known)[0]:
                return "ended", begun
            letters = os.read(hear, 4096).decode()
            begun += letters.count("b")
            for letter, how in (("c", "caught"), ("s", "survived"), ("t", "cut"), ("r", "reload")):
                if letter in letters:
                    return how, begun
            if not letters:
                return "ended", begun

    def _child(self, tests: list[str], mutant: Mutant | None, tell: int) -> int:
        _quiet()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        try:
            if mutant is not None:
                self._imported.change(mutant)
        except ValueError:
            os.write(tell, b"r")
            return 0
        for nth, test in enumerate(tests):
            if time.process_time() > self._limits.mutant_s:
                os.write(tell, b"t")
                return 0
            os.write(tell, b"b")
            known = 5 * self._book.seconds.get(test, 1.0)
            most = math.ceil(time.process_time() + known + self._limits.hang_s)
            resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
            after = tests[nth + 1] if nth + 1 < len(tests) else None
            if not passes(self._items[test], self._items[after] if after else None):
                os.write(tell, b"c")
                return 0
        os.write(tell, b"s")
        return 0


def files_of(tests: Iterable[str]) -> list[str]:
    """Return the files of tests, in their order."""
    return list(dict.fromkeys(str(Path(test.split("::")[0])) for test in tests))
