"""Figures and tables of the SecureBoost+ benchmark, from nothing but the rows of its JSON."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from benchmarks.harness import Shown

Row = dict[str, Any]

XGBOOST = "XGBoost, pooled"
MODES = ("mix", "layered")  # variants that come on top of all switches
ONE, MULTI = "one tree a class", "multi-output"
DISTURBED = 0.2  # cores that others keep busy: above it wall times say little


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures; those that the rows do not give are absent."""
    found: dict[str, float] = {}
    for group in grouped(of(rows, "switches"), "data", "part", "scheme"):
        if (group[0]["part"], group[0]["scheme"]) == ("together", "paillier"):
            found |= cuts(group)
    for group in grouped(of(rows, "multi"), "data", "scheme"):
        if group[0]["scheme"] == "paillier":
            found |= _multi_figures(group, of(rows, "curves"))
    for group in grouped(of(rows, "auc"), "data"):
        pooled = next(row for row in group if row["mode"] == XGBOOST)
        found |= {
            f"auc_gap.{row['mode']}.{row['data']}": abs(row["train"] - pooled["train"])
            for row in group
            if row is not pooled
        }
    return found


def cuts(group: Sequence[Row]) -> dict[str, float]:
    """What all switches together save of the baseline, and the modes of that."""
    by_name = {row["variant"]: row for row in group}
    compared = (("all", "baseline"), ("mix", "all"), ("layered", "all"))
    return {
        f"cut_{name}.{group[0]['data']}": saved(by_name[name], by_name[of_], "wall_s") or 0.0
        for name, of_ in compared
    }


def saved(row: Row, of_: Row, what: str) -> float | None:
    """The share of `wall_s` or `cpu_s` saved; None where a clock is unknown."""
    known = row[what] is not None and of_[what]
    return 1.0 - row[what] / of_[what] if known else None


def of(rows: Sequence[Row], what: str) -> list[Row]:
    """The rows of one kind."""
    return [row for row in rows if row["what"] == what]


def grouped(rows: Sequence[Row], *keys: str) -> Iterator[list[Row]]:
    """Rows that agree in these keys, in the order of the first of each."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    yield from found.values()


@dataclass(frozen=True)
class Reached:
    """Rounds until a training accuracy was reached first; None where it never was."""

    target: float
    rounds: dict[str, int | None]  # of both kinds

    @classmethod
    def of(cls, curves: Mapping[str, Sequence[float]]) -> Self:
        """The target is the accuracy of one tree a class after its last round."""
        target = curves[ONE][-1]
        return cls(target, {kind: first_at_least(target, curves[kind]) for kind in (ONE, MULTI)})

    def trees(self, kind: str, classes: int) -> int | None:
        """Trees that were grown until then."""
        rounds = self.rounds[kind]
        return None if rounds is None else rounds * (classes if kind == ONE else 1)


def first_at_least(target: float, curve: Sequence[float]) -> int | None:
    """The first round, from 1, that reaches the target."""
    there = np.flatnonzero(np.asarray(curve) >= target)
    return int(there[0]) + 1 if len(there) else None


def to_target(row: Row, reached: Reached, clock: str = "wall_s") -> float | None:
    """Seconds until the accuracy was reached, of one row of the kind `multi`; None: never."""
    trees = reached.trees(row["kind"], row["classes"])
    return None if trees is None or row[clock] is None else trees * row[clock]


def reached(data: str, curves: Sequence[Row]) -> Reached | None:
    """What the curves of one data set come to; None where they were not drawn."""
    own = {row["kind"]: row["train"] for row in curves if row["data"] == data}
    return Reached.of(own) if own else None


def _multi_figures(group: Sequence[Row], curves: Sequence[Row]) -> dict[str, float]:
    data, found = group[0]["data"], {}
    met = reached(data, curves)
    for compress, name in ((False, "multi_output_time"), (True, "multi_output_time_compressed")):
        spent = {
            row["kind"]: to_target(row, met)
            for row in group
            if met is not None and row["compressing"] == compress
        }
        one, multi = spent.get(ONE), spent.get(MULTI)
        if one is not None and multi is not None:
            found[f"{name}.{data}"] = multi / one
    return found


# Tables


def shown(rows: Sequence[Row]) -> list[Shown]:
    """Every table, data set by data set."""
    tables = []
    for own in grouped(rows, "data"):
        tables += [_times(group) for group in grouped(of(own, "switches"), "part", "scheme")]
        kinds: dict[str, Callable[[list[Row]], Shown]] = {
            "operations": _operations,
            "auc": _auc,
            "curves": _curves,
        }
        tables += [table(of(own, what)) for what, table in kinds.items() if of(own, what)]
        met = reached(own[0]["data"], of(own, "curves"))
        tables += [_multi(group, met) for group in grouped(of(own, "multi"), "scheme")]
    return tables


def size(row: Row) -> str:
    """Rows and columns, in words."""
    return f"{row['rows']:,} rows, {row['host_columns']} host columns"


def _times(group: list[Row]) -> Shown:
    first = group[0]
    by_name = {row["variant"]: row for row in group}
    rows = []
    for row in group:
        cells = [row["variant"], *_cost(row)]
        for reference in ("baseline", "all"):
            whole = by_name.get(reference)
            compared = reference == "baseline" or row["variant"] in MODES
            for what in ("wall_s", "cpu_s"):
                share = saved(row, whole, what) if compared and whole is not None else None
                cells.append(percent(share))
        rows.append((*cells, *machine_cells(row)))
    heads = ("variant", "wall s", "CPU s", "bytes", "saved of baseline, wall", "CPU time",
             "saved of all, wall", "CPU time", "cores of others", "load average")  # fmt: skip
    part = ", each switch alone" if first["part"] == "alone" else ""
    title = f"{first['data']}, {first['scheme']}{part}: one tree, {size(first)}"
    return Shown(title, heads, rows, disturbance(group))


def _cost(row: Row) -> tuple[str, str, str]:
    return number(row["wall_s"], 2), number(row["cpu_s"], 2), f"{row['sent']:,.0f}"


def machine_cells(row: Row) -> tuple[str, str]:
    """How busy others kept the machine, and its load average before."""
    return number(row["others"], 2), ", ".join(map(str, row["load"]))


def disturbance(group: Sequence[Row]) -> str:
    """What to think of times that others' work has made longer."""
    if not any(row["others"] is not None and row["others"] > DISTURBED for row in group):
        return ""
    return (
        f"Where other processes kept more than {DISTURBED} cores busy, wall times are longer than "
        "the job's own; CPU seconds compare better."
    )


