"""`fedboost job list`, `status`, `cancel` and `delete`: small questions to a coordinator."""

from __future__ import annotations

import json
import time

import click

from fedboost.cli.complete import jobs_there
from fedboost.cli.connect import JSON, YES, CoordinatorAccess, connection_options
from fedboost.cli.groups import job_group
from fedboost.messages.job_pb2 import JobStatus
from fedboost.report.states import person_of, state_in_words
from fedboost.report.steps import step_title
from fedboost.runtime.client.client import CoordinatorClient


@job_group.command("list")
@JSON
@connection_options
def list_jobs(as_json: bool, coordinator: CoordinatorAccess) -> None:
    """List every job of the coordinator.

    \b
      fedboost job list --coordinator 127.0.0.1:7100 --tls certs
      fedboost job list --json
    """
    jobs = coordinator.call_coordinator(lambda client: client.jobs())
    if as_json:
        click.echo(json.dumps({"jobs": [_as_dict(job) for job in jobs]}))
        return
    from rich.table import Column, Table

    from fedboost.report.consoles import plain_console

    table = Table(Column("job", no_wrap=True), "protocol", "state", "done", "by", "since")
    for job in jobs:
        done = f"{job.progress.done}/{job.progress.of}" if job.progress.of else ""
        table.add_row(
            job.id,
            job.protocol,
            job.state,
            done,
            person_of(job.submitter),
            _local_time(job.updated),
        )
    plain_console().print(table if jobs else "no jobs")


@job_group.command("status")
@click.argument("job", shell_complete=jobs_there)
@JSON
@connection_options
def status(job: str, as_json: bool, coordinator: CoordinatorAccess) -> None:
    """Show a job's state, and the parties and steps that it waits for, with times.

    \b
      fedboost job status credit-1a2b3c4d
    """
    status = coordinator.call_coordinator(lambda client: client.status(job))
    if as_json:
        click.echo(json.dumps(_as_dict(status)))
        return
    is_what = f"{state_in_words(status.state)}, since {_local_time(status.updated)}"
    click.echo(f"{status.id} ({status.protocol}) {is_what}")
    if status.progress.of:
        click.echo(f"{status.progress.done} of {status.progress.of} {status.progress.round}s done")
    if status.encryption:
        click.echo(f"encryption: {status.encryption}")
    for waiting in status.waiting:
        step = step_title(waiting.step)
        click.echo(f"waiting for {waiting.party}, {step}, {time.time() - waiting.since:.0f} s")
    for warning in status.warnings:
        click.echo(f"warning: {warning}")
    if status.HasField("reason"):
        click.echo(f"reason: {status.reason.what}")
        if status.reason.todo:
            click.echo(f"to do: {status.reason.todo}")


@job_group.command("cancel")
@click.argument("job", shell_complete=jobs_there)
@connection_options
def cancel(job: str, coordinator: CoordinatorAccess) -> None:
    """End a job for good, on every party.

    \b
      fedboost job cancel credit-1a2b3c4d
    """
    status = coordinator.call_coordinator(lambda client: client.cancel(job))
    click.echo(f"{job} {state_in_words(status.state)}")


@job_group.command("delete")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=jobs_there)
@YES
@JSON
@connection_options
def delete(jobs: tuple[str, ...], yes: bool, as_json: bool, coordinator: CoordinatorAccess) -> int:
    """Delete ended jobs and their journals at the coordinator.

    \b
      fedboost job delete credit-1a2b3c4d
      fedboost job delete credit-1a2b3c4d credit-5e6f7a8b --yes

    Only finished, failed and cancelled jobs can be deleted, by users who may cancel. Parties keep
    their own data of a job, models and ledgers included, until their owners delete it: fedboost
    party forget.
    """
    _ = coordinator.config  # report errors in the settings before asking
    if not yes and not click.confirm(f"delete {', '.join(jobs)}?", err=True):
        click.echo("nothing was deleted", err=True)
        return 1

    async def delete_jobs(client: CoordinatorClient) -> None:
        for job in jobs:
            await client.delete(job)
            if not as_json:
                click.echo(f"deleted {job}")

    coordinator.call_coordinator(delete_jobs)
    if as_json:
        click.echo(json.dumps({"deleted": list(jobs)}))
    return 0


def _as_dict(status: JobStatus) -> dict[str, object]:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(status, preserving_proto_field_name=True)


def _local_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
