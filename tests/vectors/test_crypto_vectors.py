"""Stable bytes: what parties must compute alike in every release, and published vectors."""

import hashlib
import hmac
import random

import gmpy2
import numpy as np
import phe
import pytest

from fedboost.crypto import intersection, okamoto_uchiyama, paillier_keys, shamir
from fedboost.crypto.limbs import as_bytes
from fedboost.crypto.masking import MaskKey, Pair, add_stream
from fedboost.crypto.modular import ModularPrivate, ModularPublic
from fedboost.crypto.modular_kernels import numbers
from fedboost.crypto.okamoto_uchiyama import OuSecret
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.paillier import PaillierKey, PaillierSecret
from fedboost.crypto.paillier_keys import SecretPrimes
from fedboost.crypto.secrets import Secrets
from fedboost.ground.workers import Serial
from tests.support.ciphertexts import single

SEED = bytes(range(32))
DERIVED = "e7c588574e4c78989f77ab4bf1e695ab8673704536106605a358aa920e7d8c61"
CHILD = "b71bb86fb9421301a7e42d7cbc021496ba277badd82512115ca0d0fa095fc8c6"
STREAM = "2efef4758ffda715f9195446ef51714352f0a787"
ORDER = [3, 5, 0, 2, 11, 9, 4, 8, 10, 7, 6, 1]
EXPONENT = "e27e3968848e64c650746e360766dc6ae876c032439f1835c46fe4ad0611593c"
POINTS = [
    "fa7db1d731c993aeffb54fe7e368a38fc325d598e56c6b960958bac3ca9cb869",
    "2dca6c99bc11bc279f9a29036591da117ff4049c5d40ff23205fd6363c22f61c",
    "a97b72ef9b3ceb06ad0dc74cee0ea62103fe829deabc84419c8db87dd2872d0a",
]
PRODUCT = "6de048e9f4ff5980474714698a68776a41fb4f0d4dec632ce4f8ebcfe47d53f4"
PROOF = "0a687f4c96549b4b3b8f06af9e0dce6727b677c66749bfb7b807014ec28f6b12"
OU_PROOF = "0ddfc1b3007bac1bb97ec743ecdb7d1884e36961fc94454bc6790e7393496d6e"
FIELDS = [
    "000000001bffffffffffffd8000003",
    "ffffc0000000000080800000100000",
]
PUBLIC = "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f"
STREAM_KEY = "74f05db05f42d4f75469f2b22450b48af4f665439f27b9f5f2b5f87ade7bfed2"
MASK = ["f20a6d4e43fa3637", "f7cbb7a1d2bdd4b9", "df96c868162033e1", "51fff37724925e2a"]
SHARES = [
    "01004cf65b4f8e09d0c902aa2aacaa9fa43b56b505191aa23e926ab279e9c6252c79",
    "020099ebb49c180e9b8afd4b4b4e49323a679d58f81f212f670dbd4bd9b8702d3ad3",
    "0300e6e10de8a213664cf7ec6befe7c4d093e3fceb2527bc8f890fe539871a35492d",
]


def hkdf_sha256(seed, salt, info):
    """RFC 5869 by hand, one block."""
    key = hmac.digest(salt, seed, hashlib.sha256)
    return hmac.digest(key, info + b"\1", hashlib.sha256)


def test_derived_bytes_are_hkdf_of_the_encoded_purpose():
    info = b"s\0\0\0\6derive" + b"s\0\0\0\5order" + b"i\0\0\0\2-7" + b"b\0\0\0\1\xff"
    expected = hkdf_sha256(SEED, b"fedboost secrets 1", info)
    assert Secrets(SEED).derive("order", -7, b"\xff") == expected


def test_secrets_draw_the_same_in_every_release():
    secrets = Secrets(SEED)
    assert secrets.derive("mask", 3).hex() == DERIVED
    assert secrets.child("tree", 1).derive("mask", 3).hex() == CHILD
    assert secrets.bytes(20, "noise").hex() == STREAM
    assert secrets.permutation(12, "order", 0, 5).tolist() == ORDER


def test_masks_are_the_same_in_every_release():
    key, peer = MaskKey(SEED), MaskKey(SEED[::-1])
    assert key.public.hex() == PUBLIC
    stream_key = Pair(key.shared(peer.public), b"demo").stream_key(b"round 1")
    assert stream_key.hex() == STREAM_KEY
    words = np.zeros(4, dtype=np.uint64)
    add_stream(words, stream_key, 1)
    assert [f"{word:016x}" for word in words.tolist()] == MASK


