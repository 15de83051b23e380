"""Answers: exact sums, noise as the formula says, byte-identical when asked again, refused when
malformed.
"""

import dataclasses
import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.crypto.lattice import samples
from fedboost.crypto.lattice.answers import TOGETHER, TreeKey
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.cells import EncryptedRows, LatticeSums
from fedboost.crypto.lattice.decryption import decrypt, open_vectors
from fedboost.crypto.lattice.parameters import groups_of
from fedboost.crypto.lattice.polynomials import TreePolynomials
from fedboost.crypto.lattice.released import AnswerShape
from fedboost.crypto.lattice.secret import TreeSecret
from fedboost.crypto.lattice.words import bytes_of, field_bytes, pack_fields, unpack_fields
from fedboost.crypto.secrets import Secrets
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.runtime.process.threads import ThreadWorkers
from tests import tiers
from tests.support.lattices import (
    GUEST,
    HOST,
    LATTICE,
    LATTICE_LARGE,
    ORIGIN,
    RINGS,
    TINY,
    drawn_cells,
    drawn_messages,
    grown,
    integer_sums,
    negacyclic,
    unguarded,
)
from tests.support.releases import release

ROWS = 3000
OWN = grown(drawn_messages(ROWS))
COLUMN = drawn_cells(ROWS, 2, 25)
CELLS = OWN.cells(COLUMN, 25)
WIDTH = OWN.budget.width(ROWS)
SUMS = integer_sums(OWN.messages, COLUMN, 25)


def released(of=OWN, cells=CELLS, width=WIDTH, secrets=HOST, workers=None):
    return release(of.key, cells, width, secrets, workers).to_bytes()


ANSWERS = released()
EACH = len(ANSWERS) // len(CELLS)


# Exactness


@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
@pytest.mark.parametrize("rows", [1, 2, 3, 100, 2047, 2048, 2049, 10_000])
def test_decrypted_sums_are_the_integer_sums(own, rows):
    of = grown(drawn_messages(rows, own), own)
    column = drawn_cells(rows, 3, 16)
    got = decrypt(of.secret, released(of, of.cells(column, 16), of.budget.width(rows)), 48, rows)
    assert got.dtype == np.int64
    assert (got == integer_sums(of.messages, column, 16)).all()


def test_sums_of_a_million_rows_are_exact():
    rows = 1 << 20
    of = grown(drawn_messages(rows))
    column = drawn_cells(rows, 1, 64)
    got = decrypt(of.secret, released(of, of.cells(column, 64), of.budget.width(rows)), 64, rows)
    assert (got == integer_sums(of.messages, column, 64)).all()


def test_sums_of_more_rows_than_lattice_adds_up_are_exact():
    rows = (1 << 21) + 1000
    of = grown(drawn_messages(rows, LATTICE_LARGE), LATTICE_LARGE)
    assert of.budget == Budget(LATTICE_LARGE, rows)  # of 15 bits
    column = drawn_cells(rows, 1, 3)
    got = decrypt(of.secret, released(of, of.cells(column, 3), of.budget.width(rows)), 3, rows)
    assert (got == integer_sums(of.messages, column, 3)).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_the_most_rows_that_there_are_can_be_as_large_as_they_get(sign):
    """A million rows' sum is doubled seven times: its errors grow by more than those of as many."""
    budget, rows = Budget(LATTICE_LARGE, 1 << 27), 1 << 20
    messages = np.full((rows, 1), sign * budget.message_most)
    tree = TreePolynomials(LATTICE_LARGE, ORIGIN, 3)
    secret = TreeSecret(tree, budget, messages, GUEST)
    held = EncryptedRows.of(tree, np.concatenate(list(secret.blocks())))
    sums = held.segment_sum(np.arange(rows), np.zeros((rows, 1), np.int32), 1)
    for _ in range(7):
        sums = sums.add(sums)
    key = TreeKey.received(tree, 0, secret.public_keys(0), 1)
    answers = release(key, sums, budget.width(budget.rows), HOST).to_bytes()
    found = decrypt(secret, answers, 1, budget.rows)
    assert found.tolist() == [[sign * budget.rows * 511]]


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_as_large_as_they_get_are_exact(sign):
    most = OWN.budget.message_most
    of = grown(np.full((4096, 1), sign * most))
    cells = of.cells(np.zeros((4096, 1), np.int32), 1)
    got = decrypt(of.secret, released(of, cells, of.budget.width(4096)), 1, 4096)
    assert got.tolist() == [[sign * 4096 * of.budget.message_most]]


