"""Losses: first prediction, gradients within bounds fixed from the labels, link to predictions.

`start` fixes an objective from a summary of the job's labels. Every gradient it ever gives stays
within `bounds`, which is what lets sums be integers: losses whose gradients have no bound of their
own are cut at one that only predictions far outside the labels' range can reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, Self

import numpy as np

from fedboost.core.fixed_point import FixedPoint, for_rows, power_of_two_above
from fedboost.core.label_checks import check_labels, check_weight
from fedboost.core.params import COUNTING, BoostingParams, ObjectiveName, TreeParams
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError
from fedboost.ground.kernels import kernel

Gradients = tuple[Floats, Floats]

MARGIN_MAX = 700.0  # exp of more would leave float64
PRIOR_MIN = 1e-6  # prior of a class without rows, so that its margin stays finite
TWEEDIE_RANGE = 2.0**-10  # predictions below this part of the mean have its gradient


@dataclass(frozen=True)
class Summary:
    """All that an objective starts from: what the labels and weights of the training rows come to.

    Weights hold scale_pos_weight on rows of label 1. Where rows lie with many parties, nobody may
    know them all: `low`, `high` and `weight_max` may be wider than the rows, say by powers of two,
    which costs bits of the encoding and moves the margins at which losses are cut.
    """

    rows: int
    weight_sum: float = field(repr=False)
    weight_max: float = field(repr=False)  # or an upper bound
    mean: float = field(repr=False)  # weighted
    low: float = field(repr=False)  # the least label, or a lower bound
    high: float = field(repr=False)  # the greatest label, or an upper bound
    shares: tuple[float, ...] = field(default=(), repr=False)  # weighted, one for each class
    median: float = field(default=math.nan, repr=False)  # weighted, for reg:absoluteerror

    @classmethod
    def of(cls, params: BoostingParams, y: Floats, weight: Floats) -> Self:
        """The exact summary of rows; y and weight float64 (n,).

        A DataError names what labels or weights cannot be used for the objective.
        """
        check_weight(y, weight)
        check_labels(params, y)
        weight = scaled(weight, y, params.scale_pos_weight)
        classes = range(params.num_class or 0)
        return cls(
            rows=len(y),
            weight_sum=math.fsum(weight),
            weight_max=float(weight.max()),
            mean=weighted_mean(y, weight),
            low=float(y.min()),
            high=float(y.max()),
            shares=tuple(weighted_mean((y == c).astype(np.float64), weight) for c in classes),
            median=median(y, weight) if params.objective == "reg:absoluteerror" else math.nan,
        )


class Objective(Protocol):
    """One loss at work; margins are float64 (n, n_outputs), labels and weights float64 (n,)."""

    @property
    def n_outputs(self) -> int:
        """Margins per row."""

    @property
    def base_margin(self) -> Floats:
        """Every row's first margin; float64 (n_outputs,)."""

    @property
    def renews_leaves(self) -> bool:
        """Return whether leaves take `median` of their residuals instead of the Newton step."""

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """First and second derivative of the weighted loss by the margin; float64 (n, k) each."""

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """(g_bound, h_bound) with |g| ≤ g_bound, 0 ≤ h ≤ h_bound for such rows at any margin."""


def start(params: BoostingParams, summary: Summary) -> Objective:
    """The objective of a job, with base score and bounds fixed from the training labels.

    A DataError says why there is nothing to learn from the rows summed up.
    """
    if summary.weight_sum <= 0.0:
        raise DataError(f"all {summary.rows} weights are 0", todo="give some rows a weight above 0")
    return _STARTS[params.objective](params, summary)


def encoding(params: TreeParams, objective: Objective, summary: Summary) -> FixedPoint:
    """Return how gradients become integers: bounds as declared, amplified where `goss` does."""
    g_bound, h_bound = objective.bounds(summary)
    factor = 1.0 if params.goss is None else params.goss.factor
    return for_rows(summary.rows, params.precision_bits, factor * g_bound, factor * h_bound)


def transform(objective: ObjectiveName, margin: Floats) -> Floats:
    """Margins (n, k) as predictions (n, k): probabilities, means, or the margins themselves."""
    if objective == "binary:logistic":
        return _sigmoid(margin)
    if objective == "multi:softprob":
        return _softmax(margin)
    if objective in COUNTING:
        return _exp(margin)
    return margin.copy()


