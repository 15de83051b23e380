"""Figures and tables of the HybridTree benchmark, from nothing but the rows of its JSON."""

from collections.abc import Callable, Iterator, Sequence
from statistics import mean, median, stdev
from typing import Any

from benchmarks.harness import Shown
from benchmarks.hybridtree_accuracy import (
    ALL_IN,
    EACH,
    FALLING_BACK,
    MISSING,
    OWN_ROWS,
    SAMPLED,
    SCORED,
    SOLO,
    TFL,
    UNSCORED,
    VOTE,
)
from benchmarks.hybridtree_jobs import NODE_LEVEL, PLUS, SECUREBOOST
from benchmarks.hybridtree_plan import (
    DEPTH,
    GUEST_SIZE,
    HOLDERS,
    MAIN,
    MANY,
    ONE,
    OVERLAP,
    SCALE,
    SKEW,
    VERTICAL,
)
from benchmarks.plus_tables import Row, disturbance, grouped, machine_cells, number, of, percent

# What the figures are of, accuracy and time alike.
FIGURED_HOSTS, FIGURED, FIGURED_PLUS = 5, SCORED, PLUS
SYSTEMS = (SOLO, MISSING, FALLING_BACK, OWN_ROWS, EACH, TFL, SCORED, SAMPLED, UNSCORED, *ALL_IN)
TITLES = {
    MAIN: "Table 1: everybody",
    HOLDERS: "Table 3: several label holders",
    OVERLAP: "Table 6: hosts that share rows and lack columns",
    DEPTH: "Table 9: depth of trees",
    VERTICAL: "Table 10: one host that has all rows",
    GUEST_SIZE: "Table 12: a smaller guest",
    SCALE: "Figure 6: number of hosts",
    SKEW: "Figure 8: classes dealt unevenly",
}
BESIDE = {SCALE: "5", DEPTH: "7", GUEST_SIZE: "all", SKEW: "even"}  # what Table 1's first row is
GAPS = (SCORED, SAMPLED, UNSCORED)
REFERENCES = ((ONE, SCORED), (MANY, SCORED), (ONE, SAMPLED), (ONE, UNSCORED))


