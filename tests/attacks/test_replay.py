"""A guest with hostile data or a changed program reads rows; its replay says so."""

from typing import Any

import numpy as np

from fedboost.core import binning
from fedboost.encrypted import rounds
from fedboost.encrypted.guest_tree import GuestTree
from fedboost.encrypted.offers import Best
from fedboost.encrypted.rounds import OpenRound
from fedboost.runtime.party.replay_results import ColumnSummary
from tests.support.replayed import ROWS, TREES, host_values, spec, tables, trained

BITS = 8  # people that one number tells apart under the lattice
PEOPLE = range(20, 20 + BITS)
UNIT = (2**15 - 1) / 2 ** (BITS - 1)  # what a weight of 1 is where 128 is the greatest number
# With 15 bits of a gradient, which an owner may allow, a number tells all of `PEOPLE` apart.
ONE_LAYER: dict[str, Any] = {"n_estimators": 1, "max_depth": 1, "precision_bits": 15}


def people_read(numbers, unit):
    """How many cuts of the host's columns have who of `PEOPLE` is on the left, read from sums."""
    got = {tuple(round(s / unit) >> place & 1 for place in range(BITS)) for s in numbers.tolist()}
    values = host_values().astype(np.float32)
    cuts = binning.fit(values, TREES["max_bin"], (), {}, rows=np.ones(ROWS, bool)).cuts
    told = [
        tuple(int(values[row, column] < cut) for row in PEOPLE) in got
        for column in range(values.shape[1])
        for cut in cuts[column]
    ]
    return sum(told), len(told)


# 107: weights


def weighted(folder, heard):
    """A job of a stock guest whose weights are powers of two for some and 0 for all others."""
    weights = np.zeros(ROWS)
    weights[list(PEOPLE)] = 2.0 ** np.arange(BITS)
    table = tables(y=np.zeros(ROWS), w=weights)
    job = spec(
        data={"weight": "w", "columns": ["z"]},
        objective="reg:squarederror",
        base_score=1.0,
        min_child_weight=0.0,
        **ONE_LAYER,
    )
    declared = {"labels": ["y"], "weights": ["w"]}
    made = trained(folder, job, table, declared=declared)
    assert made.state == "finished"
    return made, people_read(np.concatenate(heard)[:, 1], UNIT)


def test_weights_that_are_powers_of_two_stand_in_the_replay(tmp_path, heard):
    """The defence is `ReplayedTable.weights`: no byte is wrong, and the auditor reads why."""
    made, (read, cuts) = weighted(tmp_path, heard)
    assert read == cuts
    result = made.replay()
    assert result.is_honest
    assert result.table.weights.distinct == BITS + 1
    assert result.table.weights.zero == ROWS - BITS
    assert "the largest 128 times the smallest; 232 rows have 0" in "\n".join(result.sentences())


def test_weights_that_are_powers_of_two_pass_where_a_replay_does_not_say_them(
    tmp_path, heard, monkeypatch
):
    made, (read, cuts) = weighted(tmp_path, heard)
    assert read == cuts
    monkeypatch.setattr(ColumnSummary, "in_words", lambda self, what: what)
    result = made.replay()
    assert result.is_honest
    assert "128" not in "\n".join(result.sentences()).replace(result.job, "")


# 108: marks


def marking(patch):
    """The guest encrypts marks in place of gradients: 2^i for some people."""
    start = rounds.Rounds.start_round

    def start_round(self, fixed):
        gradients = start(self, fixed)
        gh = np.zeros_like(self.round.gh)
        gh[list(PEOPLE), 1] = 1 << np.arange(BITS)
        self.round = OpenRound(self.round.sample, gh)
        return gradients

    patch.setattr(rounds.Rounds, "start_round", start_round)


def marked(folder, heard):
    made = trained(folder, spec(min_child_weight=0.0, **ONE_LAYER), change=marking)
    assert made.state == "finished"
    read, cuts = people_read(np.concatenate(heard)[:, 1], 1)
    assert read == cuts
    return made


def test_marks_in_place_of_gradients_do_not_pass_a_replay(tmp_path, heard):
    """The defence is `SentPayloads.confirm`, by a stock program: the table has other gradients."""
    result = marked(tmp_path, heard).replay()
    assert not result.is_honest
    assert "step encrypt_gradients" in result.difference
    assert "tree 0, node 0: gradients of its rows from 0 on" in result.difference


def test_marks_in_place_of_gradients_pass_a_replay_by_the_program_that_made_them(
    tmp_path, heard, monkeypatch
):
    """Why an auditor brings the program along."""
    made = marked(tmp_path, heard)
    marking(monkeypatch)
    assert made.replay().is_honest


# 109: winners


def halving(patch):
    """The guest names the candidate that halves a node, whatever it gains."""

    def best_of(self, node, sums, shape):
        left = sums[:, 1]
        place = int(np.argmin(np.abs(2 * left - self.totals[node][1])))
        return Best(1e9, [np.array([place])], sums[place][None])

    patch.setattr(GuestTree, "best_of", best_of)


def halved(folder):
    made = trained(folder, spec(), change=halving)
    assert made.state == "finished"
    return made


def test_winners_that_do_not_gain_most_do_not_pass_a_replay(tmp_path):
    """The defence is `SentPayloads.confirm`, by a stock program: others gain more."""
    result = halved(tmp_path).replay()
    assert not result.is_honest
    assert "step choose_splits" in result.difference
    assert "tree 0, node 0: who has won" in result.difference


def test_winners_that_do_not_gain_most_pass_a_replay_by_the_program_that_named_them(
    tmp_path, monkeypatch
):
    """Why an auditor brings the program along."""
    made = halved(tmp_path)
    halving(monkeypatch)
    assert made.replay().is_honest
