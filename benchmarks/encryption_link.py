"""Trees under each scheme over a line between organisations: seconds, bytes, processor, memory.

Every case has daemons of its own, so that a party's peak of memory is the case's. All of them are
up at the same time and train in turn, so that what else the machine does befalls all alike.

Round trips of a layer, one behind the other, are counted on daemons, too: two trees that differ in
their layers alone are timed over two latencies that nothing but waiting tells apart, so that what
computing takes drops out, and so does what a tree takes once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from statistics import median
from typing import Any

from benchmarks import boosting, harness, links, plots, tables
from benchmarks.boosting import DEPTH, LATTICE, PLAIN
from benchmarks.harness import TREE_ENDS, JobRun
from benchmarks.links import Link
from benchmarks.rows import Row, Shown, disturbance, grouped, number, of
from benchmarks.tables import GUEST, HOST, Table
from fedboost.ground.errors import ConfigError
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import COORDINATOR
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.transport.addresses import Timers

# A ping waits behind what has been written, and at 20 Mbit/s megabytes take seconds.
TIMERS = Timers(keepalive_timeout_s=120.0, peer_lost_s=120.0, call_s=120.0)


@dataclass(frozen=True)
class Case:
    """A way to encrypt; `cycle` trees share what is sent once for several, such as a key."""

    encryption: Mapping[str, Any]
    cycle: int = 1


PAILLIER, OKAMOTO_UCHIYAMA = "paillier-2048", "okamoto-uchiyama-2048"
RIVALS = {"paillier": PAILLIER, "okamoto_uchiyama": OKAMOTO_UCHIYAMA}
# Of settings that this version does not know a case is left out, and the table says so.
CASES: dict[str, Case] = {
    PLAIN: Case({"scheme": "plain"}),
    PAILLIER: Case({"scheme": "paillier", "key_bits": 2048}),
    OKAMOTO_UCHIYAMA: Case({"scheme": "okamoto-uchiyama", "key_bits": 2048}),
    LATTICE: Case({"scheme": "lattice"}),
    "lattice, vectors": Case({"scheme": "lattice", "answers": "vectors"}),
    "lattice, packed": Case({"scheme": "lattice", "answers": "packed"}),
    "lattice, packed, a key for 10 trees": Case(
        {"scheme": "lattice", "answers": "packed", "key_trees": 10}, cycle=10
    ),
}


@dataclass(frozen=True)
class Split:
    """Which of a data set's columns are the host's."""

    data: str
    columns: slice

    def of(self, table: Table) -> dict[str, tuple[str, ...]]:
        """Who has which columns, the guest first."""
        host = tables.HOST_COLUMNS[table.name]
        if self.columns != slice(None):
            host = table.columns[self.columns]
        return {GUEST: tuple(c for c in table.columns if c not in host), HOST: tuple(host)}


SPLITS: dict[str, Split] = {
    "default_credit, first 10": Split("default_credit", slice(None, 10)),
    "default_credit, last 13": Split("default_credit", slice(-13, None)),
    "give_credit": Split("give_credit", slice(None)),
}
DATA = tuple(dict.fromkeys(split.data for split in SPLITS.values()))


TRIPS_OF, TRIPS_ROWS, TRIPS_COLUMNS = "give_credit", 2000, 1  # little to compute
DEPTHS = (2, 8)  # the first layers of a tree all divide, whatever the depth
LATENCIES_S = (0.05, 0.15)  # there and back: with none, daemons would wake sooner
BITS_PER_S = 10e9  # so that latency alone counts
KEEP_S = 60.0  # so that no layer is kept: a checkpoint is a round trip of its own, once a second
MACHINES: Mapping[str, tuple[str, ...]] = {
    "of its own": (),
    "the guest's": (COORDINATOR, GUEST),
}  # where the coordinator is


@dataclass(frozen=True)
class Plan:
    """How much is measured over a line."""

    rows: int | None = None  # of a table at most
    columns: int | None = None  # of its host at most
    depth: int = DEPTH
    trees: int = 2  # cycles of timed trees, behind one that warms up
    repeats: int = 1  # jobs of each case, in turn with the others'
    cycle: int = 10  # at most
    trip_trees: int = 8  # of a job whose round trips are counted
    cases: tuple[str, ...] = tuple(CASES)
    link: Link | None = None  # between all daemons


QUICK = Plan(
    100, 1, depth=1, trees=1, cycle=1, trip_trees=2,
    cases=tuple(name for name in CASES if name not in (PLAIN, "lattice, packed")),
)  # fmt: skip


def measure(name: str, plan: Plan) -> Iterator[Row]:
    """The rows of all splits of a data set."""
    for title, split in SPLITS.items():
        if split.data == name:
            table = tables.load(name).sample(plan.rows)
            parts = split.of(table)
            parts[HOST] = parts[HOST][: plan.columns]
            yield from _timed(title, table, parts, plan)


def params(case: Case, depth: int) -> dict[str, Any]:
    """What a case's jobs say."""
    return {"encryption": dict(case.encryption), "max_depth": depth}


