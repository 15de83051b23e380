"""SecureBoost on daemons: accuracy beside XGBoost's, time beside the floor of its primitives."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import boosting, floor, harness, tables
from benchmarks.boosting import DEPTH, PAILLIER, ROUNDS, SHAPE, VALIDATION
from benchmarks.floor import Counts, HostTable, Layers, Packing
from benchmarks.harness import JobRun
from benchmarks.question import Part, Question
from benchmarks.rows import Row
from benchmarks.tables import GUEST, HOST, Table
from fedboost.ground.errors import JobError

DATA = ("default_credit", "give_credit")
OWN: dict[str, Any] = {"min_child_weight": 1.0}  # XGBoost's word and ours
KEY_BITS = boosting.SCHEMES[PAILLIER]["key_bits"]


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    timed_trees: int = ROUNDS
    rows: int | None = None  # of a table at most; None: all
    trees: int = ROUNDS  # whose AUC is measured
    least_s: float = 0.5  # that each primitive is timed
    copies: int = floor.COPIES  # of rows that are added up


def needed(table: Table, run: JobRun) -> tuple[Counts, Packing]:
    """Return the primitives that a run's trees needed.

    A JobError where they do not agree with the bytes that travelled.
    """
    parts, held = boosting.parts(table), table.held_out(**VALIDATION)
    indices = [table.columns.index(c) for party in parts.values() for c in party]
    values = table.values[~held][:, indices]  # the guest's columns first
    packing = Packing.for_rows(len(values), KEY_BITS)
    host = HostTable.of(values[:, len(parts[GUEST]) :], SHAPE["max_bin"])
    counts = Counts()
    for nodes in floor.tree_rows(run.shards[GUEST], run.shards[HOST], HOST, values):
        layers = Layers(DEPTH, OWN["min_child_weight"])
        counts += floor.count_tree(nodes, layers, host, packing.capacity)
    width = 2 * KEY_BITS // 8
    for step, number in (
        ("encrypt_gradients", counts.encryptions),
        ("sum_candidates", counts.decryptions),
    ):
        sent = sum(run.step(step).bytes.values())
        if not number * width <= sent <= number * width * 1.02 + 4096 * run.step(step).calls:
            raise JobError(f"{step} sent {sent} bytes, which are not {number} ciphertexts")
    return counts, packing


def measure(name: str, plan: Plan) -> Iterator[Row]:
    """One data set; if fewer trees are timed, AUC is of plain ones, which have to be the same."""
    table = tables.load(name).sample(plan.rows)
    with boosting.daemons(table) as train:
        run = train(plan.timed_trees, PAILLIER, OWN)
    whole = run
    if plan.timed_trees < plan.trees:
        whole = boosting.here(table, plan.trees, OWN)
        pairs = zip(run.rounds, whole.rounds, strict=False)
        if any(one["metrics"] != other["metrics"] for one, other in pairs):
            raise JobError("the plain trees are not the encrypted ones")
    given = {**SHAPE, **OWN, "max_depth": DEPTH, "n_estimators": plan.trees}
    pooled = tables.xgboost_scores(table, table.held_out(**VALIDATION), given, harness.cores())
    counts, packing = needed(table, run)
    columns = len(boosting.parts(table)[HOST])
    each_s = floor.prices(packing, columns, SHAPE["max_bin"], plan.least_s, plan.copies)
    yield {
        "rows": len(table.y),
        "auc": {part: found["auc"] for part, found in whole.result["metrics"].items()},
        "xgboost": pooled,
        "seconds_per_tree": run.result["seconds"]["per_tree"],
        **ratios(run, sum(floor.cost(counts, each_s).values())),
        "count": asdict(counts),
        "us_each": {name: 1e6 * seconds for name, seconds in each_s.items()},
        "training_cpu": run.training,
        "load": run.load_before,
        "steps": [asdict(step) for step in run.steps],
        "peak_bytes": run.result["memory_peak_bytes"],
    }


def ratios(run: JobRun, floor_cpu_s: float) -> Row:
    """Return ratios of wall time to the floor on all cores, the same without the processor time
    that others took, and of processor time to the floor's.
    """
    cores, seconds = harness.cores(), float(run.result["seconds"]["train"])
    found = {"train_s": seconds, "floor_cpu_s": floor_cpu_s}
    found["floor_ratio"] = seconds * cores / floor_cpu_s
    if spent := run.training:
        ours_or_idle = spent["seconds"] * cores - spent["others"] - spent["stolen"]
        found["floor_ratio_net_of_others"] = ours_or_idle / floor_cpu_s
        found["cpu_ratio"] = spent["ours"] / floor_cpu_s
    return found


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures."""
    found = {}
    for row in rows:
        name = row["data"]
        found[f"auc_gap.{name}"] = abs(row["auc"]["train"] - row["xgboost"]["train"])
        found[f"seconds_per_tree.{name}"] = row["seconds_per_tree"]
        found[f"floor_ratio.{name}"] = row["floor_ratio"]
    return found


QUESTION = Question(
    *("secureboost", __doc__ or "", {"floor": Part(measure, DATA)}),
    full=Plan(),
    quick=Plan(2, 1500, 4, 0.05, 2),
    figures=figures,
    settings={**boosting.SETTINGS, **OWN, "scheme": PAILLIER},
)

if __name__ == "__main__":
    QUESTION.main()
