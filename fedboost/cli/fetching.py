"""`fedboost model fetch`: an owner takes the own party's shard of a model from its daemon."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fedboost.cli.connect import JSON, own_daemon, run
from fedboost.cli.groups import model_group
from fedboost.model import shards
from fedboost.model.shards import Packed
from fedboost.runtime.client.owner import Owner
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.party import model_store
from fedboost.settings import load


@model_group.command("fetch")
@click.argument("model", metavar="MODEL")
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), required=True,
              metavar="PARTY.yaml", help="The party's settings file: its daemon.")  # fmt: skip
@click.option("--tls", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Folder with ca.pem and our NAME.pem and NAME.key.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True,
              metavar="DIR", help="The shard becomes the folder ID in it.")  # fmt: skip
@JSON
def fetch(model: str, config: Path, tls: Path | None, out: Path, as_json: bool) -> None:
    """Take the party's own shard of a model along, from its running daemon.

    \b
      fedboost model fetch ID --config party-bank.yaml --tls certs/ana --out models

    A model is its id, the job's name for its newest model, or latest. For users whom the party's
    policy names as approvers; the ledger says who took what. From Python:
    `fedboost.sdk.load_model("models/ID")`.
    """
    client = own_daemon(load(PartyConfig, config), tls)

    async def work() -> tuple[str, Packed]:
        async with Owner(client) as owner:
            held = (await owner.models()).models
            id_ = shards.meant(model, {one.id: (one.name, one.created) for one in held})
            return id_, await owner.fetch_model(id_)

    id_, packed = run(work())
    folder = model_store.keep(out, id_, packed)
    click.echo(json.dumps({"model": id_, "out": str(folder)}) if as_json else str(folder))
