"""What each operation of every scheme costs, and which scheme is the fastest over which link.

Processor time of one core, in one run. The operations and their names are those of
`benchmarks.lattice`; every scheme's own code does them, with both numbers of a row in one
ciphertext and as many sums in a package as fit.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from benchmarks import lattice
from benchmarks.boosting import (
    DEPTH,
    LATTICE,
    MODULAR,
    OKAMOTO_UCHIYAMA,
    PAILLIER,
    PLAIN,
    RINGS,
    SCHEMES,
    SHAPE,
)
from benchmarks.lattice import BINS, COLUMNS
from benchmarks.rows import Row, Shown, of
from fedboost.core import fixed_point
from fedboost.crypto.api import Ciphertexts, PrivateKey, PublicKey
from fedboost.crypto.lattice import parameters
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.released import AnswerShape
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.schemes import KEYED_SCHEMES as KEYED
from fedboost.encrypted.lattice.answers import best_slots, cost_of
from fedboost.encrypted.scheme.ciphers import AnswersSeen
from fedboost.encrypted.scheme.params import EncryptedTreeParams
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial

OPERATIONS = "ops"
HIDING = (*RINGS, *MODULAR)
JOB_ROWS = 1_000_000  # whose sums are to fit
COPIES = 16  # of encrypted rows: sums read ciphertexts as scattered in memory as a job's
CANDIDATES = 640
FIRST_ANSWERS = 300  # enough that a host makes its blinding from tables, as in a job
TIMES = 2  # that each batch is timed at least
ENCRYPT, RECEIVE, ADD, ADD_FEW = "encrypt", "receive", "add, all rows", "add, a node of few rows"
SUBTRACT, RUN, ANSWER, DECRYPT = "subtract", "prefix sum", "answer", "decrypt"
ROW_BYTES, CANDIDATE_BYTES = "bytes of a row", "bytes of a candidate"
NAMES = (ENCRYPT, RECEIVE, ADD, ADD_FEW, SUBTRACT, RUN, ANSWER, DECRYPT)
CORES = 8  # of each party, where a scheme is chosen
LINKS = {"10 Mbit/s": 1e7, "100 Mbit/s": 1e8, "1 Gbit/s": 1e9, "10 Gbit/s": 1e10}
ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
HOST_COLUMNS = (5, 20, 100, 1000)
RIVALS = (OKAMOTO_UCHIYAMA, PAILLIER)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    ring_rows: int = 1_000_000  # that operations of lattices are timed on
    modular_rows: int = 1024  # encrypted rows that those of the others are timed on
    least_s: float = 2.0  # how long each of these is timed at least
    schemes: tuple[str, ...] = (*HIDING, PLAIN)


QUICK = Plan(4000, 32, 0.01, (*RINGS, PAILLIER, OKAMOTO_UCHIYAMA, PLAIN))


def measure(_: str, plan: Plan) -> Iterator[Row]:
    """Every operation of every scheme."""
    for scheme in plan.schemes:
        found = rings(scheme, plan) if scheme in RINGS else modular(scheme, plan)
        yield {"scheme": scheme, **found}


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
    layout = GhLayout(fixed_point.bits_for_rows(rows), rows, key.plaintext_bits)
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


# Which scheme to take: what a tree takes over a link, from the prices and sizes of one run


def nodes(depth: int) -> int:
    """Of so many whole layers."""
    return (1 << depth) - 1


@dataclass(frozen=True)
class Job:
    """What one tree asks of a scheme: full layers, every bin filled, nothing missing."""

    rows: int
    columns: int  # the host's
    bins: int = int(SHAPE["max_bin"])
    depth: int = DEPTH

    @property
    def candidates(self) -> int:
        """Of all nodes that look for a split."""
        return nodes(self.depth) * self.columns * (self.bins - 1)

    def counts(self) -> dict[str, float]:
        """How often each operation is done; below the root half of the rows are added up."""
        cells = self.columns * self.bins
        return {
            ENCRYPT: self.rows,
            RECEIVE: self.rows,
            ADD: self.rows * self.columns * (1 + (self.depth - 1) / 2),
            SUBTRACT: nodes(self.depth - 1) * cells,
            RUN: nodes(self.depth) * cells,
            ANSWER: self.candidates,
            DECRYPT: self.candidates,
        }


@dataclass(frozen=True)
class Price:
    """What a scheme's operations cost, and how large its rows and candidates are."""

    scheme: str
    ns: Mapping[str, float]
    row_bytes: float
    candidate_bytes: float

    @classmethod
    def of(cls, row: Row) -> Self:
        """From a row of the kind `operations`."""
        return cls(row["scheme"], row["ns"], row[ROW_BYTES], row[CANDIDATE_BYTES])

    def cpu_s(self, job: Job) -> float:
        """Of both parties, one tree."""
        return sum(1e-9 * self.ns[name] * count for name, count in job.counts().items())

    def n_bytes(self, job: Job) -> float:
        """On the wire, one tree."""
        return job.rows * self.row_bytes + self.answer_bytes(job)

    def answer_bytes(self, job: Job) -> float:
        """Of all answers to a tree; a lattice's as the guest has them packed, with the key."""
        if self.scheme not in RINGS:
            return job.candidates * self.candidate_bytes
        said = {"encryption": {"scheme": self.scheme}, "max_depth": job.depth, "max_bin": job.bins}
        params, budget = parse_settings(EncryptedTreeParams, said), self._budget(job)
        layers = [(1 << layer) * job.columns * (job.bins - 1) for layer in range(job.depth)]
        seen = AnswersSeen(last=(1, layers))
        return cost_of(params, budget, seen, best_slots(params, budget, seen)).n_bytes

    def seconds(self, job: Job, bits_a_second: float) -> float:
        """Work spread over a party's cores, then bytes over the link: nothing overlaps."""
        return self.cpu_s(job) / CORES + 8 * self.n_bytes(job) / bits_a_second

    def takes(self, job: Job) -> bool:
        """Whether sums of so many rows fit."""
        if self.scheme not in RINGS:
            return True
        try:
            self._budget(job)
        except ConfigError:
            return False
        return True

    def _budget(self, job: Job) -> Budget:
        return Budget(parameters.BY_NAME[self.scheme], job.rows)