# Figures


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures, of scored splits; those that the rows do not give are absent."""
    found: dict[str, float] = {}
    for group in grouped(main_rows(rows), "data"):
        own = [row for row in group if row["dealing"]["hosts"] == FIGURED_HOSTS]
        if own:
            name = own[0]["data"]
            found[f"accuracy_gap.{name}"] = mean(gap(row, FIGURED) for row in own)
            found[f"gain_over_single_host.{name}"] = mean(gain(row, FIGURED) for row in own)
    for group in grouped(of(rows, "trees"), "data"):
        found |= _time_figures(group)
    return found


def main_rows(rows: Sequence[Row]) -> list[Row]:
    """Those of Table 1."""
    return [row for row in of(rows, "accuracy") if row["table"] == MAIN]


def gap(row: Row, system: str, metric: str = "accuracy") -> float:
    """The better ALL-IN, less a system."""
    scores = row["scores"]
    return float(max(scores[one][metric] for one in ALL_IN) - scores[system][metric])


def gain(row: Row, system: str, metric: str = "accuracy") -> float:
    """A system, less the best that SecureBoost with a single host comes to on all test rows."""
    single = [
        one[metric]
        for way in (MISSING, FALLING_BACK)
        for one in row["scores"][way]
        if one is not None
    ]
    return float(row["scores"][system][metric] - max(single))


def _time_figures(group: Sequence[Row]) -> dict[str, float]:
    own = {row["system"]: row for row in group if row["setting"] == ONE}
    ratios = {
        "speedup": (NODE_LEVEL, "wall_s"),
        "bytes_saving": (NODE_LEVEL, "sent"),
        "speedup_plus": (FIGURED_PLUS, "wall_s"),
    }
    return {
        f"{name}.{group[0]['data']}": own[other][what] / own[FIGURED][what]
        for name, (other, what) in ratios.items()
        if other in own and FIGURED in own
    }


# Tables


def shown(rows: Sequence[Row]) -> list[Shown]:
    """Every table."""
    accuracy = of(rows, "accuracy")
    found = []
    for table in TITLES:
        own = [row for row in accuracy if row["table"] == table]
        for group in grouped(own, "data"):
            found.append(_scores(table, group, accuracy, "accuracy"))
            if table == MAIN:
                found.append(_scores(table, group, accuracy, "auc"))
    found += [_columns(group) for group in grouped(main_rows(rows), "data")]
    pooled = of(rows, "pooled")
    found += [_trees(group, pooled) for group in grouped(of(rows, "trees"), "data")]
    found += [_predictions(group) for group in grouped(of(rows, "predictions"), "data")]
    for last, own in ((_rules, of(rows, "meta_rules")), (_spent, spent(rows))):
        found += [last(own)] if own else []
    return found


def spent(rows: Sequence[Row]) -> list[Row]:
    """How long each part of the benchmark took."""
    return [row for row in rows if "part" in row]


def _scores(table: str, group: list[Row], everything: Sequence[Row], metric: str) -> Shown:
    lines = [(label, cells(row["scores"], metric)) for label, row in labelled(table, group)]
    reference = beside(group[0]["data"], everything)
    if table in BESIDE and reference is not None:
        lines.insert(0, (BESIDE[table], cells(reference["scores"], metric)))
    if table == MAIN:
        lines += [line for own in _by_hosts(group) for line in _over_seeds(own, metric)]
    if table == HOLDERS:
        lines += [("vote", cells(_voted(row["scores"]), metric)) for row in group]
    first = max(group, key=lambda row: row["rows"]["train"])  # a guest may have fewer
    what = {"accuracy": "accuracy", "auc": "AUC"}[metric]
    size = f"{first['rows']['train']:,} training rows, {first['rows']['test']:,} test rows"
    note = f"The more frequent class is {first['majority']:.4f} of the test rows."
    if table == SKEW:
        note += (
            " With test rows dealt by class as well, which host has a row tells of its class; "
            "“even” deals test rows to hosts regardless."
        )
    heads = ("", *SYSTEMS, *(f"gap of {system}" for system in GAPS))
    rows = [(label, *own) for label, own in lines]
    kept = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    return Shown(
        f"{TITLES[table]}, {first['data']}: {what}, {size}",
        tuple(heads[place] for place in kept),
        [tuple(row[place] for place in kept) for row in rows],
        note if metric == "accuracy" else "",
    )  # fmt: skip


def labelled(table: str, group: Sequence[Row]) -> Iterator[tuple[str, Row]]:
    """The rows of a table, each with what is varied."""
    says: dict[str, Callable[[Row], str]] = {
        MAIN: lambda row: f"{row['dealing']['hosts']} hosts, seed {row['dealing']['seed']}",
        HOLDERS: lambda row: f"{row['label_holders']} guests, {row['dealing']['hosts']} hosts",
        VERTICAL: lambda _: "one host",
        GUEST_SIZE: _guest_share,
        SKEW: lambda row: f"β {row['value']:g}{'' if row['dealing']['skewed_test'] else ', even'}",
        OVERLAP: lambda row: (
            f"{row['dealing']['overlap']:.1%} of rows shared, "
            f"{row['dealing']['drop_columns']:.0%} of columns dropped"
        ),
    }
    for row in group:
        yield says.get(table, lambda row: f"{row['value']:g}")(row), row


def _guest_share(row: Row) -> str:
    rows, columns = row["dealing"]["guest_rows"], row["dealing"]["guest_columns"]
    return f"{rows:.0%} of rows" if rows < 1.0 else f"{columns:.0%} of columns"


def beside(data: str, rows: Sequence[Row]) -> Row | None:
    """The row of Table 1 that other tables and figures vary."""
    own = (
        row for row in main_rows(rows)
        if row["data"] == data and (row["dealing"]["hosts"], row["dealing"]["seed"]) == (5, 0)
    )  # fmt: skip
    return next(own, None)


def cells(scores: dict[str, Any], metric: str) -> tuple[str, ...]:
    """A score of every system, of single hosts the worst and the best, and the gaps."""
    found = [_cell(scores.get(system), metric) for system in SYSTEMS]
    row = {"scores": scores}
    gaps = [f"{gap(row, one, metric):+.4f}" if one in scores else "" for one in GAPS]
    return (*found, *gaps)


def _cell(score: Any, metric: str) -> str:
    if isinstance(score, list):
        known = [one[metric] for one in score if one is not None]
        return f"{min(known):.4f}–{max(known):.4f}" if known else ""
    return "" if score is None else f"{score[metric]:.4f}"


def _voted(scores: dict[str, Any]) -> dict[str, Any]:
    """The same where models vote."""
    kept = {name: scores[name] for name in ALL_IN}
    return kept | {name: scores[f"{name}, {VOTE}"] for name in (SCORED, UNSCORED, TFL)}


def _by_hosts(group: Sequence[Row]) -> Iterator[list[Row]]:
    hosts: dict[int, list[Row]] = {}
    for row in group:
        hosts.setdefault(row["dealing"]["hosts"], []).append(row)
    yield from hosts.values()


def _over_seeds(group: Sequence[Row], metric: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Mean and deviation over seeds, of single hosts those of the best; nothing of one seed."""
    if len(group) < 2:
        return
    found = [[_best(row["scores"][one], metric) for row in group] for one in SYSTEMS]
    found += [[gap(row, one, metric) for row in group] for one in GAPS]
    label = f"{group[0]['dealing']['hosts']} hosts, mean (of the best)"
    yield label, tuple(f"{mean(one):.4f} ± {stdev(one):.4f}" for one in found)