@dataclass(frozen=True)
class Logistic:
    """binary:logistic: g = w(p − y), h = w·p(1 − p); w holds scale_pos_weight for label 1."""

    base_margin: Floats = field(repr=False)
    scale_pos_weight: float
    n_outputs: ClassVar[int] = 1
    renews_leaves: ClassVar[bool] = False

    @classmethod
    def start(cls, params: BoostingParams, summary: Summary) -> Logistic:
        """Base score: the weighted share of label 1."""
        score = params.base_score
        if score is None:
            score = summary.mean
            if not 0.0 < score < 1.0:
                raise DataError(
                    "all rows with a weight above 0 have the same label",
                    todo="check the label column, the weights and the rows chosen",
                )
        return cls(np.array([math.log(score / (1.0 - score))]), params.scale_pos_weight)

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        return _logistic(_sigmoid(margin), y, weight, self.scale_pos_weight)

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        return summary.weight_max, summary.weight_max / 4.0


@dataclass(frozen=True)
class Softmax:
    """multi:softprob: g = w(p_c − [y = c]), h = 2w·p_c(1 − p_c), XGBoost's factor 2 included."""

    base_margin: Floats = field(repr=False)
    n_outputs: int
    renews_leaves: ClassVar[bool] = False

    @classmethod
    def start(cls, params: BoostingParams, summary: Summary) -> Softmax:
        """Base margins: logarithms of the classes' weighted shares, or all equal if given."""
        k = params.n_outputs
        if params.base_score is not None:
            return cls(np.full(k, params.base_score), k)
        return cls(np.log(np.maximum(np.array(summary.shares), PRIOR_MIN)), k)

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        p = _softmax(margin)
        w = weight[:, None]
        is_class = y.astype(np.intp)[:, None] == np.arange(self.n_outputs)
        return w * (p - is_class), w * (2.0 * p * (1.0 - p))

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        return summary.weight_max, summary.weight_max / 2.0


@dataclass(frozen=True)
class SquaredError:
    """reg:squarederror: g = w(m − y), cut at ±w·clip; h = w.

    `clip` is the least power of two that is twice the labels' spread (and twice any label's
    distance from the base score), so only a margin as far outside the labels as they are wide
    is cut, and then still moves the right way.
    """

    base_margin: Floats = field(repr=False)
    clip: float = field(repr=False)
    n_outputs: ClassVar[int] = 1
    renews_leaves: ClassVar[bool] = False

    @classmethod
    def start(cls, params: BoostingParams, summary: Summary) -> SquaredError:
        """Base score: the weighted mean."""
        score = summary.mean if params.base_score is None else params.base_score
        reach = max(summary.high - summary.low, summary.high - score, score - summary.low)
        return cls(np.array([score]), power_of_two_above(2.0 * reach) if reach else 1.0)

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        return w * np.clip(margin - y[:, None], -self.clip, self.clip), w + np.zeros_like(margin)

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        return summary.weight_max * self.clip, summary.weight_max


@dataclass(frozen=True)
class AbsoluteError:
    """reg:absoluteerror: g = w·sign(m − y), h = w; leaves take the median of their residuals."""

    base_margin: Floats = field(repr=False)
    n_outputs: ClassVar[int] = 1
    renews_leaves: ClassVar[bool] = True

    @classmethod
    def start(cls, params: BoostingParams, summary: Summary) -> AbsoluteError:
        """Base score: the weighted median."""
        score = summary.median if params.base_score is None else params.base_score
        return cls(np.array([score]))

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        return w * np.sign(margin - y[:, None]), w + np.zeros_like(margin)

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        return summary.weight_max, summary.weight_max


@dataclass(frozen=True)
class Poisson:
    """count:poisson with log link: μ = exp(m) cut at mean_max, g = w(μ − y), h = w·μ·e^step.

    `step` is max_delta_step, by which no leaf moves a margin further (core.split). `mean_max` is a
    power of two at least twice every label: beyond it g is still positive.
    """

    base_margin: Floats = field(repr=False)
    mean_max: float = field(repr=False)
    step: float
    n_outputs: ClassVar[int] = 1
    renews_leaves: ClassVar[bool] = False

    @classmethod
    def start(cls, params: BoostingParams, summary: Summary) -> Poisson:
        """Base score: the weighted mean."""
        score = _positive_mean(params, summary)
        limit = power_of_two_above(2.0 * max(score, summary.high))
        return cls(np.array([math.log(score)]), limit, params.step_max)

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        mean = np.minimum(_exp(margin), self.mean_max)
        return w * (mean - y[:, None]), w * (mean * math.exp(self.step))

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        w = summary.weight_max
        return w * self.mean_max, w * (self.mean_max * math.exp(self.step))