def prices(rows: Sequence[Row]) -> dict[str, Price]:
    """By scheme; of those that hide anything."""
    found = {row["scheme"]: Price.of(row) for row in of(rows, OPERATIONS)}
    return {scheme: found[scheme] for scheme in HIDING if scheme in found}


def break_even(one: Price, other: Price, job: Job) -> float | None:
    """From how many bits a second on the first is the faster one; None: never."""
    saved = (other.cpu_s(job) - one.cpu_s(job)) / CORES
    more = 8 * (one.n_bytes(job) - other.n_bytes(job))
    if more <= 0 <= saved:
        return 0.0
    return more / saved if saved > 0 else None


def choices(rows: Sequence[Row]) -> list[Shown]:
    """The recommendation, if operations were measured."""
    known = prices(rows)
    if not known:
        return []
    lines = [
        (f"{job.rows:,}", f"{job.columns:,}", *_best(known, job), *_from(known, job))
        for job in (Job(n, m) for n in ROWS for m in HOST_COLUMNS)
    ]
    heads: tuple[str, ...] = ("rows", "host columns", *LINKS)
    rivals = [rival for rival in RIVALS if rival in known]
    heads += tuple(f"lattice beats {rival} from" for rival in rivals)
    note = (
        f"The fastest scheme that hides gradients, seconds of one tree of {DEPTH} layers and "
        f"{SHAPE['max_bin']} bins, and how many times as long the next one of another kind takes "
        "(the two lattices are one kind, Paillier of two lengths another). Computed, not measured: "
        f"the operations' times above on {CORES} cores, both parties in turn, then all bytes over "
        "the link. What is the same with every scheme is not in it. The lattice schemes take two "
        "million rows at most; Okamoto-Uchiyama and Paillier of 2048 bits are weaker (112 bits) "
        "than the lattices and Paillier of 3072 bits (128), and only the lattices withstand "
        "quantum computers."
    )
    return [Shown("Which scheme when: rows, columns, link", heads, lines, note)]


def _best(known: Mapping[str, Price], job: Job) -> list[str]:
    cells = []
    for bits_a_second in LINKS.values():
        taken = [
            (price.seconds(job, bits_a_second), scheme)
            for scheme, price in known.items()
            if price.takes(job)
        ]
        best, scheme = min(taken)
        others = [seconds for seconds, other in taken if _kind(other) != _kind(scheme)]
        factor = f" ({min(others) / best:.1f} ×)" if others else ""
        cells.append(f"{scheme} {best:,.{0 if best >= 10 else 2}f} s{factor}")
    return cells


def _kind(scheme: str) -> str:
    return scheme.split("-", maxsplit=1)[0]


def _from(known: Mapping[str, Price], job: Job) -> list[str]:
    cells = []
    for rival in RIVALS:
        if rival in known and LATTICE in known:
            lattice = known[LATTICE]
            least = break_even(lattice, known[rival], job) if lattice.takes(job) else None
            cells.append(_speed(least))
    return cells


def _speed(least: float | None) -> str:
    if least is None:
        return "never"
    return f"{least / 1e6:,.0f} Mbit/s" if least else "any"
