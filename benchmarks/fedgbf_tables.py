"""Figures and tables of the FedGBF benchmark, from nothing but the rows of its JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

from benchmarks.fedgbf_jobs import DYNAMIC, LONE, METRICS, PARTS, ROUNDS, SECUREBOOST, Schedule
from benchmarks.harness import Shown
from benchmarks.plus_tables import (
    Row,
    disturbance,
    grouped,
    machine_cells,
    number,
    of,
    percent,
    size,
)

CLOCKS = {"wall_s": "seconds", "cpu_s": "ours"}  # of a job, and of its rounds


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures; those that the rows do not give are absent."""
    found: dict[str, float] = {}
    for group in grouped(of(rows, "scores"), "data", "rounds"):
        first = group[0]
        found[f"test_auc_gap.{first['data']}.{first['rounds']}"] = abs(auc_gap(group))
    for group in grouped(of(rows, "time"), "data"):
        data, jobs = group[0]["data"], Jobs.of(group)
        ratios = {
            "cpu_ratio": jobs.ratio("cpu_s"),
            "critical_path_ratio": jobs.path_ratio("cpu_s"),
            "exchanges_ratio": jobs.ratio("exchanges"),
        }
        found |= {f"{name}.{data}": one for name, one in ratios.items() if one is not None}
    return found


def auc_gap(group: Sequence[Row]) -> float:
    """Test AUC of Dynamic FedGBF, less SecureBoost's, of the same data and rounds."""
    auc = {row["system"]: row["validation"]["auc"] for row in group}
    return float(auc[DYNAMIC] - auc[SECUREBOOST])


@dataclass(frozen=True)
class Jobs:
    """The timed jobs of one data set."""

    whole: Mapping[str, Row]  # by system
    alone: Sequence[Row]  # one for each draw

    @classmethod
    def of(cls, group: Sequence[Row]) -> Self:
        """From rows of the kind `time`."""
        whole = {row["system"]: row for row in group if row["system"] != LONE}
        return cls(whole, [row for row in group if row["system"] == LONE])

    @property
    def rounds(self) -> int:
        """Of every job."""
        return int(self.whole[SECUREBOOST]["rounds"])

    def ratio(self, what: str) -> float | None:
        """Dynamic FedGBF's share of what SecureBoost takes; None where a clock is unknown."""
        return _share(self.whole[DYNAMIC][what], self.whole[SECUREBOOST][what])

    def path(self, clock: str, draws: int | None = None) -> float | None:
        """Seconds of all rounds, each as long as its slowest tree; None where unknown.

        Of each round so many draws count as its forest has trees, at most `draws` of them.
        """
        lap, total = CLOCKS[clock], 0.0
        for place, trees in enumerate(Schedule.of(self.rounds).sizes):
            most = int(trees) if draws is None else min(int(trees), draws)
            seconds = [row["laps"][place][lap] for row in self.alone[:most]]
            if not seconds or None in seconds:
                return None
            total += max(seconds)
        return total

    def path_ratio(self, clock: str) -> float | None:
        """The same as a share of what SecureBoost takes."""
        return _share(self.path(clock), self.whole[SECUREBOOST][clock])

    def unit(self, clock: str) -> float | None:
        """T_unit: the median SecureBoost round after the first, which pays for the key."""
        laps = self.whole[SECUREBOOST]["laps"]
        seconds = [lap[CLOCKS[clock]] for lap in laps[1:] or laps]
        return None if None in seconds else median(seconds)


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


# Tables


def shown(rows: Sequence[Row]) -> list[Shown]:
    """Every table, data set by data set."""
    tables = []
    for own in grouped(rows, "data"):
        if of(own, "scores"):
            tables.append(_scores(of(own, "scores")))
        if of(own, "time"):
            jobs = Jobs.of(of(own, "time"))
            tables += [_times(jobs), _bounds(jobs)]
            tables += [_path(jobs)] if jobs.alone else []
    return tables


NAMES = {"auc": "AUC", "accuracy": "accuracy", "f1": "F1"}


