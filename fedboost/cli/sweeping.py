"""Runs the jobs of a sweep one after the other and records their results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click

from fedboost import protocols
from fedboost.cli.cluster import in_this_process
from fedboost.cli.outcome import follow_job
from fedboost.data.sources import SourceSpec
from fedboost.ground.disk import PUBLIC_MODE, make_folder, write_file
from fedboost.ground.errors import FedboostError, JobError, UnreachableError
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobJournal
from fedboost.runtime.client.client import Jobs, result_of
from fedboost.runtime.cluster import local
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport import faults
from fedboost.sweep.plan import Sweep, SweepJob, settings_in_words
from fedboost.sweep.record import (
    FINISHED,
    PAUSED,
    VALIDATION,
    SweepEntry,
    SweepRecord,
    TrialResult,
    entry_of_result,
)

RECORD_FILE = "sweep.json"
GOES_ON = (JobState.WAITING, JobState.QUEUED, JobState.RUNNING, JobState.PAUSED, JobState.FINISHED)
START_S = 10.0  # that a local coordinator may take until it answers

Where = Callable[[], AbstractAsyncContextManager[Jobs]]  # the coordinator, while it is needed


@dataclass
class Course:
    """A sweep under way; every step of it is on the disk before the next."""

    record: SweepRecord
    folder: Path  # of the record

    @property
    def sweep(self) -> Sweep:
        """The sweep to run."""
        return self.record.sweep

    async def run(self, jobs: Jobs) -> None:
        """Run all jobs that have not finished; stop where a party or the coordinator is gone."""
        self._write_record()
        for place, member in enumerate(self.sweep.members, 1):
            if self.record.of(member).state == FINISHED:
                continue
            fold = "" if member.fold is None else f", fold {member.fold + 1}"
            words = f"{settings_in_words(member.trial.values)}{fold}"
            self._print_line(f"[{place}/{len(self.sweep.members)}] {words}")
            entry = await self._run_member(jobs, member)
            self._print_line(f"  {self._outcome_in_words(entry)}")
            if entry.state == PAUSED:
                break

    async def fit(self, jobs: Jobs) -> None:
        """Train with the best settings; a JobError where no trial has all of its jobs."""
        best = self._best_trial()
        spec = self.sweep.best_job(best.trial.values, self.record.earlier)
        self._print_line(f"[best] {settings_in_words(best.trial.values)}")

        def keep_best(entry: SweepEntry) -> None:
            self.record.best = entry
            self._write_record()

        known = (self.record.best or SweepEntry()).job
        keep_best(await self._run_to_end(jobs, spec, known, keep_best))

    def _best_trial(self) -> TrialResult:
        first = self.record.standings()[0]
        if first.rank is None:
            raise JobError(
                "no trial has finished all of its jobs, so none is the best",
                todo="correct the cause of the failures, then run the sweep again with --resume",
            )
        return first

    async def _run_member(self, jobs: Jobs, member: SweepJob) -> SweepEntry:
        def keep_entry(entry: SweepEntry) -> None:
            self.record.entries[member.key] = entry
            self._write_record()

        spec = self.sweep.spec(member, self.record.earlier)
        entry = await self._run_to_end(jobs, spec, self.record.of(member).job, keep_entry)
        keep_entry(entry)
        return entry

    async def _run_to_end(
        self, jobs: Jobs, spec: JobSpec, known: str | None, note: Callable[[SweepEntry], None]
    ) -> SweepEntry:
        """Return a job's entry once it has ended; continue a job that was already submitted.

        Raise UnreachableError if the coordinator does not answer: no other request can succeed.
        """
        try:
            job = await _job_to_continue(jobs, known) or await jobs.submit(
                spec.model_dump_json().encode()
            )
        except UnreachableError:
            raise
        except FedboostError as error:
            return SweepEntry(state=JobState.FAILED, error=error.said(), code=error.exit_code)
        note(SweepEntry(job=job, state=JobState.RUNNING))
        status = await follow_job(jobs, job)
        journal = await jobs.journal(job)
        self._record_reusable(spec, journal)
        result = result_of(journal)
        if status.state == JobState.FINISHED:
            return entry_of_result(result, job)
        reason = faults.error_of_fault(journal.status.reason)
        code = UnreachableError.exit_code if status.state == PAUSED else reason.exit_code
        return SweepEntry(job=job, state=status.state, error=reason.said(), code=code)

    def _record_reusable(self, spec: JobSpec, journal: JobJournal) -> None:
        """Record the alignment and disclosure of this job that later ones use again."""
        earlier, job = self.record.earlier, journal.status.id
        if journal.status.state == JobState.CANCELLED:  # it has left nothing
            return
        done = {e.stage.stage for e in journal.events if e.WhichOneof("what") == "stage"}
        protocol = protocols.load_protocol(spec.protocol)
        params = parse_settings(protocol.params, spec.params, section="params")
        if earlier.alignment is None and protocols.aligning_stage(spec, params) in done:
            earlier = replace(earlier, alignment=job)
        discloses = self.sweep.reuses_disclosure and protocol.used_disclosure(params) is None
        if earlier.reuse is None and discloses and journal.status.state == JobState.FINISHED:
            earlier = replace(earlier, reuse=job)
        self.record.earlier = earlier
        self._write_record()

    def _outcome_in_words(self, entry: SweepEntry) -> str:
        if entry.state == FINISHED:
            metric = self.sweep.metric
            return f"{metric} {entry.value(metric, VALIDATION):.4f}, {entry.seconds:.1f} s"
        what = (entry.error or {}).get("what", "no reason given")
        return f"{entry.state}: {what}"

    def _write_record(self) -> None:
        make_folder(self.folder)
        write_file(self.folder / RECORD_FILE, self.record.text(), PUBLIC_MODE)

    def _print_line(self, words: str) -> None:
        click.echo(words, err=True)


async def _job_to_continue(jobs: Jobs, job: str | None) -> str | None:
    """Return the id of a job that was already submitted and still exists; resume it if it is
    paused.
    """
    if job is None:
        return None
    try:
        state = (await jobs.status(job)).state
        if state == JobState.PAUSED:
            await jobs.resume(job)
    except UnreachableError:
        raise
    except FedboostError:  # another coordinator's, or deleted
        return None
    return job if state in GOES_ON else None


def place_in_process(folder: Path, spec: JobSpec, sources: Mapping[str, SourceSpec]) -> Where:
    """Run all parties in this process, with their files in `folder`."""

    @asynccontextmanager
    async def open_cluster() -> AsyncIterator[Jobs]:
        async with in_this_process(folder, spec, sources) as cluster:
            yield local.LocalClient(cluster)

    return open_cluster
