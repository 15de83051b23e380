"""Many cases in one test: every one is tried, and one failure lists all that have failed."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def each(cases: Iterable[T], check: Callable[[T], Any]) -> None:
    """Checks every case; raises one group of what the failed ones raised, named in its text."""
    failed: dict[str, Exception] = {}
    for case in cases:
        try:
            check(case)
        except Exception as error:
            error.add_note(f"in the case: {case}")
            failed[str(case)] = error
    if failed:
        raise ExceptionGroup(f"failed: {'; '.join(failed)}", list(failed.values()))
