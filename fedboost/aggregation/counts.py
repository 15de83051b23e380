"""What all parties' rows come to before there are trees: how many, how large, their labels' sums.

Bounds of labels and weights come as how many parties have larger ones than each power of two, so
that nobody's greatest label is told; sums then follow in fixed point within these bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core import fixed_point
from fedboost.core.objectives import Summary
from fedboost.core.params import CLASSIFYING, BoostingParams
from fedboost.errors import DataError, JobError

Floats = NDArray[np.float64]
Vector = NDArray[np.int64]
Rows = NDArray[np.int32]

PARTS = ("train", "validation")
EXPONENTS = range(-64, 64)  # the powers of two that bound labels and weights


@dataclass(frozen=True)
class Counts:
    """Rows of all parties together, and bounds of what is in them."""

    train: int
    validation: int
    present: Vector  # (columns,) training rows with a value
    weight_bound: float  # no weight is larger; a power of two
    label_bound: float  # no |label| is larger; a power of two

    @property
    def parts(self) -> dict[str, int]:
        """The parts of the rows that anybody has, by name."""
        return {name: count for name in PARTS if (count := getattr(self, name))}


def of_rows(present: Vector, label: Floats, weight: Floats, parts: Mapping[str, Rows]) -> Vector:
    """A party's own share of the counts, int64; no weight of a row is above its `weight`."""
    rows = [len(parts.get(name, ())) for name in PARTS]
    return np.concatenate(
        [rows, present, exceeds(weight.max(initial=0.0)), exceeds(np.abs(label).max(initial=0.0))]
    )


def read(total: Vector, columns: int) -> Counts:
    """Return what the sum of all shares says."""
    train, validation = total[: len(PARTS)].tolist()
    rest = total[len(PARTS) :]
    present, bounds = rest[:columns], rest[columns:].reshape(2, len(EXPONENTS))
    if not train:
        raise DataError(
            "no party has rows to train on",
            kind="no party has rows to train on",
            todo="check the tables, and how many rows validation holds out",
        )
    weight, label = bound(bounds[0], "weight"), bound(bounds[1], "label")
    return Counts(train, validation, present, weight, label)


def of_labels(params: BoostingParams, counts: Counts, label: Floats, weight: Floats) -> Vector:
    """A party's own sums over its training rows, int64: of weights, of weight times label, and of
    each class's weights. Each row is rounded to a unit of `counts`' bounds."""
    classes = range(params.num_class or 0)
    unit = _units(counts)
    values = [weight / unit[0], weight * label / unit[1]]
    values += [weight[label == c] / unit[0] for c in classes]
    return np.array([np.rint(own).astype(np.int64).sum() for own in values], np.int64)


def summary(params: BoostingParams, counts: Counts, total: Vector) -> Summary:
    """Return what an objective starts from. Labels lie between the bounds: at 0 and above where the
    objective asks for it, otherwise on both sides.
    """
    weight, mean, *classes = total.tolist()
    unit = _units(counts)
    if weight <= 0:
        raise DataError(
            f"all {counts.train} weights are 0",
            kind="there is nothing to learn from these weights",
            todo="give some rows a weight above 0",
        )
    by_class = classes or [mean, weight - mean]  # of binary labels, those of 1 and of 0
    if params.objective in CLASSIFYING and max(by_class) == weight:
        raise DataError(
            "all labels of all parties are the same class, so there is nothing to learn",
            todo="check the label columns and the rows chosen",
            kind="all labels of all parties are the same class",
        )
    signed = params.objective in ("reg:squarederror", "reg:absoluteerror")
    return Summary(
        rows=counts.train,
        weight_sum=weight * unit[0],
        weight_max=counts.weight_bound,
        mean=mean / weight * (unit[1] / unit[0]),
        low=-counts.label_bound if signed else 0.0,
        high=counts.label_bound,
        shares=tuple(own / weight for own in classes),
    )


def most(counts: Counts) -> int:
    """Return what no sum of `of_labels` exceeds."""
    return counts.train << fixed_point.bits_for(counts.train)


def _units(counts: Counts) -> tuple[float, float]:
    """Return what 1 is worth in a sum of weights, and in one of weight times label;
    powers of two.
    """
    weight = math.ldexp(counts.weight_bound, -fixed_point.bits_for(counts.train))
    return weight, weight * counts.label_bound


def exceeds(largest: float) -> Vector:
    """1 for each power of two that a party's greatest value exceeds, int64 (EXPONENTS,)."""
    return np.array([largest > math.ldexp(1.0, e) for e in EXPONENTS], np.int64)


def bound(exceeded: Vector, what: str) -> float:
    """The least power of two that no party exceeds; a JobError where even the last one is."""
    free = np.flatnonzero(exceeded == 0)
    if not len(free):
        raise JobError(f"a {what} is above 2^{EXPONENTS[-1]}", todo=f"scale the {what}s down")
    return math.ldexp(1.0, EXPONENTS[int(free[0])])
