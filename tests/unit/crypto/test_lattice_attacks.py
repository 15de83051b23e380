"""What a curious or lying guest tries, each with the control that shows that the attempt would
succeed without the defence.
"""

import dataclasses
import itertools
from unittest import mock

import numpy as np
import pytest

from fedboost.crypto.lattice import answers
from fedboost.crypto.lattice.answers import TreeKey
from fedboost.crypto.lattice.cells import EncryptedRows
from fedboost.crypto.lattice.decryption import decrypt, open_vectors
from fedboost.crypto.lattice.polynomials import TreePolynomials
from fedboost.crypto.lattice.released import AnswerShape
from fedboost.crypto.lattice.words import unpack_fields
from fedboost.ground.errors import PeerError
from tests.support.lattices import (
    HOST,
    LATTICE,
    LATTICE_LARGE,
    ORIGIN,
    Grown,
    drawn_messages,
    grown,
    integer_sums,
    row_errors,
    signed,
    unguarded,
)
from tests.support.releases import release

RING = 2048
UNROUNDED = unguarded(drop_bits=0)


def cells_of(of, taken):
    """One cell for each row of `taken`, bool (cells, rows)."""
    return of.cells(np.ascontiguousarray(taken.T.astype(np.int32) - 1), 1)


def vectors_of(of, cells, width):
    """The vectors of released cells as the guest reads them, uint64 (n, N), modulo 2^width."""
    own = of.secret.tree.parameters
    shape = AnswerShape(own, cells.outputs, width)
    data = np.frombuffer(release(of.key, cells, width, HOST).to_bytes(), np.uint8)
    vectors = np.empty((len(cells), own.ring), np.uint64)
    assert unpack_fields(
        data.reshape(len(cells), -1)[:, shape.spans()[0][0]], shape.vector_bits, vectors
    )
    return vectors << np.uint64(own.drop_bits)


# Which rows are in a cell? Solving for them.


def windows_of(tree, rows):
    """Each row's window, uint64 (rows, N), which the guest derives as well as the host."""
    ring = tree.parameters.ring
    found = []
    for row in range(rows):
        block, place = divmod(row, ring)
        a = tree.of_rows(block)
        found.append(np.concatenate([np.uint64(0) - a, a])[place + 1 : place + 1 + ring])
    return np.array(found)


def solved_for_rows(windows, vector):
    """The rows x with Σ x·window = vector modulo 2, by elimination; None if there are none."""
    system = np.concatenate([windows & np.uint64(1), vector[None] & np.uint64(1)])
    # One equation for each coefficient; its unknowns and its right side are the bits of a number.
    equations = [int("".join(map(str, column[::-1])), 2) for column in system.T.tolist()]
    pivots: dict[int, int] = {}
    for equation in equations:
        left = equation
        for unknown, pivot in pivots.items():
            if left >> unknown & 1:
                left ^= pivot
        own = left & ((1 << len(windows)) - 1)
        if own == 0:
            if left:
                return None  # 0 = 1
            continue
        unknown = (own & -own).bit_length() - 1
        pivots = {key: row ^ left if row >> unknown & 1 else row for key, row in pivots.items()}
        pivots[unknown] = left
    return [pivots[unknown] >> len(windows) & 1 for unknown in range(len(windows))]


def test_rows_of_a_cell_are_solved_for_without_rerandomisation_and_not_with_it():
    """Even if answers left without rounding, with all bits."""
    of = grown(drawn_messages(8192, UNROUNDED), UNROUNDED)
    width = of.budget.width(8192)
    assert width == 53
    draw = np.random.default_rng(0)
    taken = np.zeros((3, 8192), bool)
    taken[:, :150] = draw.random((3, 150)) < 0.5
    cells = cells_of(of, taken)
    windows = windows_of(of.secret.tree, 150)
    for vector, truth in zip(cells.vectors, taken, strict=True):
        assert solved_for_rows(windows, vector) == truth[:150].astype(int).tolist()
    for vector in vectors_of(of, cells, width):
        assert solved_for_rows(windows, vector) is None


