"""Masking: streams are AES-256-CTR's, cancel in the sum, and weak public keys are refused."""

import copy
import itertools
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedboost.crypto.masking import SCRATCH_BYTES, MaskKey, Pair, add_stream, is_private_of
from fedboost.crypto.secrets import Secrets
from fedboost.ground.errors import PeerError

KEY = bytes(range(32))
SECRETS = Secrets(KEY)
FIELD = 2**255 - 19
ORDER_8 = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
# Every number that X25519 reads as a point of small order, canonical or not, and with the
# highest bit, which it ignores.
SMALL_ORDER = [
    (u | high).to_bytes(32, "little")
    for u in (0, 1, *ORDER_8, FIELD - 1, FIELD, FIELD + 1)
    for high in (0, 1 << 255)
]
P_LEAST = 1e-4


def stream(n, key=KEY, start=0):
    """Words `start` to `start + n` of the stream, each AES block encrypted by itself."""
    blocks = range(start // 2, (start + n + 1) // 2)
    counters = b"".join([(i % 2**128).to_bytes(16, "big") for i in blocks])
    data = Cipher(AES(key), ECB()).encryptor().update(counters)
    return [int.from_bytes(data[8 * i : 8 * i + 8], "little") for i in range(n)]


def added(vector, sign=1, start=0, key=KEY):
    """What `add_stream` makes of the numbers."""
    words = np.array(vector, dtype=np.uint64)
    add_stream(words, key, sign, start)
    return words.tolist()


@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=40),
    st.sampled_from([1, -1]),
    st.integers(0, 2**66).map(lambda block: 2 * block),
)
def test_the_stream_is_added_modulo_2_64(vector, sign, start):
    expected = [
        (v + sign * w) % 2**64
        for v, w in zip(vector, stream(len(vector), start=start), strict=True)
    ]
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        assert added(vector, sign, start) == expected


