"""Which columns look like a label: one rule for `fedboost data check` and for jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedboost.errors import DataError

LABEL_NAMES = ("y", "label", "target", "class")


def likely_label(names: Iterable[str]) -> str | None:
    """Return the column with a usual name for a label, whatever it holds; None without one."""
    by_name = {name.casefold(): name for name in reversed(list(names))}
    return next((by_name[usual] for usual in LABEL_NAMES if usual in by_name), None)


def refuse_labels(features: Sequence[str], party: str, label: str) -> None:
    """Refuse with a DataError a feature that is called like the guest's `label`, or like a label
    in general.

    `features` are columns that a party without a label would use only because they are there.
    """
    folded = {name.casefold(): name for name in reversed(features)}
    same = folded.get(label.casefold())
    name = same or likely_label(features)
    if name is None:
        return
    like = "the guest's label" if same else "a label"
    raise DataError(
        f"the column {name!r} is called like {like}, and the job does not say whether it is a "
        "feature",
        column=name,
        todo=f"name it in 'ignore' of data: {party}:, or in 'columns' if it is a feature",
        kind=f"a column is called like {like}, and the job does not say whether it is a feature",
    )
