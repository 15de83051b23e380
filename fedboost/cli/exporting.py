"""`fedboost model export`, `release` and `fetch`: models as files, and consent to a merged one."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from fedboost.cli.complete import models_here
from fedboost.cli.connect import (
    DAEMON,
    DIRECTORY,
    JSON,
    OUT,
    TLS,
    YES,
    check_folder,
    own_daemon_settings,
    run_coroutine,
)
from fedboost.cli.groups import model_group
from fedboost.cli.shelves import PARTY, RELEASED, Shelves, open_shelves, store_options, whole_model
from fedboost.ground.disk import PUBLIC_MODE, SECRET_MODE, write_file
from fedboost.ground.printable import printable
from fedboost.ground.settings import load_settings
from fedboost.model import kinds, shards
from fedboost.model.shards import Packed
from fedboost.model.xgboost_json import xgboost_json
from fedboost.report.units import plural
from fedboost.runtime.client.client import Owner
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.party.owner import model_store, releases
from fedboost.runtime.party.owner.releases import Release


@model_group.command("export")
@click.argument("model", metavar="ID", shell_complete=models_here)
@click.option("--format", "kind", type=click.Choice(["xgboost-json", "json"]),
              default="xgboost-json", show_default=True,
              help="The whole model for XGBoost, or one party's own shard.")  # fmt: skip
@RELEASED
@PARTY
@OUT
@store_options
@JSON
def export(model: str, kind: str, out: Path, as_json: bool, shelves: Shelves, **given: Any) -> None:
    """Write a model to a file.

    \b
      fedboost model export ID --config bank.yaml --with telco.json --with shop.json --out M.json
      fedboost model export ID --config telco.yaml --format json --out own.json

    A vertical model is whole only with the splits of all its owners: each host that consents runs
    `fedboost model release ID --to GUEST` and gives the file to the guest, which names it in
    --with. Without every owner's file the export is refused. A model that every party holds whole
    needs no consent, and in a local cluster every store is here.
    """
    model = shelves.named(model)
    if kind == "json":
        if given["released"]:
            raise click.UsageError("--with requires --format xgboost-json")
        shard = shelves.shard(model, given["party"])
        text = kinds.kind_of(shard.facts).exported(shard)
    else:
        if given["party"]:
            raise click.UsageError("--party requires --format json")
        text = xgboost_json(whole_model(shelves, model, given["released"]))
    write_file(out, text.encode(), PUBLIC_MODE)
    summary = {"model": model, "format": kind, "out": str(out)}
    click.echo(json.dumps(summary) if as_json else str(out))


@model_group.command("release")
@click.argument("model", metavar="ID", shell_complete=models_here)
@DAEMON
@click.option("--to", "receiver", required=True, metavar="PARTY", help="The model's guest.")
@YES
@OUT
@JSON
def release(model: str, config: Path, receiver: str, yes: bool, out: Path, as_json: bool) -> int:
    """Consent to a merged model: write this party's splits, signed, for the model's guest.

    \b
      fedboost model release ID --config telco.yaml --to bank --out telco.json

    The file tells the guest which columns the splits are on, and their thresholds and categories.
    It is signed with the party's certificate, names the model and the guest, and stands in the
    party's ledger: fedboost ledger show. A consent that has been given cannot be taken back.
    """
    check_folder(out)
    shelves = open_shelves(config, None)
    assert shelves.config is not None
    party, model = shelves.config, shelves.named(model)
    with closing(Ledger(party.store / "store.sqlite")) as ledger:
        drafted = releases.draft_release(party, shelves.shard(model), receiver, ledger)
        if not as_json or not yes:
            click.echo(_release_in_words(drafted), err=True)
        if not yes and not click.confirm(f"release them to {receiver}?", err=True):
            click.echo("nothing was released", err=True)
            return 1
        released = releases.sign_release(party, drafted, ledger)
    write_file(out, released.file_bytes, SECRET_MODE)
    names = {"model": model, "party": party.name, "receiver": receiver, "out": str(out)}
    summary = {**names, "splits": len(drafted.shard.splits)}
    click.echo(json.dumps(summary) if as_json else str(out))
    return 0


def _release_in_words(drafted: Release) -> str:
    """Describe the content of the file, for the owner's decision."""
    counts = Counter(split.column for split in drafted.shard.splits)
    listed = [f"{printable(name)} ({count})" for name, count in counts.most_common()]
    splits = plural(len(drafted.shard.splits), "split")
    head = f"{drafted.party} would give {drafted.receiver} {splits} of {drafted.model}"
    return "\n".join([f"{head}, by column:" if listed else f"{head}.", *(f"  {x}" for x in listed)])


@model_group.command("fetch")
@click.argument("model", metavar="MODEL")
@DAEMON
@TLS
@click.option("--out", type=DIRECTORY, required=True, metavar="DIR",
              help="The shard becomes the folder ID in it.")  # fmt: skip
@JSON
def fetch(model: str, config: Path, tls: Path | None, out: Path, as_json: bool) -> None:
    """Copy the party's own shard of a model from its running daemon.

    \b
      fedboost model fetch ID --config party-bank.yaml --tls certs/ana --out models

    A model is its id, the job's name for its newest model, or latest. Only users that the party's
    policy names as approvers may do this; the ledger records each copy. From Python:
    `fedboost.sdk.load_model("models/ID")`.
    """
    client = own_daemon_settings(load_settings(PartyConfig, config), tls)

    async def fetch_shard() -> tuple[str, Packed]:
        async with Owner(client) as owner:
            held = (await owner.models()).models
            id_ = shards.resolve_model(
                model, {release.id: (release.name, release.created) for release in held}
            )
            return id_, await owner.fetch_model(id_)

    id_, packed = run_coroutine(fetch_shard())
    folder = model_store.write_shard(out, id_, packed)
    click.echo(json.dumps({"model": id_, "out": str(folder)}) if as_json else str(folder))
