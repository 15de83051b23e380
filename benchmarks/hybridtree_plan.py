"""How much of the HybridTree benchmark a run does: experiments on accuracy, timed jobs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from benchmarks import meta_rules
from benchmarks.hybridtree_accuracy import Experiment
from benchmarks.hybridtree_data import Dealing

MAIN, HOLDERS, OVERLAP = "Table 1", "Table 3", "Table 6"
DEPTH, VERTICAL, GUEST_SIZE = "Table 9", "Table 10", "Table 12"
SCALE, SKEW = "Figure 6", "Figure 8"
ONE, MANY, PAIR = "one host", "five hosts", "one of five hosts"
VARIED = "adult"  # whose guest has fewer rows and columns, as in the paper
# Appendix C.4 draws from [0, n/20] rows of others for each of five hosts, and from [0, d] columns
# to drop: these are the means.
SHARED_ROWS, DROPPED = 5 / 40, 0.5


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    train_rows: int  # of a data set at most
    test_rows: int
    trees: int
    seeds: tuple[int, ...]  # of Table 1: other columns, other hosts
    hosts: tuple[int, ...]  # of Table 1
    scale: tuple[int, ...]  # hosts of Figure 6
    skews: tuple[float, ...]
    depths: tuple[int, ...]
    shares: tuple[float, ...]  # of the guest's rows, then of its columns
    holders: int
    timed_rows: Mapping[str, int]  # of a data set, where encrypted trees are timed
    settings: tuple[str, ...]  # whose hosts are timed
    fast_trees: int  # timed ones, the first of which warms up
    slow_trees: int  # the same with all switches off
    predicted_rows: int
    repeats: int  # of a prediction
    rule_rows: int  # of a data set at most, whose rules are counted
    rule_trees: int

    @classmethod
    def of(cls, *, quick: bool) -> Self:
        """The quick one, or all."""
        if quick:
            return cls(
                train_rows=4000, test_rows=2000, trees=15, seeds=(0,), hosts=(5,), scale=(),
                skews=(), depths=(), shares=(), holders=0, settings=(ONE,),
                timed_rows={"adult": 400, "covtype": 100}, fast_trees=3, slow_trees=2,
                predicted_rows=200, repeats=1, rule_rows=5000, rule_trees=10,
            )  # fmt: skip
        return cls(
            train_rows=100_000, test_rows=40_000, trees=50, seeds=(0, 1, 2), hosts=(5, 25),
            scale=(10, 15, 20), skews=(0.1, 0.5, 1.0, 10.0), depths=(4, 6, 8),
            shares=(0.2, 0.5, 0.8), holders=5,
            timed_rows={"adult": 1 << 62, "covtype": 20_000}, settings=(ONE, MANY, PAIR),
            fast_trees=4, slow_trees=2, predicted_rows=2000, repeats=3,
            rule_rows=meta_rules.ROWS_MAX, rule_trees=meta_rules.TREES,
        )  # fmt: skip

    def timed_trees(self, slow: bool) -> int:
        """How many trees a timed job grows."""
        return self.slow_trees if slow else self.fast_trees

    def experiments(self, data: str) -> Iterator[Experiment]:
        """All on one data set."""
        plain = Experiment(
            *(MAIN, data), trees=self.trees, train_rows=self.train_rows, test_rows=self.test_rows
        )
        yield from (
            replace(plain, dealing=Dealing(hosts, seed), sampled=True)
            for hosts in self.hosts
            for seed in self.seeds
        )
        if self.holders:
            yield replace(plain, table=HOLDERS, label_holders=self.holders)
        for depth in self.depths:
            yield replace(plain, table=DEPTH, depth=depth, value=depth)
        for table, value, dealing in self._dealings(data):
            yield replace(plain, table=table, value=value, dealing=dealing)

    def _dealings(self, data: str) -> Iterator[tuple[str, float, Dealing]]:
        """By table, and by what it varies, how rows and columns are dealt."""
        yield OVERLAP, DROPPED, Dealing(overlap=SHARED_ROWS, drop_columns=DROPPED)
        yield VERTICAL, 1, Dealing(hosts=1)
        shares = self.shares if data == VARIED else ()
        yield from ((GUEST_SIZE, share, Dealing(guest_rows=share)) for share in shares)
        yield from ((GUEST_SIZE, share, Dealing(guest_columns=share)) for share in shares)
        yield from ((SCALE, hosts, Dealing(hosts=hosts)) for hosts in self.scale)
        yield from (
            (SKEW, skew, Dealing(skew=skew, skewed_test=skewed))
            for skew in self.skews
            for skewed in (True, False)
        )
