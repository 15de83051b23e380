"""Makes the walk of a stored job: its protocol, its stages, and the calls to its parties."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fedboost import flow, protocols
from fedboost.ground.settings import parse_settings
from fedboost.messages import job_pb2
from fedboost.runtime.coordinator.journals import Journals
from fedboost.runtime.coordinator.walk import Control, JobWalk
from fedboost.runtime.jobs import manifest
from fedboost.runtime.store.store import StoredJob
from fedboost.runtime.transport.addresses import Timers


@dataclass(frozen=True)
class AgreementCalls:
    """The record of the parties' agreement; implements `walk.AgreementNotes`."""

    asked: Callable[[str, Sequence[str]], None]
    note_agreed: Callable[[str, Sequence[str]], None]


@dataclass(frozen=True)
class WalkMaker:
    """The parts that all walks of one coordinator share; see `walk.JobWalk`."""

    link: Callable[[str], Control]
    states: AgreementCalls
    journals: Journals
    journal: Callable[[str], Awaitable[job_pb2.JobJournal]]
    enter: Callable[[JobWalk], Awaitable[None]]
    timers: Timers

    def last_walk(self, job: StoredJob) -> JobWalk:
        """Return a walk with the number of the job's last attempt."""
        terms = manifest.decode_manifest(job.manifest)
        protocol = protocols.load_protocol(terms.spec.protocol)
        params = parse_settings(protocol.params, terms.params, section="params")
        stages = protocols.stages_of_job(terms.spec, params)
        return JobWalk(
            terms=terms,
            attempt=job.attempt,
            params=params,
            protocol=protocol,
            protocols={stage: protocols.load_protocol(stage) for stage in stages},
            controls={p: self.link(p) for p in terms.spec.parties.table().of(tuple(flow.Role))},
            states=self.states,
            emit=lambda *events: self.journals.add(terms.job, *events),
            journal=lambda: self.journal(terms.job),
            enter=self.enter,
            timers=self.timers,
        )
