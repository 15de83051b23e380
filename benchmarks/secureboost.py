"""secureboost over real daemons: accuracy beside XGBoost, time beside the floor of its primitives.

python -m benchmarks.secureboost [--quick] [--json F] [--record F] [--data NAME]
"""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks import floor, harness, tables
from benchmarks.floor import Counts, HostTable, Layers, Packing
from benchmarks.harness import JobRun, Report, Shown, say
from benchmarks.products import products_made
from benchmarks.tables import GUEST, HOST, Table
from fedboost.ground.errors import JobError
from fedboost.ground.settings import parse
from fedboost.job import JobSpec
from fedboost.runtime.cluster.local import DATASET

DATA = ("default_credit", "give_credit")
TREES = 25
SHAPE: dict[str, Any] = {"max_depth": 5, "learning_rate": 0.3, "max_bin": 32, "reg_lambda": 1.0}
MIN_CHILD_WEIGHT = 1.0
KEY_BITS = 2048
VALIDATION: dict[str, Any] = {"fraction": 0.3, "seed": 7}
QUICK_TREES = 4  # the first pays for the tables of both parties
QUICK_ROWS = 30_000


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    timed_trees: int
    rows_max: int | None  # of a table; None: all

    @classmethod
    def of(cls, *, quick: bool) -> Self:
        """The quick one, or all."""
        return cls(QUICK_TREES, QUICK_ROWS) if quick else cls(TREES, None)


@dataclass(frozen=True)
class Trained:
    """A data set's run, and what it needed."""

    table: Table
    run: JobRun
    counts: Counts
    made: int  # modular products in which the host added up rows
    each_s: dict[str, float]  # CPU seconds of each primitive
    cores: int

    @property
    def floor_cpu_s(self) -> float:
        """CPU seconds of all primitives."""
        return sum(floor.cost(self.counts, self.each_s).values())

    @property
    def train_s(self) -> float:
        """Wall seconds of the training stage."""
        return float(self.run.result["seconds"]["train"])

    @property
    def ratios(self) -> dict[str, float]:
        """Of wall time to the floor; the same with the additions made, and without the processor
        time that others took; of processor time to the floor's.
        """
        fewer = (self.counts.additions - self.made) * self.each_s["additions"]
        found = {
            "floor": self.train_s * self.cores / self.floor_cpu_s,
            "floor_with_additions_made": self.train_s * self.cores / (self.floor_cpu_s - fewer),
        }
        spent = self.run.training
        if spent:
            ours_or_idle = spent["seconds"] * self.cores - spent["others"] - spent["stolen"]
            found["floor_net_of_others"] = ours_or_idle / self.floor_cpu_s
            found["cpu"] = spent["ours"] / self.floor_cpu_s
        return found


def job(name: str, trees: int, scheme: str) -> JobSpec:
    """The job of one data set."""
    data: dict[str, Any] = {GUEST: {"dataset": DATASET, "label": "y"}, HOST: {"dataset": DATASET}}
    encryption = {"scheme": scheme, "key_bits": KEY_BITS}
    params = {**SHAPE, "n_estimators": trees, "eval_metric": ["auc"], "encryption": encryption}
    return parse(
        JobSpec,
        {
            "name": name.replace("_", "-"),
            "protocol": "secureboost",
            "parties": {"guest": GUEST, "hosts": [HOST]},
            "data": data,
            "validation": VALIDATION,
            "params": {**params, "min_child_weight": MIN_CHILD_WEIGHT},
        },
    )


def train(table: Table, trees: int, scheme: str) -> JobRun:
    """Trains on a cluster of its own, which is gone afterwards."""
    say.print(f"[bold]{table.name}[/]: {len(table.y)} rows, {trees} trees, {scheme}")
    with tempfile.TemporaryDirectory() as folder:
        sources = tables.deal(table, tables.vertical(table), Path(folder) / "data")
        return harness.run_job(job(table.name, trees, scheme), sources, Path(folder) / "cluster")


def training_values(table: Table) -> NDArray[np.float32]:
    """The training rows with the guest's columns first, in the order that the parties keep."""
    parts = tables.vertical(table)
    indices = [table.columns.index(c) for party in parts.values() for c in party]
    return table.values[~table.held_out(**VALIDATION)][:, indices]


