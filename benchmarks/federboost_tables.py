"""Figures and tables of the FederBoost benchmark, from nothing but the rows of its JSON."""

from collections.abc import Mapping, Sequence
from statistics import mean, median

from benchmarks.federboost_jobs import BEST
from benchmarks.harness import Shown
from benchmarks.plus_tables import DISTURBED, Row, grouped, number, of

ONE_PROCESS, DAEMONS, WAN = "one process", "daemons", "WAN"
FAR = "susy_30k"  # the paper's slowest; it is trained over daemons and a WAN, too
NOISE = 4.0  # the ε at which the paper compares
TABLE_2 = "Table 2"


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures; those that the rows do not give are absent."""
    found: dict[str, float] = {}
    for row in of(rows, "compared"):
        if row["title"] == TABLE_2:
            found["vertical_200_seconds"] = median(row["seconds"])
    names = {None: "vertical", NOISE: "vertical_eps4"}
    for group in grouped(of(rows, "utility"), "data", "buckets", "epsilon"):
        first = group[0]
        if first["buckets"] == BEST and first["epsilon"] in names:
            found[f"auc_gap.{names[first['epsilon']]}.{first['data']}"] = abs(gap(group))
    for row in of(rows, "xgboost"):
        found[f"train_time_over_xgboost.{row['data']}"] = over_xgboost(row)
    return found


def gap(group: Sequence[Row]) -> float:
    """Mean AUC of some jobs above XGBoost's on the same splits."""
    return float(mean(row["auc"] - row["xgboost"] for row in group))


def over_xgboost(row: Row) -> float:
    """Training seconds divided by those of the fastest XGBoost."""
    return float(median(row["seconds"]) / min(median(one) for one in row["xgboost"].values()))


# Tables


def shown(rows: Sequence[Row]) -> list[Shown]:
    """Every table."""
    utility = of(rows, "utility")
    found = [_utility(own, "buckets") for own in grouped(_without_noise(utility), "data")]
    found += [_utility(own, "epsilon") for own in grouped(_noisy(utility), "data")]
    compared, parties = of(rows, "compared"), of(rows, "parties")
    found += [_compared(compared)] if compared else []
    found += [_parties(own) for own in grouped(parties, "data")]
    found += [_xgboost(row) for row in of(rows, "xgboost")]
    return found


def by_buckets(rows: Sequence[Row]) -> list[list[Row]]:
    """Jobs without noise, by data set and buckets."""
    return list(grouped(_without_noise(of(rows, "utility")), "data", "buckets"))


def by_noise(rows: Sequence[Row]) -> list[list[Row]]:
    """Jobs with noise, by data set and ε."""
    return list(grouped(_noisy(of(rows, "utility")), "data", "epsilon"))


def _without_noise(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["epsilon"] is None]


def _noisy(rows: Sequence[Row]) -> list[Row]:
    """All that differ by noise alone, those without noise last."""
    drawn = [row for row in rows if row["epsilon"] is not None]
    none = [row for row in rows if row["epsilon"] is None and row["buckets"] == BEST]
    return [*drawn, *none] if drawn else []


def _utility(own: Sequence[Row], by: str) -> Shown:
    groups = {
        str(group[0][by] if group[0][by] is not None else "none"): group
        for group in grouped(own, by)
    }
    what = "by buckets, without noise" if by == "buckets" else f"by ε, {BEST} buckets"
    title = f"{own[0]['data']}: AUC {what}, {size(own[0])}"
    return aucs(title, "buckets" if by == "buckets" else "ε", groups)


def aucs(title: str, by: str, groups: Mapping[str, Sequence[Row]], note: str = "") -> Shown:
    """Means over some jobs each, beside XGBoost's on the same splits."""
    rows = []
    for name, group in groups.items():
        auc = [row["auc"] for row in group]
        rows.append(
            (name, f"{mean(auc):.5f}", f"{min(auc):.5f} … {max(auc):.5f}",
             f"{mean(r['xgboost'] for r in group):.5f}", f"{gap(group):+.5f}", str(len(group)))
        )  # fmt: skip
    heads = (by, "AUC", "least … most", "XGBoost", "gap", "jobs")
    return Shown(title, heads, rows, note)


def size(row: Row) -> str:
    """Rows and columns, in words."""
    return f"{row['rows']:,} rows, {row['columns']} columns"


def _compared(group: Sequence[Row]) -> Shown:
    rows = [
        (row["title"], row["data"], size(row), str(row["parties"]), str(row["trees"]),
         number(row["paper_s"], 3), number(median(row["seconds"]), 3),
         f"{min(row['seconds']):.3f} … {max(row['seconds']):.3f}", *_spent(row))
        for row in group
    ]  # fmt: skip
    heads = ("", "data", "size", "parties", "trees", "paper s", "train s", "least … most", *SPENT)
    return Shown("Tables 2 and 3: trees of four layers, daemons", heads, rows, note(group))


SPENT = ("CPU s", "first job s", "align s", "bytes", "cores of others", "load average")


def _spent(row: Row) -> tuple[str, ...]:
    """What every timed row says beside its seconds; nothing where it does not."""
    facts = (row.get(name) for name in ("cpu_s", "first", "align"))
    others = number(row.get("others"), 2)
    load = ", ".join(map(str, row["load"]))
    return (*(number(one, 3) for one in facts), f"{row['sent']:,}", others, load)


def _parties(group: Sequence[Row]) -> Shown:
    rows = [
        (row["network"], str(row["parties"]), number(median(row["seconds"]), 3), *_spent(row))
        for row in group
    ]
    heads = ("", "parties", "train s", *SPENT)
    return Shown(f"{group[0]['data']}: time by parties, {size(group[0])}", heads, rows,
                 note(group))  # fmt: skip


def _xgboost(row: Row) -> Shown:
    cells = ["FederBoost, daemons", number(median(row["seconds"]), 3)]
    cells.append(f"{min(row['seconds']):.3f} … {max(row['seconds']):.3f}")
    rows = [(*cells, *_spent(row))]
    rows += [
        (f"XGBoost, {how}", number(median(own), 3), f"{min(own):.3f} … {max(own):.3f}",
         *[""] * len(SPENT))
        for how, own in row["xgboost"].items()
    ]  # fmt: skip
    heads = ("", "train s", "least … most", *SPENT)
    return Shown(f"{row['data']}: beside XGBoost, {size(row)}", heads, rows, note([row]))


def note(group: Sequence[Row]) -> str:
    """What to think of times that others' work has made longer."""
    if not any((row.get("others") or 0.0) > DISTURBED for row in group):
        return ""
    return (
        f"Where other processes kept more than {DISTURBED} cores busy, wall times are longer than "
        "the job's own; CPU seconds of all our processes compare better."
    )
