"""Which scheme to take: what a tree takes over a link, from the prices and sizes of one run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from benchmarks.encryption_operations import (
    ADD,
    ANSWER,
    CANDIDATE_BYTES,
    DECRYPT,
    ENCRYPT,
    OPERATIONS,
    RECEIVE,
    ROW_BYTES,
    RUN,
    SUBTRACT,
)
from benchmarks.encryption_plan import HIDING, LATTICE, OKAMOTO_UCHIYAMA, PAILLIER, RINGS
from benchmarks.harness import Shown
from benchmarks.plus_jobs import DEPTH, SHAPE
from benchmarks.plus_tables import Row, of
from fedboost.crypto.lattice import parameters
from fedboost.crypto.lattice.budget import Budget
from fedboost.encrypted.lattice.answers import best_slots, cost_of
from fedboost.encrypted.scheme.ciphers import AnswersSeen
from fedboost.encrypted.scheme.params import EncryptedTreeParams
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse

CORES = 8  # of each party
LINKS = {"10 Mbit/s": 1e7, "100 Mbit/s": 1e8, "1 Gbit/s": 1e9, "10 Gbit/s": 1e10}
ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
COLUMNS = (5, 20, 100, 1000)
RIVALS = (OKAMOTO_UCHIYAMA, PAILLIER)


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
        params, budget = parse(EncryptedTreeParams, said), self._budget(job)
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
        for job in (Job(n, m) for n in ROWS for m in COLUMNS)
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
