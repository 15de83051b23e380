"""A job that an earlier `fedboost cluster run` of the same file has left unfinished."""

from __future__ import annotations

import asyncio
import json
import sys

import click

from fedboost.cli.outcome import follow
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobJournal, JobStatus
from fedboost.runtime.client.client import CoordinatorClient
from fedboost.runtime.store.store import JobState

AGAIN = click.option(
    "--resume/--fresh",
    "resume",
    default=None,
    help="Go on with what an interrupted run of the same job has left, or begin anew; without "
    "either a terminal asks, and elsewhere the job begins anew.",
)
GO_ON = "to go on with it: the same command with --resume"


async def followed(
    client: CoordinatorClient, spec: JobSpec, resume: bool | None, *, keeps: bool
) -> JobJournal:
    """Run a job, or go on with one that was interrupted, until it rests.

    Ctrl-C pauses a job that a later command `keeps` for going on, and cancels another.
    """
    job, after = await _begun(client, spec, resume)
    try:
        await follow(client, job, after=after)
    except BaseException as error:
        keeps = keeps and isinstance(error, asyncio.CancelledError)
        if not keeps:
            await client.cancel(job)
        state = "paused" if keeps else "cancelled"
        click.echo(f"{job} is {state}: its daemons stop with this command", err=True)
        if keeps:
            click.echo(GO_ON, err=True)
        raise
    journal = await client.journal(job)
    if keeps and journal.status.state == JobState.PAUSED:
        journal.status.reason.todo = GO_ON.removeprefix("to ")
    return journal


async def _begun(client: CoordinatorClient, spec: JobSpec, resume: bool | None) -> tuple[str, int]:
    """Return the id of a job that is under way, and the last event that it had before."""
    left = None if resume is False else await _unfinished(client, spec)
    if left is not None and _wanted(left, resume):
        events = (await client.journal(left.id)).events
        await client.resume(left.id)
        return left.id, max((event.number for event in events), default=0)
    if left is None and resume:
        click.echo("no earlier run of this job is unfinished: it begins anew", err=True)
    return await client.submit(spec.model_dump_json().encode()), 0


async def _unfinished(client: CoordinatorClient, spec: JobSpec) -> JobStatus | None:
    """Return the last paused job whose content is that of the file."""
    own = json.loads(spec.model_dump_json())
    paused = [one for one in await client.jobs() if one.state == JobState.PAUSED]
    for status in sorted(paused, key=lambda one: one.created, reverse=True):
        if json.loads((await client.journal(status.id)).spec) == own:
            return status
    return None


def _wanted(left: JobStatus, resume: bool | None) -> bool:
    """Say that a job was interrupted, and return whether to go on with it."""
    done = f" after {left.progress.round} {left.progress.done} of {left.progress.of}"
    found = f"an earlier run, {left.id}, was interrupted{done if left.progress.of else ''}"
    if resume is None and sys.stdin.isatty() and sys.stderr.isatty():
        return click.confirm(f"{found}; go on with it?", default=True, err=True)
    what = "it goes on" if resume else "this one begins anew; --resume goes on with the earlier one"
    click.echo(f"{found}: {what}", err=True)
    return bool(resume)
