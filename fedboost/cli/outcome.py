"""Progress and result of a job, on a terminal, as JSON and as a report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedboost.audit.findings import Finding
from fedboost.ground.errors import FedboostError, UnreachableError
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobJournal, JobStatus
from fedboost.report.consoles import plain_console
from fedboost.report.progress import Progress, result_summary
from fedboost.runtime.client.client import Jobs, pass_on_events
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.process.compilation import count_new_kernels
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport import faults

if TYPE_CHECKING:
    from fedboost.runtime.ledger.rows import Row

# Runs one job until it rests; gives its journal and, if it finished, its result.
Runs = Callable[[JobSpec], Awaitable[tuple[JobJournal, dict[str, Any]]]]


async def watch_job(client: Jobs, job: str, *, after: int = 0) -> JobStatus:
    """Follow a job; Ctrl-C leaves it running, and prints how to watch it again or cancel it."""
    try:
        return await follow_job(client, job, after=after)
    except asyncio.CancelledError:
        click.echo(f"{job} keeps running", err=True)
        for does, what in (("watch", "follow it"), ("cancel", "end it")):
            click.echo(f"to {what}: fedboost job {does} {job}", err=True)
        raise


async def follow_job(client: Jobs, job: str, *, after: int = 0, batch_rows: int = 0) -> JobStatus:
    """Show a job's progress until it rests; return its last status.

    `after` is the event of the journal behind which to begin; a prediction scores `batch_rows` at
    once.
    """
    console = plain_console(stderr=True)
    status = await client.status(job)
    with (
        Progress(console, status.name, batch_rows=batch_rows) as progress,
        count_new_kernels(progress.compiling),
    ):
        await pass_on_events(client, job, progress.event, progress.waiting, after)
    return await client.status(job)


def print_outcome(journal: JobJournal, result: dict[str, Any], *, as_json: bool) -> int:
    """Print a job's result, for people or as JSON; return the exit code."""
    code, ending = print_result(journal, result, as_json=as_json)
    if as_json:
        click.echo(json.dumps(ending))
    return code


def print_result(
    journal: JobJournal, result: dict[str, Any], *, as_json: bool
) -> tuple[int, dict[str, Any]]:
    """Print a job's result, for people; return the exit code and the job's JSON object.

    With `as_json` stdout stays empty.
    """
    status = journal.status
    if status.state == JobState.FINISHED:
        from fedboost.report.story import read_story
        from fedboost.report.training import stop_in_words

        summary = result_summary(result, stop_in_words(read_story(journal)))
        plain_console(stderr=as_json).print(summary)
        return 0, result
    error = faults.error_of_fault(status.reason)
    if status.state == JobState.PAUSED and not error.todo:
        error.todo = f"fedboost job resume {status.id}"
    click.echo(f"Job {status.id} {status.state}", err=True)
    shown = error.lines()
    if status.state == JobState.PAUSED:  # the reason is among the lines of its progress
        shown = [f"to do: {error.todo}"]
    for line in shown:
        click.echo(line, err=True)
    code = UnreachableError.exit_code if status.state == JobState.PAUSED else error.exit_code
    ending = {"job": status.id, "name": status.name, "state": status.state}
    return code, {**ending, "error": error.said()}


@dataclass(frozen=True)
class ReportAdditions:
    """A party's additions to a job's report on its own page."""

    ledger: Sequence[Row] = ()
    findings: Sequence[Finding] = ()


def report_additions(party: PartyConfig, job: str) -> ReportAdditions:
    """Return a party's ledger of a job, and the findings of its audit if one has run."""
    from fedboost.runtime.ledger.ledger import Ledger
    from fedboost.runtime.store.transcripts import Transcripts

    with closing(Ledger(party.store / "store.sqlite", read_only=True)) as ledger:
        rows = ledger.rows(job)
    return ReportAdditions(rows, Transcripts(party.store).findings(job))


def write_report(journal: JobJournal, path: str, additions: ReportAdditions | None = None) -> None:
    """Write the journal as one HTML file."""
    from fedboost.report.page import render_page

    additions = additions or ReportAdditions()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(
        render_page(journal, additions.ledger, additions.findings), encoding="utf-8"
    )


@dataclass
class Turns:
    """The jobs of a file, run in turn; each one's end is printed at once, JSON at the end."""

    spec: JobSpec
    as_json: bool
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)  # by guest, as it ended
    code: int = 0

    async def run(self, runs: Runs) -> None:
        """Run one job after the other until one does not finish; the later ones do not begin."""
        waiting = [spec.name for spec in self.spec.split_by_guest()]
        for spec in self.spec.split_by_guest():
            waiting.remove(spec.name)
            guest = spec.parties.table().guest
            try:
                self.code, self.outcomes[guest] = print_result(
                    *await runs(spec), as_json=self.as_json
                )
            except FedboostError as error:
                if not self.outcomes:
                    raise
                self._print_not_run(spec, error)  # an error keeps the results of earlier guests
            if self.code:
                break
        if waiting and self.code:
            click.echo(f"not started: {', '.join(waiting)}", err=True)

    def _print_not_run(self, job: JobSpec, error: FedboostError) -> None:
        """Print that a job could not be submitted, or not be followed to its end."""
        for line in (f"job {job.name} did not finish", *error.lines()):
            click.echo(line, err=True)
        left = {"job": None, "name": job.name, "state": JobState.FAILED, "error": error.said()}
        self.outcomes[job.parties.table().guest] = left
        self.code = error.exit_code

    def print_all(self) -> int:
        """Print the JSON object of all jobs if it is asked for; return the exit code."""
        if self.as_json and self.spec.parties.guests is None:
            (alone,) = self.outcomes.values()
            click.echo(json.dumps(alone))
        elif self.as_json:
            click.echo(json.dumps(joined_outcomes(self.spec, self.outcomes)))
        return self.code


def joined_outcomes(spec: JobSpec, outcomes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Join what `--json` says of each job of several guests."""
    states = [outcome["state"] for outcome in outcomes.values()]
    return {
        "name": spec.name,
        "protocol": spec.protocol,
        "state": next((s for s in states if s != JobState.FINISHED), JobState.FINISHED),
        "guests": outcomes,
        "models": [outcome["model"] for outcome in outcomes.values() if outcome.get("model")],
    }