def _timed(
    title: str, table: Table, parts: Mapping[str, tuple[str, ...]], plan: Plan
) -> Iterator[Row]:
    columns = len(parts[HOST])
    facts = {"split": title, "rows": len(table.y), "host_columns": columns}
    with ExitStack() as stack:
        up: dict[str, Train] = {}
        for name in plan.cases:
            case = CASES[name]
            try:
                boosting.job(table, 1, PLAIN, params(case, plan.depth))
            except ConfigError as error:
                yield {"what": "left out", **facts, "case": name, "why": error.what}
                continue
            up[name] = stack.enter_context(_daemons(table, parts, case, plan))
        for number_ in range(plan.repeats):
            for name, train in up.items():
                trees = 1 + min(plan.cycle, CASES[name].cycle) * plan.trees
                yield {**facts, "case": name, "number": number_, **train(trees)}


Train = Callable[[int], Row]


@contextmanager
def _daemons(
    table: Table, parts: Mapping[str, tuple[str, ...]], case: Case, plan: Plan
) -> Iterator[Train]:
    """Trains so many trees on daemons of one case; gives what a tree has taken."""
    clusters: list[ClusterProcesses] = []

    @contextmanager
    def around(made: ClusterProcesses) -> Iterator[None]:
        clusters.append(made)
        with links.shaped(made, plan.link or Link()):
            yield

    given = params(case, plan.depth)
    with boosting.daemons(table, PLAIN, around, TIMERS, parts) as train:
        yield lambda trees: _of(train(trees, PLAIN, given, held_out=False), clusters[0])


def _of(done: JobRun, cluster: ClusterProcesses) -> Row:
    """What a tree behind the first one took, which warms up and shares the job's key."""
    laps = done.trees[1:]
    seconds = sum(lap.seconds for lap in laps)
    began = max(done.ends.get(step, 0.0) for step in TREE_ENDS) - seconds
    cpu = {name: sum(lap.by_daemon[name] for lap in laps) / len(laps) for name in cluster.names}
    return {
        "trees": len(laps),
        "wall_s": seconds / len(laps),
        "sent": _bytes(cluster, done.result["job"], began) / len(laps),
        "cpu_s": cpu,
        "peak": done.result["memory_peak_bytes"],
        "others": harness.spent(laps)[1],
        "load": done.load_before,
    }


def _bytes(cluster: ClusterProcesses, job: str, since: float) -> int:
    """Payload bytes between the parties from a moment on, by the guest's ledger."""
    ledger = Ledger(cluster.store(GUEST) / "store.sqlite", read_only=True)
    try:
        rows = ledger.rows(job)
    finally:
        ledger.close()
    return sum(row.bytes for row in rows if datetime.fromisoformat(row.at).timestamp() >= since)


def trips(name: str, plan: Plan) -> Iterator[Row]:
    """A row for each place of the coordinator: round trips a layer."""
    table = tables.load(name).sample(TRIPS_ROWS)
    table = boosting.fewer_columns(table, TRIPS_COLUMNS)
    (shallow, deep), (near, far) = DEPTHS, LATENCIES_S
    for where in MACHINES:
        seconds = {rtt: _seconds(table, where, rtt, plan.trip_trees) for rtt in LATENCIES_S}
        layers = {rtt: (s[deep] - s[shallow]) / (deep - shallow) for rtt, s in seconds.items()}
        a_layer = (layers[far] - layers[near]) / (far - near)
        waits = (seconds[far][shallow] - seconds[near][shallow]) / (far - near)
        more = waits - shallow * a_layer
        yield {
            "coordinator": where,
            "layer_s": layers[far],
            "a_layer": a_layer,
            "a_tree_more": more,
        }


