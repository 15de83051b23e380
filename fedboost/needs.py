"""What a job will need, as counts of primitives: a protocol says how often, a machine how long.

A protocol's `needs` gives phases in the order in which they come. Nothing here knows a second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# Of every protocol; those of a scheme or of the job's shape are named where they are counted.
READ_ROW, READ_CELL = "read a row", "read a cell"  # of a party's table, its ids hashed
FIT = "bin a value"  # cut points found, value put into its bin
HASH, MULTIPLY, CHECK, DIGEST = "hash an id", "move a point", "check a point", "digest an id"
HISTOGRAM = "add a cell in the clear"  # one row of one column
NODE = "choose a split"  # of one node and column with its bins
TREE_ROW = "move a row through a tree"  # gradients, its leaf, metrics
MASK = "mask a word"  # for one peer
WORDS = "add a word"  # of masked vectors, at the aggregator
NOISY = "draw a noisy bucket"
DISK = "write a byte"  # of a checkpoint or shard
PARALLEL = frozenset({HASH, MULTIPLY, CHECK})  # shared by a party's cores; so are a scheme's own

Works = Mapping[str, Mapping[str, float]]  # by party, how often each primitive
Link = tuple[str, str]  # from whom to whom


@dataclass(frozen=True)
class Phase:
    """What parties do at about the same time, before the next phase; `times` in the job."""

    stage: str
    name: str
    works: Works
    sent: Mapping[Link, float] = field(default_factory=dict)  # bytes by link
    messages: Mapping[Link, float] = field(default_factory=dict)  # and in how many messages
    exchanges: float = 1.0  # one behind the other: each waits for the network once
    calls: float = 1.0  # of the coordinator, one behind the other
    times: float = 1.0


@dataclass(frozen=True)
class Needs:
    """Phases, what a party holds in memory beside its table, and what has been assumed."""

    phases: Sequence[Phase]
    memory: Mapping[str, float] = field(default_factory=dict)  # bytes by party
    assumed: Sequence[str] = ()


@dataclass(frozen=True)
class GrowthCounts:
    """How trees grow, layer by layer from the root, on average over a job's trees."""

    opened: tuple[float, ...]  # nodes that look for a split
    added: tuple[float, ...]  # share of the tree's rows whose gradients are added up

    SURVIVE = 0.85  # of the nodes a layer could have, those that are worth a look, layer by layer
    LIGHTER = 0.2  # share of the rows in the lighter children of a layer, all together

    @classmethod
    def typical(cls, depth: int, rows: float) -> GrowthCounts:
        """Where nobody has grown one: nodes die out with depth, and for lack of rows."""
        opened, added = [1.0], [1.0]
        for layer in range(1, depth):
            most = min(2.0**layer * cls.SURVIVE**layer, max(2.0, rows / 8.0))
            opened.append(most)
            added.append(cls.LIGHTER * cls.SURVIVE ** (layer - 1))
        return cls(tuple(opened), tuple(added))

    def layers(self, first: int, last: int) -> list[tuple[float, float]]:
        """Nodes and share of rows of some layers; those deeper than known are like the last."""
        known = list(zip(self.opened, self.added, strict=True))
        return [known[min(layer, len(known) - 1)] for layer in range(first, last)]


@dataclass(frozen=True)
class Scene:
    """The tables of a job as far as they are known."""

    guest: str
    hosts: tuple[str, ...]
    rows: Mapping[str, int]  # of each party's table
    columns: Mapping[str, int]
    bins: Mapping[str, float]  # of a column, on average, missing values aside
    missing: Mapping[str, float]  # share of columns with missing values
    common: int  # rows of the guest that a job of all learns from or measures
    shared: Mapping[str, int]  # rows that a host has of the guest's
    held_out: float  # share of the rows
    growth: GrowthCounts | None = None
    aggregator: str | None = None

    @property
    def parties(self) -> tuple[str, ...]:
        """Who has rows: the guest, then the hosts."""
        return (self.guest, *self.hosts)

    @property
    def training(self) -> float:
        """Rows in common that trees learn from."""
        return self.common * (1.0 - self.held_out)

    def grown(self, depth: int, rows: float) -> GrowthCounts:
        """How trees of this depth grow on so many rows."""
        return self.growth or GrowthCounts.typical(depth, rows)

    def candidates(self, party: str) -> float:
        """Splits that a party's columns offer in a node, missing values left or right."""
        each = max(1.0, self.bins[party] - 1.0)
        return self.columns[party] * each * (1.0 + self.missing[party])

    def cells(self, party: str) -> float:
        """Cells of a node's histogram."""
        return self.columns[party] * (self.bins[party] + self.missing[party])


class PhaseTally:
    """Counts of one phase while it is put together."""

    def __init__(self) -> None:
        self.works: dict[str, dict[str, float]] = {}
        self.sent: dict[Link, float] = defaultdict(float)
        self.messages: dict[Link, float] = defaultdict(float)

    def add(self, party: str, primitive: str, count: float) -> None:
        """So many more of a primitive at a party."""
        own = self.works.setdefault(party, defaultdict(float))
        own[primitive] += count

    def send(self, link: Link, octets: float, messages: float = 1.0) -> None:
        """So many bytes from one to another, in so many messages."""
        self.sent[link] += octets
        self.messages[link] += messages

    def phase(self, stage: str, name: str, **more: float) -> Phase:
        """The phase; `more` are exchanges, calls and times."""
        return Phase(stage, name, self.works, self.sent, self.messages, **more)


def named(works: Iterable[Works]) -> set[str]:
    """Every primitive that somebody needs."""
    return {name for one in works for own in one.values() for name in own}
