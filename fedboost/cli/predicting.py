"""Scoring of rows for `fedboost model predict`: by a job on a local cluster or running daemons.

A model that every party holds whole needs no job: `predict_alone` scores one party's rows here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq

from fedboost import protocols
from fedboost.cli.cluster import read_sources, run_job
from fedboost.cli.connect import TABLE_OUT, CoordinatorAccess
from fedboost.cli.outcome import follow_job, print_outcome
from fedboost.cli.shelves import Shelves, data_in_order
from fedboost.data.predictions import unknown_note, unknown_shares
from fedboost.data.sources import SourceSpec
from fedboost.data.table_files import write_tables
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError
from fedboost.ground.printable import printable
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobJournal
from fedboost.model import kinds
from fedboost.model.batches import batch_rows
from fedboost.model.scoring import score_table
from fedboost.model.unknown_categories import UNKNOWN_MAX
from fedboost.report import units
from fedboost.report.progress import LINE_EVERY_S
from fedboost.runtime.client.client import CoordinatorClient, result_of
from fedboost.runtime.cluster.local import DATASET
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.store.rows_in_common import RowsInCommon

UNKNOWN_SHARE = click.option(
    "--unknown-max",
    type=click.FloatRange(0, 1),
    default=UNKNOWN_MAX,
    show_default=True,
    help="Share of a column's values that may be categories which the model does not know.",
)
NAME_PREFIX_CHARS_MAX = 63 - len("-predict")  # of a job's name


@dataclass(frozen=True)
class Target:
    """Where predictions go, and how many unknown categories they may rest on."""

    out: Path
    unknown_max: float = UNKNOWN_MAX  # share of a column's values

    @property
    def params(self) -> dict[str, Any]:
        """Return what the job says of it, beside defaults."""
        return {} if self.unknown_max == UNKNOWN_MAX else {"unknown_max": self.unknown_max}

    @staticmethod
    def options(command: Callable[..., Any]) -> Callable[..., Any]:
        """Add `--out` and `--unknown-max` to a command, and pass it the `target` that they name."""

        @wraps(command)
        def aimed(*, out: Path, unknown_max: float, **given: Any) -> Any:
            return command(**given, target=Target(out, unknown_max))

        return TABLE_OUT(UNKNOWN_SHARE(aimed))


@dataclass(frozen=True)
class PredictionRequest:
    """A prediction to make: a model, each party's data, and where the answer goes."""

    facts: dict[str, Any]  # of the guest's shard
    data: dict[str, str]  # by party: a file or a data set's name
    target: Target

    @classmethod
    def of(cls, guest: Artefact, data: dict[str, str], target: Target) -> PredictionRequest:
        """Check that `data` names exactly the parties of the model; raise ConfigError otherwise."""
        parties = [guest.facts["guest"], *guest.facts["hosts"]]
        part = "which has a part in the model", "which has no part in the model"
        data = data_in_order(data, parties, part)
        return cls(guest.facts, data, target)

    @property
    def out(self) -> Path:
        """Return the file of the answer."""
        return self.target.out

    @property
    def guest(self) -> str:
        """The party that gets the predictions."""
        return self.facts["guest"]

    @property
    def model(self) -> str:
        """Return the model's id, equal to the id of its training job."""
        return self.facts["job"]

    def job(self, datasets: dict[str, str]) -> JobSpec:
        """Return the prediction job; every party keeps the id columns of the training."""
        ids = self.facts.get("ids", {})
        data = {
            party: {"dataset": name, "id": ids.get(party, ["id"])}
            for party, name in datasets.items()
        }
        kind = kinds.kind_of(self.facts)
        params = {**kind.scoring_params(self.facts), **self.target.params}
        raw = {
            "name": f"{self.facts['name'][:NAME_PREFIX_CHARS_MAX]}-predict",
            "protocol": kind.scored_by,
            "parties": {"guest": self.guest, "hosts": self.facts["hosts"]},
            "data": data,
            "params": {"model": self.model, **params},
        }
        return parse_settings(JobSpec, raw)

    def batch_rows(self, job: JobSpec) -> int:
        """Return the number of rows that such a job scores at once."""
        params: Any = parse_settings(
            protocols.load_protocol(job.protocol).params, job.params, section="params"
        )
        return batch_rows(params.batch_rows, self.facts)


@dataclass(frozen=True)
class Scored:
    """A prediction job's outcome."""

    wish: PredictionRequest
    journal: JobJournal
    result: dict[str, Any]  # empty unless it finished
    table_rows: int  # of the guest's table
    unknown: dict[str, float]  # by column the share of categories that the model does not know

    def print_outcome(self, *, as_json: bool) -> int:
        """Print the result or the error; return the exit code."""
        if not self.result:
            return print_outcome(self.journal, self.result, as_json=as_json)
        if as_json:
            summary = {"job": self.result["job"], "model": self.wish.model, "rows": self.rows}
            more = {"rows_without_partner": self.rows_without_partner, "out": str(self.wish.out)}
            unknown = {"unknown_categories": self.unknown}
            warned = {"warnings": self.result.get("warnings", [])}
            click.echo(json.dumps(summary | more | unknown | warned))
            return 0
        click.echo(f"{self.rows} rows predicted: {self.wish.out}")
        say_unknown(self.unknown)
        if self.rows_without_partner:
            click.echo(
                f"{self.rows_without_partner} rows of {self.wish.guest}'s table are not predicted: "
                "their ids are not at every host"
            )
        return 0

    @property
    def rows(self) -> int:
        """Return the number of rows that a finished job has predicted."""
        return self.result["rows"]["predicted"]

    @property
    def rows_without_partner(self) -> int:
        """The rows of the guest's table that were not."""
        return self.table_rows - self.rows


