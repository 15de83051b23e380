"""Sums of few people: read outright, or left when a child's sums are taken off its parent's."""

import numpy as np
import pytest

from fedboost.core import groups
from fedboost.core.partition import ROOT, parent, sibling
from tests.support.federated import now
from tests.support.secureboost_jobs import made
from tests.unit.core.test_groups import MISSING, grown, table

LEAST = 20


# In one node's sums


def fewest_in_a_node(heard, least):
    """A guest learns a squared error, whose hessians are 1, so that their sums count rows.

    The fewest rows between two sums that a host with one column has let go.
    """
    said = {"objective": "reg:squarederror", "n_estimators": 2, "max_bin": 32, "max_depth": 4}
    job = made(said, (1, 1), 1500, missing=0.0, held=None, least=least)
    heard.clear()
    now(job.room().walk())
    hessians = [np.sort(sums[:, 1]) for sums in heard if len(sums)]
    one = np.gcd.reduce(np.concatenate(hessians))  # what a row adds
    gaps = np.concatenate([np.diff(own, prepend=0) // one for own in hessians])
    assert len(gaps) > 20
    return gaps[gaps > 0].min()


def test_no_sum_of_fewer_than_the_minimum_is_read_in_a_node(heard):
    assert fewest_in_a_node(heard, LEAST) >= LEAST


def test_sums_of_few_rows_are_read_in_a_node_without_a_minimum(heard):
    assert fewest_in_a_node(heard, 1) < LEAST // 4


# In what a parent's sums leave


def cuts(own, column):
    """Between which cells of a node's column sums have been let go."""
    return np.flatnonzero(np.diff(own[column, : MISSING + 1].astype(int)))


def fewest_by_subtraction(least, seed):
    """A guest that knows which sums belong together takes a child's off the parent's.

    So it has each cut of a node that was let go there, or in its parent and its sibling; gives the
    fewest rows between two of them.
    """
    draw = np.random.default_rng(seed)
    made_up = table(draw, 600, lost=0.0)
    seen, _ = grown(draw, made_up, least, layers=4)
    fewest: list[int] = []
    for node, (own, rows) in seen.items():
        for column in range(len(own)):
            known = set(cuts(own, column).tolist())
            if node != ROOT:
                above = set(cuts(seen[parent(node)][0], column).tolist())
                known |= above & set(cuts(seen[sibling(node)][0], column).tolist())
            bins = made_up.bins[rows, column]
            held = np.histogram(bins, bins=[-0.5, *(c + 0.5 for c in sorted(known)), np.inf])[0]
            fewest += held[held > 0].tolist() if known else []
    return min(fewest)


@pytest.mark.parametrize("seed", range(5))
def test_no_sum_of_fewer_than_the_minimum_is_left_when_a_child_is_taken_off_its_parent(seed):
    assert fewest_by_subtraction(LEAST, seed) >= LEAST


def test_sums_of_few_rows_are_left_where_a_node_does_not_look_at_its_sibling(monkeypatch):
    monkeypatch.setattr(groups, "sibling", lambda node: node)
    assert min(fewest_by_subtraction(LEAST, seed) for seed in range(5)) < LEAST // 4