@pytest.mark.parametrize("extra", [-1, 0, 1, 2, SCRATCH_BYTES // 8 + 3])
def test_long_vectors_are_masked_as_by_one_cipher(extra):
    n = SCRATCH_BYTES // 8 + extra
    assert added([0] * n) == stream(n)


def test_the_counter_carries_beyond_32_bits():
    start = 2 * (2**32 - 1)
    assert added([0] * 6, start=start) == stream(6, start=start)


@given(st.lists(st.integers(0, 20).map(lambda cut: 2 * cut), max_size=4))
def test_a_vector_masked_in_parts_is_masked_as_a_whole(cuts):
    vector = np.arange(41, dtype=np.uint64)
    for first, end in itertools.pairwise([0, *sorted(cuts), len(vector)]):
        add_stream(vector[first:end], KEY, -1, first)
    assert vector.tolist() == added(range(41), -1)


def test_a_column_of_a_table_is_masked_where_it_lies():
    table = np.zeros((9, 3), dtype=np.uint64)
    add_stream(table[:, 1], KEY, 1)
    assert table[:, 1].tolist() == stream(9)
    assert not table[:, ::2].any()


def masked_by_all(vectors, context=b"layer 3"):
    """Each party's vector with the streams of all its pairs; the earlier of a pair adds."""
    keys = [MaskKey(SECRETS.derive("mask", party)) for party in range(len(vectors))]
    masked = vectors.copy()
    for party, peer in itertools.permutations(range(len(vectors)), 2):
        pair = Pair(keys[party].shared(keys[peer].public), b"job")
        add_stream(masked[party], pair.stream_key(context), 1 if party < peer else -1)
    return masked


@pytest.mark.parametrize("parties", [2, 3, 6])
def test_masks_of_all_pairs_cancel_exactly(parties):
    drawn = np.frombuffer(SECRETS.bytes(8 * parties * 5001, "vectors"), dtype=np.uint64)
    vectors = drawn.reshape(parties, 5001)
    masked = masked_by_all(vectors)
    assert not (masked == vectors).any()
    np.testing.assert_array_equal(
        masked.sum(axis=0, dtype=np.uint64), vectors.sum(axis=0, dtype=np.uint64)
    )


def test_masked_vectors_and_sums_that_lack_a_party_are_uniform():
    small = np.tile(np.arange(20000, dtype=np.uint64) % 7, (4, 1))
    masked = masked_by_all(small)
    for seen in (masked[0], masked[3], masked[:2].sum(axis=0), masked[1:].sum(axis=0)):
        data = seen.view(np.uint8).reshape(-1, 8)
        counts = np.stack([np.bincount(data[:, place], minlength=256) for place in range(8)])
        assert stats.chisquare(counts.ravel()).pvalue > P_LEAST
        assert min(stats.chisquare(row).pvalue for row in counts) > P_LEAST / 8


def test_each_context_salt_and_pair_has_a_stream_of_its_own():
    pairs = [Pair(KEY, b"job 1"), Pair(KEY, b"job 2"), Pair(KEY[::-1], b"job 1")]
    assert len({pair.stream_key(context) for pair in pairs for context in (b"", b"a", b"b")}) == 9


@pytest.mark.parametrize(
    ("secret", "salt", "info", "output"),
    [
        (
            b"\x0b" * 22,
            bytes(range(0x0D)),
            bytes(range(0xF0, 0xFA)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf",
        ),
        (
            bytes(range(0x50)),
            bytes(range(0x60, 0xB0)),
            bytes(range(0xB0, 0x100)),
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c",
        ),
        (
            b"\x0b" * 22,
            b"",
            b"",
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d",
        ),
    ],
)
def test_stream_keys_begin_the_output_of_rfc_5869(secret, salt, info, output):
    assert Pair(secret, salt).stream_key(info).hex() == output


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=80), st.binary(max_size=80))
def test_stream_keys_are_hkdf(secret, salt, context):
    expected = HKDF(algorithm=SHA256(), length=32, salt=salt, info=context).derive(secret)
    assert Pair(secret, salt).stream_key(context) == expected


@pytest.mark.parametrize(
    ("scalar", "u", "product"),
    [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ],
)
def test_pair_secrets_are_x25519_of_rfc_7748(scalar, u, product):
    assert MaskKey(bytes.fromhex(scalar)).shared(bytes.fromhex(u)).hex() == product


def test_two_keys_agree_as_in_rfc_7748():
    alice = MaskKey(
        bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    )
    bob = MaskKey(bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
    assert alice.public.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert bob.public.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    secret = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert alice.shared(bob.public).hex() == bob.shared(alice.public).hex() == secret


@pytest.mark.parametrize("public", SMALL_ORDER)
def test_points_of_small_order_are_refused(public):
    with pytest.raises(PeerError, match="small order") as refused:
        MaskKey(KEY).shared(public)
    assert public.hex() not in str(refused.value)


@pytest.mark.parametrize("n", [0, 31, 33, 64])
def test_public_keys_of_another_length_are_refused(n):
    with pytest.raises(PeerError, match=f"32 bytes, got {n}"):
        MaskKey(KEY).shared(bytes([9] * n))


@given(st.binary(min_size=32, max_size=32))
def test_a_sealed_key_comes_back_and_has_one_form(data):
    key = MaskKey(data)
    again = MaskKey(key.seal())
    assert (again.seal(), again.public) == (key.seal(), key.public)
    assert is_private_of(key.seal(), key.public)
    assert is_private_of(data, key.public) == (data == key.seal())


@pytest.mark.parametrize(("place", "bit"), [(0, 1), (0, 4), (0, 8), (17, 1), (31, 128), (31, 64)])
def test_a_key_with_another_bit_is_not_the_private_key(place, bit):
    key = MaskKey(KEY)
    data = bytearray(key.seal())
    data[place] ^= bit
    assert not is_private_of(bytes(data), key.public)
    assert not is_private_of(key.seal(), MaskKey(KEY[::-1]).public)


@pytest.mark.parametrize("hidden", [MaskKey(KEY), Pair(KEY, b"job")])
def test_keys_and_pairs_print_nothing_and_are_not_copied_out(hidden):
    assert repr(hidden) == str(hidden) == f"{type(hidden).__name__}(hidden)"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(hidden)
    with pytest.raises(TypeError, match="not pickled"):
        copy.deepcopy(hidden)


def test_what_is_no_key_sign_start_or_vector_is_refused():
    vector = np.zeros(4, dtype=np.uint64)
    for n in (0, 31, 33):
        with pytest.raises(ValueError, match="32 bytes"):
            MaskKey(bytes(n))
    for key, sign in ((KEY[:16], 1), (KEY + KEY, 1), (KEY, 0), (KEY, 2)):
        with pytest.raises(ValueError, match="the sign 1 or -1"):
            add_stream(vector, key, sign)
    for start in (-2, 1, 7):
        with pytest.raises(ValueError, match="even word"):
            add_stream(vector, KEY, 1, start)
    odd: list[Any] = [vector.astype(np.uint32), vector.view(np.int64), vector.reshape(2, 2)]
    for wrong in odd:
        with pytest.raises(ValueError, match="uint64"):
            add_stream(wrong, KEY, 1)
    assert not vector.any()
