"""Metrics of a prediction and the curves of a report, as XGBoost defines them, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedboost.errors import DataError

Floats = NDArray[np.float64]

MetricName = Literal[
    "auc", "aucpr", "map", "ks", "logloss", "mlogloss", "error", "merror", "accuracy", "f1",
    "rmse", "mae",
]  # fmt: skip

PROBABILITY_MIN = 1e-16  # XGBoost's floor before a logarithm


@dataclass(frozen=True)
class Metric:
    """A function (labels, predictions, weights) -> number, and which way is better."""

    of: Callable[[Floats, Floats, Floats], float]
    bigger_is_better: bool


def evaluate(
    name: MetricName, y: Floats, prediction: Floats, weight: Floats | None = None
) -> float:
    """The metric `name` of `prediction`, weighted.

    y float64 (n,) labels or class numbers; prediction float64 (n,) or (n, 1), for several classes
    (n, classes) probabilities; weight float64 (n,) or None for ones. A DataError where the rows
    do not define it (no row, or one class only for a ranking metric).
    """
    if len(y) == 0:
        raise DataError(f"{name} needs at least one row and got none", todo="give it rows")
    weight = np.ones(len(y)) if weight is None else weight
    return METRICS[name].of(y, one_column(prediction), weight)


def one_column(prediction: Floats) -> Floats:
    """Predictions (n, 1) as (n,); others as they are."""
    alone = prediction.ndim == 2 and prediction.shape[1] == 1
    return prediction[:, 0] if alone else prediction


@dataclass(frozen=True)
class Ranking:
    """Cumulated weights of both classes going down the distinct scores, from (0, 0)."""

    score: Floats  # (t,) distinct scores, falling; rows at or above score[i] count in [i + 1]
    positive: Floats  # (t + 1,) weight of label 1
    negative: Floats  # (t + 1,) weight of label 0


def ranking(y: Floats, score: Floats, weight: Floats) -> Ranking:
    """Both classes' cumulated weights by falling score; rows of equal score count together."""
    order = np.argsort(-score, kind="stable")
    ranked = score[order]
    last = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
    positive = np.cumsum((y * weight)[order])[last]
    negative = np.cumsum(((1.0 - y) * weight)[order])[last]
    return cumulated(ranked[last], positive, negative, len(y))


def cumulated(score: Floats, positive: Floats, negative: Floats, n_rows: int) -> Ranking:
    """The ranking of `n_rows` rows from distinct scores, falling, and both classes' weights.

    The weights are those of the rows down to each score; float64 (t,) each. A DataError where one
    class weighs nothing.
    """
    if positive[-1] <= 0.0 or negative[-1] <= 0.0:
        raise DataError(
            f"the {n_rows} rows to rank hold one class only",
            todo="use rows of both classes, or a metric that does not rank",
        )
    return Ranking(score, np.concatenate([[0.0], positive]), np.concatenate([[0.0], negative]))


def _auc(ranks: Ranking) -> float:
    area = (np.diff(ranks.negative) * (ranks.positive[1:] + ranks.positive[:-1])).sum() / 2.0
    return float(area / (ranks.positive[-1] * ranks.negative[-1]))


def _aucpr(ranks: Ranking) -> float:
    """The area under the precision-recall curve, false positives interpolated linearly in true
    ones between two thresholds (Davis and Goadrich), as XGBoost's aucpr does."""
    total = ranks.positive[-1]
    recall, d_recall = ranks.positive / total, np.diff(ranks.positive) / total
    gained = d_recall > 0.0
    start, stop, width = recall[:-1][gained], recall[1:][gained], d_recall[gained]
    # precision = r / (a r + b): a r + b is (true + false positives) / total at recall r.
    a = 1.0 + np.diff(ranks.negative)[gained] / total / width
    b = ranks.negative[:-1][gained] / total - (a - 1.0) * start
    curved = b != 0.0
    bend = np.zeros_like(b)
    top, bottom = a[curved] * stop[curved] + b[curved], a[curved] * start[curved] + b[curved]
    bend[curved] = b[curved] / a[curved] * np.log(top / bottom)
    return float(((width - bend) / a).sum())


def _average_precision(ranks: Ranking) -> float:
    called = ranks.positive[1:] + ranks.negative[1:]
    # The highest scores may be those of rows without a weight.
    precision = np.divide(ranks.positive[1:], called, out=np.zeros_like(called), where=called > 0.0)
    return float((np.diff(ranks.positive) * precision).sum() / ranks.positive[-1])


def _ks(ranks: Ranking) -> float:
    gap = ranks.positive / ranks.positive[-1] - ranks.negative / ranks.negative[-1]
    return float(np.abs(gap).max())


RANKINGS: dict[MetricName, Callable[[Ranking], float]] = {
    "auc": _auc,
    "aucpr": _aucpr,
    "map": _average_precision,
    "ks": _ks,
}


def _log_loss(y: Floats, p: Floats) -> Floats:
    own = np.where(y > 0.5, p, 1.0 - p) if p.ndim == 1 else p[np.arange(len(y)), y.astype(np.intp)]
    return -np.log(np.maximum(own, PROBABILITY_MIN))


