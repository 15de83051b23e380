"""Figures and tables of the horizontal half, from nothing but the rows of its JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

from benchmarks import federboost_tables
from benchmarks.federboost_horizontal_jobs import BUCKETS, EXACT
from benchmarks.federboost_tables import gap, size
from benchmarks.harness import Shown
from benchmarks.plus_tables import Row, grouped, number, of
from benchmarks.tables import GUEST

ONE_PROCESS, DAEMONS = federboost_tables.ONE_PROCESS, federboost_tables.DAEMONS
FAR = ("give_credit", "susy_30k")  # those of the paper's Figure 6 that are trained on daemons, too
PAPER_S = 21.59  # Table 2
# The best AUC of horizontal FederBoost, with how many buckets, and XGBoost's (section 6.1).
PAPER_AUC = {
    "give_credit": (0.8625, 26, 0.8610),
    "default_credit": (0.7825, 24, 0.7804),
    "susy_30k": (0.8722, 24, 0.8737),
}


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures; those that the rows do not give are absent."""
    found: dict[str, float] = {}
    for row in of(rows, "horizontal_200"):
        if (row["network"], row["by"]) == (DAEMONS, GUEST):
            found["horizontal_200_seconds"] = median(row["seconds"])
    for group in by_buckets(rows):
        if group[0]["buckets"] == BUCKETS:
            found[f"auc_gap.horizontal.{group[0]['data']}"] = abs(gap(group))
    return found


def by_buckets(rows: Sequence[Row]) -> list[list[Row]]:
    """Jobs with the default tolerance, by data set and buckets."""
    near = [row for row in of(rows, "horizontal_utility") if row["tolerance"] != EXACT]
    return list(grouped(near, "data", "buckets"))


@dataclass(frozen=True)
class WideArea:
    """What a tree takes on the wide area, and what everything before the trees does."""

    seconds: float
    exchanges: float
    sent: float
    start_seconds: float
    start_exchanges: float
    start_sent: float

    @classmethod
    def of(cls, fewer: Row, more: Row) -> Self:
        """From two jobs of different numbers of trees."""
        few, many = fewer["trees"], more["trees"]
        exchanges, sent = (
            (more[name] - fewer[name]) / (many - few) for name in ("exchanges", "sent")
        )
        starts = [median(row["seconds"]) - sum(row["rounds"]) for row in (fewer, more)]
        return cls(
            seconds=median(more["rounds"]),
            exchanges=exchanges,
            sent=sent,
            start_seconds=median(starts),
            start_exchanges=fewer["exchanges"] - few * exchanges,
            start_sent=fewer["sent"] - few * sent,
        )


# Tables


def shown(rows: Sequence[Row]) -> list[Shown]:
    """Every table."""
    found = [_utility(own) for own in grouped(of(rows, "horizontal_utility"), "data")]
    compared, floor = of(rows, "horizontal_200"), of(rows, "horizontal_floor")
    found += [_compared(compared)] if compared else []
    found += [_steps(row) for row in compared if row["network"] == DAEMONS and row["by"] == GUEST]
    found += [_floor(row) for row in floor]
    found += [_parties(own) for own in grouped(of(rows, "horizontal_parties"), "data")]
    found += [_wan(own) for own in grouped(of(rows, "horizontal_wan"), "data")]
    return found


def _utility(own: Sequence[Row]) -> Shown:
    data = own[0]["data"]
    groups = {
        f"{group[0]['buckets']}{', exact' if group[0]['tolerance'] == EXACT else ''}": group
        for group in grouped(own, "buckets", "tolerance")
    }
    title = f"{data}, horizontal: AUC by buckets, {size(own[0])}"
    note = ""
    if data in PAPER_AUC:
        best, buckets, xgboost = PAPER_AUC[data]
        note = (
            f"The paper's best AUC is {best:.4f}, with {buckets} buckets; XGBoost's there is "
            f"{xgboost:.4f}, on other rows."
        )
    return federboost_tables.aucs(title, "buckets", groups, note)


PHASES = ("quantiles", "trees", "rest")
TIMED = ("CPU s", "first job s", "bytes", "cores of others", "load average")


