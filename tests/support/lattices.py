"""Small and weak rings, whole trees of the lattice scheme, and the naive twins of what it does."""

import contextlib
import dataclasses
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.lattice import answers, budget, parameters
from fedboost.crypto.lattice.answers import TreeKey
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.cells import EncryptedRows, LatticeSums
from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.crypto.lattice.polynomials import Origin, TreePolynomials
from fedboost.crypto.lattice.product import multiplier
from fedboost.crypto.lattice.secret import TreeSecret
from fedboost.crypto.secrets import Secrets

ORIGIN = Origin(bytes(range(32)), bytes(range(32, 64)), (bytes(range(64, 96)), bytes(32)))
GUEST, HOST = Secrets(bytes(range(32))), Secrets(bytes(range(32, 64)))
RING_LEAST = 1024
LATTICE = parameters.by_name("lattice")
LATTICE_4096 = parameters.by_name("lattice-4096")
LATTICE_LARGE = parameters.by_name("lattice-large")
RINGS = [LATTICE, LATTICE_4096, LATTICE_LARGE]


def unguarded(name: str = "lattice", **changes: Any) -> LatticeParameters:
    """Parameters that the guard refuses, for attacks that must succeed and rings of few numbers."""
    with mock.patch.object(parameters, "check_strength"):
        return dataclasses.replace(parameters.by_name(name), **changes)


def unlimited(weak: LatticeParameters, rows: int) -> Budget:
    """A budget whose sums may be wrong as often as they like, and leak what they like."""
    with (
        mock.patch.object(budget, "FAILURE_MOST", 1.0),
        mock.patch.object(budget, "rows_most", return_value=rows),
    ):
        return Budget(weak, rows)


TINY = unguarded(ring=16)  # as `lattice`, in a ring that Python multiplies at once


@dataclass(frozen=True)
class Grown:
    """Both sides of one tree."""

    secret: TreeSecret
    rows: EncryptedRows
    key: TreeKey
    messages: NDArray[np.int64]

    @property
    def budget(self) -> Budget:
        return self.secret.budget

    def cells(self, cells: NDArray[np.int32], n_cells: int) -> LatticeSums:
        """All rows by (n, columns) cells: column after column."""
        return LatticeSums.concat(
            list(segment_sums(self.rows, np.arange(len(self.rows)), cells, n_cells))
        )


def grown(
    messages: NDArray[np.int64],
    own: LatticeParameters = LATTICE,
    tree: TreePolynomials | None = None,
) -> Grown:
    """Secrets, rows that arrived, and keys that arrived, for messages int64 (n, outputs)."""
    tree = tree or TreePolynomials(own, ORIGIN, 3)
    secret = TreeSecret(tree, unlimited(own, len(messages)), messages, GUEST)
    data = b"".join(part.to_bytes() for part in secret.encrypt())
    rows = EncryptedRows.received(tree, data, messages.shape)
    with contextlib.ExitStack() as stack:
        if own.ring < RING_LEAST:  # too few coefficients to tell a random key from another
            stack.enter_context(mock.patch.object(answers, "_check_spread"))
        key = TreeKey.received(tree, 0, secret.public_keys(0), messages.shape[1])
    return Grown(secret, rows, key, messages)


def drawn_messages(
    rows: int, own: LatticeParameters = LATTICE, outputs: int = 2, seed: int = 0
) -> NDArray[np.int64]:
    """Random messages over the whole of what the budget allows."""
    most = unlimited(own, rows).message_most
    draw = np.random.default_rng(seed)
    return draw.integers(-most, most + 1, (rows, outputs), dtype=np.int64)


def drawn_cells(rows: int, columns: int, n_cells: int, seed: int = 1) -> NDArray[np.int32]:
    """Random cells, some of them −1."""
    return np.random.default_rng(seed).integers(-1, n_cells, (rows, columns), dtype=np.int32)


def integer_sums(
    messages: NDArray[np.int64], cells: NDArray[np.int32], n_cells: int
) -> NDArray[np.int64]:
    """What cells add up to, int64 (columns · n_cells, outputs)."""
    sums = np.zeros((cells.shape[1], n_cells, messages.shape[1]), dtype=np.int64)
    for column, own in enumerate(cells.T):
        np.add.at(sums[column], own[own >= 0], messages[own >= 0])
    return sums.reshape(-1, messages.shape[1])


def negacyclic(a: list[int], b: list[int]) -> list[int]:
    """a·b modulo x^N + 1, on Python's numbers."""
    ring = len(a)
    product = [0] * ring
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            sign = 1 if i + j < ring else -1
            product[(i + j) % ring] += sign * x * y
    return product


def signed(words: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    """Numbers modulo 2^bits, nearest to zero."""
    return (words << np.uint64(64 - bits)).view(np.int64) >> (64 - bits)


def ternary_of(secret: TreeSecret) -> NDArray[np.int8]:
    """The secrets s, int8 (outputs, N)."""
    return np.ascontiguousarray(secret.reversed_secrets()[:, ::-1])


def row_errors(of: Grown) -> NDArray[np.int64]:
    """e of each row and output, int64 (n, outputs): what the guest knows."""
    own = of.secret.tree.parameters
    product = multiplier(own)
    values = product.values(ternary_of(of.secret))
    errors = []
    for block, first in enumerate(range(0, len(of.messages), own.ring)):
        messages = of.messages[first : first + own.ring]
        masks = product.multiply(product.fixed(of.secret.tree.of_rows(block)), values).T
        numbers = of.rows.numbers[first : first + own.ring] - masks[: len(messages)]
        errors.append(numbers - (messages << own.scale_bits).view(np.uint64))
    return signed(np.concatenate(errors), own.modulus_bits)


def segment_sums(held, rows, cells, n_cells, *workers):
    """The sums of each column by itself, made when they are asked for."""
    for column in range(cells.shape[1]):
        yield held.segment_sum(rows, cells[:, column : column + 1], n_cells, *workers)