@dataclass(frozen=True)
class Tweedie:
    """reg:tweedie with log link and variance power ρ: with a = y·μ^(1−ρ), b = μ^(2−ρ),
    g = w(b − a), h = w((ρ − 1)a + (2 − ρ)b); μ = exp(m) is cut to mean_min..mean_max.

    The range goes from 2^-10 of the base score to a power of two at least twice every label.
    """

    base_margin: Floats = field(repr=False)
    power: float
    mean_min: float = field(repr=False)
    mean_max: float = field(repr=False)
    n_outputs: ClassVar[int] = 1
    renews_leaves: ClassVar[bool] = False

    @classmethod
    def start(cls, params: BoostingParams, summary: Summary) -> Tweedie:
        """Base score: the weighted mean."""
        score = _positive_mean(params, summary)
        limit = power_of_two_above(2.0 * max(score, summary.high))
        power = params.tweedie_variance_power
        return cls(np.array([math.log(score)]), power, score * TWEEDIE_RANGE, limit)

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        mean = np.clip(_exp(margin), self.mean_min, self.mean_max)
        a = y[:, None] * mean ** (1.0 - self.power)
        b = mean ** (2.0 - self.power)
        return w * (b - a), w * ((self.power - 1.0) * a + (2.0 - self.power) * b)

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        w = summary.weight_max
        a = summary.high * self.mean_min ** (1.0 - self.power)
        b = self.mean_max ** (2.0 - self.power)
        room = 1.0 + 2.0**-40  # powers are not rounded the same way everywhere
        return w * max(a, b) * room, w * ((self.power - 1.0) * a + (2.0 - self.power) * b) * room


_STARTS: dict[ObjectiveName, Callable[[BoostingParams, Summary], Objective]] = {
    "binary:logistic": Logistic.start,
    "multi:softprob": Softmax.start,
    "reg:squarederror": SquaredError.start,
    "reg:absoluteerror": AbsoluteError.start,
    "count:poisson": Poisson.start,
    "reg:tweedie": Tweedie.start,
}


def weighted_mean(values: Floats, weight: Floats) -> float:
    """Σ w·v / Σ w, summed exactly and so the same for every order of the rows; 0 if all w are."""
    total = math.fsum(weight)
    return math.fsum(values * weight) / total if total else 0.0


def median(values: Floats, weight: Floats) -> float:
    """The weighted median, the middle between the two where the weight halves between them.

    With equal weights it is the usual median. Rows of weight 0 do not count.
    """
    used = weight > 0.0
    if not used.any():
        return 0.0
    order = np.lexsort((weight[used], values[used]))
    ranked, below = values[used][order], np.cumsum(weight[used][order])
    half = below[-1] / 2.0
    low = ranked[np.searchsorted(below, half, side="left")]
    high = ranked[min(np.searchsorted(below, half, side="right"), len(ranked) - 1)]
    return float(low / 2.0 + high / 2.0)


def _sigmoid(margin: Floats) -> Floats:
    below = _exp(-margin)
    below += 1.0
    return np.divide(1.0, below, out=below)


def _exp(margin: Floats) -> Floats:
    cut = np.clip(margin, -MARGIN_MAX, MARGIN_MAX)
    return np.exp(cut, out=cut)


@kernel
def _logistic(p: Floats, y: Floats, weight: Floats, factor: float) -> Gradients:
    """Both gradients of probabilities (n, 1), in one pass."""
    g, h = np.empty_like(p), np.empty_like(p)
    for i in range(len(p)):
        w = (factor if y[i] > 0.5 else 1.0) * weight[i]
        g[i, 0] = w * (p[i, 0] - y[i])
        h[i, 0] = w * (p[i, 0] * (1.0 - p[i, 0]))
    return g, h


def _softmax(margin: Floats) -> Floats:
    raised = np.exp(margin - margin.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def scaled(weight: Floats, y: Floats, factor: float) -> Floats:
    return np.where(y > 0.5, factor, 1.0) * weight


def _positive_mean(params: BoostingParams, summary: Summary) -> float:
    if params.base_score is not None:
        return params.base_score
    if summary.mean <= 0.0:
        raise DataError(
            f"all labels with a weight above 0 are 0; {params.objective} needs some",
            todo="check the label column and the rows chosen",
        )
    return summary.mean
