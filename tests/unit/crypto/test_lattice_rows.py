"""Rows: encrypted as the formula says, bound to what they hold, refused when malformed."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.cells import EncryptedRows
from fedboost.crypto.lattice.polynomials import TreePolynomials
from fedboost.crypto.lattice.secret import TreeSecret
from fedboost.crypto.secrets import Secrets
from fedboost.ground.errors import ConfigError, PeerError
from tests import tiers
from tests.support.lattices import (
    GUEST,
    LATTICE,
    LATTICE_4096,
    ORIGIN,
    RINGS,
    TINY,
    drawn_messages,
    grown,
    negacyclic,
    row_errors,
    signed,
    ternary_of,
    unlimited,
)

TREE = TreePolynomials(LATTICE, ORIGIN, 3)


def bytes_of(secret):
    return b"".join(part.to_bytes() for part in secret.encrypt())


def made(messages, secrets=GUEST, tree=TREE):
    return TreeSecret(tree, Budget(tree.parameters, len(messages)), messages, secrets)


@given(st.integers(1, 50), st.integers(1, 3), st.integers(0, 9))
@settings(max_examples=tiers.examples(20))
def test_a_row_is_the_formula_on_pythons_numbers(rows, outputs, seed):
    messages = drawn_messages(rows, TINY, outputs, seed)
    tree = TreePolynomials(TINY, ORIGIN, seed)
    secret = TreeSecret(tree, unlimited(TINY, rows), messages, GUEST)
    numbers = np.concatenate(list(secret.blocks()))
    assert numbers.max() < 2**53
    ternary = ternary_of(secret)
    for output in range(outputs):
        for block in range(-(-rows // 16)):
            a = tree.of_rows(block).tolist()
            mask = negacyclic(a, ternary[output].tolist())
            for place, value in enumerate(numbers[16 * block : 16 * block + 16, output].tolist()):
                message = int(messages[16 * block + place, output])
                error = (value - mask[place] - (message << 24) + 2**52) % 2**53 - 2**52
                assert abs(error) <= 21


@given(st.integers(1, 40), st.integers(0, 9))
@settings(max_examples=tiers.examples(20))
def test_a_window_and_the_reversed_secret_give_the_mask(rows, seed):
    own = grown(drawn_messages(rows, TINY, 1, seed), TINY)
    reverse = own.secret.reversed_secrets()[0].tolist()
    for row in range(rows):
        block, place = divmod(row, 16)
        a = own.secret.tree.of_rows(block).tolist()
        window = own.rows.windows[block, place + 1 : place + 17].tolist()
        inner = sum(x * y for x, y in zip(window, reverse, strict=True))
        mask = negacyclic(a, ternary_of(own.secret)[0].tolist())[place]
        assert (inner - mask) % 2**53 == 0


@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
def test_errors_are_fresh_for_every_row_and_output(own):
    of = grown(drawn_messages(3 * own.ring + 5, own), own)
    errors = row_errors(of)
    assert np.abs(errors).max() <= 21
    assert errors.var() == pytest.approx(10.5, rel=0.05)
    g, h = errors.T
    count = len(errors)
    assert abs(stats.pearsonr(g, h).statistic) < 4 / np.sqrt(count)
    for apart in (1, own.ring):
        assert abs(stats.pearsonr(g[:-apart], g[apart:]).statistic) < 4 / np.sqrt(count - apart)


def test_the_secrets_of_outputs_and_trees_differ():
    messages = drawn_messages(10)
    first, other = made(messages), made(messages, tree=TreePolynomials(LATTICE, ORIGIN, 4))
    drawn = [*ternary_of(first), *ternary_of(other)]
    for i in range(4):
        for j in range(i):
            assert (drawn[i] == drawn[j]).mean() == pytest.approx(1 / 3, abs=0.06)


def test_encrypting_again_gives_the_same_bytes():
    messages = drawn_messages(5000)
    assert bytes_of(made(messages)) == bytes_of(made(messages.copy(), Secrets(GUEST.seal())))
    assert made(messages).public_keys(1) == made(messages).public_keys(1)


@pytest.mark.parametrize("changed", ["message", "nonce", "seed"])
def test_a_tree_begun_again_with_anything_else_shares_nothing(changed):
    """Two encryptions under one a·s would tell the difference of their messages."""
    messages = drawn_messages(3000)
    again, tree, secrets = messages.copy(), TREE, GUEST
    if changed == "message":
        again[2999, 1] ^= 1
    if changed == "nonce":
        tree = TreePolynomials(
            LATTICE, type(ORIGIN)(ORIGIN.manifest, bytes(32), ORIGIN.host_nonces), 3
        )
    if changed == "seed":
        secrets = Secrets(bytes(32))
    first, second = made(messages), made(again, secrets, tree)
    assert (ternary_of(first) == ternary_of(second)).mean() == pytest.approx(1 / 3, abs=0.05)
    apart = np.concatenate(list(first.blocks())) - np.concatenate(list(second.blocks()))
    near = np.abs(signed(apart & LATTICE.mask, 53)) < 2**50
    assert near.mean() == pytest.approx(1 / 4, abs=0.05)  # as of random numbers


def test_many_rows_take_seven_bytes_an_output():
    assert len(bytes_of(made(drawn_messages(2049)))) == 2049 * 2 * 7
    assert [len(part) for part in made(drawn_messages(2049)).encrypt()] == [2048, 1]
    assert len(made(drawn_messages(9)).public_keys(0)) == 2 * 2048 * 7


@pytest.mark.parametrize(
    "messages",
    [
        np.zeros((3, 2), np.int32),
        np.zeros(3, np.int64),
        np.zeros((3, 0), np.int64),
        np.zeros((4, 2), np.int64),  # one row more than the budget's
        np.array([[0, 2**15]] * 3),
        np.array([[-(2**15), 0]] * 3),
        np.array([[np.iinfo(np.int64).min, 0]] * 3),
    ],
)
def test_messages_out_of_their_bounds_are_refused(messages):
    with pytest.raises(ConfigError):
        TreeSecret(TREE, Budget(LATTICE, 3), messages, GUEST)


def test_a_budget_of_other_parameters_is_refused():
    with pytest.raises(ConfigError):
        TreeSecret(TREE, Budget(LATTICE_4096, 3), np.zeros((3, 2), np.int64), GUEST)


def test_rows_of_another_size_or_out_of_range_are_refused():
    data = bytes_of(made(drawn_messages(10)))
    for wrong in (data[:-1], data + b"\0", b"", data[:-14]):
        with pytest.raises(PeerError, match="rows"):
            EncryptedRows.received(TREE, wrong, (10, 2))
    with pytest.raises(PeerError, match="out of range"):
        EncryptedRows.received(TREE, data[:-1] + b"\x20", (10, 2))  # 2^53
    EncryptedRows.received(TREE, data[:-1] + b"\x1f", (10, 2))


def test_no_rows_are_no_bytes():
    none = TreeSecret(TREE, Budget(LATTICE, 1), np.zeros((0, 2), np.int64), GUEST)
    assert bytes_of(none) == b""
    assert len(EncryptedRows.received(TREE, b"", (0, 2))) == 0


def test_a_secret_prints_nothing_and_is_not_copied_out():
    secret = made(drawn_messages(5))
    assert repr(secret) == "TreeSecret(5 rows × 2 outputs, hidden)"
    assert repr(grown(drawn_messages(5)).rows) == "Rows(5 × 2)"
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            copied(secret)
