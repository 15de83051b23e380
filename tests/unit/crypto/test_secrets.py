"""Secrets: the same purpose gives the same bytes, another purpose others, and nothing is
printed.
"""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from fedboost.crypto.secrets import Secrets

SEED = bytes(range(32))
PART = st.one_of(st.text(max_size=6), st.binary(max_size=6), st.integers(-300, 300))
PURPOSE = st.lists(PART, max_size=3).map(tuple)


@given(PURPOSE, PURPOSE)
def test_different_purposes_never_draw_the_same(first, second):
    same = [(type(a), a) for a in first] == [(type(b), b) for b in second]
    secrets = Secrets(SEED)
    assert (secrets.derive(*first) == secrets.derive(*second)) == same
    assert (secrets.bytes(16, *first) == secrets.bytes(16, *second)) == same


def test_bytes_are_those_of_hkdf():
    drawn = Secrets(SEED).derive("salt", 7, b"x")
    info = b"s\0\0\0\x06derive" + b"s\0\0\0\x04salt" + b"i\0\0\0\x017" + b"b\0\0\0\x01x"
    salt = b"fedboost secrets 1"
    assert drawn == HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(SEED)


def test_children_streams_and_derived_bytes_are_independent():
    secrets = Secrets(SEED)
    drawn = {secrets.derive("x"), secrets.child("x").seal(), secrets.bytes(32, "x"), SEED}
    assert len(drawn) == 4


def test_a_longer_draw_continues_a_shorter_one():
    secrets = Secrets(SEED)
    assert secrets.bytes(1000, "x")[:10] == secrets.bytes(10, "x")
    assert secrets.bytes(0, "x") == b""


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_a_permutation_holds_every_place_once(n):
    order = Secrets(SEED).permutation(n, "order", 3)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(n))


def test_permutations_are_uniform():
    counts = np.zeros((4, 4), dtype=int)
    for tree in range(4000):
        order = Secrets(SEED).permutation(4, "order", tree)
        counts[np.arange(4), order] += 1
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000 * 0.75)


def test_secrets_print_nothing_and_are_not_copied_out():
    secrets = Secrets(SEED)
    assert repr(secrets) == str(secrets) == "Secrets(hidden)"
    with pytest.raises(TypeError):
        pickle.dumps(secrets)
    with pytest.raises(TypeError):
        copy.deepcopy(secrets)


def test_short_seeds_and_odd_purposes_are_refused():
    with pytest.raises(ValueError, match="32 bytes"):
        Secrets(b"short")
    odd: list[Any] = [True, 1.5, None]
    for purpose in odd:
        with pytest.raises(TypeError):
            Secrets(SEED).derive(purpose)


def test_secrets_of_the_operating_system_differ():
    assert Secrets.from_os().seal() != Secrets.from_os().seal()
