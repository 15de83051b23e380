"""Trees of an epoch share secrets and keys, and nothing that would show their messages."""

import dataclasses
import hashlib

import numpy as np
import pytest

from fedboost.crypto.lattice.answers import TreeKey
from fedboost.crypto.lattice.cells import EncryptedRows
from fedboost.crypto.lattice.decryption import AnsweredNode, decrypt, decrypt_packed
from fedboost.crypto.lattice.packing_keys import PackingKey
from fedboost.crypto.lattice.polynomials import TreePolynomials
from fedboost.crypto.lattice.secret import TreeSecret
from fedboost.crypto.secrets import Secrets
from fedboost.ground.errors import ConfigError, PeerError
from tests.support.lattices import (
    GUEST,
    HOST,
    LATTICE,
    LATTICE_4096,
    LATTICE_LARGE,
    ORIGIN,
    drawn_cells,
    drawn_messages,
    integer_sums,
    signed,
    ternary_of,
    unlimited,
)
from tests.support.releases import NodeAnswers, release, release_packed

ROWS = 3000
MESSAGES = drawn_messages(ROWS)
OTHERS = drawn_messages(ROWS, seed=1)


def made(tree=3, messages=MESSAGES, epoch=1, own=LATTICE, origin=ORIGIN, secrets=GUEST):
    polynomials = TreePolynomials(own, origin, tree)
    return TreeSecret(polynomials, unlimited(own, len(messages)), messages, secrets, epoch)


def rows_of(secret):
    return b"".join(part.to_bytes() for part in secret.encrypt())


def test_a_tree_again_with_the_same_messages_is_the_same_bytes():
    first, again = made(), made(messages=MESSAGES.copy(), secrets=Secrets(GUEST.seal()))
    assert first.tree == again.tree
    assert rows_of(first) == rows_of(again)


@pytest.mark.parametrize("changed", ["message", "tree", "epoch", "attempt", "seed"])
def test_what_encrypts_anything_else_has_another_nonce_and_another_polynomial(changed):
    """Else two encryptions under one a·s would tell the difference of their messages."""
    messages = MESSAGES.copy()
    messages[-1, 1] ^= 1
    origin = dataclasses.replace(ORIGIN, guest_nonce=bytes(32))
    other = {
        "message": lambda: made(messages=messages),
        "tree": lambda: made(tree=4),
        "epoch": lambda: made(epoch=2),
        "attempt": lambda: made(origin=origin),
        "seed": lambda: made(secrets=Secrets(bytes(32))),
    }[changed]()
    first = made()
    assert first.nonce != other.nonce
    for block in (0, 1):
        assert not (first.tree.of_rows(block) == other.tree.of_rows(block)).any()
    is_same_epoch = changed in ("message", "tree")
    assert (ternary_of(first) == ternary_of(other)).all() == is_same_epoch
    apart = np.concatenate(list(first.blocks())) - np.concatenate(list(other.blocks()))
    near = np.abs(signed(apart & LATTICE.mask, 53)) < 2**50
    assert near.mean() == pytest.approx(1 / 4, abs=0.05)  # as of random numbers


def test_a_nonce_is_bound_to_the_trees_origin_and_its_messages():
    origin = TreePolynomials(LATTICE, ORIGIN, 3).encoded(b"secrets", 2) + (1).to_bytes(8, "little")
    digests = [hashlib.sha256(data).digest() for data in (origin, MESSAGES.astype("<i8").tobytes())]
    assert made().nonce == GUEST.derive("lattice tree nonce", *digests)


def test_rows_of_an_epochs_tree_come_from_the_written_derivation():
    secret, label, name = made(), b"fedboost lattice rows 2", b"lattice"
    hashed = (
        len(label).to_bytes(8, "little") + label + len(name).to_bytes(8, "little") + name
        + ORIGIN.encoded() + (3).to_bytes(8, "little") + secret.nonce
        + (5).to_bytes(8, "little")
    )  # fmt: skip
    data = np.frombuffer(hashlib.shake_256(hashed).digest(8 * 2048), "<u8") & LATTICE.mask
    assert (secret.tree.of_rows(5) == data).all()


def test_keys_are_one_a_host_and_epoch():
    first, other, next_epoch = made(), made(4, OTHERS), made(epoch=2)
    for host in (0, 1):
        assert first.public_keys(host) == other.public_keys(host) != next_epoch.public_keys(host)
        assert (first.tree.of_answers(host) == other.tree.of_answers(host)).all()
    assert first.public_keys(0) != first.public_keys(1)
    assert first.packing(32).key() == other.packing(32).key() != next_epoch.packing(32).key()
    assert first.tree.packing_origin == other.tree.packing_origin


