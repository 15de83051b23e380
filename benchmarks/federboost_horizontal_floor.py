"""What horizontal training costs without its protocol: pooled, and a party's primitives alone.

The parties' trees grow here from the plain sums of their vectors, one party after the other in
this thread: no messages, sessions or daemons. Masks are put on vectors of the same lengths beside.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.federboost_horizontal_jobs import Shares
from benchmarks.federboost_jobs import Params
from benchmarks.plus_tables import Row
from benchmarks.tables import Table
from fedboost.aggregation.contributor import CHECK_WORDS
from fedboost.aggregation.measures import Counts
from fedboost.core import binning, local, objectives
from fedboost.core.local import Watched
from fedboost.core.objectives import Summary
from fedboost.core.params import TreeParams
from fedboost.core.rules import Rules
from fedboost.crypto.masking import KEY_BYTES, Pair, add_stream
from fedboost.ground.settings import parse
from fedboost.protocols.federboost_horizontal.boosting import TreeBoosting


def tree_params(given: Params) -> TreeParams:
    """Those of a job's settings that are the trees'."""
    return parse(TreeParams, {k: v for k, v in given.items() if k in TreeParams.model_fields})


def pooled_seconds(table: Table, given: Params, repeats: int) -> list[float]:
    """Of `core.local` on all rows in one place, after a first time."""
    learned = local.TrainingTable(table.values, table.y.astype(np.float64))
    seconds = []
    for _ in range(1 + repeats):
        started = time.perf_counter()
        local.train(learned, tree_params(given))
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


@dataclass
class Clock:
    """Seconds by what they were spent on."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Counts what happens inside."""
        started = time.perf_counter()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - started


def primitives(table: Table, shares: Shares, given: Params) -> Row:
    """Seconds of all parties' primitives by kind, and the words of one party's vectors."""
    clock, lengths = Clock(), list[int]()
    with clock.on("bins and gradients"):
        parties = _planted(table, shares, tree_params(given))
    while not parties[0].measures.ends:
        _grow(parties, clock, lengths)
        _measure(parties, clock, lengths)
    with clock.on("masks"):
        _mask(lengths, len(shares))
    return {"alone": clock.seconds, "vectors": len(lengths), "words": sum(lengths)}


def _planted(table: Table, shares: Shares, params: TreeParams) -> list[TreeBoosting]:
    """Every party before its first tree."""
    y = table.y.astype(np.float64)
    summary = Summary.of(params, y, np.ones(len(y)))
    objective = objectives.start(params, summary)
    cuts = binning.fit(table.values, params.max_bin)
    rules = Rules(params, cuts, objectives.encoding(params, objective, summary))
    present = np.count_nonzero(~np.isnan(table.values), axis=0).astype(np.int64)
    counts = Counts(len(y), 0, present, weight_bound=1.0, label_bound=1.0)
    found = []
    for place, share in enumerate(shares.values()):
        own = local.TrainingTable(share.values, share.y.astype(np.float64))
        watched = {"train": Watched.of(own, cuts, objective)}
        found.append(TreeBoosting(rules, (objective, summary, counts), watched, place))
    return found


def _grow(parties: list[TreeBoosting], clock: Clock, lengths: list[int]) -> None:
    """A round of trees, layer by layer."""
    while parties[0].layer == 0 or parties[0].grows:
        with clock.on("histograms"):
            vectors = [party.sums() for party in parties]
        total = np.sum(vectors, axis=0)
        lengths.append(len(total))
        with clock.on("splits"):
            for party in parties:
                party.take(total)
    with clock.on("margins"):
        for party in parties:
            party.close_round()


def _measure(parties: list[TreeBoosting], clock: Clock, lengths: list[int]) -> None:
    """The metrics of a round."""
    with clock.on("metrics"):
        vectors = [party.measures.tally(party.watched) for party in parties]
        total: Any = np.sum(vectors, axis=0)
        lengths.append(len(total))
        for party in parties:
            party.measures.hear(total)


def _mask(lengths: list[int], parties: int) -> None:
    """Every party's masks on vectors of these lengths."""
    pair = Pair(bytes(KEY_BYTES), bytes(KEY_BYTES))
    streams = parties * (parties - 1)
    for number, length in enumerate(lengths):
        words = np.zeros(length + CHECK_WORDS, np.uint64)
        for stream in range(streams):
            key = pair.stream_key(b"%d %d" % (number, stream))
            add_stream(words, key, 1)