def _scores(group: list[Row]) -> Shown:
    rows = []
    for same in grouped(group, "rounds"):
        for row in same:
            cells = [row["system"], str(row["rounds"])]
            cells += [f"{row[part][name]:.4f}" for part in PARTS for name in METRICS]
            cells.append(f"{auc_gap(same):+.4f}" if row["system"] == DYNAMIC else "")
            rows.append(tuple(cells))
    scores = (f"{part} {NAMES[name]}" for part in PARTS.values() for name in METRICS)
    heads = ("system", "rounds", *scores, "test AUC − SecureBoost's")
    note = "Accuracy and F1 at a threshold of one half."
    return Shown(f"{group[0]['data']}: scores, {group[0]['rows']:,} rows", heads, rows, note)


def _times(jobs: Jobs) -> Shown:
    every = [*jobs.whole.values(), *jobs.alone]
    whole = jobs.whole[SECUREBOOST]
    rows = []
    for row in every:
        draw = f", draw {row['draw']}" if row["system"] == LONE else ""
        shares = [percent(_share(row[clock], whole[clock])) for clock in CLOCKS]
        rows.append((
            row["system"] + draw, number(row["wall_s"], 1), number(row["cpu_s"], 1), *shares,
            f"{row['sent']:,.0f}", f"{row['exchanges']:g}", f"{row['test_auc']:.4f}",
            *machine_cells(row),
        ))  # fmt: skip
    heads = ("job", "wall s", "CPU s", "wall, of SecureBoost's", "CPU, of SecureBoost's", "bytes",
             "exchanges a round", "test AUC", "cores of others", "load average")  # fmt: skip
    title = f"{whole['data']}, {whole['scheme']}: {jobs.rounds} rounds, {size(whole)}"
    return Shown(title, heads, rows, disturbance(every))


def _bounds(jobs: Jobs) -> Shown:
    rows = []
    for clock, name in (("wall_s", "wall"), ("cpu_s", "CPU")):
        unit = jobs.unit(clock)
        for rounds in dict.fromkeys((jobs.rounds, *ROUNDS)):
            if unit is None:
                continue
            moving = Schedule.of(rounds)
            estimates = (rounds * unit, moving.least * unit, moving.most * unit)
            timed = [jobs.whole[one][clock] if rounds == jobs.rounds else None
                     for one in (SECUREBOOST, DYNAMIC)]  # fmt: skip
            cells = (number(one, 1) for one in (*estimates, *timed))
            shares = (percent(one / rounds) for one in (moving.least, moving.most))
            rows.append((f"{rounds} rounds, {name} s", *cells, *shares))
    heads = ("", "SecureBoost, equation 11", "Dynamic FedGBF, equation 9", "equation 10",
             "SecureBoost, measured", "Dynamic FedGBF, measured",
             "equation 9 ÷ 11", "equation 10 ÷ 11")  # fmt: skip
    units = [f"{number(jobs.unit(clock), 2)} {name} s"
             for clock, name in (("wall_s", "wall"), ("cpu_s", "CPU"))]  # fmt: skip
    note = f"T_unit, one measured tree: {' and '.join(units)}."
    title = f"{jobs.whole[SECUREBOOST]['data']}: the paper's bounds from one tree"
    return Shown(title, heads, rows, note)


def _path(jobs: Jobs) -> Shown:
    rows = []
    for draws in range(1, len(jobs.alone) + 1):
        cells = []
        for clock in CLOCKS:
            seconds = jobs.path(clock, draws)
            cells += [number(seconds, 1), percent(_share(seconds, jobs.whole[SECUREBOOST][clock]))]
        rows.append((str(draws), *cells))
    trees = int(Schedule.of(jobs.rounds).sizes.max())
    missing = "" if len(jobs.alone) >= trees else (
        f"Forests have up to {trees} trees, of which {len(jobs.alone)} were timed alone: the "
        "slowest of all may be slower."
    )  # fmt: skip
    heads = ("trees of a forest timed alone, at most", "wall s", "of SecureBoost's", "CPU s",
             "of SecureBoost's")  # fmt: skip
    title = f"{jobs.whole[SECUREBOOST]['data']}: rounds as long as their slowest tree"
    return Shown(title, heads, rows, missing)