def test_an_epoch_shares_nothing_with_a_tree_of_its_own_of_the_same_number():
    shared, own = made(tree=1), made(tree=1, epoch=None)
    assert (own.nonce, len(shared.nonce)) == (b"", 32)
    assert (ternary_of(shared) == ternary_of(own)).mean() == pytest.approx(1 / 3, abs=0.05)
    assert not (shared.tree.of_answers(0) == own.tree.of_answers(0)).any()
    assert not (shared.tree.of_rows(0) == own.tree.of_rows(0)).any()
    assert shared.tree.packing_origin != own.tree.packing_origin


def key_of(secret):
    return TreeKey.received(secret.tree, 0, secret.public_keys(0), 2)


def test_what_a_hosts_draws_come_from_tells_trees_nonces_and_epochs_apart():
    """Else one v would hide the sums of two trees, and their difference would show."""
    tree = made().tree
    keys = made().public_keys(0)
    trees = [tree, dataclasses.replace(tree, number=4), dataclasses.replace(tree, epoch=2),
             dataclasses.replace(tree, nonce=bytes(32))]  # fmt: skip
    digests = {TreeKey.received(each, host, keys, 2).digest for each in trees for host in (0, 1)}
    assert len(digests) == 8
    assert key_of(made()).digest == key_of(made()).digest


def test_equal_sums_of_two_trees_of_an_epoch_look_nothing_alike():
    first, other = made(), made(4)
    rows = EncryptedRows.received(first.tree, rows_of(first), MESSAGES.shape)
    cells = rows.segment_sum(np.arange(ROWS), drawn_cells(ROWS, 1, 40), 40)
    released = [release(key_of(secret), cells, 52, HOST).to_bytes() for secret in (first, other)]
    parts = [np.frombuffer(data, np.uint8) for data in released]
    assert (parts[0] == parts[1]).mean() == pytest.approx(1 / 256, abs=0.01)


@pytest.mark.parametrize("own", [LATTICE, LATTICE_4096], ids=lambda own: own.name)
def test_the_keys_of_an_epoch_serve_the_answers_of_all_its_trees(own):
    trees = [made(3, drawn_messages(ROWS, own), own=own),
             made(4, drawn_messages(ROWS, own, seed=1), own=own)]  # fmt: skip
    packing, keys = trees[0].packing(32), trees[0].public_keys(0)
    origin = trees[0].tree.packing_origin
    held = PackingKey.received(packing.shape, origin, packing.key())
    for secret in trees:
        # The host has the rows, the nonce, and what it received for the epoch.
        polynomials = TreePolynomials(own, ORIGIN, secret.tree.number)
        tree = polynomials.in_epoch(1, secret.nonce)
        rows = EncryptedRows.received(tree, rows_of(secret), MESSAGES.shape)
        key = TreeKey.received(tree, 0, keys, 2)
        column = drawn_cells(ROWS, 1, 50, secret.tree.number)
        sums = rows.segment_sum(np.arange(ROWS), column, 50)
        expected = integer_sums(secret._messages, column, 50)
        width = secret.budget.width(ROWS)
        data = release_packed(key, [NodeAnswers(sums, width, HOST)], held).to_bytes()
        found = decrypt_packed(secret, packing, data, [AnsweredNode(50, ROWS)])
        assert (found == expected).all()
        as_vectors = release(key, sums, width, HOST).to_bytes()
        assert (decrypt(secret, as_vectors, 50, ROWS) == expected).all()


def test_trees_of_an_epoch_have_vectors_where_answers_cannot_be_packed():
    keys = made(3, own=LATTICE_LARGE).public_keys(0)
    for number in (3, 4):
        secret = made(number, drawn_messages(ROWS, LATTICE_LARGE, seed=number), own=LATTICE_LARGE)
        rows = EncryptedRows.received(secret.tree, rows_of(secret), MESSAGES.shape)
        column = drawn_cells(ROWS, 1, 50, number)
        sums = rows.segment_sum(np.arange(ROWS), column, 50)
        key = TreeKey.received(secret.tree, 0, keys, 2)
        data = release(key, sums, secret.budget.width(ROWS), HOST).to_bytes()
        expected = integer_sums(secret._messages, column, 50)
        assert (decrypt(secret, data, 50, ROWS) == expected).all()
        with pytest.raises(ConfigError, match="packed answers of lattice-large would be wrong"):
            secret.packing(32)


def test_nonces_of_another_size_are_refused():
    for wrong in (b"", bytes(31), bytes(33)):
        with pytest.raises(PeerError, match="nonce of 32 bytes"):
            TreePolynomials(LATTICE, ORIGIN, 3).in_epoch(1, wrong)
