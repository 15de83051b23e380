"""What a guest reads from a host's offers beside their sums, and a host from the guest's rows."""

import itertools
from dataclasses import replace

import numpy as np

from fedboost.crypto.residues import ResiduePrivate
from fedboost.crypto.secrets import Secrets
from fedboost.ground import wire
from tests.support.federated import HOSTS, now
from tests.support.secureboost_jobs import made

HOST = HOSTS[0]
COLUMNS = 4


# The order of candidates


def neighbours_read(heard):
    """A guest takes a greater hessian sum for the next bin of the same column.

    The share of these guesses that is right.
    """
    job = made({"n_estimators": 1}, (1, COLUMNS), 600, missing=0.0)
    room = now(job.room().until("divide_rows"))
    offer = room.state(HOST).tree_batch.offered[0]
    listed, order = offer.listed, offer.order
    place = {(int(listed.column[i]), int(listed.bin[i])): i for i in range(len(order))}
    by_column = sorted(place)
    follows = {
        place[one]: place[other]
        for one, other in itertools.pairwise(by_column)
        if one[0] == other[0]
    }
    hessians = heard[0][:, 1]
    guesses = [k for k in range(len(order) - 1) if hessians[k] < hessians[k + 1]]
    right = [follows.get(int(order[k])) == int(order[k + 1]) for k in guesses]
    assert len(right) >= 8
    return np.mean(right)


def test_neighbouring_bins_are_not_read_from_the_order_of_candidates(heard):
    assert neighbours_read(heard) < 0.3


def test_neighbouring_bins_are_read_from_the_order_of_candidates_that_stay_in_place(
    heard, monkeypatch
):
    monkeypatch.setattr(Secrets, "permutation", lambda _, count, *__: np.arange(count))
    assert neighbours_read(heard) > 0.9


# Counts of rows


def sums_with_rows_moved(heard, to):
    """All sums of a root, sorted, where rows without weight have the value `to` at the host."""
    job = made({"n_estimators": 1, "precision_bits": 20}, (1, 1), 200, missing=0.0, weighted=True)
    values = np.arange(200, dtype=np.float32)[:, None] % 4
    job.weight[::5] = 0.0
    values[::5] = to
    job = replace(job, columns={**job.columns, HOST: values})
    now(job.room().until("divide_rows"))
    return sorted(map(tuple, heard.pop(0).tolist()))


def test_counts_of_rows_are_not_read_from_sums(heard):
    assert sums_with_rows_moved(heard, 0.0) == sums_with_rows_moved(heard, 3.0)


def test_counts_of_rows_are_read_from_sums_where_gradients_carry_an_offset(heard, monkeypatch):
    """As in FATE, where g + offset travels and every sum holds its rows' number."""
    encrypt, offset = ResiduePrivate.encrypt, np.array([1, 0])
    monkeypatch.setattr(
        ResiduePrivate, "encrypt", lambda self, gh, *given: encrypt(self, gh + offset, *given)
    )
    assert sums_with_rows_moved(heard, 0.0) != sums_with_rows_moved(heard, 3.0)


# Which rows take part


def ranking_by_rows_that_take_part(params):
    """A host ranks rows by whether they take part in the first tree; the AUC of their labels."""
    job = made({"n_estimators": 1, **params}, (2, 2), 400, missing=0.0, held=None)
    # One label in ten is 1, so that these have the large gradients.
    job = replace(job, y=(np.arange(400) % 10 == 0).astype(np.float64))
    room = now(job.room().until("open_layer"))
    message = next(
        p.message
        for p in room.posted
        if p.envelope.receiver == HOST and p.envelope.kind.endswith("EncryptedGradients")
    )
    taking_part = np.ones(400, bool)
    if message.HasField("taking_part"):
        taking_part = wire.unpack_bits(message.taking_part, 400, "the rows that take part")
    ones, zeros = taking_part[job.y == 1].mean(), taking_part[job.y == 0].mean()
    return (1 + ones - zeros) / 2  # of a score with two values


def test_labels_are_not_ranked_by_the_rows_that_take_part():
    assert ranking_by_rows_that_take_part({}) == 0.5
    drawn = ranking_by_rows_that_take_part({"subsample": 0.3})
    assert abs(drawn - 0.5) < 0.15


def test_labels_are_ranked_by_the_rows_that_take_part_with_goss():
    """Which is why it is off unless the job says so, and policies and ledgers name it."""
    goss = {"goss": {"top_rate": 0.1, "other_rate": 0.1}}
    assert ranking_by_rows_that_take_part(goss) > 0.9
