"""Losses: first prediction, gradients within bounds fixed from the labels, link to predictions.

`start` fixes an objective at the beginning of a job. Every gradient it ever gives stays within
`bounds`, which is what lets sums be integers: losses whose gradients have no bound of their own
are cut at one that only predictions far outside the labels' range can reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedboost.core.fixed_point import FixedPoint, for_rows, power_of_two_above
from fedboost.core.params import ObjectiveName, TreeParams
from fedboost.errors import DataError

Floats = NDArray[np.float64]
Gradients = tuple[Floats, Floats]

MARGIN_MAX = 700.0  # exp of more would leave float64
PRIOR_MIN = 1e-6  # prior of a class without rows, so that its margin stays finite
POISSON_STEP = 0.7  # XGBoost's max_delta_step: the hessian is taken so far ahead
TWEEDIE_RANGE = 2.0**-10  # predictions below this part of the mean have its gradient


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
        """Whether leaves take `median` of their residuals instead of the Newton step."""

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """First and second derivative of the weighted loss by the margin; float64 (n, k) each."""

    def bounds(self, y: Floats, weight: Floats) -> tuple[float, float]:
        """(g_bound, h_bound) with |g| ≤ g_bound and 0 ≤ h ≤ h_bound for every margin."""


def start(params: TreeParams, y: Floats, weight: Floats) -> Objective:
    """The objective of a job, with base score and bounds fixed from the training labels.

    A DataError names what labels or weights cannot be used for the objective.
    """
    _check_weight(y, weight)
    check_labels(params, y)
    return _STARTS[params.objective].start(params, y, weight)


def encoding(params: TreeParams, objective: Objective, y: Floats, weight: Floats) -> FixedPoint:
    """How a job's gradients become integers: bounds as declared, amplified where `goss` does."""
    g_bound, h_bound = objective.bounds(y, weight)
    factor = 1.0 if params.goss is None else params.goss.factor
    return for_rows(len(y), params.precision_bits, factor * g_bound, factor * h_bound)


def transform(objective: ObjectiveName, margin: Floats) -> Floats:
    """Margins (n, k) as predictions (n, k): probabilities, means, or the margins themselves."""
    if objective == "binary:logistic":
        return _sigmoid(margin)
    if objective == "multi:softprob":
        return _softmax(margin)
    if objective in ("count:poisson", "reg:tweedie"):
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
    def start(cls, params: TreeParams, y: Floats, weight: Floats) -> Logistic:
        """Base score: the weighted share of label 1."""
        score = params.base_score
        if score is None:
            score = weighted_mean(y, weight * np.where(y > 0.5, params.scale_pos_weight, 1.0))
            if not 0.0 < score < 1.0:
                raise DataError("all rows with a weight above 0 have the same label")
        return cls(np.array([math.log(score / (1.0 - score))]), params.scale_pos_weight)

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        p = _sigmoid(margin)
        w = self._weights(y, weight)[:, None]
        return w * (p - y[:, None]), w * (p * (1.0 - p))

    def bounds(self, y: Floats, weight: Floats) -> tuple[float, float]:
        """See Objective."""
        w = float(self._weights(y, weight).max())
        return w, w / 4.0

    def _weights(self, y: Floats, weight: Floats) -> Floats:
        return np.where(y > 0.5, self.scale_pos_weight, 1.0) * weight


@dataclass(frozen=True)
class Softmax:
    """multi:softprob: g = w(p_c − [y = c]), h = 2w·p_c(1 − p_c), XGBoost's factor 2 included."""

    base_margin: Floats = field(repr=False)
    n_outputs: int
    renews_leaves: ClassVar[bool] = False

    @classmethod
    def start(cls, params: TreeParams, y: Floats, weight: Floats) -> Softmax:
        """Base margins: logarithms of the classes' weighted shares, or all equal if given."""
        k = params.n_outputs
        if params.base_score is not None:
            return cls(np.full(k, params.base_score), k)
        shares = [weighted_mean((y == c).astype(np.float64), weight) for c in range(k)]
        return cls(np.log(np.maximum(np.array(shares), PRIOR_MIN)), k)

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        p = _softmax(margin)
        w = weight[:, None]
        own = y.astype(np.intp)[:, None] == np.arange(self.n_outputs)
        return w * (p - own), w * (2.0 * p * (1.0 - p))

    def bounds(self, y: Floats, weight: Floats) -> tuple[float, float]:
        """See Objective."""
        w = float(weight.max())
        return w, w / 2.0


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
    def start(cls, params: TreeParams, y: Floats, weight: Floats) -> SquaredError:
        """Base score: the weighted mean."""
        score = weighted_mean(y, weight) if params.base_score is None else params.base_score
        low, high = float(y.min()), float(y.max())
        reach = max(high - low, high - score, score - low)
        return cls(np.array([score]), power_of_two_above(2.0 * reach) if reach else 1.0)

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        return w * np.clip(margin - y[:, None], -self.clip, self.clip), w + np.zeros_like(margin)

    def bounds(self, y: Floats, weight: Floats) -> tuple[float, float]:
        """See Objective."""
        w = float(weight.max())
        return w * self.clip, w


@dataclass(frozen=True)
class AbsoluteError:
    """reg:absoluteerror: g = w·sign(m − y), h = w; leaves take the median of their residuals."""

    base_margin: Floats = field(repr=False)
    n_outputs: ClassVar[int] = 1
    renews_leaves: ClassVar[bool] = True

    @classmethod
    def start(cls, params: TreeParams, y: Floats, weight: Floats) -> AbsoluteError:
        """Base score: the weighted median."""
        score = median(y, weight) if params.base_score is None else params.base_score
        return cls(np.array([score]))

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        return w * np.sign(margin - y[:, None]), w + np.zeros_like(margin)

    def bounds(self, y: Floats, weight: Floats) -> tuple[float, float]:
        """See Objective."""
        w = float(weight.max())
        return w, w