def number(value: float | None, digits: int) -> str:
    """With so many digits; nothing for what is unknown."""
    return "" if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """A share in percent; nothing for what is unknown."""
    return "" if value is None else f"{value:.1%}"


def _operations(group: list[Row]) -> Shown:
    shape = group[0]["shape"]
    rows = []
    for row in group:
        for what in ("additions", "encryptions", "decryptions", "ciphertexts"):
            predicted, counted = row["predicted"][what], row["counted"][what]
            rows.append((row["variant"], what, row["equations"], f"{predicted:,.0f}",
                         f"{counted:,.0f}", f"{counted / predicted:.2f}"))  # fmt: skip
    note = (
        f"Of one tree; n = {shape['rows']}, m = {shape['columns']}, b = {shape['bins']}, h = "
        f"{shape['depth']}, c = {shape['capacity']}. The equations take full trees with all bins "
        "filled and 2^h nodes; a job opens 2^h − 1 at most, lists a missing value's candidates "
        "twice, and starts each sum from a first term."
    )
    heads = ("variant", "operations", "equations", "predicted", "counted", "counted ÷ predicted")
    return Shown(f"{group[0]['data']}: operations", heads, rows, note)


def _auc(group: list[Row]) -> Shown:
    pooled = next(row for row in group if row["mode"] == XGBOOST)
    rows = []
    for row in group:
        cells = [row["mode"], f"{row['train']:.5f}", f"{row['validation']:.5f}"]
        for part in ("train", "validation"):
            cells.append("" if row is pooled else f"{row[part] - pooled[part]:+.5f}")
        rows.append(tuple(cells))
    heads = ("mode", "train", "validation", "train gap", "validation gap")
    note = (
        "Default grows the trees of SecureBoost with all switches off; goss is what all switches "
        "on grow; mix and layered are without GOSS."
    )
    return Shown(f"{group[0]['data']}: AUC, {group[0]['rows']:,} rows", heads, rows, note)


def _curves(group: list[Row]) -> Shown:
    met = reached(group[0]["data"], group)
    assert met is not None
    rows = []
    for row in group:
        cells = [row["kind"], number(_last(row, group, "train"), 4)]
        cells.append(number(_last(row, group, "validation"), 4))
        if row["kind"] == XGBOOST:
            rows.append((*cells, "", "", ""))
            continue
        rounds, trees = met.rounds[row["kind"]], met.trees(row["kind"], row["classes"])
        released = None if rounds is None else row["released"][rounds - 1]
        rows.append((*cells, _or_never(rounds), _or_never(trees), number(released, 0)))
    last = _rounds(group)
    note = (
        f"Target: training accuracy {met.target:.4f}. Decryptions are counted up to the target, "
        "compressing off: later trees are smaller than first ones, which the product of a first "
        "tree's time and the number of trees does not see."
    )
    heads = ("trees", f"training accuracy, {last} rounds", f"validation, {last} rounds",
             "rounds to target", "trees to target", "decryptions to target")  # fmt: skip
    first = group[0]
    return Shown(f"{first['data']}: {first['classes']} classes, {size(first)}", heads, rows, note)


def _rounds(group: Sequence[Row]) -> int:
    return next(len(row["train"]) for row in group if row["kind"] == ONE)


def _last(row: Row, group: Sequence[Row], part: str) -> float:
    curve: list[float] = row[part]
    return curve[min(_rounds(group), len(curve)) - 1]


def _or_never(count: int | None) -> str:
    return "never" if count is None else str(count)


def _multi(group: list[Row], met: Reached | None) -> Shown:
    rows = []
    for row in group:
        cells = [row["kind"], "on" if row["compressing"] else "off", *_cost(row)]
        for clock in ("wall_s", "cpu_s"):
            cells.append(number(None if met is None else to_target(row, met, clock), 0))
        rows.append((*cells, *machine_cells(row)))
    heads = ("trees", "compressing", "one tree, wall s", "CPU s", "bytes",
             "wall s to target", "CPU s to target",
             "cores of others", "load average")  # fmt: skip
    title = f"{group[0]['data']}, {group[0]['scheme']}: one tree, {size(group[0])}"
    return Shown(title, heads, rows, disturbance(group))
