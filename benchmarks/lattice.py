"""What each operation of the lattice scheme costs: processor time of one core, in one run.

The least of several repetitions, on random messages and cells; two outputs, g and h.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.question import Part, Question
from benchmarks.rows import Row
from fedboost.crypto.api import Pairs
from fedboost.crypto.lattice import parameters
from fedboost.crypto.lattice.answers import AnswerRandomness, TreeKey
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.cells import EncryptedRows, LatticeSums
from fedboost.crypto.lattice.decryption import decrypt
from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.crypto.lattice.polynomials import (
    MANIFEST_DIGEST_BYTES,
    NONCE_BYTES,
    Origin,
    TreePolynomials,
)
from fedboost.crypto.lattice.released import AnswerShape, release
from fedboost.crypto.lattice.secret import TreeSecret
from fedboost.crypto.secrets import Secrets
from fedboost.ground.workers import Serial

SPARSE = 20  # of so many rows one is in a node further down
BINS, OUTPUTS, COLUMNS = 32, 2, 3
REPEATS = 5


@dataclass(frozen=True)
class Cost:
    """Of one operation, and what it is counted in."""

    scheme: str
    operation: str
    each: str
    nanoseconds: float


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rows: int = 1_000_000


def measure(_: str, plan: Plan) -> Iterator[Row]:
    """Every operation of every ring."""
    for own in parameters.BY_NAME.values():
        yield from map(asdict, measured(own, plan.rows))


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """Nanoseconds of each operation, by scheme."""
    names = [row["operation"].replace(",", "").replace(" ", "_") for row in rows]
    return {
        f"{row['scheme']}.{name}_ns": row["nanoseconds"]
        for row, name in zip(rows, names, strict=True)
    }


def measured(own: LatticeParameters, rows: int) -> list[Cost]:
    """One ring; each operation's result is what the next one takes, and sums are checked."""
    seconds: dict[tuple[str, str], float] = {}

    def spent(operation: str, each: str, count: int, work: Callable[[], Any]) -> Any:
        result = work()  # compiles kernels and warms caches
        times = []
        for _ in range(REPEATS):
            begun = time.process_time()
            result = work()
            times.append(time.process_time() - begun)
        seconds[operation, each] = min(times) / count
        return result

    draw = np.random.default_rng(1)
    budget = Budget(own, rows)
    tree = TreePolynomials(
        own, Origin(bytes(MANIFEST_DIGEST_BYTES), bytes(NONCE_BYTES), (bytes(NONCE_BYTES),)), 0
    )
    most = budget.message_most
    messages = draw.integers(-most, most + 1, (rows, OUTPUTS), dtype=np.int64)
    secrets = Secrets.from_os()

    def encrypted() -> tuple[TreeSecret, bytes]:
        secret = TreeSecret(tree, budget, messages, secrets)
        return secret, b"".join(block.to_bytes() for block in secret.encrypt())

    secret, data = spent("encrypt", "row", rows, encrypted)
    received = spent(
        "receive", "row", rows, lambda: EncryptedRows.received(tree, data, messages.shape)
    )
    bins = draw.integers(0, BINS, (rows, COLUMNS), dtype=np.int32)
    few = np.flatnonzero(draw.random(rows) < 1 / SPARSE)
    for name, chosen in (("add, all rows", np.arange(rows)), ("add, a node of few rows", few)):
        work = partial(summed, received, chosen, bins[chosen])
        columns = spent(name, "row and feature", len(chosen) * COLUMNS, work)
    cells = LatticeSums.concat(columns)
    spent("subtract", "cell", len(cells), lambda: cells.subtract(cells[::-1]))
    offsets = np.arange(0, len(cells) + 1, BINS)
    running = spent("prefix sum", "cell", len(cells), lambda: cells.prefix_sums(offsets))
    key = TreeKey.received(tree, 0, secret.public_keys(0), OUTPUTS)
    width = budget.width(len(few))
    numbers, seeds = np.arange(len(running)), np.frombuffer(bytes(32), np.uint8)[None]
    randomness = AnswerRandomness(width, b"", seeds.repeat(len(running), axis=0), numbers)
    sums = Pairs.of(running)
    shape = AnswerShape(own, OUTPUTS, width)
    answers = spent(
        "answer",
        "candidate",
        len(running),
        lambda: release(shape, len(running), key.vectors(sums, randomness, numbers, Serial())),
    )
    found = spent(
        "decrypt",
        "candidate",
        len(running),
        lambda: decrypt(secret, answers.to_bytes(), len(running), len(few)),
    )
    assert (found[offsets[1:] - 1] == messages[few].sum(axis=0)).all()
    return [Cost(own.name, *key, 1e9 * each) for key, each in seconds.items()]


def summed(
    received: EncryptedRows, rows: NDArray[np.int64], bins: NDArray[np.int32]
) -> list[LatticeSums]:
    """The cells of all columns."""
    columns = range(bins.shape[1])
    return [received.segment_sum(rows, bins[:, c : c + 1], BINS) for c in columns]


QUESTION = Question(
    *("lattice", __doc__ or "", {"operations": Part(measure)}),
    full=Plan(),
    quick=Plan(50_000),
    figures=figures,
    settings={"bins": BINS, "outputs": OUTPUTS, "columns": COLUMNS},
)

if __name__ == "__main__":
    QUESTION.main()