def guesses(p: Floats) -> Floats:
    """The predicted class of every row: above one half, or the likeliest."""
    return (p > 0.5 if p.ndim == 1 else p.argmax(axis=1)).astype(np.float64)


def _misses(y: Floats, p: Floats) -> Floats:
    return (guesses(p) != y).astype(np.float64)


def _hits(y: Floats, p: Floats) -> Floats:
    return (guesses(p) == y).astype(np.float64)


def _squares(y: Floats, p: Floats) -> Floats:
    return (y - p) ** 2


def _distances(y: Floats, p: Floats) -> Floats:
    return np.abs(y - p)


# What a row adds to the metrics that are weighted means, of rmse to its square; float64 (n,).
PER_ROW: dict[MetricName, Callable[[Floats, Floats], Floats]] = {
    "logloss": _log_loss,
    "mlogloss": _log_loss,
    "error": _misses,
    "merror": _misses,
    "accuracy": _hits,
    "rmse": _squares,
    "mae": _distances,
}


def f1(hit: Floats, named: Floats) -> float:
    """The plain mean of the classes' F1 from weights, float64 (classes,) each.

    `hit`: rows of the class predicted as such; `named`: rows of it plus rows predicted as it.
    A class that no row with a weight is of or predicted as does not count.
    """
    seen = named > 0.0
    return float(np.mean(2.0 * hit[seen] / named[seen])) if seen.any() else 0.0


def _averaged(name: MetricName) -> Callable[[Floats, Floats, Floats], float]:
    # Not loss @ w, which BLAS divides among threads: slower here, and other bits on other machines.
    def of(y: Floats, p: Floats, w: Floats) -> float:
        mean = float((PER_ROW[name](y, p) * w).sum() / w.sum())
        return math.sqrt(mean) if name == "rmse" else mean

    return of


def _ranked(name: MetricName) -> Callable[[Floats, Floats, Floats], float]:
    return lambda y, p, w: RANKINGS[name](ranking(y, p, w))


def _map(y: Floats, p: Floats, w: Floats) -> float:
    """Average precision of class 1, or with several classes the plain mean of each against all
    others; classes that no row has do not count."""
    if p.ndim == 1:
        return _average_precision(ranking(y, p, w))
    own = [(y == c).astype(np.float64) for c in range(p.shape[1])]
    found = [
        _average_precision(ranking(one, p[:, c], w))
        for c, one in enumerate(own)
        if (one * w).sum() > 0.0
    ]
    return float(np.mean(found))


def _f1(y: Floats, p: Floats, w: Floats) -> float:
    """F1 of class 1, or with several classes the plain mean of every class's F1."""
    guess = guesses(p)
    classes = [1.0] if p.ndim == 1 else np.union1d(y, guess)
    hit = [w[(y == one) & (guess == one)].sum() for one in classes]
    named = [w[y == one].sum() + w[guess == one].sum() for one in classes]
    return f1(np.array(hit), np.array(named))


METRICS: dict[MetricName, Metric] = {
    "auc": Metric(_ranked("auc"), bigger_is_better=True),
    "aucpr": Metric(_ranked("aucpr"), bigger_is_better=True),
    "map": Metric(_map, bigger_is_better=True),
    "ks": Metric(_ranked("ks"), bigger_is_better=True),
    "logloss": Metric(_averaged("logloss"), bigger_is_better=False),
    "mlogloss": Metric(_averaged("mlogloss"), bigger_is_better=False),
    "error": Metric(_averaged("error"), bigger_is_better=False),
    "merror": Metric(_averaged("merror"), bigger_is_better=False),
    "accuracy": Metric(_averaged("accuracy"), bigger_is_better=True),
    "f1": Metric(_f1, bigger_is_better=True),
    "rmse": Metric(_averaged("rmse"), bigger_is_better=False),
    "mae": Metric(_averaged("mae"), bigger_is_better=False),
}


@dataclass(frozen=True)
class Curves:
    """Points of the ROC, precision-recall and KS curves; all float64 (points,), same order."""

    threshold: Floats  # rows with a score at or above it are called positive; falling
    share: Floats  # weight of the rows called positive, of all
    true_positive_rate: Floats  # recall
    false_positive_rate: Floats
    precision: Floats


def curves(y: Floats, prediction: Floats, points_max: int = 200) -> Curves:
    """At most `points_max` (3 or more) points of the curves of a binary prediction.

    Evenly spaced in the share of rows; the first, the last and the point of greatest KS stay.
    """
    assert points_max >= 3
    ranks = ranking(y, prediction, np.ones(len(y)))
    true_rate = ranks.positive[1:] / ranks.positive[-1]
    false_rate = ranks.negative[1:] / ranks.negative[-1]
    called = ranks.positive[1:] + ranks.negative[1:]
    # Two places are taken by the first point and the greatest KS.
    wanted = np.linspace(called[0], called[-1], points_max - 1)
    even = np.searchsorted(called, wanted)
    kept = np.unique(np.append(even, np.argmax(np.abs(true_rate - false_rate))))
    return Curves(
        ranks.score[kept],
        called[kept] / called[-1],
        true_rate[kept],
        false_rate[kept],
        ranks.positive[1:][kept] / called[kept],
    )
