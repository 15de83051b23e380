"""`fedboost job submit`, `watch`, `resume` and `report`: a job from its file to its result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fedboost.cli import outcome
from fedboost.cli.complete import jobs_there
from fedboost.cli.connect import FILE, JSON, CoordinatorAccess, connection_options
from fedboost.cli.groups import job_group
from fedboost.cli.outcome import (
    ReportAdditions,
    print_outcome,
    report_additions,
    watch_job,
    write_report,
)
from fedboost.ground.settings import load_settings, parse_settings, read_yaml
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobJournal, JobStatus
from fedboost.runtime.client.client import CoordinatorClient, result_of
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.jobs.submitted import check_spec, submit_jobs


@job_group.command("submit")
@click.argument("file", type=FILE)
@click.option("--watch", is_flag=True, help="Stay until the job is done.")
@JSON
@connection_options
def submit(file: Path, watch: bool, as_json: bool, coordinator: CoordinatorAccess) -> int:
    """Submit the job in FILE; prints its id, or with --watch its result.

    \b
      fedboost job submit job.yaml --watch
      fedboost job submit job.yaml --coordinator 127.0.0.1:7100 --tls certs --json

    With several guests, `parties: {guests: [a, b], hosts: [c]}`, each trains its own model, in jobs
    called NAME-a and NAME-b: with --watch one after the other, until one does not finish.
    """
    spec = parse_settings(JobSpec, read_yaml(file), file=str(file))
    check_spec(spec, file=str(file))
    if not watch:
        statuses = coordinator.call_coordinator(lambda client: _submit_all(spec, client))
        _print_ids(spec, statuses, as_json=as_json)
        return 0
    turns = outcome.Turns(spec, as_json)

    async def submit_in_turn(client: CoordinatorClient) -> None:
        """Submit all jobs of the file, one after the other."""

        async def submit_and_watch(spec: JobSpec) -> tuple[JobJournal, dict[str, Any]]:
            job = await client.submit(spec.model_dump_json().encode())
            await watch_job(client, job)
            journal = await client.journal(job)
            return journal, result_of(journal)

        await turns.run(submit_and_watch)

    coordinator.call_coordinator(submit_in_turn)
    return turns.print_all()


async def _submit_all(spec: JobSpec, client: CoordinatorClient) -> dict[str, JobStatus]:
    """Submit the jobs of a file and return their status by guest."""
    ids = await submit_jobs(
        spec.split_by_guest(), lambda job: client.submit(job.model_dump_json().encode())
    )
    return {guest: await client.status(job) for guest, job in ids.items()}


def _print_ids(spec: JobSpec, jobs: dict[str, JobStatus], *, as_json: bool) -> None:
    """Print the id of one job alone, or the ids of several with their guests."""
    if spec.parties.guests is None:
        (job,) = jobs.values()
        click.echo(json.dumps({"job": job.id}) if as_json else job.id)
    elif as_json:
        outcomes = {g: {"job": j.id, "name": j.name, "state": j.state} for g, j in jobs.items()}
        click.echo(json.dumps(outcome.joined_outcomes(spec, outcomes)))
    else:
        for guest, job in jobs.items():
            click.echo(f"{guest}: {job.id}")


@job_group.command("watch")
@click.argument("job", shell_complete=jobs_there)
@JSON
@connection_options
def watch(job: str, as_json: bool, coordinator: CoordinatorAccess) -> int:
    """Show a job's progress until it is done.

    \b
      fedboost job watch credit-1a2b3c4d
      fedboost job watch credit-1a2b3c4d --json

    The exit code depends on the result: 0 finished, 3 paused, others by its reason.
    """
    return _watch_to_end(job, coordinator, as_json=as_json, resume=False)


@job_group.command("resume")
@click.argument("job", shell_complete=jobs_there)
@click.option("--watch", "watch_it", is_flag=True, help="Stay until the job is done.")
@JSON
@connection_options
def resume(job: str, watch_it: bool, as_json: bool, coordinator: CoordinatorAccess) -> int:
    """Carry a paused or failed job on from the last round that all parties have kept.

    \b
      fedboost job resume credit-1a2b3c4d --watch
    """
    if watch_it or as_json:
        return _watch_to_end(job, coordinator, as_json=as_json, resume=True)
    coordinator.call_coordinator(lambda client: client.resume(job))
    click.echo(f"{job} goes on")
    return 0


@job_group.command("report")
@click.argument("job", shell_complete=jobs_there)
@click.option("--out", type=FILE, help="The file to write.")
@click.option("--config", "party", type=FILE,
              help="A party's settings file: adds its ledger and audit of the job.")  # fmt: skip
@connection_options
def report(job: str, out: Path | None, party: Path | None, coordinator: CoordinatorAccess) -> None:
    """Write the job's report: one HTML file without anything outside it.

    \b
      fedboost job report credit-1a2b3c4d --out report.html
      fedboost job report credit-1a2b3c4d --config configs/party-bank.yaml --out own.html
    """
    kept = ReportAdditions()
    if party is not None:
        kept = report_additions(load_settings(PartyConfig, party), job)
    journal = coordinator.call_coordinator(lambda client: client.journal(job))
    path = out or Path(f"{job}.html")
    write_report(journal, str(path), kept)
    click.echo(str(path))


def _watch_to_end(job: str, coordinator: CoordinatorAccess, *, as_json: bool, resume: bool) -> int:
    async def resume_and_watch(client: CoordinatorClient) -> JobJournal:
        after = 0
        if resume:
            after = max(event.number for event in (await client.journal(job)).events)
            await client.resume(job)
        await watch_job(client, job, after=after)
        return await client.journal(job)

    journal = coordinator.call_coordinator(resume_and_watch)
    return print_outcome(journal, result_of(journal), as_json=as_json)
