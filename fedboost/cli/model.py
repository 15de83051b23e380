"""`fedboost model`: list, show, use, export and delete the models in local stores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from rich import box
from rich.table import Table
from rich.text import Text

from fedboost.cli.complete import models_here
from fedboost.cli.connect import JSON, YES, CoordinatorAccess, connection_options
from fedboost.cli.groups import model_group
from fedboost.cli.predicting import PredictionRequest, Target, predict_alone, predict_by_job
from fedboost.cli.shelves import PARTY, Shelves, parse_pairs, store_options
from fedboost.ground.printable import printable
from fedboost.model import kinds
from fedboost.model.kinds.kind import ImportanceShare, SharedRule
from fedboost.report import units
from fedboost.report.consoles import plain_console

TREES_SHOWN = 2
RULES_SHOWN = 10
LIST_WIDTH = 160
TABLE_HEADS = (
    "model", "name", "protocol", "role", "trees", "objective", "validation", "created",
)  # fmt: skip


@model_group.command("list")
@store_options
@JSON
def list_models(shelves: Shelves, as_json: bool) -> None:
    """List every model with a shard here.

    \b
      fedboost model list --config configs/party-bank.yaml
      fedboost model list --cluster fedboost-cluster --json
    """
    models = []
    for model in shelves.models():
        holders = shelves.holders(model)
        facts = next(iter(holders.values()))
        models.append(kinds.kind_of(facts).summary(facts) | {"here": list(holders)})
    if as_json:
        click.echo(json.dumps({"models": models}))
        return
    if not models:
        click.echo("no models")
        return
    table = Table(*TABLE_HEADS, box=box.SIMPLE_HEAD)
    for shown in models:
        role = f"{shown['role']} ({shown['party']})"
        cells = (shown["model"], shown["name"], shown["protocol"], role, str(shown["trees"]))
        validation = _metrics_in_words(shown["metrics"].get("validation", {}))
        more = (shown["objective"], validation, shown["created"])
        table.add_row(*(Text(printable(cell)) for cell in (*cells, *more)))
    console = plain_console()
    console.width = max(console.width, LIST_WIDTH)  # a terminal wraps better than cells do
    console.print(table)


@model_group.command("show")
@click.argument("model", metavar="ID", shell_complete=models_here)
@click.option("--trees", type=click.IntRange(min=0), default=TREES_SHOWN, show_default=True,
              help="Number of trees, or of rounds of networks, to print.")  # fmt: skip
@click.option("--tree", type=click.IntRange(min=0), metavar="N",
              help="Print this tree alone, counted from 0.")  # fmt: skip
@PARTY
@store_options
@JSON
def show(
    model: str, trees: int, tree: int | None, party: str | None, as_json: bool, shelves: Shelves
) -> None:
    """Show facts, importance and the first trees of a model, as one party knows it.

    \b
      fedboost model show credit-1a2b3c4d --config configs/party-bank.yaml --trees 1
    """
    shard = shelves.shard(shelves.named(model), party)
    kind = kinds.kind_of(shard.facts)
    facts, shares = kind.summary(shard.facts), kind.importance(shard)
    if tree is not None:
        kind.check_tree(shard.facts, tree)
        trees = 1
    lines = kind.tree_lines(shard, trees, first=tree or 0)
    if as_json:
        listed = [asdict(share) for share in shares]
        click.echo(json.dumps({**facts, "importance": listed, "text": lines}))
        return
    for name in ("model", "name", "protocol", "role", "objective", "rounds", "trees", "created"):
        if facts[name] != "" and (name != "trees" or facts["trees"]):
            click.echo(f"{name + ':':12}{facts[name]}")
    click.echo(f"{'parties:':12}{facts['guest']} (guest), {', '.join(facts['hosts'])}")
    owner = "every party, which holds the whole model" if facts["whole"] else facts["party"]
    columns = len(facts["columns"]) or "any number, sparse,"
    click.echo(f"{'columns:':12}{columns} of {owner}")
    if "outputs" in facts:
        size = sum(array.nbytes for array in shard.arrays.values())
        click.echo(
            f"{'networks:':12}{facts['outputs']} outputs each, {units.in_bytes(size)} in all"
        )
    for split, values in facts["metrics"].items():
        click.echo(f"{split + ':':12}{_metrics_in_words(values)}")
    if "outputs" not in facts:
        plain_console().print(_importance_table(shares))
    for line in lines:
        click.echo(printable(line))


@model_group.command("rules")
@click.argument("model", metavar="ID", shell_complete=models_here)
@click.option("--columns", metavar="A,B,…",
              help="Only rules with one of these columns.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=1), default=RULES_SHOWN, show_default=True,
              help="Number of rules to print.")  # fmt: skip
@store_options
@JSON
def rules(model: str, columns: str | None, top: int, shelves: Shelves, as_json: bool) -> None:
    """Show the split rules that most trees of a model share.

    \b
      fedboost model rules credit-1a2b3c4d --columns age,income --top 5

    A rule is the set of conditions on the path to a leaf: rows that satisfy it get one value from
    the tree. Two rules are equal if they have the same conditions on the same columns, in any
    order.

    Of a vertical model the guest knows only the rules of its own columns; a line below the table
    counts the leaves with other rules. A model that every party holds whole shows all rules.
    """
    model = shelves.named(model)
    kind = kinds.kind_of(shelves.facts(model))
    known = shelves.shard(model) if kind.is_whole else shelves.guest_shard(model)
    names = None if columns is None else columns.split(",")
    rules, unknown = kind.shared_rules(known, names)
    if as_json:
        listed = [asdict(rule) for rule in rules[:top]]
        click.echo(json.dumps({"model": model, "rules": listed, "unknown_leaves": unknown}))
        return
    if rules:
        plain_console().print(_rules_table(rules[:top]))
    else:
        click.echo("no rules")
    if unknown:
        click.echo(f"{unknown} leaves lie below splits of other parties: their rules are not known")


@model_group.command("predict")
@click.argument("model", metavar="ID", shell_complete=models_here)
@click.option("--data", multiple=True, required=True, metavar="PARTY=…",
              help="Once for each party (of a whole model, for one): a file; "
              "with --config a declared data set.")  # fmt: skip
@Target.options
@store_options
@connection_options
@JSON
def predict(
    model: str,
    data: tuple[str, ...],
    target: Target,
    as_json: bool,
    shelves: Shelves,
    coordinator: CoordinatorAccess,
) -> int:
    """Score rows with a model: the guest's table selects the rows, the hosts contribute their
    columns.

    \b
      fedboost model predict latest --data bank=new.parquet --data telco=b.parquet --out P.parquet

    A model is its id, the job's name for its newest model, or latest.

    With --cluster DIR, --data are files, and the command starts the daemons of that local cluster.
    With --config of the guest, --data are data sets that the parties have declared, and
    --coordinator leads running daemons.

    A model that every party holds whole scores the rows of one --data, a party whose store is
    here; nobody else takes part, and no daemon is needed.
    """
    model = shelves.named(model)
    if kinds.kind_of(shelves.facts(model)).is_whole:
        if coordinator.address or coordinator.tls:
            raise click.UsageError(
                "a whole model predicts here, without a coordinator: leave "
                "--coordinator and --tls out"
            )
        return predict_alone(shelves, model, parse_pairs("--data", data), target, as_json=as_json)
    wish = PredictionRequest.of(shelves.guest_shard(model), parse_pairs("--data", data), target)
    return predict_by_job(wish, shelves, coordinator).print_outcome(as_json=as_json)


@model_group.command("delete")
@click.argument("model", metavar="ID", shell_complete=models_here)
@YES
@store_options
@JSON
def delete(model: str, yes: bool, shelves: Shelves, as_json: bool) -> int:
    """Delete a model's shards here, and its job's disclosure; other parties keep theirs.

    \b
      fedboost model delete credit-1a2b3c4d --config configs/party-bank.yaml

    The daemon may run. The command refuses to delete a model that an unfinished job needs.
    """
    model = shelves.named(model)
    holders = list(shelves.holders(model))
    if not yes and not click.confirm(f"delete {model} of {', '.join(holders)}?", err=True):
        click.echo("nothing was deleted", err=True)
        return 1
    for party in holders:
        shelves.delete(model, party)
    summary, text = {"model": model, "deleted": holders}, f"{model} is deleted at "
    click.echo(json.dumps(summary) if as_json else text + ", ".join(holders))
    return 0


def _importance_table(shares: Sequence[ImportanceShare]) -> Table:
    table = Table("importance", "splits", "gain", box=box.SIMPLE_HEAD)
    for share in shares:
        gain = "unknown" if share.gain is None else f"{share.gain:.4g}"
        name = printable(share.column) or f"all of {share.party}"
        table.add_row(Text(name), str(share.splits), gain)
    return table


def _rules_table(rules: Sequence[SharedRule]) -> Table:
    table = Table("rule", "trees", "share", box=box.SIMPLE_HEAD)
    for rule in rules:
        words = " and ".join(printable(condition) for condition in rule.rule)
        table.add_row(Text(words), str(len(rule.trees)), f"{rule.share:.0%}")
    return table


def _metrics_in_words(values: dict[str, Any]) -> str:
    words = (f"{name} {'unknown' if v is None else format(v, '.4f')}" for name, v in values.items())
    return ", ".join(words)
