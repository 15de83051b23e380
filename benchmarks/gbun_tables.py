"""Figures and tables of the GBUN benchmark, from nothing but the rows of its JSON."""

from collections.abc import Sequence
from statistics import mean, median

from benchmarks.gbun_plan import GBUN, RATES, SPARSE, SYSTEMS
from benchmarks.harness import Shown
from benchmarks.plus_tables import DISTURBED, Row, grouped, number, of

SIZES = {GBUN: "outputs", "XGBoost": "depth", "LightGBM": "leaves"}


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures; those that the rows do not give are absent."""
    found: dict[str, float] = {}
    for group in grouped(of(rows, "accuracy"), "data"):
        gap = score_gap(group, "chosen")
        if gap is not None:
            found[f"score_gap.{group[0]['data']}"] = gap
    for row in of(rows, "bytes"):
        if row["data"] == SPARSE:
            found[f"bytes_ratio.{row['columns']}"] = row["up"] / row["formula"]
    return found


def score_gap(group: Sequence[Row], by: str) -> float | None:
    """The better of XGBoost and LightGBM, less GBUN, of one data set, means over splits.

    `by`: "best" or "chosen". None where one of the three is not there.
    """
    means = {system: system_mean(group, system, by) for system in SYSTEMS[1:]}
    own = system_mean(group, GBUN, by)
    others = [one for one in means.values() if one is not None]
    return None if own is None or len(others) < len(means) else max(others) - own


def system_mean(group: Sequence[Row], system: str, by: str, what: str = "score") -> float | None:
    """The mean over splits of a system's score, or of its mean average precision."""
    found = [row[by][what] for row in group if row["system"] == system]
    return float(mean(found)) if found and None not in found else None


def seconds_ratio(row: Row, of_: Row) -> float:
    """Seconds of a round, as a multiple of another's."""
    return float(median(row["seconds"]) / median(of_["seconds"]))


# Tables


def shown(rows: Sequence[Row]) -> list[Shown]:
    """Every table."""
    accuracy = list(grouped(of(rows, "accuracy"), "data"))
    found = [_scores(accuracy)] if accuracy else []
    found += [_points(group) for group in accuracy]
    for what, table in {"bytes": _bytes, "federated": _federated}.items():
        if own := of(rows, what):
            found.append(table(own))
    found += [_bandwidth(group) for group in grouped(of(rows, "bandwidth"), "system")]
    found += [_parties(group) for group in grouped(of(rows, "parties"), "data", "outputs")]
    return found


def _scores(groups: Sequence[Sequence[Row]]) -> Shown:
    rows = []
    for group in groups:
        for by in ("best", "chosen"):
            rows.append(_score_cells(group, by))
    heads = ("data", "metric", "columns of GBUN", "round by", *SYSTEMS, "gap", "splits")
    note = (
        "The gap is the better of XGBoost and LightGBM, less GBUN: below 0 GBUN is the better one. "
        "Best: the best test score over all rounds and points, as the paper takes it. Chosen: the "
        "test score of the round and point that are best on the validation rows."
    )
    return Shown("Scores on test rows", heads, rows, note)


def _score_cells(group: Sequence[Row], by: str) -> tuple[str, ...]:
    first = group[0]
    scores = [system_mean(group, one, by) for one in SYSTEMS]
    forms = [row[by]["columns"] for row in group if row["system"] == GBUN]
    word = {"best": "test rows (best)", "chosen": "validation rows (chosen)"}[by]
    splits = len({row["split"] for row in group})
    gap = score_gap(group, by)
    signed = "" if gap is None else f"{gap:+.4f}"
    cells = (number(one, 4) for one in scores)
    named = ", ".join(dict.fromkeys(forms))
    return (first["data"], first["metric"], named, word, *cells, signed, str(splits))


def _points(group: Sequence[Row]) -> Shown:
    first = group[0]
    rows = [
        (row["system"], _form(row, row[by]), str(row["split"]), f"{row[by]['score']:.4f}",
         number(row[by]["map"], 4), by, f"{row[by]['size']} {SIZES[row['system']]}",
         f"{row[by]['rate']:g}", f"{row[by]['reg_lambda']:g}",
         f"{row[by]['round']} of {row[by]['rounds']}", f"{row[by]['cpu_s']:.1f}",
         str(len(row["runs"])), f"{row['cpu_s']:.0f}", ", ".join(map(str, row["load"])))
        for row in group
        for by in ("best", "chosen")
    ]  # fmt: skip
    heads = (
        *("", "columns", "split", first["metric"], "mAP", "", "size", "shrinkage", "λ", "round"),
        *("CPU s of the run", "runs", "CPU s of all", "load average"),
    )
    parts = ", ".join(f"{count:,} {name}" for name, count in first["rows"].items())
    title = f"{first['data']}: {parts} rows, {first['columns']} columns, {first['classes']} classes"
    return Shown(title, heads, rows, _tried(group))


