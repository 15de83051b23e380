"""Benchmarks in parts: run one by one, and shown together from what each of them wrote."""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Report, Shown
from fedboost.report.html import Html

Row = dict[str, Any]


@dataclass(frozen=True)
class Parted:
    """A benchmark in parts: what its command line takes, measures, shows and draws."""

    name: str
    about: str
    data: Sequence[str]
    parts: Sequence[str]
    plan: Callable[..., Any]  # of what the command line says
    settings: Callable[[Any, bool], Mapping[str, Any]]  # of the plan, quick or not
    measure: Callable[[str, Any, str], list[Row]]  # of a data set, by the plan, one part
    figures: Callable[[list[Row]], dict[str, float]]
    shown: Callable[[list[Row]], list[Shown]]
    draw: Callable[[Path, list[Row]], object] | None = None  # its plots into a folder
    kinds: Sequence[str] = ()  # of rows, in the order in which earlier ones are shown

    def parser(self) -> argparse.ArgumentParser:
        """Every benchmark's, and what one takes whose rows are enough to show it again."""
        found = harness.parser(self.name, self.about, self.data)
        found.add_argument("--part", action="append", choices=self.parts, help="only this part")
        if self.draw is not None:
            found.add_argument("--plots", type=Path, metavar="FOLDER", help="write the plots there")
        found.add_argument(
            *("--from",), dest="earlier", action="append", type=Path, metavar="F", default=[],
            help="show what earlier runs wrote with --json, later files first, and measure nothing",
        )  # fmt: skip
        return found

    def options(self, given: Sequence[str] | None = None) -> argparse.Namespace:
        """Return what the command line says; all parts where it names none."""
        found = harness.parse(self.parser(), self.data, given)
        found.part = found.part or list(self.parts)
        return found

    def earlier(self, files: Sequence[Path]) -> Report:
        """Return rows of earlier runs; where two measured the same of a data set, the later file's.

        In the order of `data`, and of `kinds` of rows; without these as they came first.
        """
        reports = [json.loads(file.read_text()) for file in files]
        rows: dict[tuple[str, str], list[Row]] = {}
        for report in reports:
            found: dict[tuple[str, str], list[Row]] = {}
            for row in report["rows"]:
                found.setdefault((row["data"], row["what"]), []).append(row)
            rows |= found
        keys = list(rows)
        if self.kinds:
            keys = [(name, what) for name in self.data for what in self.kinds]
        known = (rows.get(key, []) for name in self.data for key in keys if key[0] == name)
        joined = [row for of_kind in known for row in of_kind]
        return Report(**{**reports[-1], "rows": joined, "figures": self.figures(joined)})

    def measured(self, asked: argparse.Namespace) -> Report:
        """Measure every part on every data set that is asked for."""
        plan = self.plan(asked)
        report = Report(self.name, {**self.settings(plan, asked.quick), "quick": asked.quick})
        for part in asked.part:
            for name in asked.data:
                report.rows += self.measure(name, plan, part)
        report.figures = self.figures(report.rows)
        return report

    def main(self, given: Sequence[str] | None = None) -> None:
        """Run the benchmark as the command line says, or show what earlier runs have measured."""
        asked = self.options(given)
        report = self.earlier(asked.earlier) if asked.earlier else self.measured(asked)
        if self.draw is not None and asked.plots is not None:
            self.draw(asked.plots, report.rows)
        report.write(asked, self.shown(report.rows))


def timed(
    measures: Mapping[str, tuple[Sequence[str], Callable[[str, Any], list[Row]]]],
    name: str,
    plan: Any,
    part: str,
) -> list[Row]:
    """Return what a part measures of a data set, if it does, and how many seconds that took."""
    known, measure = measures[part]
    started = time.perf_counter()
    rows = measure(name, plan) if name in known else []
    spent = {"data": name, "part": part, "seconds": time.perf_counter() - started}
    return [*rows, {"what": f"seconds of {part}", **spent}] if rows else []


def write_pictures(folder: Path, name: str, pictures: Mapping[str, tuple[str, Html]]) -> list[str]:
    """Writes ``NAME-KEY.svg`` for each picture, a title and what is drawn; gives the Markdown."""
    shown = []
    for key, (title, drawn) in pictures.items():
        file = f"{name}-{key}.svg"
        (folder / file).write_text(f"{drawn}\n", encoding="utf-8")
        shown.append(f"![{title}]({file})")
    return shown
