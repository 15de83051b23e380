"""`fedboost cluster run` and `fedboost simulate`: a job and all it needs, on this machine."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from fedboost import protocols
from fedboost.cli import outcome
from fedboost.cli.connect import DIRECTORY, FILE, JSON, run_coroutine
from fedboost.cli.groups import cli, cluster_group
from fedboost.cli.outcome import follow_job, write_report
from fedboost.data.sources import SourceSpec, source_at
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import load_settings, parse_settings, read_yaml
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobJournal, JobStatus
from fedboost.model import kinds, shards
from fedboost.pages import token
from fedboost.report.consoles import plain_console
from fedboost.report.progress import Progress
from fedboost.report.states import state_in_words
from fedboost.runtime.client.client import CoordinatorClient, result_of
from fedboost.runtime.cluster import local
from fedboost.runtime.cluster.cluster import ClusterProcesses, TrialProcesses
from fedboost.runtime.cluster.local import COORDINATOR, LocalCluster, complete_spec
from fedboost.runtime.config.daemons import CoordinatorConfig, DaemonConfig, PartyConfig
from fedboost.runtime.process import logs
from fedboost.runtime.process.compilation import count_new_kernels
from fedboost.runtime.store.store import JobState

AGAIN = click.option(
    "--resume/--fresh",
    "resume",
    default=None,
    help="Continue an interrupted run of the same job, or start again. Without either, a "
    "terminal asks; elsewhere the job starts again.",
)
GO_ON = "to go on with it: the same command with --resume"


async def run_or_resume(
    client: CoordinatorClient,
    spec: JobSpec,
    resume: bool | None,
    *,
    keeps: bool,
    batch_rows: int = 0,
) -> JobJournal:
    """Run a job, or go on with one that was interrupted, until it rests.

    Ctrl-C pauses a job that a later command `keeps` for going on, and cancels another.
    """
    job, after = await _submit_or_resume(client, spec, resume)
    try:
        await follow_job(client, job, after=after, batch_rows=batch_rows)
    except BaseException as error:
        keeps = keeps and isinstance(error, asyncio.CancelledError)
        if not keeps:
            await client.cancel(job)
        state = "paused" if keeps else "cancelled"
        click.echo(f"{job} {state_in_words(state)}: its daemons stop with this command", err=True)
        if keeps:
            click.echo(GO_ON, err=True)
        raise
    journal = await client.journal(job)
    if keeps and journal.status.state == JobState.PAUSED:
        journal.status.reason.todo = GO_ON.removeprefix("to ")
    return journal


async def _submit_or_resume(
    client: CoordinatorClient, spec: JobSpec, resume: bool | None
) -> tuple[str, int]:
    """Return the id of a job that is under way, and the last event that it had before."""
    left = None if resume is False else await _newest_unfinished(client, spec)
    if left is not None and _asks_to_resume(left, resume):
        events = (await client.journal(left.id)).events
        await client.resume(left.id)
        return left.id, max((event.number for event in events), default=0)
    if left is None and resume:
        click.echo("no earlier run of this job is unfinished: it begins anew", err=True)
    return await client.submit(spec.model_dump_json().encode()), 0


async def _newest_unfinished(client: CoordinatorClient, spec: JobSpec) -> JobStatus | None:
    """Return the newest paused job with the same content as the file."""
    wanted = json.loads(spec.model_dump_json())
    paused = [job for job in await client.jobs() if job.state == JobState.PAUSED]
    for status in sorted(paused, key=lambda status: status.created, reverse=True):
        if json.loads((await client.journal(status.id)).spec) == wanted:
            return status
    return None


def _asks_to_resume(left: JobStatus, resume: bool | None) -> bool:
    """Say that a job was interrupted, and return whether to go on with it."""
    done = f" after {left.progress.round} {left.progress.done} of {left.progress.of}"
    question = f"an earlier run, {left.id}, was interrupted{done if left.progress.of else ''}"
    if resume is None and sys.stdin.isatty() and sys.stderr.isatty():
        return click.confirm(f"{question}; go on with it?", default=True, err=True)
    what = "it goes on" if resume else "this one begins anew; --resume goes on with the earlier one"
    click.echo(f"{question}: {what}", err=True)
    return bool(resume)


CLUSTER_FOLDER = Path(
    "fedboost-cluster"
)  # where a local cluster keeps certificates, stores and models

DATA = click.option(
    "--data",
    "data",
    multiple=True,
    required=True,
    metavar="PARTY=FILE",
    help="A party's table, or a declaration of it (.yaml); once for each party.",
)
DIR = click.option(
    "--dir",
    "folder",
    type=DIRECTORY,
    default=CLUSTER_FOLDER,
    show_default=True,
    help="Where certificates, stores, models and logs go.",
)


class OneCommand(TrialProcesses):
    """Daemons that live as long as a command; jobs of an interrupted command stay paused."""

    auto_resume = False


PAGES = click.option(
    "--page", "pages", is_flag=True, help="Serve every daemon's page until Ctrl-C; prints links."
)


@cluster_group.command("run")
@click.argument("file", type=FILE)
@DATA
@DIR
@PAGES
@AGAIN
@JSON
def run_cluster(
    file: Path, data: tuple[str, ...], folder: Path, pages: bool, resume: bool | None, as_json: bool
) -> int:
    """Start a coordinator and every party of the job in FILE, run it, stop everything.

    \b
      fedboost cluster run job.yaml --data bank=bank.parquet --data telco=telco.parquet

    A job of hybridtree may name several label holders, `parties: {guests: [a, b], hosts: [c]}`:
    they train one after the other, one model each, in jobs called NAME-a and NAME-b.

    Ctrl-C pauses the job; the same command with --resume continues it.

    The last lines are the commands that score rows with the trained models, one for each guest.
    """
    sources = read_sources(data)
    spec = complete_spec(read_yaml(file), sources, file=str(file))
    turns = outcome.Turns(spec, as_json)
    with OneCommand(folder, spec, sources, pages=pages) as cluster, _keep_pages_open(cluster):
        run_coroutine(turns.run(lambda job: _follow_on_cluster(cluster, job, resume)))
    code = turns.print_all()
    if not as_json:
        _print_predict_commands(turns, sources, folder)
    return code


@cli.command("simulate")
@click.argument("file", type=FILE)
@DATA
@click.option(
    "--dir",
    "folder",
    type=DIRECTORY,
    help="Keep stores and models here; absent: nothing is kept.",
)
@JSON
def simulate(file: Path, data: tuple[str, ...], folder: Path | None, as_json: bool) -> int:
    """Run the job in FILE with all parties in this process.

    \b
      fedboost simulate job.yaml --data bank=bank.parquet --data telco=telco.parquet

    Where the job names several guests, they train one after the other, a model each.
    """
    sources = read_sources(data)
    spec = complete_spec(read_yaml(file), sources, file=str(file))
    if folder is None:
        _check_needs_no_folder(spec, file=str(file))
    turns = outcome.Turns(spec, as_json)
    with tempfile.TemporaryDirectory() as scratch, _progress_for_log():
        run_coroutine(_simulate_jobs(turns, sources, folder, Path(scratch)))
        return turns.print_all()


@contextmanager
def _progress_for_log() -> Iterator[None]:
    """Silence the parties' log, which repeats the progress and the result."""
    log = logging.getLogger("fedboost.runtime")
    before, wants_log = log.level, logs.is_json() or logging.getLogger().level <= logging.DEBUG
    log.setLevel(before if wants_log else logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _print_predict_commands(
    turns: outcome.Turns, sources: Mapping[str, SourceSpec], folder: Path
) -> None:
    """Print the command that scores rows with each of the models that have been trained."""
    models = {
        guest: outcome["model"] for guest, outcome in turns.outcomes.items() if outcome.get("model")
    }
    for guest, model in models.items():
        facts = shards.load_facts(shards.folder_of(folder / "var" / guest / "models", model))
        needed = [guest] if kinds.kind_of(facts).is_whole else [guest, *facts["hosts"]]
        words = ["fedboost", "model", "predict", model]
        words += [] if folder == CLUSTER_FOLDER else ["--cluster", str(folder)]
        for party in needed:
            words += ["--data", f"{party}={sources[party].path}"]
        out = "scores.parquet" if len(models) == 1 else f"scores-{guest}.parquet"
        click.echo(f"to score rows: {shlex.join([*words, '--out', out])}")


def _check_needs_no_folder(spec: JobSpec, **where: str) -> None:
    """Refuse a job that uses an earlier model or disclosure where no folder could hold one."""
    protocol = protocols.load_protocol(spec.protocol)
    params = parse_settings(protocol.params, spec.params, section="params")
    earlier = protocol.used_model(params) or protocol.used_disclosure(params) or spec.alignment_job
    if earlier is not None:
        raise ConfigError(
            f"the job needs data of the job {earlier}, and simulate starts with an empty store",
            todo="give --dir, the folder of that job",
            **where,
        )


async def _simulate_jobs(
    turns: outcome.Turns, sources: Mapping[str, SourceSpec], folder: Path | None, scratch: Path
) -> None:
    """Run the jobs in `folder`, or in `scratch`, where models and reports are not kept."""

    async def run_and_show(job: JobSpec) -> tuple[JobJournal, dict[str, Any]]:
        """Run one job and show its progress."""
        with (
            Progress(plain_console(stderr=True), job.name) as progress,
            count_new_kernels(progress.compiling),
        ):
            journal = await cluster.run(job, progress.event)
        result = result_of(journal)
        if result and folder is not None:
            store = folder / "var" / job.parties.table().guest
            result["report"] = str(store / "reports" / f"{result['job']}.html")
        elif result:
            result["model"] = result["report"] = ""
        return journal, result

    async with in_this_process(folder or scratch, turns.spec, sources) as cluster:
        cluster.rehearse()
        await turns.run(run_and_show)


@asynccontextmanager
async def in_this_process(
    folder: Path, spec: JobSpec, sources: Mapping[str, SourceSpec]
) -> AsyncIterator[LocalCluster]:
    """Hold all parties of a job in this process, with their files in `folder`."""
    from fedboost.runtime.process.workers import ProcessWorkers

    with ProcessWorkers(len(os.sched_getaffinity(0))) as workers:
        async with local.open_cluster(
            folder, spec, sources, workers, write_report=write_report
        ) as cluster:
            yield cluster


def run_job(
    spec: JobSpec,
    sources: Mapping[str, SourceSpec],
    folder: Path,
    *,
    pages: bool = False,
    batch_rows: int = 0,
) -> tuple[JobJournal, dict[str, Any]]:
    """Run a job on daemons of our own; return its journal and, if it finished, its result.

    `batch_rows` is the number of rows that a prediction scores at once.
    """
    with OneCommand(folder, spec, sources, pages=pages) as cluster, _keep_pages_open(cluster):
        return run_coroutine(
            _follow_on_cluster(cluster, spec, resume=False, keeps=False, batch_rows=batch_rows)
        )


@contextmanager
def _keep_pages_open(cluster: ClusterProcesses) -> Iterator[None]:
    """Print the links of the daemons' pages, if they have some; keep these until Ctrl-C."""
    for name in cluster.pages:
        kind: type[DaemonConfig] = CoordinatorConfig if name == COORDINATOR else PartyConfig
        config = load_settings(kind, cluster.config(name))
        link = token.sign_in_url(config, token.read_token(config.store))
        click.echo(f"the page of {name}: {link}", err=True)
    yield
    if cluster.pages:
        click.echo("the pages stay until you press Ctrl-C", err=True)
        with suppress(KeyboardInterrupt):
            signal.pause()


async def _follow_on_cluster(
    cluster: ClusterProcesses,
    spec: JobSpec,
    resume: bool | None,
    *,
    keeps: bool = True,
    batch_rows: int = 0,
) -> tuple[JobJournal, dict[str, Any]]:

    async with CoordinatorClient(cluster.client, retry_s=10.0) as client:
        journal = await run_or_resume(client, spec, resume, keeps=keeps, batch_rows=batch_rows)
    result = result_of(journal)
    if result:
        guest = cluster.store(spec.parties.table().guest)
        result["report"] = str(guest / "reports" / f"{result['job']}.html")
    else:
        write_report(journal, str(cluster.folder / f"{journal.status.id}.html"))
    return journal, result


def read_sources(data: tuple[str, ...]) -> dict[str, SourceSpec]:
    """Return the tables of ``PARTY=FILE`` options; a ConfigError for a bad or doubled one."""
    sources: dict[str, SourceSpec] = {}
    for text in data:
        party, equals, path = text.partition("=")
        if not equals or not party or not path:
            raise ConfigError(
                f"--data {text!r} is not PARTY=FILE",
                todo="--data bank=bank.parquet, once for each party",
            )
        if party in sources:
            raise ConfigError(f"--data names {party} twice", todo="give each party one file")
        if not Path(path).is_file():
            is_there = Path(path).exists()
            what = "this is no file" if is_there else "there is no such file"
            todo = (
                "declare a folder in a file: --data PARTY=FILE.yaml" if is_there else "check --data"
            )
            raise ConfigError(what, party=party, file=path, todo=todo)
        sources[party] = source_at(path)
    return sources
