"""Metrics of a prediction, as XGBoost defines them, in float64.

A metric is one record in `METRICS`. Settings, tallies of many parties' rows, reports and the
reference read all facts from the record, so a new metric is only a new record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError
from fedboost.ground.kernels import kernel
from fedboost.ground.settings import NameIn

# Predictions of an objective for a row: the chance of label 1, a chance of each class, a number, a
# number above 0 like all labels, or the mean of counts or of amounts from 0 up.
Predicts = Literal["chance", "classes", "number", "positive", "count", "amount"]

GIVES_AWAY = 0.45  # |AUC − 0.5| of a column that may hold the label; few honest ones exceed it
PROBABILITY_MIN = 1e-16  # XGBoost's floor before a logarithm
AMOUNT_MIN = 1e-9  # XGBoost adds it to labels and predictions before a division
DEVIANCE_MAX = 2.0**20  # limit of a row in a sum over parties: a prediction of a millionth
HUBER_SLOPE = 1.0  # XGBoost's
TWEEDIE_POWER = 1.5  # XGBoost's


def evaluate(
    name: MetricName,
    y: Floats,
    prediction: Floats,
    weight: Floats | None = None,
    params: object = None,
) -> float:
    """Return the metric `name` of `prediction`, weighted.

    y float64 (n,) labels or class numbers; prediction float64 (n,) or (n, 1), for several classes
    (n, classes) probabilities; weight float64 (n,) or None for ones; `params` are the job's, with
    the setting of the metric if it has one. A DataError if the rows do not define the metric (no
    row, or one class only for a ranking metric).
    """
    if len(y) == 0:
        raise DataError(f"{name} needs at least one row and got none", todo="give it rows")
    weight = np.ones(len(y)) if weight is None else weight
    return METRICS[name].measure_for(params).of(y, one_column(prediction), weight)


def ranks_label(label: Floats, values: Floats) -> bool:
    """Return whether one column ranks a label of two classes almost perfectly, up or down.

    label float64 (n,), of both classes; values float64 (n,), NaN where missing.
    """
    is_upper = (label == label.max()).astype(np.float64)
    scores = np.where(np.isnan(values), -np.inf, values)
    return abs(evaluate("auc", is_upper, scores) - 0.5) > GIVES_AWAY


def one_column(prediction: Floats) -> Floats:
    """Return predictions (n, 1) as (n,); others unchanged."""
    alone = prediction.ndim == 2 and prediction.shape[1] == 1
    return prediction[:, 0] if alone else prediction


@dataclass(frozen=True)
class Ranking:
    """Cumulated weights of both classes over the distinct scores, falling, from (0, 0)."""

    score: Floats  # (t,) distinct scores, falling; rows at or above score[i] count in [i + 1]
    positive: Floats  # (t + 1,) weight of label 1
    negative: Floats  # (t + 1,) weight of label 0


def ranking(y: Floats, score: Floats, weight: Floats) -> Ranking:
    """Return both classes' cumulated weights by falling score; equal scores count together."""
    positive = y == 1.0
    if np.all(weight == 1.0) and np.all(positive | (y == 0.0)):
        # Counts are exact in any order, and sorting two short lists is faster than ranking rows.
        merged = _merge_scores(np.sort(-score[positive]), np.sort(-score[~positive]))
        return ranking_from_weights(*merged, len(y))
    order = np.argsort(-score, kind="stable")
    ranked = score[order]
    last = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
    positive = np.cumsum((y * weight)[order])[last]
    negative = np.cumsum(((1.0 - y) * weight)[order])[last]
    return ranking_from_weights(ranked[last], positive, negative, len(y))


@kernel
def _merge_scores(positive: Floats, negative: Floats) -> tuple[Floats, Floats, Floats]:
    """Return distinct scores, falling, and each class's rows down to each, from negated ones."""
    merged = np.empty((3, len(positive) + len(negative)))
    places = i = j = 0
    while i < len(positive) or j < len(negative):
        if j == len(negative) or (i < len(positive) and positive[i] < negative[j]):
            score = positive[i]
        else:
            score = negative[j]
        while i < len(positive) and positive[i] == score:
            i += 1
        while j < len(negative) and negative[j] == score:
            j += 1
        merged[0, places], merged[1, places], merged[2, places] = -score, i, j
        places += 1
    return merged[0, :places], merged[1, :places], merged[2, :places]


