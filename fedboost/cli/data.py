"""`fedboost data`: look at tables before a job does, and deal a pooled table out to parties."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedboost.cli.groups import data_group
from fedboost.data.columns import kind_of
from fedboost.data.common_ids import CommonIds, common_ids
from fedboost.data.reading import locate_errors, read_table
from fedboost.data.sources import SourceSpec, source_at
from fedboost.data.split import SplitPlan, split_table, write_tables
from fedboost.data.survey import ColumnSurvey, TableSurvey, survey_table
from fedboost.ground.errors import DataError
from fedboost.ground.settings import parse_settings
from fedboost.report.consoles import plain_console

COLUMN_HEADS = ("column", "type", "role", "missing", "distinct", "min", "max")
COLUMNS_SHOWN_MAX = 200  # a longer table is not readable in a terminal
PARTY_HEADS = ("party", "file", "rows", "columns", "label")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object as last line.")


@data_group.command("check")
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@json_option
def check(files: tuple[str, ...], as_json: bool) -> None:
    """Describe each FILE, a table or its declaration, and list problems that a job would refuse.

    \b
      fedboost data check bank.parquet telco.csv credit.yaml

    Counts the ids that several tables have in common.
    Ends with exit code 2 if there is a problem.
    """
    sources = [source_at(file) for file in files]
    surveys = [survey_table(source) for source in sources]
    common = common_ids(sources, surveys) if len(files) > 1 else None
    n_problems = sum(len(survey.problems) for survey in surveys)
    if as_json:
        found: dict[str, Any] = {"files": [asdict(s) for s in surveys], "problems": n_problems}
        if len(files) > 1:
            found["common_ids"] = None if common is None else asdict(common)
        click.echo(json.dumps(found))
    else:
        console = plain_console()
        for surveyed in surveys:
            _print_survey(console, surveyed)
        if len(files) > 1:
            console.print(Text(_common_ids_text(surveys, common)))
    if n_problems:
        bad = [survey.file for survey in surveys if survey.problems]
        raise DataError(
            f"problems found: {n_problems}",
            file=", ".join(bad),
            todo="correct the tables, or leave the named columns out of the job with 'ignore'"
            if all(survey.columns for survey in surveys)
            else "check the paths and the format of the files",
        )


@data_group.command("split")
@click.argument("pooled", metavar="POOLED")
@click.option("--layout", required=True, help="vertical, horizontal or hybrid.")
@click.option(
    "--party",
    "parties",
    multiple=True,
    required=True,
    metavar="NAME[=COLUMN,…]",
    help="A party and its columns; the first is the guest. Repeat it.",
)
@click.option("--out", required=True, metavar="DIR", help="Folder for PARTY.parquet.")
@click.option("--label", help="The pooled file's label column.")
@click.option("--id", help="Its id column; absent: 'id', or row numbers if there is none.")
@click.option("--seed", type=int, help="Seed of all random choices.")
@click.option("--skew", type=float, help="Horizontal, hybrid: deal each class by Dirichlet(skew).")
@click.option("--overlap", type=float, help="Hybrid: share of rows that two hosts hold.")
@click.option("--drop-columns", type=float, help="Hybrid: share of its columns each host lacks.")
@json_option
def split(pooled: str, parties: tuple[str, ...], out: str, as_json: bool, **given: Any) -> None:
    """Deal the table POOLED out to parties: one DIR/PARTY.parquet each, with `id` everywhere.

    \b
      fedboost data split pooled.parquet --layout vertical --label y \\
        --party bank=age,income --party telco=calls,minutes --out data
      fedboost data split all.parquet --layout horizontal --label y --party a --party b --out data
    """
    raw = {key: value for key, value in given.items() if value is not None}
    plan = parse_settings(SplitPlan, raw | {"parties": [_parse_party(text) for text in parties]})
    source = SourceSpec(path=pooled)
    table = read_table(source)
    with locate_errors(file=source.name):
        tables = split_table(table, plan)
    paths = write_tables(tables, Path(out), Path(pooled))
    written = [
        {
            "party": party,
            "file": str(paths[party]),
            "rows": table.num_rows,
            "columns": [name for name in table.column_names if name not in ("id", plan.label)],
            "label": plan.label if plan.label in table.column_names else None,
        }
        for party, table in tables.items()
    ]
    if as_json:
        click.echo(json.dumps({"layout": plan.layout, "parties": written}))
    else:
        used = {name for part in tables.values() for name in part.column_names}
        left_out = [name for name in table.column_names if name not in used]
        _print_split(plain_console(), written, left_out, _columns_without_numbers(tables))


def _parse_party(text: str) -> dict[str, Any]:
    """Read ``bank=age,income`` as the plan's settings; without ``=`` no columns are named."""
    name, sign, columns = text.partition("=")
    named = [column.strip() for column in columns.split(",") if column.strip()]
    return {"name": name.strip(), "columns": named if sign else None}


