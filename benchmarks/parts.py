"""Benchmarks in parts: run one by one, and shown together from what each of them wrote."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Report
from fedboost.report.html import Html

Row = dict[str, Any]


def parser(
    name: str, about: str, data: Sequence[str], parts: Sequence[str]
) -> argparse.ArgumentParser:
    """Every benchmark's, and what one takes whose rows are enough to show it again."""
    found = harness.parser(name, about, data)
    found.add_argument("--part", action="append", choices=parts, help="only this part")
    found.add_argument("--plots", type=Path, metavar="FOLDER", help="write the plots there")
    found.add_argument(
        *("--from",), dest="earlier", action="append", type=Path, metavar="F", default=[],
        help="show what earlier runs wrote with --json, later files first, and measure nothing",
    )  # fmt: skip
    return found


def earlier(
    files: Sequence[Path],
    data: Sequence[str],
    figures: Callable[[list[Row]], dict[str, float]],
    kinds: Sequence[str] = (),
) -> Report:
    """The rows of earlier runs; where two measured the same of a data set, the later file's.

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
    if kinds:
        keys = [(name, what) for name in data for what in kinds]
    joined = [row for name in data for key in keys if key[0] == name for row in rows.get(key, [])]
    return Report(**{**reports[-1], "rows": joined, "figures": figures(joined)})


def write_pictures(folder: Path, name: str, pictures: Mapping[str, tuple[str, Html]]) -> list[str]:
    """Writes ``NAME-KEY.svg`` for each picture, a title and what is drawn; gives the Markdown."""
    shown = []
    for key, (title, drawn) in pictures.items():
        file = f"{name}-{key}.svg"
        (folder / file).write_text(f"{drawn}\n", encoding="utf-8")
        shown.append(f"![{title}]({file})")
    return shown