# Which rows are in a cell? Correlating with the errors that the guest knows.


def correlation(own, samples):
    """Of what is left of a decrypted number with the sum of its rows' errors."""
    rows = 16_384
    of = grown(drawn_messages(rows, own), own)
    errors = row_errors(of)
    draw = np.random.default_rng(2)
    left, known = [], []
    width = of.budget.width(rows)
    for _ in range(samples // 50):
        taken = draw.random((50, rows)) < 0.5
        cells = cells_of(of, taken)
        data = release(of.key, cells, width, HOST).to_bytes()
        numbers = open_vectors(of.secret, data, 50, AnswerShape(own, 2, width))
        sums = integer_sums(of.messages, taken.T.astype(np.int32) - 1, 1)
        left.append(numbers - (sums << own.scale_bits))
        known.append(taken.astype(np.int64) @ errors)
    return [
        float(np.corrcoef(one, other)[0, 1])
        for one, other in zip(np.concatenate(left).T, np.concatenate(known).T, strict=True)
    ]


def test_what_is_left_correlates_with_the_rows_errors_without_flood_and_rounding():
    assert min(correlation(unguarded(drop_bits=0, flood=3.2), 300)) > 0.5


@pytest.mark.some(10, of="distributions")
@pytest.mark.parametrize("own", [LATTICE, LATTICE_LARGE], ids=lambda own: own.name)
def test_what_is_left_does_not_correlate_with_the_rows_errors(own):
    samples = 800
    assert max(map(abs, correlation(own, samples))) < 4 / np.sqrt(samples)


# Polynomials of the guest's choice


@dataclasses.dataclass(frozen=True)
class Chosen(TreePolynomials):
    """A tree whose polynomials the guest chose: what there would be if they were received."""

    own_answers: bool = True  # a' = 0
    own_rows: bool = True  # a = 2^40, whose windows have a single coefficient each

    def of_rows(self, block):
        if not self.own_rows:
            return super().of_rows(block)
        a = np.zeros(RING, np.uint64)
        a[0] = 2**40
        return a

    def of_answers(self, host):
        zero = np.zeros(RING, np.uint64)
        return zero if self.own_answers else super().of_answers(host)


def chosen(rows, **choices) -> Grown:
    """Both sides without the derivation, the host not looking at the keys."""
    with mock.patch.object(answers, "_check_spread"):
        return grown(drawn_messages(rows), tree=Chosen(LATTICE, ORIGIN, 3, **choices))


def test_a_zero_polynomial_reads_every_row_if_polynomials_are_received():
    of = chosen(RING)
    taken = np.random.default_rng(1).random((2, RING)) < 0.3
    width = of.budget.width(RING)
    cells = cells_of(of, taken)
    read = np.abs(signed(vectors_of(of, cells, width), width))[:, ::-1] > 2**39
    assert (read == taken).all()
    assert (decrypt(of.secret, release(of.key, cells, width, HOST).to_bytes(), 2, RING)
            == integer_sums(of.messages, taken.T.astype(np.int32) - 1, 1)).all()  # fmt: skip


def test_rows_stay_hidden_behind_a_derived_polynomial_even_if_theirs_are_chosen():
    of = chosen(RING, own_answers=False)
    taken = np.random.default_rng(1).random((20, RING)) < 0.5
    width = of.budget.width(RING)
    read = np.abs(signed(vectors_of(of, cells_of(of, taken), width), width))[:, ::-1]
    read = read > np.median(read)
    assert (read == taken).mean() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(taken.size))


