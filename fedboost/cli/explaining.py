"""`fedboost model explain` and `picture`: contributions of columns to margins; drawn trees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from rich.text import Text

from fedboost.cli.complete import models_here
from fedboost.cli.connect import FILE, JSON, TABLE_OUT, check_folder
from fedboost.cli.groups import model_group
from fedboost.cli.predicting import source_of
from fedboost.cli.shelves import (
    PARTY,
    RELEASED,
    Shelves,
    data_in_order,
    parse_pairs,
    store_options,
    whole_model,
)
from fedboost.data.frame import Frame
from fedboost.data.loading import load_with_ids
from fedboost.data.predictions import free_name, id_columns
from fedboost.data.table_files import write_tables
from fedboost.ground.disk import PUBLIC_MODE, write_file
from fedboost.ground.errors import ConfigError
from fedboost.ground.printable import printable
from fedboost.model import branches, kinds
from fedboost.model.branches import Picture
from fedboost.model.contributions import (
    Contributions,
    contributions,
    parties,
    party_facts,
    rows_in_common,
)
from fedboost.model.scoring import selection_of
from fedboost.model.vertical import Whole
from fedboost.model.xgboost_json import feature_names
from fedboost.report import trees
from fedboost.report.consoles import plain_console
from fedboost.report.contributions import TOP, Effect, effects_svg, ranked_effects
from fedboost.report.units import plural

BIAS = "bias"
LISTED = 10  # columns that the terminal shows


@model_group.command("explain")
@click.argument("model", metavar="ID", shell_complete=models_here)
@click.option("--data", multiple=True, required=True, metavar="PARTY=…",
              help="A file, or with --config a declared data set; for a merged model once for "
                   "each party.")  # fmt: skip
@RELEASED
@click.option("--picture", type=FILE, metavar="F.svg",
              help="Draw the mean |contribution| of each column there.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=1), default=TOP, show_default=True,
              help="Number of columns in the picture.")  # fmt: skip
@TABLE_OUT
@store_options
@JSON
def explain(
    model: str, data: tuple[str, ...], out: Path, as_json: bool, shelves: Shelves, **given: Any
) -> None:
    """Compute each column's contribution to each row's margin (TreeSHAP, by XGBoost).

    \b
      fedboost model explain ID --data bank=new.parquet --out S.parquet --picture S.svg
      fedboost model explain ID --config bank.yaml --with telco.json \\
          --data bank=credit --data telco=t.parquet --out S.parquet

    The table has the rows' ids, a column of contributions for each column of the model, and bias:
    together they add up to the row's margin, before the objective makes it a probability. With
    several classes each column appears once for each class, NAME_0, NAME_1, ….

    A model that every party holds whole explains the rows of one --data. A vertical one needs every
    host's release of its splits (--with), and the tables of all parties in its splits; it explains
    the rows with ids in all these tables. Needs the extra fedboost[explain].
    """
    if given["picture"] is not None:
        check_folder(given["picture"])
    model = shelves.named(model)
    merged = whole_model(shelves, model, given["released"])
    wanted = _needed_data(shelves, merged, parse_pairs("--data", data))
    frames, ids = _read_tables(shelves, merged, wanted)
    rows, values = rows_in_common(merged, frames)
    explained = contributions(merged, values)
    write_tables(out, [_contribution_table(ids, rows, explained, feature_names(merged))])
    effects = _column_effects(merged, explained)
    if given["picture"] is not None:
        drawn = effects_svg(effects, len(rows), model, given["top"])
        write_file(given["picture"], drawn.encode(), PUBLIC_MODE)
    left_out = len(ids) - len(rows)
    if as_json:
        means = {effect.name: list(effect.means) for effect in ranked_effects(effects)}
        summary = {"model": model, "rows": len(rows), "rows_without_partner": left_out}
        click.echo(json.dumps({**summary, "mean_abs": means, "out": str(out)}))
        return
    plain_console().print(_effect_table(effects))
    click.echo(f"{plural(len(rows), 'row')} explained: {out}")
    if left_out:
        click.echo(f"{plural(left_out, 'row')} are not in every party's table")


def _needed_data(shelves: Shelves, merged: Whole, data: dict[str, str]) -> dict[str, str]:
    """Return the data that the model needs by party, guest first; a ConfigError for others."""
    if kinds.kind_of(merged.facts).is_whole:
        if len(data) > 1:
            raise ConfigError(
                f"--data names {len(data)} parties, but a whole model explains the rows of one "
                "party",
                todo="give one --data, and run the command for each party's rows",
            )
        (party,) = data
        shelves.shard(merged.facts["job"], party)
        return data
    splits = "on whose columns the model splits", "on whose columns the model does not split"
    return data_in_order(data, parties(merged), splits)


def _read_tables(
    shelves: Shelves, merged: Whole, wanted: dict[str, str]
) -> tuple[dict[str, Frame], pa.Table]:
    """Return each party's table, and the ids of the first one's."""
    frames, ids = {}, []
    for party, name in wanted.items():
        source = source_of(shelves, party, name)
        chosen = selection_of(party_facts(merged, party))
        frame, cells = load_with_ids(source, chosen, party=party, needs_features=False)
        frames[party] = frame
        ids.append(cells)
    return frames, ids[0]


def _contribution_table(
    ids: pa.Table, rows: NDArray[np.int64], explained: Contributions, names: list[str]
) -> pa.Table:
    columns = id_columns(ids, rows)
    outputs = explained.shape[1]
    for place, name in enumerate([*names, BIAS]):
        for output in range(outputs):
            free = free_name(name if outputs == 1 else f"{name}_{output}", columns)
            columns[free] = pa.chunked_array([pa.array(explained[:, output, place])])
    return pa.table(columns)


def _column_effects(merged: Whole, explained: Contributions) -> list[Effect]:
    means = np.abs(explained[:, :, :-1]).mean(axis=0, dtype=np.float64).T
    return [
        Effect(name, tuple(mean), party)
        for name, mean, (party, _) in zip(
            feature_names(merged), means.tolist(), merged.columns, strict=True
        )
    ]


def _effect_table(effects: list[Effect]) -> Table:
    table = Table("column", "mean |contribution|", box=box.SIMPLE_HEAD)
    for effect in ranked_effects(effects)[:LISTED]:
        table.add_row(Text(printable(effect.name)), f"{effect.total:.4g}")
    return table


@model_group.command("picture")
@click.argument("model", metavar="ID", shell_complete=models_here)
@click.option("--tree", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
              help="Number of the tree, from 0.")  # fmt: skip
@click.option("--format", "kind", type=click.Choice(["svg", "dot"]),
              help="SVG or Graphviz DOT.  [default: by the name of --out, else svg]")  # fmt: skip
@click.option("--depth", type=click.IntRange(min=1), default=trees.DEPTH, show_default=True,
              help="Layers of splits; one node summarises each deeper part.")  # fmt: skip
@click.option("--whole", "is_whole", is_flag=True,
              help="Show the splits of all owners, if all of them are here.")  # fmt: skip
@RELEASED
@PARTY
@click.option("--out", type=FILE, help="The file to write.  [default: ID-treeN.svg]")
@store_options
@JSON
def picture(
    model: str, tree: int, depth: int, as_json: bool, shelves: Shelves, **given: Any
) -> None:
    """Draw one tree of a model, as one party knows it.

    \b
      fedboost model picture ID --tree 3
      fedboost model picture ID --tree 3 --format dot | dot -Tpng > tree.png
      fedboost model picture ID --config bank.yaml --with telco.json --out tree.svg

    The guest of a vertical model knows every node and the conditions of its own splits: a split of
    another party is drawn with that party's name, without its column. A host knows only its own
    splits. With the releases of all hosts (--with), or --whole in a local cluster, everything is
    drawn.
    """
    out, kind = given["out"], given["kind"]
    kind = kind or ("dot" if out is not None and out.suffix in (".dot", ".gv") else "svg")
    model = shelves.named(model)
    if out is None and kind == "svg":
        out = Path(f"{model}-tree{tree}.svg")
    known = _known_tree(shelves, model, tree, given)
    drawn = (
        trees.tree_svg(known, model, depth)
        if kind == "svg"
        else trees.tree_dot(known, model, depth)
    )
    if out is None:
        click.echo(drawn, nl=False)
        return
    check_folder(out)
    write_file(out, drawn.encode(), PUBLIC_MODE)
    summary = {"model": model, "tree": tree, "format": kind, "out": str(out)}
    click.echo(json.dumps(summary) if as_json else str(out))


def _known_tree(shelves: Shelves, model: str, tree: int, given: dict[str, Any]) -> Picture:
    """Return the tree as one party knows it, or the whole tree."""
    if given["released"] or given["is_whole"]:
        if given["party"]:
            raise click.UsageError(
                "--party shows the tree as one party knows it: leave --with and --whole out"
            )
        return branches.picture_of_whole(whole_model(shelves, model, given["released"]), tree)
    shard = shelves.shard(model, given["party"])
    return kinds.kind_of(shard.facts).picture(shard, tree)
