"""How many sums of an honest horizontal job are about a single person, to everybody in it."""

import numpy as np
from numpy.typing import NDArray

from fedboost.aggregation.contributor import Contributor
from fedboost.runtime.config.policy import Policy
from tests.attacks.test_sums_bound import ADDER, COLUMNS, PARTIES, STAGE, VALUES
from tests.support.federated import frame_of, now, room_for

ROWS = 700


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
