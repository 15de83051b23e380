"""How many sums of an honest horizontal job are about a single person, to everybody in it."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from fedboost.aggregation.contributor import Contributor
from fedboost.core import binning, objectives, own_rows
from fedboost.core.growth import GrowingTree
from fedboost.core.objectives import Summary
from fedboost.core.own_rows import OwnRows
from fedboost.core.params import TreeParams
from fedboost.core.rules import Rules
from fedboost.ground.errors import PolicyError
from fedboost.runtime.config.policy import Policy
from tests.attacks.test_sums_bound import ADDER, COLUMNS, PARTIES, STAGE, VALUES
from tests.support.columns import chosen
from tests.support.federated import frame_of, now, room_for

ROWS = 700
LARGER = 1000
WIDE = 12


def tables():
    """Whole numbers in a few columns, some of them rare; labels 0 and 1."""
    draw = np.random.default_rng(3)
    found = {}
    for party in PARTIES:
        values = np.minimum(draw.geometric(0.2, (ROWS, COLUMNS)), VALUES) - 1
        label = draw.random(ROWS) < 0.2 + 0.6 * (values[:, 0] > 3)
        ids = [f"{party}{i}".encode() for i in range(ROWS)]
        found[party] = frame_of(ids, values.astype(np.float32), label)
    return found


def labels_read(monkeypatch, least):
    """Of all cells that totals tell of, how many are one row's gradient: its label, at p = 1/2."""
    domains = {f"c{i}": [float(v) for v in range(VALUES)] for i in range(COLUMNS)}
    params = {"n_estimators": 1, "max_depth": 4, "max_bin": VALUES, "base_score": 0.5}
    limits = Policy(intersection_min=1, own_rows_min=least)
    room = room_for(
        STAGE, tables(), {**params, "domains": domains}, aggregator=ADDER, limits=limits
    )
    layers, real = list[NDArray[np.int64]](), Contributor.total

    def total(self, parts, most):
        found = real(self, parts, most)
        assert found is not None
        if self.party == PARTIES[0] and self.number > 2:  # behind counts of rows and labels
            layers.append(found)
        return found

    monkeypatch.setattr(Contributor, "total", total)
    now(room.walk())
    grown = [own.reshape(-1, 2) for own in layers[:-1]]  # without metrics
    cells = np.concatenate(grown)
    unit = grown[0][:, 1].astype(float).sum() / (
        COLUMNS * ROWS * len(PARTIES)
    )  # of h, at the root of all rows
    rows = np.rint(cells[:, 1] / unit)
    return int(np.sum(rows == 1)), int(np.sum(rows > 0)), rows[rows > 0].min()


def test_no_sum_of_a_tree_is_of_fewer_rows_than_an_owner_says(monkeypatch):
    alone, cells, fewest = labels_read(monkeypatch, Policy().own_rows_min)
    assert cells > 300
    assert alone == 0
    assert fewest >= Policy().own_rows_min


def test_sums_of_a_tree_are_one_persons_gradient_where_nobody_counts_rows(monkeypatch):
    alone, cells, _ = labels_read(monkeypatch, 1)
    assert alone > cells / 20


# A party of few rows, whose part every sum of all rows has


def counted_rows(rows, least, stage):
    """Lets a party of so few rows add up; gives how many rows the others' accomplices take it
    for: all less their own."""
    frames = tables()
    few = frames[PARTIES[2]]
    frames[PARTIES[2]] = frame_of(few.ids[:rows], few.values[:rows], few.label[:rows])
    limits = Policy(intersection_min=1, own_rows_min=least)
    params = {"quantile_tolerance": 20} if stage == STAGE else {}
    room = room_for(stage, frames, params, aggregator=ADDER, limits=limits)
    now(room.until("sum_labels" if stage == STAGE else "sum_columns"))
    counts = room.state(PARTIES[0]).counts
    return counts.train - 2 * ROWS


@pytest.mark.parametrize("stage", [STAGE, "gbun"])
@pytest.mark.parametrize("rows", [1, 4])
def test_a_party_of_fewer_rows_than_its_owner_says_adds_nothing_up(stage, rows):
    with pytest.raises(PolicyError) as caught:
        counted_rows(rows, 5, stage)
    assert caught.value.where["key"] == "policy.own_rows_min"
    assert str(rows) not in caught.value.kind


@pytest.mark.parametrize("stage", [STAGE, "gbun"])
def test_a_party_of_few_rows_is_summed_where_its_owner_counts_none(stage):
    assert counted_rows(4, 1, stage) == 4


# What two columns tell of the same node


def one_row_apart(seeds=range(8)):
    """Of how many nodes in how many two columns tell sums that differ by one row: its gradient."""
    nodes = alone = 0
    for seed in seeds:
        draw = np.random.default_rng(seed)
        values = draw.poisson(1.0, (3 * LARGER, WIDE)).astype(np.float32)  # with rare values
        label = (draw.random(len(values)) < 0.1 * values[:, :6].sum(axis=1)).astype(np.float64)
        params = TreeParams(objective="binary:logistic", max_depth=4)
        summary = Summary.of(params, label, np.ones(len(label)))
        objective = objectives.start_objective(params, summary)
        fixed = objectives.encoding(params, objective, summary)
        g, h = objective.gradients(np.zeros((len(label), 1)), label, np.ones(len(label)))
        cuts, own = binning.fit(values, VALUES, ()), Policy().own_rows_min
        rules = Rules(params, cuts, fixed, None, (own,) * 3, (LARGER,) * 3)
        rows, columns = (np.arange(n, dtype=np.int32) for n in (len(label), WIDE))
        bins = cuts.transform(values)
        tree = GrowingTree(rules, bins, fixed.encode(g, h), rows, chosen(columns))
        tree.take(tree.sums())
        while not tree.is_over:
            for node in tree.asked:
                held = [view for view in tree._views if isinstance(view, OwnRows)]
                views = [view._dense for view in held if view._dense]
                seen = np.concatenate([view.nodes == node for view in views], axis=1)
                pairs = itertools.combinations(seen, 2)
                nodes, alone = nodes + 1, alone + any(np.sum(a ^ b) == 1 for a, b in pairs)
            tree.take(tree.sums())
    return alone, nodes


def follow_alone(nodes, bins, indices, true_sides, rule, n_cells):
    """Sends rows by their true bins and the few of a cell after its others, without decoys."""
    (values, by, right), least = true_sides, rule[0]
    for own, cells in zip(nodes, bins, strict=True):
        for node in np.flatnonzero(indices >= 0).tolist():
            inside, at = np.flatnonzero(own == node), indices[node]
            side = right[at, values[by[at], inside]]
            for cell in np.unique(cells[inside]):
                rows, to = inside[cells[inside] == cell], side[cells[inside] == cell]
                if 0 < min(to.sum(), len(to) - to.sum()) < least:
                    to[:] = 2 * to.sum() >= len(to)
                own[rows] = 2 * node + 1 + to


def test_two_columns_do_not_tell_a_persons_gradient_by_their_difference():
    alone, nodes = one_row_apart()
    assert nodes > 40
    assert alone == 0


def test_two_columns_tell_a_persons_gradient_where_no_decoys_follow(monkeypatch):
    monkeypatch.setattr(own_rows, "_divide_rows", follow_alone)
    alone, nodes = one_row_apart()
    assert alone > nodes / 20
