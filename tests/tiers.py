"""Three tiers of tests, one meaning each, and what chooses the cases of the shortest.

`CHANGE` is what a change has to pass: a sample of what is slow, and all else. `ALL` (`--all`) is
every product of parameters, in random order with `make test-all`. `LONG` (`--long`) adds what takes
minutes or hours; `make faults` runs its families. Each tier holds the ones before it.

What is chosen is chosen by a hash of the commit, so that successive changes try the whole;
FEDBOOST_TEST_SEED chooses as an earlier run did. A mark says which cases of a test a change runs:

    full      none
    long      none, nor does --all
    some(n)   n of them; with `of`, n of all tests that name the same
    once      so many that every value of every parameter is met

Where nothing is said a change runs all cases, of a test of `tests/equivalence` one.
"""

import hashlib
import os
import subprocess
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import IntEnum
from functools import cache
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import pytest

SEED = "FEDBOOST_TEST_SEED"
EXAMPLES, EXAMPLES_MIN = 100, 5  # of a property
ONE = "tests/equivalence/"  # whole jobs beside their twins, each case of many behaviours at once

T = TypeVar("T")


class Tier(IntEnum):
    """How much of the suite a run takes in."""

    CHANGE = 0
    ALL = 1
    LONG = 2


_run = Tier.CHANGE


def begin(tier: Tier) -> None:
    """Says what this run takes in, before anything is collected; hands workers its seed."""
    global _run
    _run = tier
    os.environ[SEED] = seed()


def runs(tier: Tier) -> bool:
    """Whether this run takes a tier in."""
    return tier <= _run


@cache
def seed() -> str:
    """What samples are chosen by: FEDBOOST_TEST_SEED, or the hash of the commit."""
    if chosen := os.environ.get(SEED):
        return chosen
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        found = ""
    return found.strip() or "none"


def rank(case: object) -> bytes:
    """The place of a case in this run's lottery."""
    return hashlib.sha256(f"{seed()} {case!r}".encode()).digest()


def number(name: str) -> int:
    """A number of 32 bits that this run has drawn under a name."""
    return int.from_bytes(rank(name)[:4])


# Of lists of cases, while a module is collected; all of them with `--all`


def sampled(cases: Iterable[T], count: int) -> list[T]:
    """So many of the cases, in their order."""
    known = list(cases)
    if runs(Tier.ALL):
        return known
    chosen = sorted(range(len(known)), key=lambda place: rank(known[place]))[:count]
    return [known[place] for place in sorted(chosen)]


def of_each(cases: Iterable[T], *traits: Callable[[Any], Hashable]) -> list[T]:
    """So many of the cases, in their order, that every value of every trait is met."""
    known = list(cases)
    if runs(Tier.ALL):
        return known
    shown = [{(n, trait(case)) for n, trait in enumerate(traits)} for case in known]
    return [known[place] for place in _covering(shown, [rank(case) for case in known])]


def pairs_of(cases: Iterable[T]) -> list[T]:
    """So many of the cases, which are tuples, that every two values of two places meet."""
    known = list(cases)
    indices = combinations(range(len(known[0])), 2) if known else ()  # type: ignore[arg-type]
    return of_each(known, *(itemgetter(*pair) for pair in indices))


def examples(count: int) -> int:
    """How many examples of a property a run tries: a fourth on each change."""
    return count if runs(Tier.ALL) else max(EXAMPLES_MIN, count // 4)


# Of tests with marks, once they are collected


def chosen(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests that this run takes in, in their order."""
    kept: set[pytest.Item] = set()
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if runs(_first(item)):
            tests.setdefault(_lot(item), []).append(item)
    for cases in tests.values():
        kept.update(cases if runs(Tier.ALL) or len(cases) == 1 else _few(cases))
    return [item for item in items if item in kept]


def _lot(item: pytest.Item) -> str:
    """What a case is drawn from: its test, or tests of several files that show the same."""
    some = item.get_closest_marker("some")
    return (some.kwargs.get("of") if some else None) or item.nodeid.partition("[")[0]


def _first(item: pytest.Item) -> Tier:
    """The first tier that runs a test."""
    if item.get_closest_marker("long"):
        return Tier.LONG
    return Tier.ALL if item.get_closest_marker("full") else Tier.CHANGE


def _few(cases: Sequence[pytest.Item]) -> Sequence[pytest.Item]:
    """Those cases of a test that its mark leaves to each change."""
    if some := cases[0].get_closest_marker("some"):
        return _drawn(cases, some.args[0])
    if not cases[0].get_closest_marker("once"):
        return _drawn(cases, 1) if cases[0].nodeid.startswith(ONE) else cases
    shown = [set(_values(item)) for item in cases]
    return [cases[place] for place in _covering(shown, [rank(item.nodeid) for item in cases])]


def _drawn(cases: Sequence[pytest.Item], count: int) -> list[pytest.Item]:
    """So many cases, in their order."""
    ranks = [rank(item.nodeid) for item in cases]
    first = sorted(range(len(cases)), key=ranks.__getitem__)[:count]
    return [cases[place] for place in sorted(first)]


def _values(item: pytest.Item) -> list[tuple[str, tuple[int, ...]]]:
    """Which values a case has of the parameters of each `parametrize`; one object is one value."""
    params = item.callspec.params if isinstance(item, pytest.Function) else {}
    marks = [str(mark.args[0]) if isinstance(mark.args[0], str) else ",".join(mark.args[0])
             for mark in item.iter_markers("parametrize")]  # fmt: skip
    return [(mark, tuple(id(params[name.strip()]) for name in mark.split(","))) for mark in marks]


def _covering(shown: Sequence[set[T]], ranks: Sequence[bytes]) -> list[int]:
    """Places of few cases that show together what all show, in order; of equals the first drawn."""
    missing, left, found = set[T]().union(*shown), set(range(len(shown))), list[int]()
    while missing:
        best = max(left, key=lambda place: (len(shown[place] & missing), ranks[place]))
        missing -= shown[best]
        left.remove(best)
        found.append(best)
    return sorted(found)