def confirmed(of, rows):
    """Which guesses at the rows of a cell fit its vector, of all 2^rows."""
    width = of.budget.width(rows)
    taken = np.random.default_rng(6).random((1, rows)) < 0.5
    vector = vectors_of(of, cells_of(of, taken), width)[0]
    windows = windows_of(of.secret.tree, rows)[:, :64]
    guesses = np.array(list(itertools.product((0, 1), repeat=rows)), np.uint64)
    apart = np.abs(signed(vector[:64] - guesses @ windows, width)).max(axis=1)
    fit = guesses[apart < 2**17].astype(int).tolist()
    return fit, taken[0].astype(int).tolist()


def test_a_zero_polynomial_alone_confirms_guesses_and_the_derived_one_none():
    fit, truth = confirmed(chosen(12, own_rows=False), 12)
    assert fit == [truth]
    fit, _ = confirmed(grown(drawn_messages(12)), 12)
    assert fit == []


def test_keys_of_a_zero_polynomial_are_refused_and_would_decrypt_to_nothing():
    """Where polynomials are derived, a guest that works with its own gets no further."""
    of = chosen(RING)
    honest = TreePolynomials(LATTICE, ORIGIN, 3)
    keys = of.secret.public_keys(0)
    with pytest.raises(PeerError, match="not random"):
        TreeKey.received(honest, 0, keys, 2)
    with mock.patch.object(answers, "_check_spread"):
        own = dataclasses.replace(of, key=TreeKey.received(honest, 0, keys, 2))
    taken = np.ones((20, RING), bool)
    width = of.budget.width(RING)
    read = np.abs(signed(vectors_of(own, cells_of(own, taken), width), width)) > 2 ** (width - 2)
    assert read.mean() == pytest.approx(0.5, abs=0.02)
    released = release(own.key, cells_of(own, taken), width, HOST).to_bytes()
    with pytest.raises(PeerError, match="does not decrypt"):
        decrypt(own.secret, released, 20, RING, np.abs(of.messages).sum(axis=0))


# Messages above their bits


def test_messages_beyond_the_width_vanish():
    """A guest marks one row far above the sums, and asks whether the mark is in the answer."""
    honest = grown(drawn_messages(RING))
    width = honest.budget.width(RING)
    marked = honest.rows.numbers.copy()
    marked[77] = (marked[77] + np.uint64(1 << width)) & LATTICE.mask
    own = dataclasses.replace(
        honest, rows=EncryptedRows(honest.rows.tree, marked, honest.rows.windows)
    )
    taken = np.random.default_rng(3).random((40, RING)) < 0.5
    plain, stuffed = (cells_of(of, taken) for of in (honest, own))
    sums = integer_sums(honest.messages, taken.T.astype(np.int32) - 1, 1)

    def answered(cells, bits):
        return release(honest.key, cells, bits, HOST).to_bytes()

    # Without the reduction to W bits the mark is read in every answer.
    every = open_vectors(own.secret, answered(stuffed, 53), 40, AnswerShape(LATTICE, 2, 53))
    marks = every - (sums << 24) + 2 ** (width - 1) >> width
    assert (marks == np.where(taken[:, 77:78], 1, 0)).all()
    # With it, nothing of the mark is left, down to the last octet.
    assert answered(stuffed, width) == answered(plain, width)
    assert (decrypt(own.secret, answered(stuffed, width), 40, RING) == sums).all()


# Many answers about one cell


def test_zero_encryptions_are_no_rotations_of_one_another():
    """Where one v served two answers, a rotation of one vector would nearly be the other."""
    of = grown(drawn_messages(100))
    width = of.budget.width(100)
    cells = cells_of(of, np.ones((1, 100), bool))[np.zeros(3, np.int64)]
    vectors = vectors_of(of, cells, width) - (cells.vectors & np.uint64(2**width - 1))
    for i, j in itertools.combinations(range(3), 2):
        for turn in range(0, RING, 64):
            apart = np.abs(signed(vectors[i] - np.roll(vectors[j], turn), width))
            assert (apart < 2**18).mean() < 0.01
