"""How many round trips a layer of a tree takes, one behind the other, counted on real daemons.

Two trees that differ in their layers alone are timed over two latencies that nothing but waiting
tells apart: what computing takes drops out, and so does what a tree takes once.
"""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks import encryption_jobs, harness, links, plus_jobs, tables
from benchmarks.encryption_plan import PLAIN, Plan
from benchmarks.harness import say
from benchmarks.links import Link
from benchmarks.plus_tables import Row
from benchmarks.tables import GUEST, Table
from fedboost.runtime.cluster.local import COORDINATOR
from fedboost.runtime.transport.addresses import Timers

TABLE = "give_credit"
ROWS, HOST_COLUMNS = 2000, 1  # little to compute
DEPTHS = (2, 8)  # the first layers of a tree all divide, whatever the depth
LATENCIES_S = (0.05, 0.15)  # there and back: with none, daemons would wake sooner
WARM_UP = 1  # tree: processes start, and the coordinator learns what a layer takes
BITS_PER_S = 10e9  # so that latency alone counts
KEEP_S = 60.0  # so that no layer is kept: a checkpoint is a round trip of its own, once a second
MACHINES: Mapping[str, tuple[str, ...]] = {
    "of its own": (),
    "the guest's": (COORDINATOR, GUEST),
}  # where the coordinator is


def measure(name: str, plan: Plan) -> list[Row]:
    """A row for each place of the coordinator: round trips a layer."""
    table = tables.load(name).sample(ROWS, plus_jobs.SEED)
    table = plus_jobs.fewer_columns(table, HOST_COLUMNS)
    return [_of(table, where, plan.trip_trees) for where in MACHINES]


def _of(table: Table, where: str, trees: int) -> Row:
    seconds = {rtt: _trees(table, where, rtt, trees) for rtt in LATENCIES_S}
    (shallow, deep), (near, far) = DEPTHS, LATENCIES_S
    layers = {rtt: (own[deep] - own[shallow]) / (deep - shallow) for rtt, own in seconds.items()}
    waits = {depth: seconds[far][depth] - seconds[near][depth] for depth in DEPTHS}
    a_layer = (layers[far] - layers[near]) / (far - near)
    return {
        "what": "trips", "data": table.name, "coordinator": where,
        "layer_s": layers[far], "a_layer": a_layer,
        "a_tree_more": waits[shallow] / (far - near) - shallow * a_layer,
    }  # fmt: skip


def _trees(table: Table, where: str, rtt_s: float, trees: int) -> dict[int, float]:
    """Seconds of a tree by its depth."""
    link = Link(BITS_PER_S, rtt_s / 2)
    with tempfile.TemporaryDirectory() as folder:
        sources = tables.deal(table, plus_jobs.parts(table), Path(folder) / "data")
        first = encryption_jobs.job(table, 1, PLAIN, max(DEPTHS))
        around = partial(links.shaped, link=link, together=MACHINES[where])
        timers = Timers(keep_s=KEEP_S)
        with harness.daemons(first, sources, Path(folder) / "cluster", around, timers) as run:
            found = {}
            for depth in DEPTHS:
                say.print(f"[bold]round trips[/]: {1e3 * rtt_s:g} ms, depth {depth}, {where}")
                done = run(encryption_jobs.job(table, trees, PLAIN, depth))
                found[depth] = min(lap.seconds for lap in done.trees[WARM_UP:])
            return found
