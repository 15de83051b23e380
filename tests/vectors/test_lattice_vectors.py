"""What both sides derive, and one encryption and one answer, are stable: releases must agree."""

import hashlib
import json
from pathlib import Path

import numpy as np

from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.cells import EncryptedRows
from fedboost.crypto.lattice.polynomials import TreePolynomials
from tests.support.lattices import HOST, LATTICE, LATTICE_4096, ORIGIN, grown, ternary_of

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
    for own in (LATTICE, LATTICE_4096):
        of = grown(MESSAGES, own)
        tree = of.secret.tree
        rows = b"".join(part.to_bytes() for part in of.secret.encrypt())
        cells = of.cells(np.arange(3000, dtype=np.int32)[:, None] % 40, 40)
        width = Budget(own, 3000).width(3000)
        released = of.key.release(cells, width, HOST).to_bytes()
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