def needed(table: Table, run: JobRun) -> tuple[Counts, int, Packing]:
    """The primitives that a run's trees needed, and the products its host made for additions.

    A JobError where they do not agree with the bytes that travelled.
    """
    values = training_values(table)
    packing = Packing.for_rows(len(values), KEY_BITS)
    n_guest = len(tables.vertical(table)[GUEST])
    host = HostTable.of(values[:, n_guest:], SHAPE["max_bin"])
    layers = Layers(SHAPE["max_depth"], MIN_CHILD_WEIGHT)
    trees = floor.tree_rows(run.shards[GUEST], run.shards[HOST], HOST, values)
    counts, made = Counts(), 0
    for nodes in trees:
        counts += floor.count_tree(nodes, layers, host, packing.capacity)
        added = [
            [nodes[node][0] for node in sorted(floor.added_nodes(nodes, opened))]
            for opened in _by_layer(floor.opened_nodes(nodes, layers))
        ]
        made += products_made(values[:, n_guest:], added, SHAPE["max_bin"])
    width = 2 * KEY_BITS // 8
    for step, number in (
        ("encrypt_gradients", counts.encryptions),
        ("sum_candidates", counts.decryptions),
    ):
        sent = sum(run.step(step).bytes.values())
        if not number * width <= sent <= number * width * 1.02 + 4096 * run.step(step).calls:
            raise JobError(f"{step} sent {sent} bytes, which are not {number} ciphertexts")
    return counts, made, packing


def _by_layer(opened: Sequence[int]) -> list[list[int]]:
    depths = sorted({(node + 1).bit_length() for node in opened})
    return [[node for node in opened if (node + 1).bit_length() == depth] for depth in depths]


def same_trees(timed: JobRun, whole: JobRun) -> bool:
    """Whether two runs agree in every metric of the rounds both have."""
    pairs = zip(timed.rounds, whole.rounds, strict=False)
    return all(one["metrics"] == other["metrics"] for one, other in pairs)


def measure(name: str, plan: Plan, report: Report) -> list[Shown]:
    """Trains on one data set, fills rows and figures, and gives the tables to show."""
    table = tables.load(name)
    if plan.rows_max is not None:
        table = table.sample(plan.rows_max, VALIDATION["seed"])
    run = train(table, plan.timed_trees, "paillier")
    whole = run
    if plan.timed_trees < TREES:
        whole = train(table, TREES, "plain")
        if not same_trees(run, whole):
            raise JobError("the plain trees are not the encrypted ones")
    held = table.held_out(**VALIDATION)
    pooled = tables.xgboost_scores(
        table,
        held,
        {**SHAPE, "n_estimators": TREES, "min_child_weight": MIN_CHILD_WEIGHT},
        harness.cores(),
    )
    say.print("  counting primitives, then timing them", style="dim")
    counts, made, packing = needed(table, run)
    cores = harness.cores()
    columns = len(tables.vertical(table)[HOST])
    each_s = floor.prices(packing, columns, SHAPE["max_bin"], cores)
    done = Trained(table, run, counts, made, each_s, cores)
    auc = {part: found["auc"] for part, found in whole.result["metrics"].items()}
    report.figures[f"auc_gap.{name}"] = abs(auc["train"] - pooled["train"])
    report.figures[f"seconds_per_tree.{name}"] = run.result["seconds"]["per_tree"]
    report.figures[f"floor_ratio.{name}"] = done.ratios["floor"]
    report.rows.append(
        {
            "data": name,
            "rows": run.result["rows"],
            "auc": {"fedboost": auc, "xgboost": pooled},
            "job": run.facts(),
            "primitives": {"counts": asdict(counts), "cpu_seconds_each": each_s},
            "additions_made": made,
            "floor_cpu_seconds": done.floor_cpu_s,
            "ratios": done.ratios,
        }
    )
    return [
        _accuracy(name, auc, pooled),
        _primitives(done),
        _ratios(done),
        _steps(done),
        _parties(done),
    ]


def _accuracy(name: str, auc: dict[str, float], pooled: dict[str, float]) -> Shown:
    rows = [
        (part, f"{auc[part]:.5f}", f"{pooled[part]:.5f}", f"{auc[part] - pooled[part]:+.5f}")
        for part in pooled
    ]
    return Shown(
        f"{name}: AUC after {TREES} trees", ("part", "fedboost", "XGBoost, pooled", "gap"), rows
    )


