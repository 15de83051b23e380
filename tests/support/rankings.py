"""By how much a ranking metric from histograms may differ from that of the scores themselves."""

import numpy as np

from fedboost.core.metrics import METRICS, OfRanking, Ranking
from fedboost.core.tallies import Tally


def resolution(tally: Tally, total):
    """Return by how much each ranking metric may at most differ, by name.

    As if nothing were known about the order within a bin: of many rows with equal scores, as
    after the first trees, it is far above the true error. Errors as of `measure`.
    """
    tally._check_total(total)
    if not tally._ranked:
        return {}
    rankings = tally._rankings(total)
    return {
        name: float(np.mean([_error(own, ranks) for ranks in rankings]))
        for name, own in tally._ranked.items()
    }


def _error(measure: OfRanking, ranks: Ranking) -> float:
    """Return by how much a ranking metric may differ from that of the scores themselves."""
    best, worst = _refined(ranks, positive_first=True), _refined(ranks, positive_first=False)
    value, lowest = measure.read(ranks), measure.read(worst)
    if measure == METRICS["map"].measure:  # positives one by one have what aucpr integrates
        aucpr = METRICS["aucpr"].measure
        assert isinstance(aucpr, OfRanking)
        lowest = aucpr.read(worst)
    return max(abs(measure.read(best) - value), abs(lowest - value))


def _refined(ranks: Ranking, positive_first: bool) -> Ranking:
    """Each step of the ranking as two: that of one class, then that of the other.

    Of the points (0, 0), (a, m), (b, n), positive first: (0, 0), (a, 0), (a, m), (b, m), (b, n).
    """
    first, second = ranks.positive, ranks.negative
    if not positive_first:
        first, second = second, first
    first, second = np.repeat(first, 2)[1:], np.repeat(second, 2)[:-1]
    moved = np.concatenate([[True], (np.diff(first) > 0.0) | (np.diff(second) > 0.0)])
    first, second = first[moved], second[moved]
    score = np.repeat(ranks.score, 2)[moved[1:]]
    if positive_first:
        return Ranking(score, first, second)
    return Ranking(score, second, first)
