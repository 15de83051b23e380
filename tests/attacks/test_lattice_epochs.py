"""A tree that is encrypted twice under the secrets of an epoch, which is why it has a nonce."""

import numpy as np

from fedboost.crypto.lattice.polynomials import EpochTreePolynomials, TreePolynomials
from fedboost.crypto.lattice.secret import TreeSecret
from tests.support.lattices import GUEST, LATTICE, ORIGIN, drawn_messages, signed, unlimited

ROWS = 2500


def messages_between_two_encryptions():
    """The difference of one tree's rows, begun again with other messages, and that of these."""
    rows, tree = [], TreePolynomials(LATTICE, ORIGIN, 3)
    messages = [drawn_messages(ROWS, seed=seed) for seed in (0, 1)]
    for each in messages:
        secret = TreeSecret(tree, unlimited(LATTICE, ROWS), each, GUEST, epoch=1)
        rows.append(np.concatenate(list(secret.blocks())))
    apart = signed((rows[1] - rows[0]) & LATTICE.mask, LATTICE.modulus_bits)
    return (apart + (1 << 23)) >> 24, messages[1] - messages[0]


def test_messages_are_not_read_between_two_encryptions_of_a_tree():
    read, truth = messages_between_two_encryptions()
    assert (read == truth).mean() < 0.01


def test_messages_are_read_between_two_encryptions_where_a_tree_has_no_nonce(monkeypatch):
    monkeypatch.setattr(EpochTreePolynomials, "of_rows", TreePolynomials.of_rows)
    monkeypatch.setattr(EpochTreePolynomials, "encoded", TreePolynomials.encoded)
    read, truth = messages_between_two_encryptions()
    assert (read == truth).all()
