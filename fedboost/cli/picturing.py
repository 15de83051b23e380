"""`fedboost model picture`: one tree of a model, drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fedboost.cli.complete import models_here
from fedboost.cli.connect import JSON
from fedboost.cli.groups import model_group
from fedboost.cli.predicting import check_folder
from fedboost.cli.shelves import PARTY, RELEASED, Shelves, open_shelves, stores, whole_model
from fedboost.disk import PUBLIC_MODE, write_file
from fedboost.model import branches, kinds
from fedboost.model.branches import Picture
from fedboost.report import trees


@model_group.command("picture")
@click.argument("model", metavar="ID", shell_complete=models_here)
@click.option("--tree", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
              help="Which tree, counted from 0.")  # fmt: skip
@click.option("--format", "kind", type=click.Choice(["svg", "dot"]),
              help="SVG or Graphviz DOT.  [default: by the name of --out, else svg]")  # fmt: skip
@click.option("--depth", type=click.IntRange(min=1), default=trees.DEPTH, show_default=True,
              help="Layers of splits; what lies below is told in one node.")  # fmt: skip
@click.option("--whole", "is_whole", is_flag=True,
              help="What every owner's splits ask, where all of them are here.")  # fmt: skip
@RELEASED
@PARTY
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False),
              help="The file to write.  [default: ID-treeN.svg]")  # fmt: skip
@stores
@JSON
def picture(model: str, tree: int, depth: int, as_json: bool, **given: Any) -> None:
    """Draw one tree of a model, as one party knows it.

    \b
      fedboost model picture ID --tree 3
      fedboost model picture ID --tree 3 --format dot | dot -Tpng > tree.png
      fedboost model picture ID --config bank.yaml --with telco.json --out tree.svg

    The guest of a vertical model knows every node and what its own splits ask: a split of another
    party is drawn as that party's, without its column. A host knows its own splits alone. With
    the releases of all hosts (--with), or --whole in a local cluster, everything is drawn.
    """
    out, kind = given["out"], given["kind"]
    kind = kind or ("dot" if out is not None and out.suffix in (".dot", ".gv") else "svg")
    shelves = open_shelves(given["config"], given["cluster"])
    model = shelves.named(model)
    if out is None and kind == "svg":
        out = Path(f"{model}-tree{tree}.svg")
    known = _known(shelves, model, tree, given)
    drawn = trees.svg(known, model, depth) if kind == "svg" else trees.dot(known, model, depth)
    if out is None:
        click.echo(drawn, nl=False)
        return
    check_folder(out)
    write_file(out, drawn.encode(), PUBLIC_MODE)
    said = {"model": model, "tree": tree, "format": kind, "out": str(out)}
    click.echo(json.dumps(said) if as_json else str(out))


def _known(shelves: Shelves, model: str, tree: int, given: dict[str, Any]) -> Picture:
    """The tree as the party that is meant knows it."""
    if given["released"] or given["is_whole"]:
        if given["party"]:
            raise click.UsageError("--party shows what one party knows: leave --with, --whole out")
        return branches.of_whole(whole_model(shelves, model, given["released"]), tree)
    shard = shelves.shard(model, given["party"])
    return kinds.of(shard.facts).picture(shard, tree)
