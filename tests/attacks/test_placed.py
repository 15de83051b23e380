"""Rows placed: what is read of a host's rows, by sums that hold many bits or chosen winners.

The host, its store and its policy are stock; of the guest what an attack replaces is named. Values
that are read are counted by whoever knows the host's table, and held to what the host has charged.
"""

import asyncio
from dataclasses import dataclass, field

import numpy as np
import pytest

from fedboost.crypto.lattice import decryption, secret
from fedboost.encrypted.guest import rounds
from fedboost.encrypted.guest.offers import write_choices
from fedboost.encrypted.guest.rounds import OpenRound
from fedboost.encrypted.guest.tree import GuestTree, WinningSplit
from fedboost.encrypted.host.meter import Meter
from fedboost.encrypted.lattice import guest as lattice_guest
from fedboost.flow import Out
from fedboost.ground.errors import FedboostError
from fedboost.ground.workers import Serial
from fedboost.model import labels
from fedboost.protocols.secureboost import guest as secureboost_guest
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.policy.placing import Learnt
from tests.attacks.test_border_budget import GUEST, HOST, Town, ruled
from tests.support.federated import PLAIN, _left, job_spec

BINS = 8
LIMIT = 0.25
LATTICE = {"encryption": {"scheme": "lattice"}}
EVERYBODY = {"disclosure_max": 0.15, "group_rows_min": 20}