def ranking_from_weights(score: Floats, positive: Floats, negative: Floats, n_rows: int) -> Ranking:
    """Return the ranking of `n_rows` rows from distinct scores, falling, and both classes' weights.

    The weights are those of the rows down to each score; float64 (t,) each. A DataError if one
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
    """Return the area under the precision-recall curve, false positives interpolated linearly in
    true positives between two thresholds (Davis and Goadrich), as XGBoost's aucpr does.
    """
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
    # Rows without a weight may have the highest scores.
    precision = np.divide(ranks.positive[1:], called, out=np.zeros_like(called), where=called > 0.0)
    return float((np.diff(ranks.positive) * precision).sum() / ranks.positive[-1])


def _ks(ranks: Ranking) -> float:
    gap = ranks.positive / ranks.positive[-1] - ranks.negative / ranks.negative[-1]
    return float(np.abs(gap).max())


def _log_loss(y: Floats, p: Floats) -> Floats:
    likely = (
        np.where(y > 0.5, p, 1.0 - p) if p.ndim == 1 else p[np.arange(len(y)), y.astype(np.intp)]
    )
    return -np.log(np.maximum(likely, PROBABILITY_MIN))


def guesses(p: Floats) -> Floats:
    """Return the predicted class of every row: above one half, or the likeliest."""
    return (p > 0.5 if p.ndim == 1 else p.argmax(axis=1)).astype(np.float64)


def _wrong_guesses(y: Floats, p: Floats) -> Floats:
    return (guesses(p) != y).astype(np.float64)


def _right_guesses(y: Floats, p: Floats) -> Floats:
    return (guesses(p) == y).astype(np.float64)


def _squares(y: Floats, p: Floats) -> Floats:
    return (y - p) ** 2


def _distances(y: Floats, p: Floats) -> Floats:
    return np.abs(y - p)


def _gamma_deviances(y: Floats, p: Floats) -> Floats:
    y, p = y + AMOUNT_MIN, p + AMOUNT_MIN
    return np.log(p / y) + y / p - 1.0


def _poisson_losses(y: Floats, p: Floats) -> Floats:
    from scipy.special import gammaln  # coordinators run without scipy

    p = np.maximum(p, PROBABILITY_MIN)
    return gammaln(y + 1.0) + p - np.log(p) * y


def _tweedie_mean(power: float) -> WeightedMean:
    def losses(y: Floats, p: Floats) -> Floats:
        p = np.maximum(p, PROBABILITY_MIN)
        return p ** (2.0 - power) / (2.0 - power) - y * p ** (1.0 - power) / (1.0 - power)

    return WeightedMean(losses, most=lambda _: DEVIANCE_MAX)


def _huber_mean(slope: float) -> WeightedMean:
    def huber_errors(y: Floats, p: Floats) -> Floats:
        return (y - p) ** 2 / (1.0 + np.sqrt(1.0 + ((y - p) / slope) ** 2))

    return WeightedMean(
        huber_errors, most=lambda reach: float(huber_errors(np.zeros(1), np.full(1, reach))[0])
    )


def _f1(hit: Floats, actual: Floats, guessed: Floats) -> float:
    """Return the mean F1 of all classes with weight among rows or guesses."""
    named = actual + guessed
    seen = named > 0.0
    return float(np.mean(2.0 * hit[seen] / named[seen])) if seen.any() else 0.0


@dataclass(frozen=True)
class WeightedMean:
    """A weighted mean of each row's loss: a sum over the rows, so many parties' sums add up."""

    per_row: Callable[[Floats, Floats], Floats]  # (labels, predictions) -> float64 (n,)
    # Greatest loss of a row, by the greatest distance of a prediction that counts.
    most: Callable[[float], float] = lambda _: 1.0
    finish: Callable[[float], float] = float  # from the mean to the metric

    def of(self, y: Floats, p: Floats, w: Floats) -> float:
        """Return the metric of these rows."""
        # Not loss @ w, which BLAS divides among threads: slower here, and other bits elsewhere.
        return self.finish(float((self.per_row(y, p) * w).sum() / w.sum()))


@dataclass(frozen=True)
class OfRanking:
    """A number read off the ranking of the scores; many parties add up histograms of scores.

    With several classes it is the plain mean of each class against all others; classes without rows
    do not count.
    """

    read: Callable[[Ranking], float]

    def of(self, y: Floats, p: Floats, w: Floats) -> float:
        """Return the metric of these rows."""
        if p.ndim == 1:
            return self.read(ranking(y, p, w))
        masks = [(y == c).astype(np.float64) for c in range(p.shape[1])]
        held = [(mask, p[:, c]) for c, mask in enumerate(masks) if (mask * w).sum() > 0.0]
        return float(np.mean([self.read(ranking(mask, score, w)) for mask, score in held]))


@dataclass(frozen=True)
class OfCounts:
    """A number read off the weights of each class, float64 (classes,), or of class 1 if there are
    two.

    The weights are those of rows predicted rightly, rows of the class, and rows predicted as the
    class. They add up over parties.
    """

    read: Callable[[Floats, Floats, Floats], float]

    def of(self, y: Floats, p: Floats, w: Floats) -> float:
        """Return the metric of these rows."""
        guess = guesses(p)
        classes = [1.0] if p.ndim == 1 else np.union1d(y, guess)
        hit = [w[(y == c) & (guess == c)].sum() for c in classes]
        true = [w[y == c].sum() for c in classes]
        guessed = [w[guess == c].sum() for c in classes]
        return self.read(np.array(hit), np.array(true), np.array(guessed))


@dataclass(frozen=True)
class OfRows:
    """A number that sums do not give: measured only where all rows lie at one party."""

    of: Callable[[Floats, Floats, Floats], float]  # (labels, predictions, weights)


Measure = WeightedMean | OfRanking | OfCounts | OfRows


@dataclass(frozen=True)
class Metric:
    """Record of a metric."""

    name: str
    meaning: str  # a line of the reference
    measure: Measure
    predicts: tuple[Predicts, ...]  # predictions that it is defined for
    bigger_is_better: bool
    setting: str = ""  # a job's parameter that the measure depends on
    measure_at: Callable[[float], Measure] | None = None  # the measure at its value

    def measure_for(self, params: object) -> Measure:
        """Return the measure with a job's setting, if it has one."""
        value = getattr(params, self.setting, None) if self.setting else None
        return self.measure if self.measure_at is None or value is None else self.measure_at(value)