@dataclass(frozen=True)
class Poisson:
    """count:poisson with log link: μ = exp(m) cut at mean_max, g = w(μ − y), h = w·μ·e^0.7.

    The factor is XGBoost's max_delta_step of 0.7; its second use, a limit on leaves, is left
    out. `mean_max` is a power of two at least twice every label: beyond it g is still positive.
    """

    base_margin: Floats = field(repr=False)
    mean_max: float = field(repr=False)
    n_outputs: ClassVar[int] = 1
    renews_leaves: ClassVar[bool] = False

    @classmethod
    def start(cls, params: TreeParams, y: Floats, weight: Floats) -> Poisson:
        """Base score: the weighted mean."""
        score = _positive_mean(params, y, weight)
        limit = power_of_two_above(2.0 * max(score, float(y.max())))
        return cls(np.array([math.log(score)]), limit)

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        mean = np.minimum(_exp(margin), self.mean_max)
        return w * (mean - y[:, None]), w * (mean * math.exp(POISSON_STEP))

    def bounds(self, y: Floats, weight: Floats) -> tuple[float, float]:
        """See Objective."""
        w = float(weight.max())
        return w * self.mean_max, w * (self.mean_max * math.exp(POISSON_STEP))


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
    def start(cls, params: TreeParams, y: Floats, weight: Floats) -> Tweedie:
        """Base score: the weighted mean."""
        score = _positive_mean(params, y, weight)
        limit = power_of_two_above(2.0 * max(score, float(y.max())))
        base = np.array([math.log(score)])
        return cls(base, params.tweedie_variance_power, score * TWEEDIE_RANGE, limit)

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        mean = np.clip(_exp(margin), self.mean_min, self.mean_max)
        a = y[:, None] * mean ** (1.0 - self.power)
        b = mean ** (2.0 - self.power)
        return w * (b - a), w * ((self.power - 1.0) * a + (2.0 - self.power) * b)

    def bounds(self, y: Floats, weight: Floats) -> tuple[float, float]:
        """See Objective."""
        w = float(weight.max())
        a = float(y.max()) * self.mean_min ** (1.0 - self.power)
        b = self.mean_max ** (2.0 - self.power)
        room = 1.0 + 2.0**-40  # powers are not rounded the same way everywhere
        return w * max(a, b) * room, w * ((self.power - 1.0) * a + (2.0 - self.power) * b) * room


class _Starts(Protocol):
    def start(self, params: TreeParams, y: Floats, weight: Floats) -> Objective: ...


_STARTS: dict[ObjectiveName, _Starts] = {
    "binary:logistic": Logistic,
    "multi:softprob": Softmax,
    "reg:squarederror": SquaredError,
    "reg:absoluteerror": AbsoluteError,
    "count:poisson": Poisson,
    "reg:tweedie": Tweedie,
}


def weighted_mean(values: Floats, weight: Floats) -> float:
    """Σ w·v / Σ w, summed exactly and so the same for every order of the rows."""
    return math.fsum(values * weight) / math.fsum(weight)


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
    return 1.0 / (1.0 + _exp(-margin))


def _exp(margin: Floats) -> Floats:
    return np.exp(np.clip(margin, -MARGIN_MAX, MARGIN_MAX))


def _softmax(margin: Floats) -> Floats:
    raised = np.exp(margin - margin.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _positive_mean(params: TreeParams, y: Floats, weight: Floats) -> float:
    if params.base_score is not None:
        return params.base_score
    mean = weighted_mean(y, weight)
    if mean <= 0.0:
        raise DataError(f"all labels with a weight above 0 are 0; {params.objective} needs some")
    return mean


def _check_weight(y: Floats, weight: Floats) -> None:
    if len(y) == 0:
        raise DataError("there are no rows to train on")
    if weight.shape != y.shape:
        raise DataError(f"{len(weight)} weights came for {len(y)} rows")
    bad = int(np.count_nonzero(~(np.isfinite(weight) & (weight >= 0.0))))
    if bad:
        raise DataError(f"{bad} of {len(y)} weights are negative, infinite or not numbers")
    if not weight.any():
        raise DataError(f"all {len(y)} weights are 0")


def check_labels(params: TreeParams, y: Floats, learn: bool = True) -> None:
    """What each objective asks of labels; a DataError names the count of rows at fault.

    Rows to `learn` from must show more than one class; rows to validate on need not.
    """
    n, name = len(y), params.objective
    bad = int(np.count_nonzero(~np.isfinite(y)))
    if bad:
        raise DataError(f"{bad} of {n} labels are missing or infinite", todo="leave those rows out")
    if name in ("binary:logistic", "multi:softprob"):
        classes = params.num_class or 2
        bad = int(np.count_nonzero(~((y >= 0.0) & (y < classes) & (y == np.floor(y)))))
        if bad:
            raise DataError(
                f"{bad} of {n} labels are not one of the whole numbers 0 to {classes - 1}",
                todo=f"number the classes from 0, or use another objective than {name}",
            )
        if learn and bool(np.all(y == y[0])):
            raise DataError(
                f"all {n} labels are the same class, so there is nothing to learn",
                todo="check the label column and the rows chosen",
            )
    if name in ("count:poisson", "reg:tweedie"):
        bad = int(np.count_nonzero(y < 0.0))
        if bad:
            raise DataError(f"{bad} of {n} labels are negative; {name} needs 0 or more")
