"""Metrics of predictions that lie at several parties, from sums over the parties' own rows.

Each party computes `Tally.of` its rows, a protocol adds the vectors up, and all parties read the
same metrics from the total. Sums are of integers rounded row by row, so they do not depend on the
distribution of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core import metrics
from fedboost.core.fixed_point import bits_for_rows, power_of_two_above
from fedboost.core.metrics import OfCounts, OfRanking, OfRows, Ranking, WeightedMean
from fedboost.core.params import BoostingParams
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import ConfigError, DataError, JobError

Integers = NDArray[np.int64]

SCORE_BINS = 2047  # of a score histogram; odd, so that the base margin is the middle of a bin
SCORE_WORDS_MAX = 1 << 16  # of all classes' histograms: 512 KiB a party, part and round
LOGIT_REACH = 16.0  # greatest distance of scores from the base margin: odds of 9,000,000
LOGIT_UNIT = 1.0 / 64.0  # bins are about even up to this distance from the base margin, then widen
ERROR_REACH = 4.0  # predictions count as at most so many label bounds from their label


def score_bins(classes: int) -> int:
    """Return the number of bins of each class's score histogram: fewer for many classes, 327 for
    100.
    """
    most = SCORE_WORDS_MAX // (2 * classes)
    return min(SCORE_BINS, most - 1 + most % 2)


@dataclass(frozen=True)
class _Part:
    """Range of sums: the unit of its integers, and the most that a row adds to one of them."""

    slots: slice
    unit: float
    bound: float


class Tally:
    """Metrics `params.metrics` of one part of the rows (training, validation) as sums.

    Means and F1 are exact except for half a unit a row: 2^-bits of the bound of weight times loss,
    with bits = min(53, 62 − ⌈log2 rows⌉). A logarithm has XGBoost's floor, as on pooled rows, and
    in a regression |prediction − label| counts as at most 4·label_bound.

    auc, aucpr, map and ks come from a histogram of scores: 2,047 bins in their logit, about even up
    to 1/64 from `base_margin`, widening from there to 0.7 % of the distance, up to 16. Scores of
    one bin count as equal, and a logarithm rounded differently on another machine may move a score
    into the next bin. `resolution` bounds the error; on the credit tables, after 1 to 100 trees at
    a learning_rate of 0.01 to 0.3, it was at most (in the middle) 1.3e-4 (2e-5) for auc, 1e-3
    (8e-5) for aucpr, 3e-3 (5e-4) for map and 1.2e-3 (0) for ks.

    map of several classes has a histogram for each, class against all others, around its own base
    margin: SCORE_BINS bins of up to 16 classes, then as many as SCORE_WORDS_MAX leaves (so 100
    classes cost 523 kB a round, in 327 bins of 5 % of the distance).

    All parties see the histograms: the number of rows of each class with about each score.
    """

    def __init__(
        self,
        params: BoostingParams,
        rows: int,
        weight_bound: float,
        label_bound: float,
        base_margin: Floats,
    ) -> None:
        """`rows` is the count over all parties; no weight is above `weight_bound`, no |label| of a
        regression above `label_bound`; `base_margin` float64 (outputs,) is the objective's, the
        middle of the scores of a binary job.
        """
        measures = {name: metrics.METRICS[name].measure_for(params) for name in params.metrics}
        alone = [name for name, measure in measures.items() if isinstance(measure, OfRows)]
        if alone:
            raise ConfigError(
                f"{alone[0]} cannot be added up over parties with different rows",
                todo="leave it out of eval_metric",
            )
        self._measures = measures
        self._ranked = {
            name: kind for name, kind in measures.items() if isinstance(kind, OfRanking)
        }
        self._classes = params.num_class or 1
        self._regression = not params.record.classifies
        self._rows, self._bits = rows, bits_for_rows(rows)
        self._weight_bound, self._label_bound = weight_bound, label_bound
        self._centres = _centres(base_margin)
        self._bins = score_bins(len(self._centres))
        self._middle = self._bins // 2
        self._bins_per_unit = self._middle / math.asinh(LOGIT_REACH / LOGIT_UNIT)
        self._reach = ERROR_REACH * label_bound if self._regression else 1.0
        self._length = 0
        self._weight = self._next_range(1, weight_bound)
        self._means = {
            name: (kind, self._next_range(1, weight_bound * kind.most(self._reach)))
            for name, kind in measures.items()
            if isinstance(kind, WeightedMean)
        }
        self._counts = any(isinstance(kind, OfCounts) for kind in measures.values())
        self._confusion = self._next_range(3 * self._classes if self._counts else 0, weight_bound)
        histograms = 2 * self._bins * len(self._centres)
        self._scores = self._next_range(histograms if self._ranked else 0, weight_bound)

    @property
    def n_sums(self) -> int:
        """Number of sums."""
        return self._length

    def of(self, y: Floats, prediction: Floats, weight: Floats) -> Integers:
        """Return the own rows' part of the sums, int64 (length,); no rows give zeros.

        y and weight float64 (n,), prediction (n,) or (n, outputs) as in `metrics.evaluate`. A
        JobError if a weight or label exceeds its bound or a prediction is not a number.
        """
        p = metrics.one_column(prediction)
        self._check_rows(y, p, weight)
        if self._regression:
            p = np.clip(p, y - self._reach, y + self._reach)
        w = np.rint(weight / self._weight.unit).astype(np.int64)
        sums = np.zeros(self._length, np.int64)
        sums[self._weight.slots] = w.sum()
        for measure, part in self._means.values():
            losses = np.minimum(measure.per_row(y, p) * weight, part.bound)
            sums[part.slots] = np.rint(losses / part.unit).astype(np.int64).sum()
        if self._counts:
            sums[self._confusion.slots] = self._confusion_sums(y, metrics.guesses(p), w)
        if self._ranked:
            sums[self._scores.slots] = self._score_histograms(y, p, w)
        return sums

    def read_metrics(self, total: Integers) -> dict[str, float]:
        """Return the metrics by name from the sums of all parties, int64 (length,).

        A DataError if the rows do not define one, as in `metrics.evaluate`; a JobError if these
        cannot be sums of that many rows.
        """
        self._check_total(total)
        return {name: self._read_metric(name, total) for name in self._measures}

    def _next_range(self, length: int, bound: float) -> _Part:
        """Return the range of the next `n_sums` sums, of values up to `bound`."""
        start = self._length
        self._length += length
        unit = math.ldexp(power_of_two_above(bound), -self._bits)
        return _Part(slice(start, self._length), unit, bound)

    def _check_rows(self, y: Floats, p: Floats, weight: Floats) -> None:
        assert len(y) <= self._rows
        if not np.isfinite(p).all():
            raise JobError(
                f"{np.count_nonzero(~np.isfinite(p))} of {p.size} predictions are no numbers",
                todo="lower learning_rate, or raise reg_lambda",
            )
        fits = (weight >= 0.0) & (weight <= self._weight_bound)
        if self._regression:
            fits &= np.abs(y) <= self._label_bound
        if not fits.all():
            raise JobError(
                f"labels or weights of {np.count_nonzero(~fits)} of {len(y)} rows left the bounds "
                "declared at the start of the job",
                todo="check labels and weights of the rows to be measured",
            )

    def _check_total(self, total: Integers) -> None:
        """Refuse sums that no rows add up to; in Python's integers, which do not wrap."""
        largest = self._rows << self._bits
        fits = total.shape == (self._length,) and bool(((total >= 0) & (total <= largest)).all())
        if fits:
            (weight,) = total[self._weight.slots].tolist()
            if self._ranked:
                every = total[self._scores.slots].reshape(len(self._centres), -1).tolist()
                fits = all(sum(counts) == weight for counts in every)
            hit, counts, guessed = total[self._confusion.slots].reshape(3, -1)
            fits = fits and bool((hit <= counts).all() and (hit <= guessed).all())
            fits = fits and max(sum(counts.tolist()), sum(guessed.tolist())) <= weight
        if not fits:
            raise JobError(
                f"the {self._length} sums of the metrics are impossible for {self._rows} rows",
                todo="run the job again; if it recurs, a party masks or measures otherwise",
            )
        if weight == 0:
            name = next(iter(self._measures))
            raise DataError(f"{name} needs at least one row and got none", todo="give it rows")

    def _read_metric(self, name: str, total: Integers) -> float:
        measure = self._measures[name]
        if isinstance(measure, OfRanking):
            return float(np.mean([measure.read(ranks) for ranks in self._rankings(total)]))
        if isinstance(measure, OfCounts):
            return measure.read(*_decode_sums(self._confusion, total).reshape(3, -1))
        mean_of, part = self._means[name]
        (mean,) = _decode_sums(part, total) / _decode_sums(self._weight, total)
        return mean_of.finish(float(mean))

    def _confusion_sums(self, y: Floats, guess: Floats, w: Integers) -> Integers:
        """Return weights of hits, rows and guesses of each class; (3·classes,)."""
        sums = np.zeros((3, max(2, self._classes)), np.int64)
        actual, named, hit = y.astype(np.intp), guess.astype(np.intp), y == guess
        np.add.at(sums[0], actual[hit], w[hit])
        np.add.at(sums[1], actual, w)
        np.add.at(sums[2], named, w)
        return sums[:, -self._classes :].ravel()  # of two classes, class 1

    def _score_histograms(self, y: Floats, p: Floats, w: Integers) -> Integers:
        """Return weights by class, side and bin of the score, flat; side 0 is the class."""
        sums = np.zeros((len(self._centres), 2 * self._bins), np.int64)
        by_class = [(y > 0.5, p)] if p.ndim == 1 else [(y == c, p[:, c]) for c in range(p.shape[1])]
        for class_sums, centre, (is_own, score) in zip(sums, self._centres, by_class, strict=True):
            np.add.at(
                class_sums, np.where(is_own, 0, self._bins) + self._score_indices(score, centre), w
            )
        return sums.ravel()

    def _score_indices(self, p: Floats, centre: float) -> Integers:
        """Return the bin of each score, int64 (n,); rising with the score."""
        inside = np.clip(p, np.finfo(np.float64).tiny, 1.0 - np.finfo(np.float64).epsneg)
        distance = np.log(inside) - np.log1p(-inside) - centre
        place = np.rint(np.arcsinh(distance / LOGIT_UNIT) * self._bins_per_unit)
        return np.clip(place, -self._middle, self._middle).astype(np.int64) + self._middle

    def _rankings(self, total: Integers) -> list[Ranking]:
        """Return the ranking of the bins with weight, with their middles as margins: of class 1, or
        with several classes of each class with rows, against all others.
        """
        # Highest bins first.
        every = total[self._scores.slots].reshape(-1, 2, self._bins)[:, :, ::-1]
        rankings = []
        for centre, (positive, negative) in zip(self._centres, every, strict=True):
            if len(every) > 1 and not positive.any():
                continue
            (used,) = np.nonzero(positive + negative)
            distance = LOGIT_UNIT * np.sinh((self._middle - used) / self._bins_per_unit)
            positives, others = np.cumsum(positive[used]), np.cumsum(negative[used])
            weights = positives * self._scores.unit, others * self._scores.unit
            rankings.append(metrics.ranking_from_weights(centre + distance, *weights, self._rows))
        return rankings


def _centres(base_margin: Floats) -> list[float]:
    """Return the middle of the scores of each class: the logit of its first probability."""
    if len(base_margin) == 1:
        return [float(base_margin[0])]
    raised = np.exp(base_margin - base_margin.max())
    others = raised.sum() - raised
    return [float(logit) for logit in np.log(raised) - np.log(others)]


def _decode_sums(part: _Part, total: Integers) -> Floats:
    return total[part.slots].astype(np.float64) * part.unit
