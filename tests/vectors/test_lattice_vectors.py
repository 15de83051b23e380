"""What both sides derive, and one encryption and one answer, are stable: releases must agree."""

import hashlib
import json
from pathlib import Path

import numpy as np

from fedboost.crypto.lattice import samples
from fedboost.crypto.lattice.answers import TreeKey
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.cells import EncryptedRows
from fedboost.crypto.lattice.decryption import fractions_of
from fedboost.crypto.lattice.packing_keys import PackingKey, PackingSecret, PackingShape
from fedboost.crypto.lattice.polynomials import Origin, TreePolynomials
from fedboost.crypto.lattice.secret import TreeSecret
from tests.support.lattices import (
    GUEST,
    HOST,
    LATTICE,
    LATTICE_4096,
    ORIGIN,
    RINGS,
    grown,
    ternary_of,
)
from tests.support.releases import batch, batch_fractions, release

HERE = Path(__file__).parent
MESSAGES = np.array([[5 * i - 7000, i * i % 1000] for i in range(3000)], dtype=np.int64)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def test_polynomials_are_shake256_of_the_written_derivation():
    numbers = [2, 3, 5]  # host nonces, tree, block
    parts = [n.to_bytes(8, "little") for n in numbers]
    label, name = b"fedboost lattice rows 1", b"lattice"
    hashed = (
        len(label).to_bytes(8, "little") + label + len(name).to_bytes(8, "little") + name
        + ORIGIN.manifest + ORIGIN.guest_nonce + parts[0] + b"".join(ORIGIN.host_nonces)
        + parts[1] + parts[2]
    )  # fmt: skip
    data = hashlib.shake_256(hashed).digest(8 * 2048)
    words = [int.from_bytes(data[i : i + 8], "little") % 2**53 for i in range(0, 16384, 8)]
    assert TreePolynomials(LATTICE, ORIGIN, 3).of_rows(5).tolist() == words


def test_derivation_encryption_and_answers_are_the_same_in_every_release(golden):
    """A change here means that parties of different releases cannot read one another."""
    lines = {}
    for own in RINGS:
        of = grown(MESSAGES, own)
        tree = of.secret.tree
        rows = b"".join(part.to_bytes() for part in of.secret.encrypt())
        cells = of.cells(np.arange(3000, dtype=np.int32)[:, None] % 40, 40)
        width = Budget(own, 3000).width(3000)
        released = release(of.key, cells, width, HOST).to_bytes()
        received = EncryptedRows.received(tree, rows, MESSAGES.shape)
        lines[own.name] = {
            "a": [f"{word:016x}" for word in tree.of_rows(1)[:3].tolist()],
            "a_digest": digest(tree.of_rows(1).tobytes()),
            "a_prime": [f"{word:016x}" for word in tree.of_answers(1)[:3].tolist()],
            "a_prime_digest": digest(tree.of_answers(1).tobytes()),
            "secrets": digest(ternary_of(of.secret).tobytes()),
            "first_rows": [f"{word:016x}" for word in received.numbers[:2].ravel().tolist()],
            "rows": digest(rows),
            "public_keys": digest(of.secret.public_keys(0)),
            "width": width,
            "answer_octets": len(released) // 40,
            "answers": digest(released),
        }
    golden(HERE / "lattice.json", json.dumps(lines, indent=1) + "\n")


PACKED = ((LATTICE, 32, 20), (LATTICE, 256, 256), (LATTICE_4096, 256, 160))  # K, candidates
BYTES_OF_ORIGIN = Origin(ORIGIN.manifest, ORIGIN.guest_nonce, ORIGIN.host_nonces[:1]).encoded()


def test_keys_and_batches_of_packed_answers_are_the_same_in_every_release(golden):
    """The numbers of the specification, and of every program that packs as it says."""
    lines = {}
    for own, slots, count in PACKED:
        data = np.frombuffer(GUEST.bytes(2 * samples.ternary_bytes(own.ring), "s"), np.uint8)
        ternary = samples.ternary(data.reshape(2, -1), own.ring)
        shape = PackingShape(own, 2, slots)
        secret = PackingSecret(shape, GUEST, BYTES_OF_ORIGIN, ternary)
        key = secret.key()
        held = PackingKey.received(shape, BYTES_OF_ORIGIN, key)
        vectors, scalars, widths = answers_of(own, count)
        c1, c0 = batch_fractions(held, vectors, scalars, widths)
        released = batch(held, vectors[None], scalars, widths)
        lines[f"{own.name}, K = {slots}, {count} candidates"] = {
            "s": digest(ternary),
            "z": digest(secret._ternary),
            "A": digest(np.concatenate(list(shape.public_chunks(BYTES_OF_ORIGIN)))),
            "key": digest(key),
            "c1": digest(c1),
            "c0": digest(c0),
            "packed_bytes": len(released),
            "packed": digest(released),
            "opened": digest(np.ascontiguousarray(fractions_of(secret, released, widths))),
        }
    golden(HERE / "lattice_packing.json", json.dumps(lines, indent=1) + "\n")


def test_what_trees_of_an_epoch_come_from_is_the_same_in_every_release(golden):
    """What both sides derive, and what a guest draws, of trees that share secrets."""
    lines = {}
    for own in (LATTICE, LATTICE_4096):
        polynomials, budget = TreePolynomials(own, ORIGIN, 3), Budget(own, 3000)
        secret = TreeSecret(polynomials, budget, MESSAGES, GUEST, epoch=2)
        tree, keys = secret.tree, secret.public_keys(0)
        lines[own.name] = {
            "nonce": secret.nonce.hex(),
            "a_digest": digest(tree.of_rows(1)),
            "a_prime_digest": digest(tree.of_answers(1)),
            "packing_origin": digest(tree.packing_origin),
            "secrets": digest(ternary_of(secret)),
            "rows": digest(b"".join(part.to_bytes() for part in secret.encrypt())),
            "public_keys": digest(keys),
            "draws": TreeKey.received(tree, 0, keys, 2).digest.hex(),
            "packing_key": digest(secret.packing(32).key()),
        }
    golden(HERE / "lattice_epochs.json", json.dumps(lines, indent=1) + "\n")


def answers_of(own, count):
    """u, uint64 (n, N), b, uint64 (n, 2), and W, uint64 (n,), as the specification says them."""
    least = own.modulus_bits - 13
    widths = np.array([least + k % 14 for k in range(count)], np.uint64)
    mask = (np.uint64(2**64 - 1) >> (np.uint64(64) - widths))[:, None]
    vectors = np.frombuffer(hashlib.shake_256(b"u").digest(8 * count * own.ring), "<u8")
    scalars = np.frombuffer(hashlib.shake_256(b"b").digest(16 * count), "<u8")
    return vectors.reshape(count, -1) & mask, scalars.reshape(count, 2) & mask, widths
