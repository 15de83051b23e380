"""Bags on the command line: rows scored by several models, and files of predictions made one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq

from fedboost.cli.connect import CoordinatorAccess
from fedboost.cli.predicting import PredictionRequest, check_folder, scored_by_job
from fedboost.cli.shelves import Shelves, refuse_others
from fedboost.data.predictions import Predictions, parted, write_parquet
from fedboost.data.reading import read_table
from fedboost.data.sources import SourceSpec
from fedboost.flow import GUEST, Artefact
from fedboost.ground import wire
from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.model import bag, kinds
from fedboost.model.bag import By, Kind


@dataclass(frozen=True)
class Bag:
    """The models that score which data, and where their predictions go."""

    models: tuple[str, ...]
    data: dict[str, str]  # by party: a file or a data set's name
    by: By
    out: Path


def predict(wanted: Bag, shelves: Shelves, coordinator: CoordinatorAccess, *, as_json: bool) -> int:
    """Score rows with each model and bag their predictions; return the exit code.

    A ConfigError for models that do not fit each other, that are not here, or that need no job,
    and for data of strangers; nothing is scored then.
    """
    check_folder(wanted.out)
    shards = _shards(wanted, shelves, coordinator)
    bag.check_alike([_kind(model, shard) for model, shard in shards.items()], wanted.by)
    parts, summaries = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for wish in _wishes(wanted, shards, Path(scratch)):
            scored = scored_by_job(wish, shelves, coordinator)
            if not scored.result:
                return scored.conclude(as_json=as_json)
            if not as_json:
                scored.tell(f"by {wish.model}")
            summaries.append(scored.said())
            parts.append(parted(pq.read_table(wish.out), wish.model))
    rows = _write(wanted.out, parts, wanted.by)
    _tell(wanted, rows, summaries, as_json=as_json)
    return 0


def join(files: Sequence[Path], by: By, out: Path, *, as_json: bool) -> None:
    """Bag files of predictions, each named once; a ConfigError or DataError says which cannot."""
    check_folder(out)
    if len(set(files)) < max(2, len(files)):
        raise ConfigError(
            "a bag needs two files of predictions at least, each named once",
            todo="fedboost model bag P1.parquet P2.parquet --out P.parquet",
        )
    ends = [file.name for file in files]
    names = ends if len(set(ends)) == len(ends) else [str(file) for file in files]
    tables = [read_table(SourceSpec(path=str(file), format="parquet")) for file in files]
    parts = [parted(table, name) for table, name in zip(tables, names, strict=True)]
    rows = _write(out, parts, by)
    summaries = [{"file": str(f), "rows": len(p.values)} for f, p in zip(files, parts, strict=True)]
    _tell(Bag((), {}, by, out), rows, summaries, as_json=as_json)


def _write(out: Path, parts: Sequence[Predictions], by: By) -> int:
    """Write the bagged predictions to the file; return how many rows it has."""
    return write_parquet(out, [bag.bagged(parts, by)])


def _tell(wanted: Bag, rows: int, summaries: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print how many rows were bagged; `summaries` has each model's part of the JSON object."""
    if as_json:
        summary = {"bag": wanted.by, "models": summaries, "rows": rows, "out": str(wanted.out)}
        click.echo(json.dumps(summary))
    else:
        click.echo(f"{rows} rows, the {wanted.by} of {len(summaries)} models: {wanted.out}")


def _wishes(wanted: Bag, shards: dict[str, Artefact], folder: Path) -> list[PredictionRequest]:
    """Return each model's prediction, into files of its own, from the data of its parties."""
    parties = {m: (held.facts["guest"], *held.facts["hosts"]) for m, held in shards.items()}
    known = sorted({party for shard in parties.values() for party in shard})
    refuse_others(wanted.data, known, "which has no part in the models")
    wishes = []
    for model, shard in shards.items():
        tables = {party: name for party, name in wanted.data.items() if party in parties[model]}
        wishes.append(PredictionRequest.of(shard, tables, folder / f"{model}.parquet"))
    return wishes


def _kind(model: str, shard: Artefact) -> Kind:
    facts = shard.facts
    ids = facts.get("ids", {}).get(facts["guest"], ["id"])
    return Kind(model, facts.get("objective", ""), len(facts["base_margin"]), tuple(ids))


def _shards(wanted: Bag, shelves: Shelves, coordinator: CoordinatorAccess) -> dict[str, Artefact]:
    """Return the guests' shards of the models, in their order."""
    models: dict[str, Artefact] = {}
    for text in wanted.models:
        if shelves.config is not None and not shelves.has(text):
            raise _elsewhere(text, wanted.out, _guest_of(text, coordinator))
        model = shelves.named(text)
        if model in models:
            raise ConfigError("the model is named twice", todo="name every model once", model=model)
        if kinds.of(shelves.facts(model)).is_whole:
            raise ConfigError(
                "every party holds the model whole, and no job scores rows with it",
                todo="predict with each model alone, then: fedboost model bag P1 P2 … --out P",
                model=model,
            )
        if shelves.config is not None and shelves.facts(model)["role"] != GUEST:
            raise _elsewhere(model, wanted.out, shelves.facts(model)["guest"])
        models[model] = shelves.guest_shard(model)
    return models


def _elsewhere(model: str, out: Path, guest: str | None) -> ConfigError:
    whose = "another guest" if guest is None else f"its guest {guest}"
    return ConfigError(
        f"the model lies at {whose}, whose predictions are its own to hand over",
        todo=f"predict with it there, and here with the others; then: "
        f"fedboost model bag P1.parquet P2.parquet --out {out.name}",
        model=model,
    )


def _guest_of(model: str, coordinator: CoordinatorAccess) -> str | None:
    """Return the guest whose job trained a model, if the coordinator can be asked and knows."""
    try:
        journal = coordinator.ask(lambda client: client.journal(model))
        parties = wire.json_object(journal.spec, "the job's settings").get("parties")
    except FedboostError:
        return None
    return parties.get("guest") if isinstance(parties, dict) else None