def _timed(row: Row) -> tuple[str, ...]:
    """What every timed row says: seconds, of each phase, and what else was going on."""
    whole = number(median(row["seconds"]), 3)
    apart = [number(row["phases"][name], 3) for name in PHASES]
    facts = [number(row.get(name), 3) for name in ("cpu_s", "first")]
    load = ", ".join(map(str, row["load"]))
    return (whole, *apart, *facts, f"{row['sent']:,}", number(row.get("others"), 2), load)


HEADS = ("train s", *(f"{name} s" for name in PHASES), *TIMED)


def _compared(group: Sequence[Row]) -> Shown:
    rows = [(row["network"], row["by"], *_timed(row)) for row in group]
    first = group[0]
    title = (
        f"Table 2, horizontal: {first['trees']} trees of four layers, {size(first)}, "
        f"{first['parties']} parties (the paper: {PAPER_S} s)"
    )
    heads = ("", "aggregator", *HEADS)
    return Shown(title, heads, rows, federboost_tables.note(group))


def _steps(row: Row) -> Shown:
    """Where the time goes: steps that were asked for at once share it by what they computed."""
    rows = [
        (step["step"], str(step["calls"]), number(step["seconds"], 3),
         number(sum(step["cpu_seconds"].values()), 3),
         number(max(step["cpu_seconds"].values(), default=0.0), 3),
         f"{sum(step['bytes'].values()):,}")
        for step in row["steps"]
    ]  # fmt: skip
    inside = sum(step["seconds"] for step in row["steps"])
    cpu = sum(sum(step["cpu_seconds"].values()) for step in row["steps"])
    rows.append(("all steps", "", number(inside, 3), number(cpu, 3), "", ""))
    heads = ("step", "calls", "s", "CPU s of all", "of the busiest", "bytes")
    note = (
        "Of the last job. A step's seconds are its share of the calls it was asked for in, with "
        "the waits for messages in them; its CPU seconds are those of its own function, not of "
        "encoding, TLS and the event loop, which are the rest of the CPU seconds above."
    )
    return Shown("Table 2, horizontal: steps, the aggregator is the guest", heads, rows, note)


def _floor(row: Row) -> Shown:
    alone = row["alone"]
    rows = [("core.local, pooled", number(median(row["pooled"]), 3), "")]
    rows += [
        (f"{row['parties']} parties' {what}", number(spent, 3), number(spent / row["parties"], 3))
        for what, spent in alone.items()
    ]
    whole = sum(alone.values())
    rows.append(("all of these", number(whole, 3), number(whole / row["parties"], 3)))
    note = f"{row['vectors']:,} vectors of a party, {row['words']:,} words of 8 bytes in all."
    heads = ("", "s on one core", "s of one party")
    return Shown("Table 2, horizontal: the floor", heads, rows, note)


def _parties(group: Sequence[Row]) -> Shown:
    rows = [(row["network"], str(row["parties"]), *_timed(row)) for row in group]
    title = f"{group[0]['data']}, horizontal: time by parties, {size(group[0])}"
    return Shown(title, ("", "parties", *HEADS), rows, federboost_tables.note(group))


def _wan(group: Sequence[Row]) -> Shown:
    rows = []
    for own in grouped(group, "dropout"):
        fewer, *_, more = sorted(own, key=lambda row: int(row["trees"]))
        found = WideArea.of(fewer, more)
        layers = (1 if fewer["dropout"] == "wait" else 2) * fewer["depth"]
        rows.append(
            (fewer["dropout"], f"{fewer['trees']}, {more['trees']}",
             f"{median(fewer['seconds']):.2f}, {median(more['seconds']):.2f}",
             number(found.exchanges, 1), f"{layers} + {found.exchanges - layers:.1f}",
             number(found.seconds, 2), number(found.sent / 1e6, 3),
             number(found.start_exchanges, 1), str(fewer["searches"]),
             number(found.start_seconds, 2), number(found.start_sent / 1e6, 3))
        )  # fmt: skip
    first = group[0]
    title = (
        f"{first['data']}, horizontal: wide area, {first['parties']} parties, depth "
        f"{first['depth']}, {size(first)}"
    )
    heads = (
        *("dropout", "trees", "train s", "exchanges a tree", "layers + constant"),
        *("s a tree", "MB a tree", "exchanges of the start", "of them quantiles"),
        *("s of the start", "MB of the start"),
    )
    return Shown(title, heads, rows, federboost_tables.note(group))