@pytest.mark.parametrize("outputs", [1, 8, 9, 17])
def test_every_eight_outputs_have_a_vector_of_their_own(outputs):
    of = grown(drawn_messages(500, outputs=outputs))
    column = drawn_cells(500, 1, 5)
    width = of.budget.width(500)
    data = released(of, of.cells(column, 5), width)
    groups = -(-outputs // 8)
    shape = AnswerShape(LATTICE, outputs, width)
    assert len(shape.groups) == groups
    assert len(data) == 5 * shape.n_bytes >= 5 * groups * 256 * (width - 16)
    assert (decrypt(of.secret, data, 5, 500) == integer_sums(of.messages, column, 5)).all()
    vectors = {data[span.start : span.stop] for span, _ in shape.spans()}
    assert len(vectors) == groups


def test_differences_and_running_sums_decrypt():
    running = CELLS.prefix_sums(np.array([0, 25, 50]))
    less = running[24:25].subtract(running[5:6])
    got = decrypt(OWN.secret, released(cells=LatticeSums.concat([running, less])), 51, ROWS)
    expected = np.cumsum(SUMS.reshape(2, 25, 2), axis=1).reshape(-1, 2)
    assert (got == np.concatenate([expected, expected[24:25] - expected[5:6]])).all()


def test_sizes_are_those_of_the_design():
    assert AnswerShape(LATTICE, 2, 53).n_bytes == 256 * 37 + 14 == 9486
    assert 6650 < AnswerShape(LATTICE, 2, 42).n_bytes < 6700


# The twin on Python's numbers


@given(st.integers(1, 30), st.integers(1, 9), st.integers(0, 5))
@settings(max_examples=tiers.examples(15))
def test_an_answer_is_the_formula_on_pythons_numbers(rows, outputs, seed):
    of = grown(drawn_messages(rows, TINY, outputs, seed), TINY)
    cells = of.cells(drawn_cells(rows, 1, 3, seed), 3)
    width = of.budget.width(rows)
    shape = AnswerShape(TINY, outputs, width)
    data = np.frombuffer(released(of, cells, width), np.uint8).reshape(3, -1)
    drawn = iter(twin_draws(of, cells, width, outputs))
    for n in range(3):
        for group, spans in zip(shape.groups, shape.spans(), strict=True):
            parts = [part[0] for part in next(drawn)]
            vector, numbers = twin_answer(of, cells, width, group, parts, n)
            assert data[n, spans[0]].tobytes() == bits(vector, width - 16)
            assert data[n, spans[1]].tobytes() == bits(numbers, width)


def twin_draws(of, cells, width, outputs):
    """v, e1 and e2 of each group and sum, from the derivation written down once more."""
    mask, seed, drawn = np.uint64(2**width - 1), HOST.derive("answers"), []
    for n in range(3):
        content = seed + of.key.digest + width.to_bytes(8, "little") + n.to_bytes(8, "little")
        content += (cells.scalars[n] & mask).tobytes() + (cells.vectors[n] & mask).tobytes()
        nonce = bytes(4) + hashlib.sha256(content).digest()[:12]
        key = hashlib.sha256(b"streams" + seed).digest()
        stream = Cipher(ChaCha20(key, nonce), mode=None).encryptor()
        for group in groups_of(outputs):
            v, e1, e2 = (np.frombuffer(stream.update(bytes(size)), np.uint8)[None]
                         for size in (36, 96, 16 * (group.stop - group.start)))  # fmt: skip
            drawn.append((samples.ternary(v, 16), samples.binomial_errors(e1, 21),
                          samples.gaussian_flood(e2, 2.0**20)))  # fmt: skip
    return drawn


def twin_answer(of, cells, width, group, drawn, n):
    v, e1, e2 = (part.tolist() for part in drawn)
    a = of.secret.tree.of_answers(0).tolist()
    r = [x + e for x, e in zip(negacyclic(a, v), e1, strict=True)]
    vector = [u + x for u, x in zip(cells.vectors[n].tolist(), [-x for x in r[1:]] + r[:1],
                                    strict=True)]  # fmt: skip
    numbers = []
    for place, output in enumerate(range(group.start, group.stop)):
        c = of.key.leading[output].tolist()
        key = [c[0]] + [-x for x in c[:0:-1]]
        zero = negacyclic(key, v)[0]
        numbers.append((int(cells.scalars[n, output]) + zero + e2[place]) % 2**width)
    return [(u + 2**15 >> 16) % 2 ** (width - 16) for u in vector], numbers


def bits(values, width):
    whole = sum(value << (width * place) for place, value in enumerate(values))
    return whole.to_bytes(-(-len(values) * width // 8), "little")


@given(st.integers(1, 64), st.integers(0, 40), st.integers(0, 2**32))
def test_fields_of_any_width_are_packed_and_read(width, count, seed):
    draw = np.random.default_rng(seed)
    values = draw.integers(0, 2**64, (3, count), np.uint64) & np.uint64(2**width - 1)
    data = np.zeros((3, field_bytes(count, width)), np.uint8)
    pack_fields(values, width, data)
    for own, row in zip(values.tolist(), data, strict=True):
        assert row.tobytes() == bits(own, width)
    back = np.empty_like(values)
    assert unpack_fields(data, width, back)
    assert (back == values).all()
    if count * width % 8:
        data[1, -1] |= 0x80
        assert not unpack_fields(data, width, back)


# Noise


@pytest.mark.some(10, of="distributions")
@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
def test_measured_sigma_is_within_three_percent_of_the_formula(own):
    of = grown(drawn_messages(4000, own), own)
    column = np.zeros((4000, 1), np.int32)
    cells = of.cells(column, 1)[np.zeros(2500, np.int64)]
    width = of.budget.width(4000)
    shape = AnswerShape(own, 2, width)
    noise = open_vectors(of.secret, released(of, cells, width), 2500, shape)
    noise -= integer_sums(of.messages, column, 1) << own.scale_bits
    assert noise.std() == pytest.approx(own.sigma(4000), rel=0.03)
    assert abs(noise.mean()) < 4 * own.sigma(4000) / np.sqrt(noise.size)


@pytest.mark.some(10, of="distributions")
def test_measured_sigma_without_flood_and_rounding_is_within_three_percent_of_the_formula():
    """Which shows the part that the flood covers: e'·v and e1·s."""
    bare = unguarded(flood=0.0, drop_bits=0)
    of = grown(drawn_messages(30, bare), bare)
    column = np.zeros((30, 1), np.int32)
    cells = of.cells(column, 1)[np.zeros(4000, np.int64)]
    width = of.budget.width(30)
    noise = open_vectors(of.secret, released(of, cells, width), 4000, AnswerShape(bare, 2, width))
    noise -= integer_sums(of.messages, column, 1) << 24
    assert noise.std() == pytest.approx(bare.sigma(30), rel=0.03)


def test_a_wrong_budget_is_wrong_in_13_percent_of_cells():
    wrong = unguarded(scale_bits=13, drop_bits=8, flood=0.0)
    of = grown(drawn_messages(8192, wrong), wrong)
    column = np.zeros((8192, 1), np.int32)
    cells = of.cells(column, 1)[np.zeros(2500, np.int64)]
    got = decrypt(of.secret, released(of, cells, of.budget.width(8192)), 2500, 8192)
    failed = (got != integer_sums(of.messages, column, 1)).mean()
    assert failed == pytest.approx(wrong.failure(8192), abs=0.02)
    assert 0.11 < failed < 0.16


# Asked again


def test_a_retry_is_byte_identical_whoever_computes_it():
    again = grown(drawn_messages(ROWS))
    cells = again.cells(COLUMN, 25)
    assert released(again, cells, secrets=Secrets(HOST.seal())) == ANSWERS
    with ThreadWorkers(3) as workers:
        assert released(workers=workers) == ANSWERS


def near(one, other, width=WIDTH, of=OWN):
    """How many coefficients of two answers' vectors are nearly equal."""
    vectors = []
    for data in (one, other):
        vector = np.empty((1, 2048), np.uint64)
        span = AnswerShape(LATTICE, 2, width).spans()[0][0]
        unpack_fields(np.frombuffer(data, np.uint8)[None, span], width - 16, vector)
        vectors.append(vector[0].astype(np.int64))
    apart = np.abs(vectors[0] - vectors[1])
    return float((np.minimum(apart, 2 ** (width - 16) - apart) < 2**10).mean())


def test_equal_sums_look_nothing_alike():
    """Within a batch, in another batch, in another release, and under another tree's keys."""
    many = released(cells=CELLS[np.zeros(3 * TOGETHER, np.int64)])
    parts = [many[i : i + EACH] for i in range(0, len(many), EACH)]
    assert len(set(parts)) == len(parts)
    others = [
        released(cells=CELLS[:1], secrets=HOST.child("other node")),
        released(cells=CELLS[:1], width=WIDTH + 1)[:EACH],
        released(dataclasses.replace(OWN, key=other_key()), CELLS[:1]),
    ]
    assert near(parts[0], parts[0]) == 1.0
    for other in [parts[1], parts[TOGETHER], *others]:
        assert near(parts[0], other) < 0.01


def other_key():
    return TreeKey.received(OWN.secret.tree, 1, OWN.secret.public_keys(1), 2)


def test_sums_that_differ_share_no_noise_even_where_secrets_are_used_twice():
    """Else the difference of two answers would be the difference of their sums, unhidden."""
    one = LatticeSums(LATTICE, CELLS.vectors[:1].copy(), CELLS.scalars[:1].copy())
    other = LatticeSums(LATTICE, CELLS.vectors[:1].copy(), CELLS.scalars[:1].copy())
    other.scalars[0, 0] ^= np.uint64(1)
    assert near(released(cells=one), released(cells=one)) == 1.0
    assert near(released(cells=one), released(cells=other)) < 0.01


# Refusals


@pytest.mark.parametrize("wrong", [b"", ANSWERS[:-1], ANSWERS + b"\0", ANSWERS[:-EACH]])
def test_answers_of_another_size_are_refused(wrong):
    with pytest.raises(PeerError, match="answers of"):
        decrypt(OWN.secret, wrong, len(CELLS), ROWS)


def test_answers_that_are_no_sums_are_refused():
    drawn = np.random.default_rng(3).integers(0, 256, EACH * 10, np.uint8).tobytes()
    with pytest.raises(PeerError, match="does not decrypt"):
        decrypt(OWN.secret, drawn, 10, ROWS)


def test_bits_where_none_belong_are_refused():
    of = grown(drawn_messages(1000))
    data = released(of, of.cells(drawn_cells(1000, 1, 3), 3), of.budget.width(1000))
    assert 2 * of.budget.width(1000) % 8 == 4
    stuffed = data[:-1] + bytes([data[-1] | 0x10])
    decrypt(of.secret, data, 3, 1000)
    with pytest.raises(PeerError, match="does not decrypt"):
        decrypt(of.secret, stuffed, 3, 1000)


def test_a_sum_beyond_what_its_node_has_is_refused():
    most = np.abs(SUMS).max(axis=0)
    assert (decrypt(OWN.secret, ANSWERS, len(CELLS), ROWS, most) == SUMS).all()
    for output in (0, 1):
        less = most.copy()
        less[output] -= 1
        with pytest.raises(PeerError, match="does not decrypt"):
            decrypt(OWN.secret, ANSWERS, len(CELLS), ROWS, less)


def test_cells_that_do_not_go_with_the_keys_are_refused():
    three = grown(drawn_messages(10, outputs=3)).cells(drawn_cells(10, 1, 2), 2)
    with pytest.raises(ProtocolError):
        released(cells=three)
    for width in (0, 24, 54):
        with pytest.raises(ProtocolError):
            released(width=width)


def test_no_cells_are_no_answers():
    assert released(cells=CELLS[:0]) == b""
    assert decrypt(OWN.secret, b"", 0, ROWS).shape == (0, 2)


def test_public_keys_of_another_size_range_or_spread_are_refused():
    tree, keys = OWN.secret.tree, OWN.secret.public_keys(0)
    for wrong in (b"", keys[:-7], keys + keys):
        with pytest.raises(PeerError, match="public keys"):
            TreeKey.received(tree, 0, wrong, 2)
    with pytest.raises(PeerError, match="out of range"):
        TreeKey.received(tree, 0, keys[:-1] + b"\xff", 2)
    for value in (0, 1, 2**52):
        same = bytes_of(np.full((2, 2048), value, np.uint64), LATTICE).tobytes()
        with pytest.raises(PeerError, match="not random"):
            TreeKey.received(tree, 0, same, 2)