def test_shares_are_the_same_in_every_release():
    shares = shamir.split_secret(SEED, 2, 3, Secrets(SEED), "mask", 1)
    assert [share.to_bytes().hex() for share in shares] == SHARES


def test_exponents_and_hashed_ids_are_the_same_in_every_release():
    exponent = intersection.Exponent.from_seed(SEED)
    points = intersection.hash_to_points([b"alice", b"bob", b""], b"demo", Serial())
    assert hashlib.sha256(exponent.seal()).hexdigest() == EXPONENT
    assert [bytes(row).hex() for row in points] == POINTS
    product = intersection.multiply(points, exponent, Serial())
    assert hashlib.sha256(product.tobytes()).hexdigest() == PRODUCT


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
def test_multiplication_is_x25519_of_rfc_7748(scalar, u, product):
    points = np.frombuffer(bytes.fromhex(u), dtype=np.uint8).reshape(1, 32)
    got = intersection.multiply_points(points, bytes.fromhex(scalar))
    assert got is not None
    assert got.tobytes().hex() == product


def test_the_ladder_a_thousand_times_over_is_rfc_7748s():
    scalar = u = bytes([9, *bytes(31)])
    for _ in range(1000):
        point = np.frombuffer(u, dtype=np.uint8).reshape(1, 32)
        product = intersection.multiply_points(point, scalar)
        assert product is not None
        scalar, u = product.tobytes(), scalar
    assert scalar.hex() == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"


P, Q = int(gmpy2.next_prime(3 << 254)), int(gmpy2.next_prime(7 << 253))


def test_a_keys_proof_is_the_same_in_every_release():
    proof = paillier_keys.proved_key(SecretPrimes(P, Q))
    assert hashlib.sha256(proof).hexdigest() == PROOF
    assert paillier_keys.read_public(proof, 512) == P * Q


def test_an_okamoto_uchiyama_keys_proof_is_the_same_in_every_release():
    secret = OuSecret(Q, P, 3)
    proof = secret.proved_key()
    assert hashlib.sha256(proof).hexdigest() == OU_PROOF
    assert okamoto_uchiyama.read_public(proof, 768) == secret.key


def test_rows_are_packed_the_same_in_every_release():
    gh = np.array([[-5, 3, 7, 0], [2**20, 2**20, -(2**20), 1]], dtype=np.int64)
    packed = GhLayout(20, 100, 681, 2).row_plaintexts(gh)
    assert [bytes(row[-15:]).hex() for row in packed] == FIELDS


def test_a_thousand_ciphertexts_agreed_by_three_implementations():
    """Textbook arithmetic on Python's numbers encrypts; textbook, phe and we decrypt and add."""
    n, lam = P * Q, (P - 1) * (Q - 1)
    mu = pow(lam, -1, n)
    draw = random.Random(20)
    values = [draw.randrange(-(10**6), 10**6) for _ in range(1000)]
    textbook = [(1 + v * n) * pow(draw.randrange(1, n), n, n * n) % (n * n) for v in values]
    public = ModularPublic(PaillierKey(n), Serial())
    layout = GhLayout(20, 1000, public.plaintext_bits, compress=False)
    ciphertexts = single(as_bytes([gmpy2.mpz(c) for c in textbook], public.width))
    by_phe = phe.PaillierPrivateKey(phe.PaillierPublicKey(n), P, Q)
    for value, c in zip(values, textbook, strict=True):
        assert (pow(c, lam, n * n) - 1) // n * mu % n == by_phe.raw_decrypt(c) == value % n
    private = ModularPrivate(PaillierSecret(SecretPrimes(P, Q)), Serial())
    shift = gmpy2.powmod(gmpy2.mpz(2), layout.h_bits, n * n)
    headroom = 1 + (1 << layout.lanes[0].package_bits) * n
    packed = [gmpy2.powmod(c, shift, n * n) * headroom % (n * n) for c in numbers(ciphertexts.data)]
    packages = single(as_bytes(packed, public.width))
    assert private.decrypt(packages, layout, [1000]).tolist() == [[v, 0] for v in values]
    total = public.segment_sum(ciphertexts, np.arange(1000), np.zeros((1000, 1), np.int32), 1)
    assert by_phe.raw_decrypt(int(numbers(total.data)[0])) == sum(values) % n