def _primitives(done: Trained) -> Shown:
    cost = floor.cost(done.counts, done.each_s)
    rows = []
    for name, number in asdict(done.counts).items():
        book = floor.TEXTBOOK_S.get(name)
        rows.append(
            (
                name.replace("_", " "),
                f"{number:,}",
                f"{done.each_s[name] * 1e6:,.2f}",
                f"{cost[name]:.2f}",
                "" if book is None else f"{book * 1e6:,.1f}",
                "" if book is None else f"{number * book:,.1f}",
            )
        )
    rows.append(("all", "", "", f"{sum(cost.values()):.2f}", "", ""))
    rows.append(
        (f"on {done.cores} cores", "", "", f"{sum(cost.values()) / done.cores:.2f}", "", "")
    )
    heads = ("primitive", "count", "µs each", "CPU s", "textbook µs", "textbook CPU s")
    note = (
        "Textbook figures are from the literature (DESIGN.md), not measured here. Additions are "
        f"counted one a row and host column; fedboost made {done.made:,} products for them."
    )
    return Shown(f"{done.table.name}: the floor", heads, rows, note)


def _ratios(done: Trained) -> Shown:
    names = {
        "floor": "training wall time ÷ floor",
        "floor_with_additions_made": "the same with the additions actually made",
        "floor_net_of_others": "the same less the CPU time that others took (estimate)",
        "cpu": "CPU of all our processes ÷ CPU of the floor",
    }
    rows = [(names[name], f"{value:.3f}") for name, value in done.ratios.items()]
    rows.insert(0, ("training, wall s", f"{done.train_s:.2f}"))
    seconds = sorted(one["seconds"] for one in done.run.rounds)
    rows.insert(1, ("tree, wall s (fastest to slowest)", f"{seconds[0]:.2f} to {seconds[-1]:.2f}"))
    spent = done.run.training
    if spent:
        rows.append(("CPU s of our processes while training", f"{spent['ours']:.2f}"))
        rows.append(("CPU s of other processes meanwhile", f"{spent['others']:.2f}"))
        rows.append(("CPU s taken by the hypervisor", f"{spent['stolen']:.2f}"))
        idle = 1.0 - sum(spent[who] for who in ("ours", "others", "stolen")) / (
            done.cores * spent["seconds"]
        )
        rows.append(("share of the cores idle", f"{max(0.0, idle):.1%}"))
    for when, load in (("before", done.run.load_before), ("after", done.run.load_after)):
        rows.append((f"load average {when}", ", ".join(map(str, load))))
    return Shown(f"{done.table.name}: time beside the floor", ("", "value"), rows)


def _steps(done: Trained) -> Shown:
    rows = []
    for step in done.run.steps:
        cpu = [f"{step.cpu_seconds.get(party, 0.0):.2f}" for party in (GUEST, HOST)]
        sent = f"{sum(step.bytes.values()):,}"
        rows.append(
            (f"{step.stage}.{step.step}", f"{step.calls}", f"{step.seconds:.2f}", *cpu, sent)
        )
    heads = ("step", "calls", "wall s", "guest CPU s", "host CPU s", "bytes")
    return Shown(f"{done.table.name}: the job's steps", heads, rows)


def _parties(done: Trained) -> Shown:
    result = done.run.result
    rows = [
        (
            party,
            f"{result['cpu_seconds'][party]:.2f}",
            f"{result['memory_peak_bytes'][party] / 2**20:,.0f}",
            f"{result['bytes'].get(f'{party}->{peer}', 0):,}",
        )
        for party, peer in ((GUEST, HOST), (HOST, GUEST))
    ]
    note = "Memory is the sum of the daemon's and its workers' own peaks."
    heads = ("party", "CPU s", "peak MiB", "bytes sent")
    return Shown(f"{done.table.name}: the parties", heads, rows, note)


def settings(plan: Plan, *, quick: bool) -> dict[str, Any]:
    """What was run, in words and numbers."""
    found: dict[str, Any] = {
        **SHAPE,
        "min_child_weight": MIN_CHILD_WEIGHT,
        "n_estimators": TREES,
        "scheme": f"paillier, {KEY_BITS} bits",
        "validation": f"{VALIDATION['fraction']} by id, seed {VALIDATION['seed']}",
        "parties": "1 guest, 1 host",
        "timed_trees": plan.timed_trees,
        "quick": quick,
    }
    if quick:
        found["rows_at_most"] = plan.rows_max
        found["auc"] = (
            f"from all {TREES} trees under scheme plain, which grows the same trees as paillier; "
            f"checked on the {plan.timed_trees} timed ones"
        )
    return found


def main(given: Sequence[str] | None = None) -> None:
    """Runs the benchmark as the command line says."""
    options = harness.arguments("secureboost", __doc__ or "", DATA, given)
    plan = Plan.of(quick=options.quick)
    report = Report("secureboost", settings(plan, quick=options.quick))
    shown = [one for name in options.data for one in measure(name, plan, report)]
    report.write(options, shown)


if __name__ == "__main__":
    main()
