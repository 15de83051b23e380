"""How a benchmark's question is declared: parts, plans, figures, tables, plots; and its command."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from benchmarks import harness, rows
from benchmarks.rows import Row, Shown
from fedboost.report.html import Html


@dataclass(frozen=True)
class Part:
    """What a part of a question measures of each of its data sets, by the plan.

    A part without data sets is measured once, with an empty name. If an `option` of the command
    line is given, the parts that name it are measured; else those that name none.
    """

    measure: Callable[[str, Any], Iterable[Row]]
    data: Sequence[str] = ()
    option: str = ""


@dataclass(frozen=True)
class Question:
    """What is measured, and what the rows come to.

    `full` and `quick` are plans, dataclasses that say how much is measured. Each of `options` is a
    field of the plan that the command line may set, with the words for argparse.
    """

    name: str
    about: str
    parts: Mapping[str, Part]
    full: Any
    quick: Any
    figures: Callable[[list[Row]], dict[str, float]]
    tables: Callable[[list[Row]], Iterable[Shown]] = rows.drawn
    plots: Callable[[list[Row]], Mapping[str, tuple[str, Html]]] | None = None  # title, picture
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)  # beside those of the plan

    def main(self, given: Sequence[str] | None = None) -> None:
        """Measure what the command line asks for, or show what earlier runs have measured."""
        asked = self._asked(given)
        report = self.earlier(asked.earlier) if asked.earlier else self._measured(asked)
        if self.plots is not None and asked.plots is not None:
            for key, (_, picture) in self.plots(report.rows).items():
                path = asked.plots / f"{self.name}-{key}.svg"
                path.write_text(f"{picture}\n", encoding="utf-8")
        report.write(asked, list(self.tables(report.rows)))

    def earlier(self, files: Sequence[Path]) -> Report:
        """Join the rows of earlier runs; where two measured the same, the later file's."""
        reports = [json.loads(file.read_text()) for file in files]
        joined: dict[tuple[str, str], list[Row]] = {}
        for report in reports:
            joined |= {(g[0]["data"], g[0]["what"]): g for g in
                       rows.grouped(report["rows"], "data", "what")}  # fmt: skip
        known = [row for group in joined.values() for row in group]
        return Report(**{**reports[-1], "rows": known, "figures": self.figures(known)})

    @property
    def data(self) -> list[str]:
        """List the data sets of all parts."""
        return list(dict.fromkeys(name for part in self.parts.values() for name in part.data))

    def _asked(self, given: Sequence[str] | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(
            *(f"python -m benchmarks {self.name}",), description=self.about.split("\n", 1)[0]
        )
        parser.add_argument("--quick", action="store_true", help="half a minute on two cores")
        for name, what in {"json": "everything measured", "record": "figures and tables"}.items():
            parser.add_argument(f"--{name}", type=Path, metavar="F", help=f"write {what} to F")
        parser.add_argument("--data", action="append", choices=self.data, help="only this one")
        parser.add_argument("--part", action="append", choices=list(self.parts), help="only this")
        if self.plots is not None:
            parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write plots there")
        parser.add_argument(
            *("--from",), dest="earlier", action="append", type=Path, metavar="F", default=[],
            help="show what earlier runs wrote with --json, later files first, and measure nothing",
        )  # fmt: skip
        for name, words in self.options.items():
            parser.add_argument(f"--{name}", default=None, **words)
        return parser.parse_args(given)

    def _measured(self, asked: argparse.Namespace) -> Report:
        set_ = {name: one for name in self.options if (one := getattr(asked, name)) is not None}
        plan = replace(self.quick if asked.quick else self.full, **set_)
        option = next((part.option for part in self.parts.values() if part.option in set_), "")
        said = {f.name: value for f in fields(plan) if f.repr
                for value in [asdict(plan)[f.name]]}  # fmt: skip
        named = f"{self.name}_{option}" if option else self.name
        report = Report(named, {**self.settings, **said, "quick": asked.quick})
        for name, part in self.parts.items():
            if part.option == option and name in (asked.part or self.parts):
                for data in part.data or [""]:
                    if not data or data in (asked.data or self.data):
                        rows.say.print(f"[bold]{self.name}[/]: {name} {data}")
                        about = {"what": name, "data": data}
                        report.rows += [{**about, **row} for row in part.measure(data, plan)]
        report.figures = self.figures(report.rows)
        return report


@dataclass
class Report:
    """What a run found; the keys of its JSON object are INTERFACE.md's."""

    name: str
    settings: dict[str, Any]
    machine: dict[str, Any] = field(default_factory=harness.machine)
    versions: dict[str, str] = field(default_factory=harness.versions)
    rows: list[Row] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def write(self, asked: argparse.Namespace, tables: Sequence[Shown]) -> None:
        """Print figures and tables; write the files that the command line asked for.

        `--record` has what a page of docs/benchmarks/ stands on (`benchmarks.pages`).
        """
        lines = [(name, f"{value:.4f}") for name, value in self.figures.items()]
        for one in (Shown("Figures", ("figure", "value"), lines), *tables):
            one.print()
        if asked.json is not None:
            asked.json.write_text(json.dumps(asdict(self), indent=1) + "\n")
        if asked.record is not None:
            record = {k: v for k, v in asdict(self).items() if k != "rows"}
            record["machine"] = self.machine | record.pop("versions")
            record["tables"] = [asdict(one) for one in tables]
            asked.record.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