def predict_by_job(
    wish: PredictionRequest, shelves: Shelves, coordinator: CoordinatorAccess
) -> Scored:
    """Run a prediction job: on running daemons if a party's settings are given, otherwise here."""
    if shelves.config is not None:
        return predict_over_daemons(wish, shelves.config, coordinator)
    assert shelves.cluster is not None
    return predict_in_cluster(wish, shelves.cluster)


def predict_in_cluster(wish: PredictionRequest, folder: Path) -> Scored:
    """Start the cluster in `folder` again for the model's parties; `data` are files."""
    sources = read_sources(tuple(f"{party}={path}" for party, path in wish.data.items()))
    spec = wish.job(dict.fromkeys(sources, DATASET))
    journal, result = run_job(spec, sources, folder, batch_rows=wish.batch_rows(spec))
    return _copy_predictions(wish, journal, result, folder / "var" / wish.guest)


def predict_over_daemons(
    wish: PredictionRequest, config: PartyConfig, coordinator: CoordinatorAccess
) -> Scored:
    """Predict on running daemons; `data` are data sets that the parties have declared.

    `config` is the guest's, whose store must be on this machine.
    """
    dataset = wish.data[wish.guest]
    if dataset not in config.datasets:
        raise ConfigError(
            f"{wish.guest} has declared no data set {dataset!r}",
            todo=f"its data sets are: {', '.join(config.datasets) or 'none'}",
        )
    spec = wish.job(wish.data)

    async def run_prediction(client: CoordinatorClient) -> JobJournal:
        job = await client.submit(spec.model_dump_json().encode())
        await follow_job(client, job, batch_rows=wish.batch_rows(spec))
        return await client.journal(job)

    journal = coordinator.call_coordinator(run_prediction)
    return _copy_predictions(wish, journal, result_of(journal), config.store)


def predict_alone(
    shelves: Shelves, model: str, data: dict[str, str], target: Target, *, as_json: bool
) -> int:
    """Score a party's rows with a model that it holds whole; return the exit code.

    `data` names one party with a file or a data set of its settings file. Raise ConfigError if it
    names several parties, or one without a shard here; raise DataError for a table that lacks a
    column of the model, or has it with another type.
    """
    out = target.out
    if len(data) > 1:
        raise ConfigError(
            f"--data names {len(data)} parties, but a whole model scores the rows of one at a time",
            todo="give one --data, and run the command for each party's rows",
            model=model,
        )
    ((party, name),) = data.items()
    source = source_of(shelves, party, name)
    shard, pace = shelves.shard(model, party), Pace()
    scored = score_table(shard, source, out, unknown_max=target.unknown_max, tell=pace, party=party)
    pace.end(scored.rows)
    if as_json:
        summary = {"job": None, "model": model, "rows": scored.rows}
        more = {"unknown_categories": scored.unknown.shares}
        click.echo(json.dumps(summary | {"rows_without_partner": 0, "out": str(out)} | more))
    else:
        click.echo(f"{scored.rows} rows predicted: {out}")
        say_unknown(scored.unknown.shares)
    return 0


def say_unknown(shares: dict[str, float]) -> None:
    """Print the shares of categories that the model does not know, by column."""
    for column, share in shares.items():
        click.echo(
            f"warning: {100 * share:.3g} % of the values of {printable(column)} are categories "
            "that the model does not know; it reads them as missing",
            err=True,
        )


class Pace:
    """Printer of rows per second, every LINE_EVERY_S seconds and at the end."""

    def __init__(self) -> None:
        self._began = self._said_at = time.monotonic()

    def __call__(self, done: int, of: int) -> None:
        """Hear that so many rows are done."""
        now = time.monotonic()
        if now - self._said_at >= LINE_EVERY_S:
            self._said_at = now
            _print_pace(done, now - self._began, of)

    def end(self, rows: int) -> None:
        """Print the total time."""
        _print_pace(rows, time.monotonic() - self._began)


def _print_pace(rows: int, seconds: float, of: int = 0) -> None:
    """Print rows a second: of rows that are done, or all."""
    count = f"{units.in_count(rows)} of {units.in_count(of)} rows" if of else ""
    words = count or f"{units.plural(rows, 'row')} in {units.in_seconds(seconds)}"
    rate = units.in_count(round(rows / max(seconds, 1e-9)))
    click.echo(f"{words}, {rate} a second", err=True)


def source_of(shelves: Shelves, party: str, name: str) -> SourceSpec:
    """Return the data set of that name in the party's settings file, otherwise the file."""
    config = shelves.config
    declared = config.datasets if config is not None and config.name == party else {}
    if name in declared:
        return declared[name]
    if declared and not Path(name).is_file():
        raise ConfigError(
            f"{name!r} is neither a file nor a data set that {party} has declared",
            todo=f"its data sets are: {', '.join(declared)}",
            party=party,
        )
    return read_sources((f"{party}={name}",))[party]


def _copy_predictions(
    wish: PredictionRequest, journal: JobJournal, result: dict[str, Any], store: Path
) -> Scored:
    """Write the predictions in the guest's store to the output file."""
    if not result:
        return Scored(wish, journal, result, 0, {})
    path = store / "predictions" / f"{result['job']}.parquet"
    unknown = unknown_shares(path)
    with pq.ParquetFile(path) as kept:
        tables = chain([kept.schema_arrow.empty_table()], map(pa.table, kept.iter_batches()))
        write_tables(wish.out, tables, lambda: unknown_note(unknown))
    table_rows = RowsInCommon(store).table_rows(result["job"])
    scored = Scored(wish, journal, result, table_rows, unknown)
    _print_pace(scored.rows, result["seconds"]["total"])
    return scored
