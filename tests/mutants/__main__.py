"""`python -m tests.mutants`: how many random faults the tests notice, and which they miss.

Run it at the project's root. Tests of `tests/e2e` judge nothing here, because daemons are other
processes; what they catch comes on top. What is recorded and judged stays in `.mutants/`, so that
a run goes on where it was stopped; remove the folder when the product or the tests have changed.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.mutants.book import Book, Verdict, product_hash
from tests.mutants.judge import Judge, Limits, files_of, record, with_tests
from tests.mutants.live import import_changed
from tests.mutants.points import Mutant, sample

FOLDER = Path(".mutants/all")
PACKAGES = ("core", "crypto", "encrypted", "runtime", "aggregation")
TESTS = ["tests", "--ignore=tests/e2e"]
LONG = "--all"
FILES_MAX = 12  # of tests, imported anew for a mutant outside functions
TOGETHER = 4  # cases of one test, before those of the next
PART = 20  # tests of the long tier, before as many of the short one
LONG_FACTOR = 4  # of the short tier's seconds, for the cases that only the long one has
say = sys.stdout.write


def longer(book: Book, mutant: Mutant, items: Iterable[str]) -> list[str]:
    """Return what the long tier may still do: its own cases, between short tests not run yet."""
    recorded = book.in_order(mutant)
    files = {test.split("::")[0] for test in recorded}
    functions = {test.split("[")[0] for test in recorded}
    added = [t for t in items if t not in book.seconds and t.split("::")[0] in files]
    random.Random(mutant.key).shuffle(added)
    nth: Counter[str] = Counter()
    ranked = []
    for test in added:
        function = test.split("[")[0]
        ranked.append((function not in functions, nth[function] // TOGETHER, function, test))
        nth[function] += 1
    short = [test for test in recorded if test in book.short]
    own = [test for test in recorded if test not in book.short]
    own += [test for *_, test in sorted(ranked)]
    rest = short[book.verdicts[mutant.key, "short"].ran :]
    parts = (batched(tests) for tests in (own, rest))
    return [test for pair in zip_longest(*parts, fillvalue=[]) for part in pair for test in part]


def batched(tests: list[str]) -> list[list[str]]:
    """Return tests in parts, so that tests of one file stay together."""
    return [tests[n : n + PART] for n in range(0, len(tests), PART)]


def tests_for(book: Book, tier: str, mutant: Mutant, items: Iterable[str]) -> list[str]:
    """Return what a tier may run on a mutant, in order."""
    if tier == "short":
        return [test for test in book.in_order(mutant) if test in book.short]
    return longer(book, mutant, items)


def judge(book: Book, tier: str, mutants: list[Mutant], limits: Limits, where: list[str]) -> None:
    """Let a tier judge the mutants that it has not judged."""
    is_short = tier == "short"
    options = [] if is_short else [LONG]

    def on_live(items: dict[str, Any]) -> None:
        if is_short:
            record(book, items)
            book.set_short(items)
        judging = Judge(book, items, limits)
        for mutant in todo:
            if mutant.live:
                note(book, judging.verdict(mutant, tier, tests_for(book, tier, mutant, items)))

    todo = [m for m in mutants if (m.key, tier) not in book.verdicts]
    if (is_short or any(m.live for m in todo)) and with_tests([*where, *options], on_live) != 0:
        sys.exit("the tests could not be collected, recorded or run; see above")
    book.read()
    for mutant in mutants:
        known = book.verdicts.get((mutant.key, tier))
        if known is None or known.how == "reload":
            judge_anew(book, tier, mutant, limits)


def judge_anew(book: Book, tier: str, mutant: Mutant, limits: Limits) -> None:
    """Judge one mutant in a process that imports the product with it."""
    options = [] if tier == "short" else [LONG]
    files = files_of(t for t in book.in_order(mutant) if t in book.short)[:FILES_MAX]

    def on_import(items: dict[str, Any]) -> None:
        tests = tests_for(book, tier, mutant, items)
        note(book, Judge(book, items, limits).verdict(mutant, tier, tests, live=False))

    if not files:
        note(book, Verdict(mutant.key, tier, "survived"))
    elif with_tests([*files, *options], on_import, before=lambda: import_changed(mutant)) != 0:
        note(book, Verdict(mutant.key, tier, "caught", by="the import"))
    book.read()


def note(book: Book, verdict: Verdict) -> None:
    """Write a verdict down and say it."""
    book.add_verdict(verdict)
    ran = f"{verdict.ran}/{verdict.of} tests, {verdict.seconds:.1f} s"
    say(f"{verdict.tier:<6}{verdict.how:<9} {verdict.key}  [{ran}] {verdict.by}\n")
    sys.stdout.flush()


def table(book: Book, package: str, mutants: list[Mutant]) -> str:
    """Return a package's line, with the mutants that the short tier or both miss below it."""
    missed, unnoticed, cut, short = [], [], 0, 0
    for mutant in mutants:
        first = book.verdicts[mutant.key, "short"]
        then = book.verdicts.get((mutant.key, "long"), first)
        if first.caught or (then.caught and then.by in book.short):
            short += 1
        elif then.caught:
            missed.append(f"  only {LONG}: {mutant.key}\n    by {then.by}\n")
        else:
            cut += then.how == "cut"
            unnoticed.append(
                f"  by neither{' (out of time)' * (then.how == 'cut')}: {mutant.key}\n"
            )
    long = short + len(missed)
    ratio = short / max(long, 1)
    line = f"{package:<12} {len(mutants):>7} {short:>6} {long:>6} {ratio:>6.3f} {cut:>5}\n"
    return line + "".join(missed + unnoticed)


def main() -> int:
    """Judge the mutants asked for and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--package", action="append", help=f"of {', '.join(PACKAGES)}")
    parser.add_argument("--count", type=int, default=40, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="of processor time a mutant")
    parser.add_argument("--long", action="store_true", help=f"judge the missed with {LONG} too")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of recordings and verdicts")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files or folders of tests")
    parser.add_argument("--hang", type=float, default=15.0, help="seconds for what may not end")
    asked = parser.parse_args()
    book = Book(asked.folder, product_hash())
    drawn = {name: sample(name, asked.count, asked.seed) for name in asked.package or PACKAGES}
    every = [mutant for mutants in drawn.values() for mutant in mutants]
    judge(book, "short", every, Limits(asked.seconds, asked.hang), asked.tests)
    if asked.long:
        missed = [m for m in every if not book.verdicts[m.key, "short"].caught]
        judge(book, "long", missed, Limits(LONG_FACTOR * asked.seconds, asked.hang), asked.tests)
    say(f"{'package':<12} {'mutants':>7} {'short':>6} {'long':>6} {'ratio':>6} {'cut':>5}\n")
    for name, mutants in drawn.items():
        say(table(book, name, mutants))
    return 0


if __name__ == "__main__":
    sys.exit(main())
