"""`fedboost job`: hand in a job, look at it, stop it, carry it on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
from google.protobuf.json_format import MessageToDict
from rich.console import Console
from rich.table import Column, Table

from fedboost.cli import guests
from fedboost.cli.complete import jobs_there
from fedboost.cli.connect import (
    JSON,
    Own,
    conclude,
    connection,
    follow,
    own_of,
    run,
    settings,
    write_report,
)
from fedboost.cli.sweep import sweep
from fedboost.errors import FedboostError
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobJournal, JobStatus
from fedboost.runtime.client import Client, result_of
from fedboost.runtime.config import ClientConfig, PartyConfig
from fedboost.runtime.submitted import check
from fedboost.settings import load, parse, read_yaml

JOB_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group("job")
def job_group() -> None:
    """Submit, watch, cancel, resume and delete jobs at a coordinator.

    Where it is and who we are say --coordinator and --tls, or FEDBOOST_COORDINATOR and
    FEDBOOST_TLS, or ~/.config/fedboost/client.yaml.
    """


@job_group.command("submit")
@click.argument("file", type=JOB_FILE)
@click.option("--watch", is_flag=True, help="Stay until the job is done.")
@JSON
@connection
def submit(
    file: Path, watch: bool, as_json: bool, coordinator: str | None, tls: Path | None
) -> int:
    """Hand in the job in FILE; prints its id, or with --watch its result.

    \b
      fedboost job submit job.yaml --watch
      fedboost job submit job.yaml --coordinator 127.0.0.1:7100 --tls certs --json

    Of several guests, `parties: {guests: [a, b], hosts: [c]}`, each trains a model of its own, in
    jobs called NAME-a and NAME-b: with --watch one after the other, until one does not finish.
    """
    spec = parse(JobSpec, read_yaml(file), file=str(file))
    check(spec, file=str(file))
    config = settings(coordinator, tls)
    if not watch:
        _print_handed_in(spec, run(_handed_in(spec, config)), as_json=as_json)
        return 0
    turns = guests.Turns(spec, as_json)

    async def work() -> None:
        async with Client(config) as client:

            async def runs(one: JobSpec) -> tuple[JobJournal, dict[str, Any]]:
                job = await client.submit(one.model_dump_json().encode())
                await follow(client, job)
                journal = await client.journal(job)
                return journal, result_of(journal)

            await turns.run(runs)

    run(work())
    return turns.conclude()


async def _handed_in(spec: JobSpec, config: ClientConfig) -> dict[str, JobStatus]:
    """Hands in the jobs of a file; gives their status by guest."""
    found = {}
    async with Client(config) as client:
        for one in spec.one_each():
            try:
                job = await client.submit(one.model_dump_json().encode())
                found[one.parties.table().guest] = await client.status(job)
            except FedboostError as error:
                before = ", ".join(job.id for job in found.values())
                raise (error.at(handed_in=before) if before else error) from None
    return found


def _print_handed_in(spec: JobSpec, jobs: dict[str, JobStatus], *, as_json: bool) -> None:
    """Prints their ids: that of one job alone, those of several beside their guests."""
    if spec.parties.guests is None:
        (job,) = jobs.values()
        click.echo(json.dumps({"job": job.id}) if as_json else job.id)
    elif as_json:
        said = {g: {"job": j.id, "name": j.name, "state": j.state} for g, j in jobs.items()}
        click.echo(json.dumps(guests.together(spec, said)))
    else:
        for guest, job in jobs.items():
            click.echo(f"{guest}: {job.id}")


job_group.add_command(sweep)


@job_group.command("list")
@JSON
@connection
def list_jobs(as_json: bool, coordinator: str | None, tls: Path | None) -> None:
    """Every job of the coordinator.

    \b
      fedboost job list --coordinator 127.0.0.1:7100 --tls certs
      fedboost job list --json
    """
    config = settings(coordinator, tls)

    async def work() -> list[JobStatus]:
        async with Client(config) as client:
            return await client.jobs()

    jobs = run(work())
    if as_json:
        click.echo(json.dumps({"jobs": [_as_dict(job) for job in jobs]}))
        return
    table = Table(Column("job", no_wrap=True), "protocol", "state", "done", "by", "since")
    for job in jobs:
        done = f"{job.progress.done}/{job.progress.of}" if job.progress.of else ""
        table.add_row(job.id, job.protocol, job.state, done, job.submitter, _ago(job.updated))
    Console().print(table if jobs else "no jobs")


@job_group.command("status")
@click.argument("job", shell_complete=jobs_there)
@JSON
@connection
def status(job: str, as_json: bool, coordinator: str | None, tls: Path | None) -> None:
    """How a job stands, and who is waited for, at what, since when.

    \b
      fedboost job status credit-1a2b3c4d
    """
    config = settings(coordinator, tls)

    async def work() -> JobStatus:
        async with Client(config) as client:
            return await client.status(job)

    found = run(work())
    if as_json:
        click.echo(json.dumps(_as_dict(found)))
        return
    click.echo(f"{found.id} ({found.protocol}) is {found.state}, since {_ago(found.updated)}")
    if found.progress.of:
        click.echo(f"{found.progress.done} of {found.progress.of} {found.progress.round}s done")
    for waiting in found.waiting:
        step = waiting.step.replace("_", " ")
        click.echo(f"waiting for {waiting.party}, {step}, {time.time() - waiting.since:.0f} s")
    for warning in found.warnings:
        click.echo(f"warning: {warning}")
    if found.HasField("reason"):
        click.echo(f"reason: {found.reason.what}")
        if found.reason.todo:
            click.echo(f"to do: {found.reason.todo}")


@job_group.command("watch")
@click.argument("job", shell_complete=jobs_there)
@JSON
@connection
def watch(job: str, as_json: bool, coordinator: str | None, tls: Path | None) -> int:
    """Show a job's progress until it is done.

    \b
      fedboost job watch credit-1a2b3c4d
      fedboost job watch credit-1a2b3c4d --json

    The exit code says how it ended: 0 finished, 3 paused, others as its reason.
    """
    return _followed(job, as_json=as_json, coordinator=coordinator, tls=tls, resume=False)


@job_group.command("cancel")
@click.argument("job", shell_complete=jobs_there)
@connection
def cancel(job: str, coordinator: str | None, tls: Path | None) -> None:
    """End a job for good, on every party.

    \b
      fedboost job cancel credit-1a2b3c4d
    """
    config = settings(coordinator, tls)

    async def work() -> JobStatus:
        async with Client(config) as client:
            return await client.cancel(job)

    click.echo(f"{job} is {run(work()).state}")


@job_group.command("delete")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=jobs_there)
@click.option("--yes", is_flag=True, help="Do not ask.")
@JSON
@connection
def delete(
    jobs: tuple[str, ...], yes: bool, as_json: bool, coordinator: str | None, tls: Path | None
) -> int:
    """Have the coordinator forget jobs that are over, with their journals.

    \b
      fedboost job delete credit-1a2b3c4d
      fedboost job delete credit-1a2b3c4d credit-5e6f7a8b --yes

    Only finished, failed and cancelled jobs, by users who may cancel. Parties keep what they have
    of a job, models and ledgers among it, until their owners forget it: fedboost party forget.
    """
    config = settings(coordinator, tls)
    if not yes and not click.confirm(f"delete {', '.join(jobs)}?", err=True):
        click.echo("nothing was deleted", err=True)
        return 1

    async def work() -> None:
        async with Client(config) as client:
            for job in jobs:
                await client.delete(job)
                if not as_json:
                    click.echo(f"{job} is deleted")

    run(work())
    if as_json:
        click.echo(json.dumps({"deleted": list(jobs)}))
    return 0


@job_group.command("resume")
@click.argument("job", shell_complete=jobs_there)
@click.option("--watch", "watch_it", is_flag=True, help="Stay until the job is done.")
@JSON
@connection
def resume(
    job: str, watch_it: bool, as_json: bool, coordinator: str | None, tls: Path | None
) -> int:
    """Carry a paused or failed job on from the last round that all parties have kept.

    \b
      fedboost job resume credit-1a2b3c4d --watch
    """
    if watch_it or as_json:
        return _followed(job, as_json=as_json, coordinator=coordinator, tls=tls, resume=True)
    config = settings(coordinator, tls)

    async def work() -> JobStatus:
        async with Client(config) as client:
            return await client.resume(job)

    run(work())
    click.echo(f"{job} goes on")
    return 0


@job_group.command("report")
@click.argument("job", shell_complete=jobs_there)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The file to write.")
@click.option("--config", "party", type=click.Path(path_type=Path, dir_okay=False),
              help="A party's settings file: adds its ledger and its audit of it.")  # fmt: skip
@connection
def report(
    job: str, out: Path | None, party: Path | None, coordinator: str | None, tls: Path | None
) -> None:
    """Write the job's report: one HTML file without anything outside it.

    \b
      fedboost job report credit-1a2b3c4d --out report.html
      fedboost job report credit-1a2b3c4d --config configs/party-bank.yaml --out own.html
    """
    own = Own() if party is None else own_of(load(PartyConfig, party), job)
    config = settings(coordinator, tls)

    async def work() -> JobJournal:
        async with Client(config) as client:
            return await client.journal(job)

    path = out or Path(f"{job}.html")
    write_report(run(work()), str(path), own)
    click.echo(str(path))


def _followed(
    job: str, *, as_json: bool, coordinator: str | None, tls: Path | None, resume: bool
) -> int:
    config = settings(coordinator, tls)

    async def work() -> JobJournal:
        async with Client(config) as client:
            after = 0
            if resume:
                after = max(event.number for event in (await client.journal(job)).events)
                await client.resume(job)
            await follow(client, job, after=after)
            return await client.journal(job)

    journal = run(work())
    return conclude(journal, result_of(journal), as_json=as_json)


def _as_dict(status: JobStatus) -> dict[str, object]:
    found: dict[str, object] = MessageToDict(status, preserving_proto_field_name=True)
    return found


def _ago(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
