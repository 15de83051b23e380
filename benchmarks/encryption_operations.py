"""What each operation of every scheme costs: processor time of one core, in one run.

The operations and their names are those of `benchmarks.lattice`; every scheme's own code does them,
with both numbers of a row in one ciphertext and as many sums in a package as fit.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks import lattice
from benchmarks.encryption_plan import RINGS, SCHEMES, Plan
from benchmarks.lattice import BINS, COLUMNS
from benchmarks.plus_tables import Row
from fedboost.core import fixed_point
from fedboost.crypto.api import Ciphertexts, PrivateKey, PublicKey
from fedboost.crypto.lattice import parameters
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.released import AnswerShape
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.schemes import SCHEMES as KEYED
from fedboost.ground.workers import Serial

OPERATIONS = "operations"  # in the place of a data set: they are of none
JOB_ROWS = 1_000_000  # whose sums are to fit
COPIES = 16  # of encrypted rows: sums read ciphertexts as scattered in memory as a job's
CANDIDATES = 640
FIRST_ANSWERS = 300  # enough that a host makes its blinding from tables, as in a job
TIMES = 2  # that each batch is timed at least
ENCRYPT, RECEIVE, ADD, ADD_FEW = "encrypt", "receive", "add, all rows", "add, a node of few rows"
SUBTRACT, RUN, ANSWER, DECRYPT = "subtract", "prefix sum", "answer", "decrypt"
ROW_BYTES, CANDIDATE_BYTES = "bytes of a row", "bytes of a candidate"
NAMES = {
    ENCRYPT: "row", RECEIVE: "row", ADD: "row and feature", ADD_FEW: "row and feature",
    SUBTRACT: "cell", RUN: "cell", ANSWER: "candidate", DECRYPT: "candidate",
}  # fmt: skip


def measure(plan: Plan) -> list[Row]:
    """Every operation of every scheme."""
    rows = []
    for scheme in SCHEMES:
        found = rings(scheme, plan) if scheme in RINGS else modular(scheme, plan)
        rows.append({"what": OPERATIONS, "data": OPERATIONS, "scheme": scheme, **found})
    return rows


def rings(scheme: str, plan: Plan, rows: int = JOB_ROWS) -> Row:
    """Of a lattice; a row has two numbers, a candidate is one of a root of so many rows."""
    own = parameters.BY_NAME[scheme]
    spent = {cost.operation: cost.nanoseconds for cost in lattice.measured(own, plan.ring_rows)}
    shape = AnswerShape(own, lattice.OUTPUTS, Budget(own, rows).width(rows))
    data = lattice.OUTPUTS * own.word_bytes
    return {"ns": spent, ROW_BYTES: data, CANDIDATE_BYTES: shape.n_bytes}


def modular(scheme: str, plan: Plan, rows: int = JOB_ROWS) -> Row:
    """Of a scheme whose ciphertexts are numbers, wide enough for the sums of so many rows."""
    asked = SCHEMES[scheme]
    keyed, bits = KEYED[asked["scheme"]], asked.get("key_bits", 0)
    key = keyed.generate(bits, Serial())
    public = keyed.load_public(key.public_bytes(), bits, Serial())
    layout = GhLayout(fixed_point.bits_for(rows), rows, key.plaintext_bits)
    batches = Batches(key, public, layout, plan.modular_rows)
    spent = {name: _nanoseconds(work, plan.least_s) for name, work in batches.named()}
    capacity = layout.lanes[0].capacity
    return {"ns": spent, ROW_BYTES: key.width, CANDIDATE_BYTES: key.width / capacity}


@dataclass(frozen=True, eq=False)
class Batches:
    """A batch of each operation under one key."""

    key: PrivateKey
    public: PublicKey
    layout: GhLayout
    rows: int  # that are encrypted

    def named(self) -> Iterator[tuple[str, Callable[[], int]]]:
        """By name, what does a batch and says how many that were."""
        draw = np.random.default_rng(1)
        most = 1 << self.layout.value_bits
        gh = draw.integers(0, most, (self.rows, 2), dtype=np.int64)
        gh[:, 0] -= most // 2
        data = self._encrypted(gh)
        held = self._received(data)
        yield ENCRYPT, lambda: len(self._encrypted(gh)) and self.rows
        yield RECEIVE, lambda: len(self._received(data))
        many = Ciphertexts.concat([held] * COPIES)
        bins = draw.integers(0, BINS, (len(many), COLUMNS), dtype=np.int32)
        cells = bins + BINS * np.arange(COLUMNS, dtype=np.int32)
        few = np.arange(0, len(many), lattice.SPARSE)
        for name, chosen in ((ADD, np.arange(len(many))), (ADD_FEW, few)):
            yield name, partial(self._added, many, chosen, cells[chosen])
        sums = self.public.segment_sum(many, np.arange(len(many)), cells, BINS * COLUMNS)
        chosen = np.resize(np.arange(len(sums)), CANDIDATES)
        yield SUBTRACT, lambda: len(self.public.subtract(sums, sums[::-1]))
        offsets = np.arange(0, len(sums) + 1, BINS)
        yield RUN, lambda: len(self.public.prefix_sums(sums, offsets))
        self.public.blinders().take(FIRST_ANSWERS)
        released = self._released(sums[chosen])
        yield ANSWER, lambda: len(self._released(sums[chosen])) and CANDIDATES
        yield DECRYPT, lambda: len(self.key.decrypt(released, self.layout, [CANDIDATES]))

    def _encrypted(self, gh: np.ndarray[Any, np.dtype[np.int64]]) -> bytes:
        return b"".join(block.to_bytes() for block in self.key.encrypt(gh, self.layout))

    def _received(self, data: bytes) -> Ciphertexts:
        held = Ciphertexts.received(data, self.rows, self.public.width)
        self.public.check(held)
        return held

    def _added(self, held: Ciphertexts, chosen: Any, cells: Any) -> int:
        self.public.segment_sum(held, chosen, cells, BINS * COLUMNS)
        return int(cells.size)

    def _released(self, sums: Ciphertexts) -> Ciphertexts:
        """With blinding of their own, made here and now."""
        found = self.public.release(sums, self.layout, self.public.blinders(), [len(sums)])
        return Ciphertexts.received(found.to_bytes(), len(found), found.width)


def _nanoseconds(work: Callable[[], int], least_s: float) -> float:
    """Of one of them, the least of several times."""
    work()  # fills tables and caches
    times: list[float] = []
    begun = time.process_time()
    while len(times) < TIMES or time.process_time() - begun < least_s:
        started = time.process_time()
        done = work()
        times.append(1e9 * (time.process_time() - started) / done)
    return min(times)