def _seconds(table: Table, where: str, rtt_s: float, trees: int) -> dict[int, float]:
    """Seconds of a tree by its depth; the first one warms up."""
    around = partial(links.shaped, link=Link(BITS_PER_S, rtt_s / 2), together=MACHINES[where])
    found = {}
    with boosting.daemons(table, PLAIN, around, Timers(keep_s=KEEP_S)) as train:
        for depth in DEPTHS:
            done = train(trees, PLAIN, {"max_depth": depth}, held_out=False)
            found[depth] = min(lap.seconds for lap in done.trees[1:])
    return found


# Figures and tables


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """Seconds and bytes of a tree by split and case, ratios to the lattices', round trips."""
    found: dict[str, float] = {}
    for group in grouped(of(rows, "link"), "split"):
        split = _key(group[0]["split"])
        whole = {row["case"]: row for row in merged(group)}
        for case, row in whole.items():
            found[f"link_s.{split}.{_key(case)}"] = row["wall_s"]
            found[f"link_mb.{split}.{_key(case)}"] = row["sent"] / 1e6
            for rival, name in RIVALS.items():
                if case.startswith(LATTICE) and name in whole:
                    ratio = whole[name]["wall_s"] / row["wall_s"]
                    found[f"link_ratio.{split}.{rival}.{_key(case)}"] = ratio
    for row in of(rows, "trips"):
        found[f"round_trips.{_key(row['coordinator'])}"] = row["a_layer"]
    return found


def merged(group: Sequence[Row]) -> list[Row]:
    """One row for each case: the median of its jobs' times, and the peak of all."""
    found = []
    for own in grouped(group, "case"):
        one = dict(own[-1])
        one["wall_s"] = median(row["wall_s"] for row in own)
        one["cpu_s"] = {p: median(row["cpu_s"][p] for row in own) for p in one["cpu_s"]}
        found.append(one)
    return found


def shown(rows: Sequence[Row]) -> list[Shown]:
    """A table for each split, and one of round trips."""
    left_out = of(rows, "left out")
    drawn = [
        _trees(group, [row for row in left_out if row["split"] == group[0]["split"]])
        for group in grouped(of(rows, "link"), "split")
    ]
    return [*drawn, *([_trips(of(rows, "trips"))] if of(rows, "trips") else [])]


def _trees(group: list[Row], left_out: Sequence[Row]) -> Shown:
    whole = merged(group)
    wall = {row["case"]: row["wall_s"] for row in whole}
    lines = []
    for row in whole:
        cells = [row["case"], number(row["wall_s"], 2)]
        cells += [number(wall[case] / row["wall_s"], 2) if case in wall else ""
                  for case in (PAILLIER, OKAMOTO_UCHIYAMA, PLAIN)]  # fmt: skip
        cells.append(number(row["sent"] / 1e6, 2))
        cells += [number(row["cpu_s"][party], 2) for party in (GUEST, HOST)]
        cells += [number(row["peak"][party] / 1e9, 2) for party in (GUEST, HOST)]
        lines.append(tuple(cells))
    heads = ("case", "s", "Paillier ÷", "Okamoto-Uchiyama ÷", "plain ÷", "MB", "guest's CPU s",
             "host's CPU s", "guest's peak, GB", "host's peak, GB")  # fmt: skip
    notes = [disturbance(group)]
    notes += [f"Left out: {row['case']} ({row['why']})." for row in left_out]
    title = f"{group[0]['split']}: one tree over the link, {plots.size(group[0])}"
    return Shown(title, heads, lines, " ".join(filter(None, notes)))


def _trips(group: list[Row]) -> Shown:
    lines = [
        (row["coordinator"], number(row["a_layer"], 2), number(row["a_tree_more"], 1))
        for row in group
    ]
    note = (
        "Slopes of seconds over latency, of trees that differ in their layers alone. A tree's own "
        "are gradients, leaves, metrics and a checkpoint."
    )
    heads = ("machine of the coordinator", "a layer", "a tree, besides")
    return Shown("Round trips, one behind the other", heads, lines, note)


def _key(text: str) -> str:
    """A name as a figure's is written."""
    return text.replace(",", "").replace(" ", "_").replace("'", "")
