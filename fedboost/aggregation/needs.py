"""What a sum under masks needs: a vector of everybody's to the aggregator, its total back."""

from __future__ import annotations

from fedboost import needs
from fedboost.core.params import BoostingParams
from fedboost.needs import PhaseTally, Scene

WORD_BYTES = 8.0
OVERHEAD_BYTES = 64.0  # of a message, check words among them
RANKED = frozenset({"auc", "aucpr", "ks", "map"})  # metrics that take histograms of scores
RANKED_WORDS, OTHER_WORDS = 4096.0, 16.0  # of them and of others, for each part of the rows


def summed(tally: PhaseTally, scene: Scene, words: float) -> PhaseTally:
    """A sum of so many words over everybody, in two exchanges, beside what the tally has."""
    adds_up = scene.aggregator or scene.guest
    octets = WORD_BYTES * words + OVERHEAD_BYTES
    for party in scene.parties:
        tally.add(party, needs.MASK, words * (len(scene.parties) - 1))
        tally.add(adds_up, needs.WORDS, words)
        if party != adds_up:
            tally.send((party, adds_up), octets)
            tally.send((adds_up, party), octets)
    return tally


def metric_words(params: BoostingParams, scene: Scene) -> float:
    """Words of a round's metrics over all parts of the rows."""
    parts = 2.0 if scene.held_out else 1.0
    ranked = RANKED & set(params.metrics)
    return parts * (RANKED_WORDS * params.n_outputs if ranked else OTHER_WORDS)
