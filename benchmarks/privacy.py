"""What others could learn of rows and labels, beside what it costs to keep it from them.

python -m benchmarks.privacy [--quick] [--json F] [--record F] [--data NAME]
[--part sums|labels|totals|defaults] [--from F]
"""

from collections.abc import Sequence
from typing import Any

from benchmarks import privacy_defaults, privacy_jobs
from benchmarks.harness import Shown
from benchmarks.parts import Parted
from benchmarks.plus_tables import Row, grouped, number, of
from benchmarks.privacy_jobs import DATA, DEFAULTS, LEAST, PROGRAMME, Plan
from benchmarks.privacy_totals import ALONE, APART, TOTALS
from fedboost.audit.findings import CLUSTERS, SUMS

PARTS = {
    "sums": privacy_jobs.measure_sums,
    "labels": privacy_jobs.measure_labels,
    "totals": privacy_jobs.measure_totals,
    "defaults": privacy_defaults.measure,
}
KINDS = (SUMS, CLUSTERS, TOTALS, privacy_defaults.BUDGETS)
GAINS = {"neighbours": "nearest_gain", PROGRAMME: "linking_gain"}  # figures of precision / chance


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """By data set: what neighbour linking gains over chance at the defaults, the meter's ratio, the
    AUC that defaults cost against no minimum, what groupings tell, and of sums under masks by
    own_rows_min the share of one row, the share of nodes with views one row apart, and the AUC.
    """
    found: dict[str, float] = {}
    for group in grouped(of(rows, SUMS), "data"):
        data = str(group[0]["data"])
        by_variant = {row["variant"]: row for row in group}
        if (own := by_variant.get(DEFAULTS)) is not None:
            found[f"ratio.{data}"] = own["ratio"]
            for one in own["found"]:
                if one["linking"] in GAINS and one["chance"]:
                    found[f"{GAINS[one['linking']]}.{data}"] = one["value"] / one["chance"]
            if (free := by_variant.get("no minimum")) is not None:
                gap = free["auc"]["validation"] - own["auc"]["validation"]
                found[f"auc_cost.{data}"] = gap
    for row in of(rows, CLUSTERS):
        if row["variant"] == DEFAULTS and row["found"]:
            found[f"groupings_auc.{row['data']}"] = row["found"][0]["value"]
    for row in of(rows, TOTALS):
        place, told = f"{row['least']}.{row['data']}", row["told"]
        found[f"sums_of_one.{place}"] = told[ALONE] / told["sums"]
        found[f"views_apart.{place}"] = told[APART] / told["nodes"]
        found[f"auc.{place}"] = row["auc"]["validation"]
    return found


def shown(rows: Sequence[Row]) -> list[Shown]:
    """A table for each data set and part."""
    tables = [_sums(group) for group in grouped(of(rows, SUMS), "data")]
    tables += [_labels(group) for group in grouped(of(rows, CLUSTERS), "data")]
    tables += [_totals(group) for group in grouped(of(rows, TOTALS), "data")]
    return tables + privacy_defaults.shown(of(rows, privacy_defaults.BUDGETS))


def _sums(group: Sequence[Row]) -> Shown:
    linkings = list(dict.fromkeys(one["linking"] for row in group for one in row["found"]))
    heads = ("defence", "ratio", *(f"linking {name}" for name in linkings), "chance")
    lines = []
    for row in group:
        by_linking = {one["linking"]: one for one in row["found"]}
        cells = [_precision(by_linking.get(name)) for name in linkings]
        chance = number(by_linking["all"]["chance"], 3) if "all" in by_linking else ""
        lines.append((row["variant"], number(row["ratio"], 4), *cells, chance, *_aucs(row)))
    title = f"{group[0]['data']}: sums of a host's bins, precision ({group[0]['rows']:,} rows)"
    return Shown(title, (*heads, "AUC", "validation AUC"), lines)


def _precision(one: Row | None) -> str:
    """And how many times better than chance."""
    if one is None:
        return ""
    return f"{one['value']:.3f} ({one['value'] / one['chance']:.1f} ×)"


def _labels(group: Sequence[Row]) -> Shown:
    lines = []
    for row in group:
        values = [number(one[key], 3) for one in row["found"][:1] for key in ("value", "worst")]
        lines.append((row["variant"], *(values or ("", "")), *_aucs(row)))
    heads = ("defence", "mean", "worst draw", "AUC", "validation AUC")
    return Shown(f"{group[0]['data']}: labels from row groupings, AUC", heads, lines)


def _totals(group: Sequence[Row]) -> Shown:
    names = list(dict.fromkeys(name for row in group for name in row["told"]))
    lines = [
        (row["variant"], *(f"{row['told'].get(name, 0):,}" for name in names), *_aucs(row))
        for row in group
    ]
    title = f"{group[0]['data']}: what sums under masks tell of a party's {group[0]['rows']:,} rows"
    return Shown(title, ("defence", *names, "AUC", "validation AUC"), lines)


def _aucs(row: Row) -> tuple[str, str]:
    """Of the model that is trained."""
    return number(row["auc"]["train"], 4), number(row["auc"]["validation"], 4)


def settings(plan: Plan, _: bool) -> dict[str, Any]:
    """What was run, in words and numbers."""
    return {
        **privacy_jobs.SHAPE,
        "group_rows_min": LEAST,
        "rows": plan.rows or "all",
        "columns attacked": plan.columns,
        "columns attacked at defaults": plan.columns_of_defaults,
    }


BENCHMARK = Parted(
    "privacy", __doc__ or "", DATA, tuple(PARTS), lambda asked: Plan.of(quick=asked.quick),
    settings, lambda name, plan, part: PARTS[part](name, plan), figures, shown, kinds=KINDS,
)  # fmt: skip


if __name__ == "__main__":
    BENCHMARK.main()