def _columns_without_numbers(tables: dict[str, pa.Table]) -> list[str]:
    numeric = {"boolean", "integer", "number", "decimal", "empty"}
    return sorted(
        {
            field.name
            for table in tables.values()
            for field in table.schema
            if field.name != "id" and kind_of(field.type) not in numeric
        }
    )


def _print_survey(console: Console, surveyed: TableSurvey) -> None:
    title = f"{surveyed.file}: cannot be read"
    if surveyed.columns:
        named = f"id: {surveyed.id or 'none found'}; label: {surveyed.label or 'none found'}"
        title = f"{surveyed.file}: {surveyed.rows} rows, {len(surveyed.columns)} columns; {named}"
    console.print(Text(title, style="bold"))
    if surveyed.columns:
        rows = [_column_cells(column) for column in surveyed.columns[:COLUMNS_SHOWN_MAX]]
        console.print(_new_table(COLUMN_HEADS, rows, numbers_from=3))
    if len(surveyed.columns) > COLUMNS_SHOWN_MAX:
        rest = len(surveyed.columns) - COLUMNS_SHOWN_MAX
        console.print(Text(f"and {rest} more columns, which --json describes"))
    for problem in surveyed.problems:
        console.print(Text(f"problem: {problem}", style="red"))
    for note in surveyed.notes:
        console.print(Text(f"note: {note}"))
    if not surveyed.problems:
        console.print(Text("no problems found", style="green"))
    console.print()


def _common_ids_text(surveys: list[TableSurvey], common: CommonIds | None) -> str:
    if common is None:
        return "common ids: unknown, since not every table has ids that can be read"
    shares = ", ".join(
        f"{100 * share:.3g} % of {surveyed.file}"
        for surveyed, share in zip(surveys, common.shares, strict=True)
    )
    return f"common ids: {common.count} ({shares})"


def _column_cells(column: ColumnSurvey) -> tuple[str, ...]:
    return (
        column.name,
        column.type,
        column.role,
        f"{100 * column.missing:.3g} %",
        "" if column.distinct is None else str(column.distinct),
        _number_text(column.least),
        _number_text(column.greatest),
    )


def _number_text(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value == round(value) and abs(value) < 2**53 else f"{value:.6g}"


def _print_split(
    console: Console, written: list[dict[str, Any]], left_out: list[str], not_numbers: list[str]
) -> None:
    rows: list[tuple[str, ...]] = [
        (
            file["party"],
            file["file"],
            str(file["rows"]),
            ", ".join(file["columns"]) or "none",
            file["label"] or "",
        )
        for file in written
    ]
    console.print(_new_table(PARTY_HEADS, rows, numbers_from=len(PARTY_HEADS)))
    for what, names in (
        ("columns that no party got", left_out),
        ("columns that a job must ignore or, if text, name in 'categorical'", not_numbers),
    ):
        if names:
            console.print(Text(f"note: {what}: {', '.join(names)}"))


def _new_table(heads: tuple[str, ...], rows: list[tuple[str, ...]], numbers_from: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for place, head in enumerate(heads):
        table.add_column(
            head, justify="right" if place >= numbers_from else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
