"""Rows marked by powers of two: what a sum tells is what its field holds, not what it is about."""

from dataclasses import replace

import numpy as np
import pytest

from fedboost.core.gradient_bits import BITS_ENCRYPTED, BITS_MAX
from fedboost.crypto.lattice import secret as lattice_secret
from fedboost.encrypted.guest import rounds
from fedboost.encrypted.guest.rounds import OpenRound
from fedboost.encrypted.guest.tree import GuestTree
from fedboost.encrypted.scheme.schemes import SCHEMES
from fedboost.flow import GUEST as GUEST_ROLE
from fedboost.ground.errors import DataError, PolicyError
from fedboost.protocols.secureboost.params import check_table
from fedboost.runtime.config.policy import Policy
from tests.support.federated import GUEST, HOSTS, now
from tests.support.secureboost_jobs import made

HOST = HOSTS[0]
ROWS, COLUMNS = 600, 4
MARKED = 40  # rows that the attacker wants to know
ONE_LAYER = {
    "n_estimators": 1,
    "max_depth": 1,
    "max_bin": 16,
    "objective": "reg:squarederror",
    "base_score": 1.0,
    "min_child_weight": 0.0,
}


def job_of(weight=None, **params):
    """A root whose sums are of a host's columns: so many that no two rows look alike."""
    job = made({**ONE_LAYER, **params}, (1, COLUMNS), ROWS, missing=0.0, held=0.0)
    values = np.random.default_rng(5).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    columns = {**job.columns, HOST: values}
    return replace(job, columns=columns, y=np.zeros(ROWS), weight=weight)


def sides(room):
    """Which rows stand on the left of each candidate of the host, bool (candidates, rows)."""
    host = room.state(HOST)
    offer = host.tree_batch.offered[0]
    listed = offer.listed
    last = listed.bin[offer.order]
    return last[:, None] >= host.bins[:, listed.column[offer.order]].T


def rows_read(numbers, truth, marks):
    """How many marked rows' sides the sums say, right of every candidate: the greatest mark that
    fits is in a sum, then the next. `marks` (rows,), 0 of rows that are in no sum.
    """
    rows = [row for row in np.argsort(-marks, kind="stable") if marks[row]]
    left, right = numbers.copy(), 0
    for row in rows:
        inside = left >= marks[row]
        left -= inside * marks[row]
        right += int((inside == truth[:, row]).all())
    return right


# The stock program, and weights of the guest's choice


def powers():
    """Weights 2^i of 40 rows, 0 of all others."""
    weight = np.zeros(ROWS)
    weight[:MARKED] = np.ldexp(1.0, np.arange(MARKED) - MARKED)
    return weight


def rows_read_by_weights(heard, **params):
    """How many of the rows that weights mark a guest reads from the root's sums of hessians."""
    job = job_of(powers(), **params)
    room = now(job.room().until("divide_rows"))
    return rows_read(heard[0][:, 1], sides(room), room.state(GUEST).round.gh[:, 1])


def test_weights_read_no_more_rows_than_a_gradient_has_bits(heard):
    assert 1 <= rows_read_by_weights(heard) <= BITS_ENCRYPTED


def test_weights_read_every_row_they_mark_where_gradients_are_wide(heard):
    assert rows_read_by_weights(heard, precision_bits=52) == MARKED


def test_an_owner_refuses_wide_gradients_unless_it_said_otherwise():
    job = job_of(precision_bits=52)
    with pytest.raises(PolicyError, match="allows 7 bits per gradient") as refused:
        now(job.room(Policy(group_rows_min=1)).until("divide_rows"))
    assert "set precision_bits of the job to at most 7" in refused.value.todo
    now(job.room(Policy(group_rows_min=1, gradient_bits_max=52)).until("divide_rows"))


def weighed(job):
    """What the guest's program says of the job's weights before anything leaves."""
    context = job.room().contexts[GUEST]
    check_table(GUEST_ROLE, context.params, context.data, held_out=False)


def test_weights_that_differ_by_more_than_any_honest_ones_are_refused():
    with pytest.raises(DataError, match="times the least above 0, and 1024 times is"):
        weighed(job_of(powers()))


# A changed program, and marks that fill the field of a sum


def field_bits(bits):
    """How wide the sum of a node of all rows is, declared for numbers of so many bits."""
    return (ROWS - 1).bit_length() + bits


def rows_read_by_marks(heard, monkeypatch, scheme, **params):
    """How many rows a changed guest reads from the root's sums of hessians, one number each."""
    start, gh = rounds.Rounds.start_round, np.zeros((ROWS, 2), np.int64)
    gh[:MARKED, 1] = 1 << np.arange(MARKED)

    def marked(self, fixed):
        start(self, fixed)
        self.round = OpenRound(self.round.sample, gh)

    monkeypatch.setattr(rounds.Rounds, "start_round", marked)
    monkeypatch.setattr(lattice_secret, "_check_messages", lambda *_: None)
    expected = GuestTree.expected
    huge = np.full(2, 1 << 61)
    monkeypatch.setattr(
        GuestTree, "expected", lambda self: [replace(e, most=huge) for e in expected(self)]
    )
    job = job_of(encryption={"scheme": scheme}, **params)
    room = now(job.room().until("divide_rows"))
    bits = (heard[0][:, 1][:, None] >> np.arange(MARKED)) & 1  # a sum may wrap in its field
    return int((bits == sides(room)[:, :MARKED]).all(axis=0).sum())


def test_marks_read_no_more_rows_than_the_field_of_a_sum_has_bits(heard, monkeypatch):
    read = rows_read_by_marks(heard, monkeypatch, "lattice")
    assert BITS_ENCRYPTED < read <= field_bits(BITS_ENCRYPTED) + 1


def test_marks_read_more_rows_where_gradients_are_wider(heard, monkeypatch):
    wide = SCHEMES["lattice"].gradient_bits_max
    read = rows_read_by_marks(heard, monkeypatch, "lattice", precision_bits=wide)
    assert field_bits(BITS_ENCRYPTED) + 1 < read <= field_bits(wide) + 1
    assert wide < BITS_MAX
