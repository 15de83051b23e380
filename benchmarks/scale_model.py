"""A tree of more rows than this machine holds, on many workers: what one of each unit costs here,
times how many there are; a part of `scale`.

Steps follow one another, so seconds add up. Workers have a thread each, the guest and the host
`CORES`; all that the host sends and gets goes over its one link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import encryption_operations as operations
from benchmarks import part_bytes
from benchmarks.boosting import PAILLIER
from benchmarks.part_bytes import Carried
from benchmarks.rows import Row, Shown, grouped

RING = "lattice-large"
CORES = 16  # of the guest and of the host
LINK_BYTES_S = 10e9 / 8  # of the host, each way
FEW, MANY = (2, 10), (4, 20)  # workers and columns that bytes are weighed with
LINK = "host's link"


@dataclass(frozen=True)
class Size:
    """What a tree is grown on, and by how many."""

    rows: int = 100_000_000
    columns: int = 200  # of the host
    workers: int = 32
    bins: int = 32
    depth: int = 5

    @property
    def rows_added(self) -> float:
        """Rows of the root, and half of them in each further layer, whose siblings are the rest."""
        return self.rows * (1 + (self.depth - 1) / 2)

    @property
    def rows_divided(self) -> float:
        """Rows of all layers whose children are added up, the last but one being the last."""
        return self.rows * (self.depth - 1)

    @property
    def cells(self) -> int:
        """Those of the nodes that are added up: the root, and half of each further layer."""
        return (1 << self.depth - 1) * self.columns * self.bins

    @property
    def candidates(self) -> int:
        """Those of all nodes."""
        return ((1 << self.depth) - 1) * self.columns * (self.bins - 1)


@dataclass(frozen=True)
class Carries:
    """Bytes of a row, by how many workers and columns there are, and of what does not change with
    them.
    """

    bins: tuple[float, float, float]  # anyway, for each worker, for each column
    once: tuple[float, float, float]
    layer: tuple[float, float, float]
    keys: float
    asked: float
    answer: float

    @classmethod
    def weighed(cls, scheme: str) -> Carries:
        """From three sizes, each weighed."""
        (workers, columns), (more, wider) = FEW, MANY
        base, spread, wide = (
            part_bytes.carried(scheme, c, n)
            for n, c in ((workers, columns), (more, columns), (workers, wider))
        )

        def line(of: str) -> tuple[float, float, float]:
            start: float = getattr(base, of)
            each = (getattr(spread, of) - start) / (more - workers)
            every = (getattr(wide, of) - start) / (wider - columns)
            return start - workers * each - columns * every, each, every

        alike = base.key_bytes, base.asked_bytes, base.answer_bytes
        lines = line("bins_bytes"), line("row_bytes"), line("layer_row_bytes")
        return cls(*lines, *alike)

    def of(self, size: Size) -> Carried:
        """Bytes of a row with so many workers and columns."""
        many = (1, size.workers, size.columns)
        bins, once, layer = (
            sum(each * count for each, count in zip(line, many, strict=True))
            for line in (self.bins, self.once, self.layer)
        )
        return Carried("", bins, once, self.keys, layer, self.asked, self.answer)


@dataclass(frozen=True)
class Units:
    """What one of each costs, as measured in this run."""

    scheme: str
    carries: Carries
    ns: Mapping[str, float]  # processor time of one core, by operation
    row_bytes: float  # from the guest
    candidate_bytes: float  # to the guest
    by_columns: bool  # workers have some of the columns, else some of the rows

    @classmethod
    def of(cls, scheme: str, found: Row, carries: Carries, *, by_columns: bool) -> Units:
        """From what the operations of a scheme were measured to take."""
        sizes = found[operations.ROW_BYTES], found[operations.CANDIDATE_BYTES]
        return cls(scheme, carries, found["ns"], *sizes, by_columns=by_columns)


def measure(_: str, plan: Any) -> Iterator[Row]:
    """Rows of the parts of a tree: under the lattice that takes so many rows, and Paillier."""
    size, own = Size(), operations.Plan(plan.ring_rows, plan.modular_rows, plan.least_s)
    ring = operations.rings(RING, own, size.rows)
    number = operations.modular(PAILLIER, own, size.rows)
    for one in (
        Units.of(RING, ring, Carries.weighed(RING), by_columns=True),
        Units.of(PAILLIER, number, Carries.weighed("paillier"), by_columns=False),
    ):
        carried = one.carries.of(size)
        rows_bytes = size.rows * (carried.row_bytes + carried.bins_bytes)
        for part in parts(one, size):
            yield {"scheme": one.scheme, "worker_bytes": rows_bytes / size.workers, **vars(part)}


@dataclass(frozen=True)
class Part:
    """One part of a tree."""

    part: str
    who: str
    bytes: float  # over the host's link
    seconds: float


def parts(one: Units, size: Size) -> list[Part]:
    """What a tree takes, step by step."""
    ns, carried = one.ns, one.carries.of(size)
    later = size.rows_added - size.rows
    # Workers wait for the one that has most.
    share = -(-size.columns // size.workers) / size.columns if one.by_columns else 1 / size.workers
    added = size.rows * ns[operations.ADD] + later * ns[operations.ADD_FEW]
    settled = size.cells * (ns[operations.SUBTRACT] + 2 * ns[operations.RUN])
    answered = settled + size.candidates * ns[operations.ANSWER]
    workers = f"{size.workers} workers"
    # A lattice's workers keep their cells and blind what is asked of these.
    to_answer = (workers, answered * share, 1) if one.by_columns else ("host", answered, CORES)
    back = size.candidates if one.by_columns else size.cells

    def computed(what: str, who: str, nanoseconds: float, cores: int = CORES) -> Part:
        return Part(what, who, 0.0, 1e-9 * nanoseconds / cores)

    def carries(what: str, n_bytes: float) -> Part:
        return Part(what, LINK, n_bytes, n_bytes / LINK_BYTES_S)

    return [
        computed("encrypt rows", "guest", size.rows * ns[operations.ENCRYPT]),
        carries("rows from the guest", size.rows * one.row_bytes),
        computed("check rows", "host", size.rows * ns[operations.RECEIVE]),
        carries("rows to workers", size.rows * carried.row_bytes),
        carries("keys to workers", size.workers * carried.key_bytes),
        carries("divisions to workers", size.rows_divided * carried.layer_row_bytes),
        carries("sums asked of workers", size.candidates * carried.asked_bytes),
        computed("add up", workers, added * size.columns * share, 1),
        computed("run up and answer", *to_answer),
        carries("sums from workers", back * carried.answer_bytes),
        carries("answers to the guest", size.candidates * one.candidate_bytes),
        computed("decrypt", "guest", size.candidates * ns[operations.DECRYPT]),
    ]


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """Seconds of a tree, and what of them its host's link takes; bytes of a worker's rows."""
    found: dict[str, float] = {}
    for own in grouped(rows, "scheme"):
        name = f"model.{own[0]['scheme']}"
        found |= {
            f"{name}.seconds_per_tree": sum(row["seconds"] for row in own),
            f"{name}.link_seconds": sum(row["seconds"] for row in own if row["who"] == LINK),
            f"{name}.link_gb": sum(row["bytes"] for row in own) / 1e9,
            f"{name}.worker_gb": own[0]["worker_bytes"] / 1e9,
        }
    return found


def table(rows: Sequence[Row]) -> Shown:
    """A row for each part, and of each scheme bytes and seconds."""
    both, size = list(grouped(rows, "scheme")), Size()
    heads = ("part", "by", *(f"{own[0]['scheme']}, {of}" for own in both for of in ("GB", "s")))
    lines = [_row(at[0]["part"], at[0]["who"], at) for at in zip(*both, strict=True)]
    links, whole = ([_sum(own, who) for own in both] for who in ((LINK,), None))
    lines += [_row(f"of that the {LINK}", "", links), _row("a tree", "", whole)]
    title = (
        f"Model: {size.rows:,} rows, {size.columns} columns, {size.workers} workers of one thread, "
        f"{CORES} cores at guest and host, {8e-9 * LINK_BYTES_S:g} Gbit/s at the host"
    )
    return Shown(title, heads, lines)


def _sum(own: Sequence[Row], who: tuple[str] | None) -> Row:
    """Of the host's link with its bytes, or seconds of all."""
    seconds = sum(row["seconds"] for row in own if who is None or row["who"] in who)
    return {"bytes": sum(row["bytes"] for row in own) if who else 0.0, "seconds": seconds}


def _row(what: str, who: str, beside: Sequence[Row]) -> tuple[str, ...]:
    cells = ((f"{p['bytes'] / 1e9:,.1f}" if p["bytes"] else "", f"{p['seconds']:,.0f}")
             for p in beside)  # fmt: skip
    return (what, who, *(text for pair in cells for text in pair))