def _best(score: Any, metric: str) -> float:
    known = score if isinstance(score, list) else [score]
    return float(max(one[metric] for one in known if one is not None))


def _columns(group: Sequence[Row]) -> Shown:
    seeds = {row["dealing"]["seed"]: row for row in reversed(group)}
    rows = [
        (str(seed), ", ".join(row["guest_columns"]),
         ", ".join(next(iter(row["host_columns"].values()))))
        for seed, row in sorted(seeds.items())
    ]  # fmt: skip
    return Shown(f"{group[0]['data']}: whose columns", ("seed", "guest", "hosts"), rows)


def _trees(group: list[Row], pooled: Sequence[Row]) -> Shown:
    known = {(row["setting"], row["system"]): row for row in group}
    rows = []
    for row in group:
        parties = row["party_cpu_s"]
        own = (row["setting"], row["system"], f"{row['host_rows']:,}", str(row["trees"]))
        spent = (number(row["wall_s"], 2), number(row["cpu_s"], 2), f"{row['sent']:,.0f}")
        each = (
            number(parties.get("guest"), 2),
            number(sum(s for party, s in parties.items() if party != "guest"), 2),
        )
        ratios = (_ratios(row, known.get(reference)) for reference in REFERENCES)
        rows.append((*own, *spent, *each, *ratios, *machine_cells(row)))
    heads = (
        *("hosts", "", "rows of hosts", "trees", "wall s", "CPU s", "bytes", "CPU s of guest"),
        *("CPU s of hosts", *(f"÷ {system}, {setting}" for setting, system in REFERENCES)),
        *("cores of others", "load average"),
    )
    first = group[0]
    title = f"Tables 2, 7 and 11, {first['data']}: one tree, {first['rows']:,} rows, Paillier-2048"
    note = "Ratios are of wall time, CPU seconds and bytes. "
    alone = next((row["wall_s"] for row in pooled if row["data"] == first["data"]), None)
    if alone is not None:
        note += f"core/local takes {alone:.3f} s a tree on the union of all tables. "
    return Shown(title, heads, rows, note + disturbance(group))


def _ratios(row: Row, reference: Row | None) -> str:
    if reference is None or reference is row:
        return ""
    found = [
        "" if None in (row[what], reference[what]) else f"{row[what] / reference[what]:.1f}"
        for what in ("wall_s", "cpu_s", "sent")
    ]
    return " / ".join(found)


def _predictions(group: list[Row]) -> Shown:
    other = next((row for row in group if row["system"] == SECUREBOOST), None)
    rows = []
    for row in group:
        seconds = median(row["seconds"])
        ratios = ("", "") if other is None or other is row else (
            f"{median(other['seconds']) / seconds:.1f}", f"{other['sent'] / row['sent']:.1f}",
        )  # fmt: skip
        rows.append(
            (row["setting"], row["system"], f"{seconds:.3f}", f"{row['sent']:,}",
             f"{row['sent'] / row['rows']:.1f}", str(row["exchanges"]), *ratios,
             ", ".join(map(str, row["load"])))
        )  # fmt: skip
    heads = (
        *("hosts", "", "seconds", "bytes", "bytes a row", "messages' steps"),
        *("× faster than SecureBoost", "× fewer bytes", "load average"),
    )
    first = group[0]
    title = (
        f"Table 8, {first['data']}: prediction of {first['rows']:,} rows, {first['trees']} trees"
    )
    return Shown(title, heads, rows)


def _rules(rows: Sequence[Row]) -> Shown:
    lines = [
        (row["data"], f"{row['rows']:,}", str(row["trees"]), f"{row['rules']:,}",
         *(percent(row[what]["share"]) for what in READINGS),
         percent(row["leaf"]["repeated"]), percent(row["held"]["repeated"]),
         percent(row["hosts"]["held"]["share"]), row["held"]["rule"])
        for row in rows
    ]  # fmt: skip
    heads = (
        *("", "rows", "trees", "rules", *READINGS.values(), "any leaf's again"),
        *("any held again", "held, of a host", "the most shared rule that is held"),
    )
    return Shown("Figure 3a: share of the trees that have the same rule", heads, lines)


def _spent(rows: Sequence[Row]) -> Shown:
    lines = [(row["data"], row["part"], f"{row['seconds']:,.0f}") for row in rows]
    total = sum(row["seconds"] for row in rows)
    lines.append(("all", "", f"{total:,.0f}"))
    return Shown("What this benchmark took", ("", "part", "seconds"), lines)


READINGS = {
    "leaf": "a leaf's",
    "coarse": "a leaf's, coarse",
    "determined": "determines the leaf",
    "held": "held",
}