def _log_loss_mean() -> WeightedMean:
    return WeightedMean(_log_loss, most=lambda _: -math.log(PROBABILITY_MIN))


_TWO: tuple[Predicts, ...] = ("chance",)
_SEVERAL: tuple[Predicts, ...] = ("classes",)
_ANY_CLASSES: tuple[Predicts, ...] = ("chance", "classes")
_NUMBERS: tuple[Predicts, ...] = ("chance", "number", "positive", "count", "amount")

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("auc", "area under the ROC curve", OfRanking(_auc), _TWO, True),
        Metric("aucpr", "area under the precision-recall curve", OfRanking(_aucpr), _TWO, True),
        Metric(
            "map",
            "average precision; of several classes the mean of each against all others",
            OfRanking(_average_precision),
            _ANY_CLASSES,
            True,
        ),
        Metric(
            "ks",
            "greatest gap between true and false positive rate (Kolmogorov–Smirnov)",
            OfRanking(_ks),
            _TWO,
            True,
        ),
        Metric("logloss", "mean negative log-likelihood", _log_loss_mean(), _TWO, False),
        Metric("mlogloss", "mean negative log-likelihood", _log_loss_mean(), _SEVERAL, False),
        Metric("error", "share of wrong guesses", WeightedMean(_wrong_guesses), _TWO, False),
        Metric("merror", "share of wrong guesses", WeightedMean(_wrong_guesses), _SEVERAL, False),
        Metric(
            "accuracy", "share of right guesses", WeightedMean(_right_guesses), _ANY_CLASSES, True
        ),
        Metric(
            "f1",
            "harmonic mean of precision and recall; of several classes the mean of each one's",
            OfCounts(_f1),
            _ANY_CLASSES,
            True,
        ),
        Metric(
            "rmse",
            "square root of the mean squared error",
            WeightedMean(_squares, most=lambda reach: reach**2, finish=math.sqrt),
            _NUMBERS,
            False,
        ),
        Metric(
            "mae",
            "mean absolute error",
            WeightedMean(_distances, most=lambda reach: reach),
            _NUMBERS,
            False,
        ),
        Metric(
            "mphe",
            "mean pseudo-Huber error",
            _huber_mean(HUBER_SLOPE),
            ("number", "positive", "count", "amount"),
            False,
            setting="huber_slope",
            measure_at=_huber_mean,
        ),
        Metric(
            "gamma-deviance",
            "mean deviance of a gamma distribution",
            WeightedMean(
                _gamma_deviances, most=lambda _: DEVIANCE_MAX, finish=lambda mean: 2 * mean
            ),
            ("positive",),
            False,
        ),
        Metric(
            "poisson-nloglik",
            "mean negative log-likelihood of a Poisson distribution",
            WeightedMean(_poisson_losses, most=lambda _: DEVIANCE_MAX),
            ("count",),
            False,
        ),
        Metric(
            "tweedie-nloglik",
            "mean negative log-likelihood of a Tweedie distribution, at the job's variance power",
            _tweedie_mean(TWEEDIE_POWER),
            ("amount",),
            False,
            setting="tweedie_variance_power",
            measure_at=_tweedie_mean,
        ),
    )
}
MetricName = Annotated[str, NameIn("metric", METRICS)]