def _form(row: Row, point: Row) -> str:
    """How GBUN reads columns, and what it says beside that; nothing of trees."""
    if row["system"] != GBUN:
        return ""
    weights = f", {point['weights']} weights" if point["columns"] in ("bins", "auto") else ""
    return f"{point['columns']}, β {point['sharpness']:g}{weights}"


def _tried(group: Sequence[Row]) -> str:
    """The points of each system, in words."""
    said = []
    for row in group:
        if row["split"] == 0:
            runs = row["runs"]
            lists = (
                f"{name} {', '.join(f'{one:g}' for one in sorted({run[key] for run in runs}))}"
                for key, name in (("size", SIZES[row["system"]]), ("rate", "shrinkage"),
                                  ("reg_lambda", "λ"), ("rounds", "rounds"))
            )  # fmt: skip
            forms = sorted({_form(row, run) for run in runs} - {""})
            none = f"; {row['unsolvable']} more without a solution" if row["unsolvable"] else ""
            said.append(f"{row['system']}: {'; '.join([*lists, *forms])}{none}")
    return "Points: " + ". ".join(said) + "."


def _bytes(group: Sequence[Row]) -> Shown:
    rows = [
        (row["data"], f"{row['columns']:,}", _what(row), str(row["classes"]),
         ", ".join(row["metric"]), f"{row['up']:,.0f}", number(row["formula"], 0),
         number(row["formula"] and row["up"] / row["formula"], 4), f"{row['once']:,}")
        for row in group
    ]  # fmt: skip
    heads = ("data", "columns", "", "classes", "metric", "bytes a round", "formula", "ratio",
             "bytes once")  # fmt: skip
    trees = "Of trees a round is a tree; once, they also search for cut points."
    return Shown("Uplink bytes of a party, three parties", heads, rows, trees)


def _what(row: Row) -> str:
    """GBUN and its outputs, or trees."""
    return f"GBUN, {row['outputs']} outputs" if row["outputs"] else row["protocol"]


def _federated(group: Sequence[Row]) -> Shown:
    rows = [
        (row["data"], f"{row['rows']:,}", str(row["parties"]), str(row["rounds"]),
         str(row["outputs"]), f"{row['reg_lambda']:g}", f"{row['gap']:.1e}",
         f"{row['largest']:.2f}")
        for row in group
    ]  # fmt: skip
    heads = ("data", "rows", "parties", "rounds", "outputs", "λ", "largest gap", "largest margin")
    return Shown("Margins of a federation and of one table", heads, rows)


COST = ("CPU s", "cores of others", "load average")


def _cost(row: Row) -> tuple[str, ...]:
    load = ", ".join(map(str, row["load"]))
    return number(row["cpu_s"], 2), number(row["others"], 2), load


def _bandwidth(group: Sequence[Row]) -> Shown:
    free = next((row for row in group if row["bits_per_s"] == RATES[0]), None)
    rows = [
        (speed(row["bits_per_s"]), f"{median(row['seconds']):.3f}",
         "" if free is None else f"{seconds_ratio(row, free):.2f}", str(len(row["seconds"])),
         f"{row['first']:.2f}", *_cost(row))
        for row in group
    ]  # fmt: skip
    first = group[0]
    heads = ("", "s a round", "÷ unlimited", "rounds", "first round s", *COST)
    title = f"{first['system']}: bandwidth, {first['parties']} parties, {first['data']}"
    return Shown(title, heads, rows, _note(group))


def speed(bits_per_s: float) -> str:
    """Of a line, in words."""
    return "unlimited" if bits_per_s == RATES[0] else f"{bits_per_s / 1e6:g} Mbit/s"


def _parties(group: Sequence[Row]) -> Shown:
    alone = next((row for row in group if row["parties"] == 1), group[0])
    rows = [
        (str(row["parties"]), f"{median(row['seconds']):.3f}",
         f"{1.0 / median(row['seconds']):.2f}", f"{1.0 / seconds_ratio(row, alone):.2f}",
         f"{row['busiest_cpu_s']:.3f}", f"{alone['busiest_cpu_s'] / row['busiest_cpu_s']:.2f}",
         *_cost(row))
        for row in group
    ]  # fmt: skip
    heads = ("parties", "s a round", "rounds a s", "× of one party", "CPU s of the busiest party",
             "× of one party", *COST)  # fmt: skip
    first = group[0]
    size = f"{first['rows']:,} rows, {first['columns']} columns, {first['classes']} classes"
    title = f"{first['data']}: rows divided among parties, {first['outputs']} outputs, {size}"
    return Shown(title, heads, rows, _note(group))


def _note(group: Sequence[Row]) -> str:
    """What to think of times that others' work has made longer."""
    if not any((row["others"] or 0.0) > DISTURBED for row in group):
        return ""
    return (
        f"Where other processes kept more than {DISTURBED} cores busy, wall times are longer than "
        "the job's own; CPU seconds of all our processes compare better."
    )