@dataclass
class Reading:
    """What an attacker has read, and what the host has charged for it."""

    truth: np.ndarray  # the bin of each row
    known: dict[int, int] = field(default_factory=dict)  # of some rows, by their places
    placed: float = 0.0
    sums: float = 0.0
    errors: list[FedboostError] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The share of rows whose bin was read, and rightly."""
        assert all(self.truth[row] == cell for row, cell in self.known.items())
        return len(self.known) / len(self.truth)

    @property
    def keys(self) -> set[str]:
        """The keys of the policy that ended jobs."""
        return {error.where["key"] for error in self.errors}


def run(town, rows, spec, jobs=1, prepare=lambda _: None, **rules):
    """Jobs one after the other, until one fails; the host's table is one column in eight bins."""
    ids = [f"p{row:05d}" for row in range(rows)]
    values = np.random.default_rng(5).permutation(rows)
    town.write(HOST, id=ids, x=values.astype(float))
    reading = Reading(values * BINS // rows)

    async def work():
        async with open_cluster(town.folder / "c", spec, town.sources, Serial()) as made:
            host = ruled(made, **{**EVERYBODY, **rules})
            for job in range(jobs):
                prepare(job)
                done = _left(made, await made.run(spec))
                if done.state != "finished":
                    reading.errors.append(done.error)
                    break
            entries = host.spending.account.entries()
            reading.placed = min(1.0, sum(entry.placed for entry in entries))
            reading.sums = sum(entry.counted for entry in entries)

    asyncio.run(work())
    return reading


def without_forecast(monkeypatch):
    """Nothing is refused beforehand: what leaves is judged alone."""
    monkeypatch.setattr(Learnt, "share_placed_by_sums", lambda *_: 0.0)


def without_charge(monkeypatch):
    """Sums are equations and nothing else."""
    monkeypatch.setattr(Meter, "_placing_charges", lambda *_: ())


@pytest.fixture
def town(tmp_path):
    return Town(tmp_path)


# Weights: a column of weights 2^i; the guest is stock but for the rule that refuses such weights

PEOPLE = 40


def weighing(town, monkeypatch, **rules):
    """Jobs with other columns of weights; the guest looks at what it decrypts."""
    rows, seen = 200, []
    ids = [f"p{row:05d}" for row in range(rows)]
    groups = [range(first, first + PEOPLE) for first in range(0, rows, PEOPLE)]

    def weigh(job):
        weights = np.zeros(rows)
        weights[groups[job]] = 2.0 ** (np.arange(PEOPLE) - PEOPLE)
        town.write(GUEST, id=ids, y=np.zeros(rows), z=np.arange(rows, dtype=float), v=weights)

    weigh(0)
    stock = secureboost_guest._read_sums

    def read(me, got):
        offers = stock(me, got)
        [(sums, _)] = offers[HOST].values()
        seen.append((sums[:, 1].tolist(), me.growing.tree_batch.trees[0].gh[:, 1]))
        return offers

    monkeypatch.setattr(secureboost_guest, "_read_sums", read)
    monkeypatch.setattr(labels, "check_encrypted", labels.check_table)
    params = {
        "n_estimators": 1, "max_depth": 1, "max_bin": BINS, "objective": "reg:squarederror",
        "base_score": 1.0, "precision_bits": 52, **PLAIN,
    }  # fmt: skip
    own = {GUEST: {"weight": "v", "columns": ["z"]}}
    spec = job_spec("secureboost", (GUEST, HOST), data=own, params=params)
    reading = run(town, rows, spec, len(groups), weigh, **rules)
    for (sums, hessians), people in zip(seen, groups, strict=False):
        unit = int(hessians[hessians > 0].min())
        left = np.array([[total // unit >> place & 1 for place in range(PEOPLE)] for total in sums])
        cells = (len(sums) - left.sum(axis=0)).tolist()
        reading.known |= dict(zip(people, cells, strict=True))
    return reading


def test_weights_of_powers_of_two_read_no_more_rows_than_are_charged(town, monkeypatch):
    """The defence is the charge of what a sum's field holds (`Meter.charge`)."""
    reading = weighing(town, monkeypatch)
    assert reading.share == 1.0
    assert reading.share <= reading.placed
    assert reading.sums < 0.1


@pytest.mark.parametrize("forecast", [True, False])
def test_weights_of_powers_of_two_read_no_more_rows_than_the_owner_allows(
    forecast, town, monkeypatch
):
    if not forecast:
        without_forecast(monkeypatch)
    reading = weighing(town, monkeypatch, placed_max=LIMIT)
    assert reading.keys == {"policy.placed_max"}
    assert reading.share <= reading.placed <= LIMIT


def test_weights_of_powers_of_two_read_every_row_where_sums_are_equations(town, monkeypatch):
    without_forecast(monkeypatch)
    without_charge(monkeypatch)
    reading = weighing(town, monkeypatch, placed_max=LIMIT)
    assert reading.share == 1.0
    assert reading.placed == 0.0
    assert reading.sums < 0.1


# Marks: a guest that fills the field of a sum, whatever it has declared

MARKED, WIDTH = 1000, 17  # messages of 8 bits: 18 of a sum's of so many rows, less its sign
HUGE = np.full(2, 1 << 62, np.int64)


def marking(town, monkeypatch, **rules):
    """A job of trees of one layer, each of which marks rows that no earlier one has marked."""
    town.label(ids=[f"p{row:05d}" for row in range(MARKED)])
    marks: list[range] = []
    seen: list[np.ndarray] = []
    start, stock = rounds.Rounds.start_round, secureboost_guest._read_sums

    def start_round(self, fixed):
        start(self, fixed)
        gh, first = np.zeros_like(self.round.gh), 2 * WIDTH * len(marks)
        marks.append(range(first, min(MARKED, first + 2 * WIDTH)))
        for place, row in enumerate(marks[-1]):
            gh[row, place // WIDTH] = 1 << place % WIDTH
        self.round = OpenRound(self.round.sample, gh)

    def read(self, answers, sums, nodes):
        asked = [decryption.AnsweredNode(n, of.rows, HUGE) for n, of in zip(sums, nodes)]  # noqa: B905
        if self.packing is not None:
            return decryption.decrypt_packed(
                self.secret, self.packing, answers, asked, self.workers
            )
        [of] = asked
        return decryption.decrypt(self.secret, answers, of.count, of.rows, HUGE, self.workers)

    def noted(me, got):
        offers = stock(me, got)
        [(sums, _)] = offers[HOST].values()
        seen.append(sums.copy())
        return offers

    monkeypatch.setattr(rounds.Rounds, "start_round", start_round)
    monkeypatch.setattr(secret, "_check_messages", lambda *_: None)
    monkeypatch.setattr(lattice_guest.LatticeGuestRows, "read", read)
    monkeypatch.setattr(secureboost_guest, "_read_sums", noted)
    monkeypatch.setattr(GuestTree, "best_of", lambda *_: None)
    monkeypatch.setattr(GuestTree, "own_best", lambda *_: {})
    monkeypatch.setattr(
        secureboost_guest,
        "_leaf_values",
        lambda _, trees: [{n: np.zeros(1) for n in GuestTree.leaves(tree, None)} for tree in trees],
    )
    trees = -(-MARKED // (2 * WIDTH))
    params = {"n_estimators": trees, "max_depth": 1, "max_bin": BINS, **LATTICE}
    spec = job_spec("secureboost", (GUEST, HOST), params=params)
    reading = run(town, MARKED, spec, **rules)
    for people, sums in zip(marks, seen, strict=False):
        for place, row in enumerate(people):
            left = (sums[:, place // WIDTH] >> place % WIDTH) & 1
            reading.known[row] = len(sums) - int(left.sum())
    return reading


def test_marks_above_the_declared_bits_read_no_more_rows_than_are_charged(town, monkeypatch):
    """The defence is the charge of what a sum's field holds (`Meter.charge`)."""
    reading = marking(town, monkeypatch)
    assert not reading.errors
    assert reading.share == 1.0
    assert reading.share <= reading.placed
    assert reading.sums < 0.1


@pytest.mark.parametrize("forecast", [True, False])
def test_marks_above_the_declared_bits_read_no_more_rows_than_the_owner_allows(
    forecast, town, monkeypatch
):
    if not forecast:
        without_forecast(monkeypatch)
    reading = marking(town, monkeypatch, placed_max=LIMIT)
    assert reading.keys == {"policy.placed_max"}
    assert reading.share <= reading.placed <= LIMIT
    assert (reading.share > 0.0) is not forecast


def test_marks_above_the_declared_bits_read_every_row_where_sums_are_equations(town, monkeypatch):
    without_forecast(monkeypatch)
    without_charge(monkeypatch)
    reading = marking(town, monkeypatch, placed_max=LIMIT)
    assert reading.share == 1.0
    assert reading.placed == 0.0


# Winners: a guest that names a candidate which it has not seen divide yet

CHOSEN = 6000


def choosing(town, monkeypatch, **rules):
    """Trees of one layer; the guest knows what it has seen by the sums of these rows."""
    town.label(ids=[f"p{row:05d}" for row in range(CHOSEN)])
    lefts: list[np.ndarray] = []
    grow = secureboost_guest.grow_nodes

    def choose_splits(me, got):
        tree_batch = me.growing.tree_batch
        [(sums, _)] = secureboost_guest._read_sums(me, got)[HOST].values()
        gh = tree_batch.trees[0].gh
        seen = {tuple(gh[left].sum(axis=0).tolist()) for left in lefts}
        by_rows = np.argsort(sums[:, 1]).tolist()  # hessians are alike: of the fewest rows first
        fresh = [place for place in by_rows if tuple(sums[place].tolist()) not in seen]
        won = {0: WinningSplit(1, 1.0, sums[fresh[0]][None], np.ones(1, np.int64))} if fresh else {}
        tree_batch.take_winners(won)
        return Out(send={HOST: write_choices({0: [np.array(fresh[:1])]} if fresh else {})})

    def grow_nodes(me, got):
        out = grow(me, got)
        lefts.extend(~right for _, right in me.growing.tree_batch.trees[0].growth.last_divided)
        return out

    monkeypatch.setattr(secureboost_guest, "choose_splits", choose_splits)
    monkeypatch.setattr(secureboost_guest, "grow_nodes", grow_nodes)
    params = {"n_estimators": BINS - 1, "max_depth": 1, "max_bin": BINS, **LATTICE}
    spec = job_spec("secureboost", (GUEST, HOST), data={GUEST: {"columns": ["w"]}}, params=params)
    reading = run(town, CHOSEN, spec, **rules)
    # Which cut of eight equal bins it is shows by how many rows are left of it.
    cuts = {round(int(left.sum()) * BINS / CHOSEN): left for left in lefts}
    above = np.zeros(CHOSEN, int)
    below = np.full(CHOSEN, BINS)
    for cut, left in cuts.items():
        below[left] = np.minimum(below[left], cut)
        above[~left] = np.maximum(above[~left], cut)
    reading.known = {row: int(above[row]) for row in np.flatnonzero(below - above == 1).tolist()}
    return reading


def test_winners_that_a_guest_chooses_read_no_more_rows_than_are_charged(town, monkeypatch):
    """The defence is the charge of what divisions add (`NarrowedRows.divide`)."""
    reading = choosing(town, monkeypatch)
    assert reading.share == 1.0
    assert reading.share <= reading.placed
    assert reading.sums < 0.01


def test_winners_that_a_guest_chooses_read_no_more_rows_than_the_owner_allows(town, monkeypatch):
    without_forecast(monkeypatch)
    reading = choosing(town, monkeypatch, placed_max=3 * LIMIT)
    assert reading.keys == {"policy.placed_max"}
    assert 0.0 < reading.share <= reading.placed <= 3 * LIMIT


def test_winners_that_a_guest_chooses_read_every_row_where_divisions_are_equations(
    town, monkeypatch
):
    without_forecast(monkeypatch)
    without_charge(monkeypatch)
    reading = choosing(town, monkeypatch, placed_max=LIMIT)
    assert reading.share == 1.0
    assert reading.placed == 0.0
