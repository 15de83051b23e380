"""`fedboost cluster run` and `fedboost simulate`: a job and all it needs, on this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from fedboost import protocols
from fedboost.cli.connect import JSON, conclude, follow, result_of, run, write_report
from fedboost.data.sources import SourceSpec
from fedboost.errors import ConfigError, FedboostError
from fedboost.job import JobSpec, Parties
from fedboost.messages.job_pb2 import JobJournal
from fedboost.report.progress import Progress
from fedboost.runtime import local
from fedboost.runtime.client import Client
from fedboost.runtime.cluster import Cluster
from fedboost.runtime.coordinator import read_spec
from fedboost.runtime.workers import ProcessWorkers
from fedboost.settings import parse, read_yaml

FOLDER = Path("fedboost-cluster")  # where a local cluster keeps certificates, stores and models

DATA = click.option(
    "--data",
    "data",
    multiple=True,
    required=True,
    metavar="PARTY=FILE",
    help="A party's table; once for each party.",
)
DIR = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    show_default=True,
    help="Where certificates, stores, models and logs go.",
)


@click.group("cluster")
def cluster_group() -> None:
    """A whole local cluster of real daemons."""


@cluster_group.command("run")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@DATA
@DIR
@JSON
def run_cluster(file: Path, data: tuple[str, ...], folder: Path, as_json: bool) -> int:
    """Start a coordinator and every party of the job in FILE, run it, stop everything."""
    sources = read_sources(data)
    spec = complete(read_yaml(file), sources, file=str(file))
    journal, result = run_job(spec, sources, folder)
    return conclude(journal, result, as_json=as_json)


@click.command("simulate")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@DATA
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep stores and models here; absent: nothing is kept.",
)
@JSON
def simulate(file: Path, data: tuple[str, ...], folder: Path | None, as_json: bool) -> int:
    """Run the job in FILE with all parties in this process."""
    sources = read_sources(data)
    spec = complete(read_yaml(file), sources, file=str(file))
    if folder is None:
        _check_alone(spec, file=str(file))
    with tempfile.TemporaryDirectory() as scratch:
        journal = run(_simulated(spec, sources, folder or Path(scratch)))
        result = result_of(journal)
        if result and folder is not None:
            report = folder / "var" / spec.parties.guest / "reports" / f"{result['job']}.html"
            result["report"] = str(report)
        elif result:
            result["model"] = result["report"] = ""
        return conclude(journal, result, as_json=as_json)


def _check_alone(spec: JobSpec, **where: str) -> None:
    """Refuses a job that uses a model, or its disclosure, where no folder could hold one."""
    protocol = protocols.named(spec.protocol)
    params = parse(protocol.params, spec.params, section="params")
    model = protocol.used_model(params) or protocol.used_disclosure(params)
    if model is not None:
        raise ConfigError(
            f"the job uses the model {model}, and simulate begins with none",
            todo="give --dir, the folder in which the model was trained",
            **where,
        )


async def _simulated(spec: JobSpec, sources: Mapping[str, SourceSpec], folder: Path) -> JobJournal:
    with ProcessWorkers(len(os.sched_getaffinity(0))) as workers:
        async with local.cluster(
            folder, spec, sources, workers, write_report=write_report
        ) as cluster:
            with Progress(Console(stderr=True), spec.name) as progress:
                return await cluster.run(spec, progress.event)


def run_job(
    spec: JobSpec, sources: Mapping[str, SourceSpec], folder: Path
) -> tuple[JobJournal, dict[str, Any]]:
    """Runs a job on daemons of our own; gives its journal and, if it finished, its result."""
    with Cluster(folder, spec, sources) as cluster:
        journal = run(_followed(cluster, spec))
        result = result_of(journal)
        if result:
            guest = cluster.store(spec.parties.guest)
            result["report"] = str(guest / "reports" / f"{result['job']}.html")
        else:
            report = folder / f"{journal.status.id}.html"
            write_report(journal, str(report))
    return journal, result


async def _followed(cluster: Cluster, spec: JobSpec) -> JobJournal:
    async with Client(cluster.client, retry_s=10.0) as client:
        job = await client.submit(spec.model_dump_json().encode())
        try:
            await follow(client, job)
        except BaseException:
            await client.cancel(job)
            raise
        return await client.journal(job)


def read_sources(data: tuple[str, ...]) -> dict[str, SourceSpec]:
    """The tables of ``PARTY=FILE`` options; a ConfigError for a bad or doubled one."""
    sources: dict[str, SourceSpec] = {}
    for text in data:
        party, equals, path = text.partition("=")
        if not equals or not party or not path:
            raise ConfigError(f"--data {text!r} is not PARTY=FILE")
        if party in sources:
            raise ConfigError(f"--data names {party} twice")
        if not Path(path).is_file():
            raise ConfigError("there is no such file", party=party, file=path, todo="check --data")
        sources[party] = SourceSpec(path=path)
    return sources


def complete(raw: object, sources: Mapping[str, SourceSpec], **where: str) -> JobSpec:
    """The job with `data:` filled in from `--data`: data set, and the label `y` of the guest."""
    if not isinstance(raw, dict):
        raise ConfigError("expected keys and values", todo="see configs/job-credit.yaml", **where)
    job = dict(raw)
    stated = job.get("data")
    data: dict[str, Any] = dict(stated) if isinstance(stated, dict) else {}
    parties = job.get("parties")
    _check_named(parties, sources, where)
    guest = parties.get("guest") if isinstance(parties, dict) else None
    for party in sources:
        entry = data.get(party) or {}
        if not isinstance(entry, dict):
            continue  # refused below, by its key
        entry = dict(entry)
        entry["dataset"] = local.DATASET
        if party == guest and job.get("protocol") != "predict":
            entry.setdefault("label", "y")
        data[party] = entry
    job["data"] = data
    spec = parse(JobSpec, job, **where)
    try:
        read_spec(spec.model_dump_json().encode())
    except FedboostError as error:
        raise error.at(**where) from None
    return spec


def _check_named(parties: object, sources: Mapping[str, SourceSpec], where: dict[str, str]) -> None:
    """Refuses tables of strangers and parties without a table; ill-typed parties come later."""
    try:
        named = parse(Parties, parties, **where)
    except ConfigError:
        return
    everybody = {named.guest, *named.hosts}
    for party in sorted(set(sources) - everybody):
        todo = "name it among the job's hosts, or leave its --data out"
        raise ConfigError(f"--data names {party}, which has no part in the job", todo=todo, **where)
    for party in sorted(everybody - set(sources)):
        raise ConfigError(f"--data is missing for {party}", todo=f"--data {party}=FILE", **where)
