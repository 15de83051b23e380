"""Two answers of one zero encryption, which is why no two answers share any."""

import numpy as np

from fedboost.crypto.lattice import answers
from tests.support.lattices import drawn_messages, grown, unguarded
from tests.unit.crypto.test_lattice_attacks import (
    cells_of,
    solved_for_rows,
    vectors_of,
    windows_of,
)

UNROUNDED = unguarded(drop_bits=0, flood=3.2, error_bits=0)
ROWS = 150


def rows_between_two_answers():
    """The difference of two answers, solved for the rows that are in one of them and not the other.

    Without errors and rounding, so that the shared zero encryption is all that hides them.
    """
    of = grown(drawn_messages(2048, UNROUNDED), UNROUNDED)
    width = of.budget.width(2048)
    taken = np.zeros((2, 2048), bool)
    taken[1, :ROWS] = np.random.default_rng(4).random(ROWS) < 0.5  # the first has none of them
    taken[:, 2000] = True
    first, second = vectors_of(of, cells_of(of, taken), width)
    read = solved_for_rows(windows_of(of.secret.tree, ROWS), second - first)
    return read, taken[1, :ROWS].astype(int).tolist()


def test_rows_are_not_solved_for_between_two_answers():
    read, truth = rows_between_two_answers()
    assert read is None
    assert 0 < sum(truth) < ROWS


def test_rows_are_solved_for_between_two_answers_of_one_zero_encryption(monkeypatch):
    drawn = answers._secret_bytes

    def shared(key, asked, *sums):
        v, e1, e2 = drawn(key, asked, *sums)
        return [np.repeat(v[:1], len(v), axis=0), np.repeat(e1[:1], len(e1), axis=0), e2]

    monkeypatch.setattr(answers, "_secret_bytes", shared)
    read, truth = rows_between_two_answers()
    assert read == truth
