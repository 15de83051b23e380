"""What is kept between runs: tests with their seconds and lines, mutants with their verdicts."""

import functools
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import coverage

from tests.mutants.points import ROOT, Mutant

CHEAP_S = 1.0  # of each test file, tried before the rest of any


@dataclass(frozen=True)
class Verdict:
    """What a tier's tests made of a mutant."""

    key: str
    tier: str
    how: str  # caught, ended (the process died or hung), survived, cut (out of time)
    by: str = ""
    ran: int = 0
    of: int = 0
    seconds: float = 0.0

    @property
    def caught(self) -> bool:
        return self.how in ("caught", "ended")


class Book:
    """A folder with the recorded tests and the verdicts."""

    def __init__(self, folder: Path, product: str) -> None:
        folder.mkdir(exist_ok=True, parents=True)
        state = folder / "product"
        if state.exists() and state.read_text() != product:
            raise SystemExit(f"the product has changed since {folder} was recorded: remove it")
        state.write_text(product)
        self._tests, self._verdicts = folder / "tests.jsonl", folder / "verdicts.jsonl"
        self._short = folder / "short.txt"
        self.lines = folder / "lines.sqlite"
        self.seconds: dict[str, float] = {}
        self.unsound: set[str] = set()
        self.read()

    def read(self) -> None:
        """Take up what another process has written."""
        for line in self._read(self._tests):
            self.seconds[line["test"]] = line["seconds"]
            if not line["sound"]:
                self.unsound.add(line["test"])
        self.verdicts = {(v["key"], v["tier"]): Verdict(**v) for v in self._read(self._verdicts)}
        self.short = set(self._short.read_text().splitlines()) if self._short.exists() else set()
        self._lines_of: dict[str, dict[int, set[str]]] = {}

    def set_short(self, tests: Iterable[str]) -> None:
        """Note which tests the short tier has."""
        self.short = set(tests)
        self._short.write_text("\n".join(self.short))

    @staticmethod
    def _read(path: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in path.open()] if path.exists() else []

    def add_test(self, test: str, seconds: float, sound: bool = True) -> None:
        """Record a test; one that fails without a mutant is not sound and judges nothing."""
        self.seconds[test] = seconds
        if not sound:
            self.unsound.add(test)
        known = {"test": test, "seconds": round(seconds, 4), "sound": sound}
        with self._tests.open("a") as file:
            file.write(json.dumps(known) + "\n")

    def add_verdict(self, verdict: Verdict) -> None:
        """Record what became of a mutant in a tier."""
        self.verdicts[verdict.key, verdict.tier] = verdict
        with self._verdicts.open("a") as file:
            file.write(json.dumps(asdict(verdict), ensure_ascii=False) + "\n")

    def _covering(self, path: str) -> dict[int, set[str]]:
        if path not in self._lines_of:
            data = coverage.CoverageData(str(self.lines))
            data.read()
            found = data.contexts_by_lineno(str(ROOT / path))
            self._lines_of[path] = {line: set(tests) - {""} for line, tests in found.items()}
        return self._lines_of[path]

    def tests_of(self, mutant: Mutant) -> tuple[set[str], set[str]]:
        """Return the tests that run a mutant's lines, and others that may see what comes of them.

        What a fixture or a cache computed for one test, the other tests of its file may look at.
        Kernels and lines that run while a module is imported are in nobody's recording: there,
        others are those of the module and of the modules and test files that import it.
        """
        lines = self._covering(mutant.path)
        direct = set().union(*(lines.get(n, ()) for n in range(mutant.first, mutant.last + 1)))
        if direct:
            return direct, self._of_files({test.split("::")[0] for test in direct})
        names = importers(mutant.path)
        near = (tests for name in names for tests in self._covering(name).values())
        return set().union(*lines.values()), self._of_files(names).union(*near)

    def _of_files(self, files: set[str]) -> set[str]:
        return {test for test in self.seconds if test.split("::")[0] in files}

    def in_order(self, mutant: Mutant) -> list[str]:
        """Return the recorded tests that may notice a mutant, in the order in which they run."""
        direct, others = self.tests_of(mutant)
        return self._sorted(mutant, direct) + self._sorted(mutant, others - direct)

    def _sorted(self, mutant: Mutant, tests: set[str]) -> list[str]:
        """Sort tests: cheap ones of each file, its own file first, then the rest, file by file."""
        files = defaultdict(list)
        for test in sorted(tests - self.unsound, key=lambda t: (self.seconds.get(t, 1.0), t)):
            files[test.split("::")[0]].append(test)
        stem = Path(mutant.path).stem.rstrip("s")
        ranked = sorted(files, key=lambda f: (stem not in f, self.seconds.get(files[f][0], 1.0)))
        cheap: list[str] = []
        rest: list[str] = []
        for file in ranked:
            spent = 0.0
            for test in files[file]:
                spent += self.seconds.get(test, 1.0)
                (cheap if spent <= CHEAP_S else rest).append(test)
        return cheap + rest


@functools.cache
def importers(path: str) -> set[str]:
    """Return the modules and tests that import a module by name."""
    parent, _, stem = path.removesuffix(".py").replace("/", ".").rpartition(".")
    named = re.compile(rf"from {parent}(\.{stem} import| import [^\n]*\b{stem}\b)")
    files = (file for folder in ("fedboost", "tests") for file in (ROOT / folder).rglob("*.py"))
    return {str(file.relative_to(ROOT)) for file in files if named.search(file.read_text())}


def product_hash() -> str:
    """Return a hash of the product's sources: recorded lines are those of one state of them."""
    sha = hashlib.sha256()
    for path in sorted((ROOT / "fedboost").rglob("*.py")):
        sha.update(path.read_bytes())
    return sha.hexdigest()
