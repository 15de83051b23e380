"""A job at a party while its daemon runs: its attempt, its session, its table and its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedboost import flow
from fedboost.crypto.secrets import Secrets
from fedboost.flow import (
    Artefact,
    Place,
    Signer,
    StageAttempt,
    StageContext,
    StageSecrets,
    StageServices,
)
from fedboost.ground.errors import FedboostError, ProtocolError
from fedboost.ground.settings import Settings
from fedboost.ground.workers import Workers
from fedboost.model import shards
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.party.job import results
from fedboost.runtime.party.job.files import JobFiles
from fedboost.runtime.party.job.table import JobTable
from fedboost.runtime.party.stage.answers import AttemptAnswers
from fedboost.runtime.party.stage.session import Session
from fedboost.runtime.process.clock import monotonic_s
from fedboost.runtime.store.recordings import Opening, Recording, Recordings
from fedboost.runtime.store.store import Store

if TYPE_CHECKING:
    from fedboost.data.frame import Frame


@dataclass
class PartyJob:
    """One job at one party. `files` are its files on disk, `table` holds the party's rows.

    The methods are called in this order: `begin`, then `context`, `keep` and `close` of each stage,
    then `finish`; or `stop`, and `forget` if the job does not go on. The parts of a job are told in
    this order: the session of the open stage, the answers of the attempt, the table, the files.
    """

    signed: SignedJob
    store: Store
    attempt: int = -1  # no attempt has begun in this process
    session: Session | None = None
    halted: FedboostError | None = None  # the reason why this attempt has ended here
    fault: FedboostError | None = None  # an error about our table; others read only its kind
    refused_by: str = ""  # key of our settings that has refused this attempt
    ledger_start: int | None = None  # rows before this attempt; None once its releases are logged
    answers: AttemptAnswers = field(default_factory=AttemptAnswers)  # of this attempt
    heard: float = field(default_factory=monotonic_s)  # when the coordinator last called
    cpu_started: float = 0.0
    cpu_steps: float = 0.0
    sent: dict[str, tuple[int, int]] = field(default_factory=dict)  # bytes and messages by peer
    passed_over: set[str] = field(default_factory=set)  # see `Outbox`; of closed sessions
    keep_row_sets: Callable[[], None] | None = None  # of the open stage, not recorded yet
    recording: Recording | None = None  # of the open stage

    def __post_init__(self) -> None:
        self.files = JobFiles(self.signed, self.store)
        self.table = JobTable(self.signed, self.files)

    @property
    def id(self) -> str:
        """The job's id."""
        return self.signed.id

    @property
    def unsure_peers(self) -> set[str]:
        """Peers that may lack a message sent to them."""
        return self.passed_over | (self.session.passed_over if self.session else set())

    # Checks of requests

    def check_attempt(self, attempt: int) -> None:
        """Raise a ProtocolError for a request about another attempt than the current one."""
        if attempt != self.attempt:
            raise ProtocolError(f"attempt {attempt} of the job is over", job=self.id)

    def check_runs(self, attempt: int) -> None:
        """Raise the same, or the reason if the attempt has ended here."""
        self.check_attempt(attempt)
        if self.halted is not None:
            raise self.halted

    def session_of(self, stage: str) -> Session:
        """Return the session of an open stage; a ProtocolError if the stage is not open.

        Raises the reason if the attempt has ended.
        """
        self.check_runs(self.attempt)
        if self.session is None or self.session.protocol.name != stage:
            raise ProtocolError(f"the stage {stage[:64]!r} is not open", job=self.id)
        return self.session

    # Course of the job

    def begin(self, attempt: int, cpu_now: float) -> None:
        """Make an attempt the current one."""
        self.attempt, self.answers = attempt, AttemptAnswers()
        self.halted = self.fault = None
        self.refused_by = ""
        self.cpu_started, self.cpu_steps, self.heard = cpu_now, 0.0, monotonic_s()

    def context(
        self, stage: str, place: Place, workers: Workers, policy: Policy, signer: Signer
    ) -> StageContext[Settings]:
        """Return the party's context for a stage; a ProtocolError unless it is the stage's turn."""
        signed, artefacts = self.signed, self.files.done()
        self._check_turn(stage, artefacts)
        artefacts |= self._earlier_artefacts(stage)
        frame = self.table.at(stage, artefacts)
        return stage_context(
            signed,
            StagePlace(stage, self.attempt, place, self.files.histories.get(stage, {})),
            frame,
            Secrets(self.store.vault.seed(self.id)),
            lasting=self.store.vault.lasting,
            services=StageServices(signer, self.files, workers),
            artefacts=artefacts,
            limits=policy,
            dataset=signed.dataset,
        )

    def record(self, stage: str, place: Place) -> Recording | None:
        """Begin to record the last stage for a replay, if the job wants that."""
        signed = self.signed
        if not signed.is_recorded or stage != signed.stages[-1]:
            return None
        opened = Opening(self.attempt, stage, place, self.files.pinned_digest("table"))
        self.recording = Recordings(self.store.folder).begin(
            self.id, opened, self.table.aligned_rows()
        )
        return self.recording

    def keep(self, stage: str, place: Place, taken: Artefact) -> None:
        """Save a checkpoint."""
        if self.recording is not None:
            self.recording.sync()
        self.files.keep(stage, place, taken)

    def close(self, stage: str, left: Artefact) -> None:
        """Save the result of a stage."""
        results.save_stage_result(
            self.table, stage, left, self.session.told if self.session else []
        )

    def close_session(self) -> None:
        """Add the session's sent bytes to the job's totals and close it."""
        if self.session is not None:
            for peer, sent in self.session.sent.items():
                count, messages = self.sent.get(peer, (0, 0))
                self.sent[peer] = (count + sent.bytes, messages + sent.messages)
            self.passed_over |= self.session.passed_over
            self.session.release()
            self.files.let_go()
        self.session = None
        if self.recording is not None:
            self.recording.close()
            self.recording = None

    def finish(self, result: dict[str, Any]) -> None:
        """Save the job's result; only the guest has one."""
        if result:
            self.files.write_result(result)

    async def stop(self, reason: FedboostError) -> None:
        """End the attempt; all its waits end with `reason`."""
        # A copy, because the error's traceback keeps the whole attempt in memory.
        self.halted = self.halted or copy(reason)
        if self.session is not None:
            await self.session.stop(reason)
            self.close_session()

    async def forget(self) -> None:
        """Free the memory that only a running attempt needs, once all its writes are done."""
        await self.answers.wait_until_idle()
        self.table.release()

    # Inside

    def _check_turn(self, stage: str, done: Mapping[str, Artefact]) -> None:
        stages = self.signed.stages
        if stage not in stages:
            raise ProtocolError(f"the job has no stage {stage[:64]!r}", job=self.id)
        missing = [name for name in stages[: stages.index(stage)] if name not in done]
        if missing:
            raise ProtocolError(f"the stage {stage} needs {missing[0]} first", job=self.id)

    def _earlier_artefacts(self, stage: str) -> dict[str, Artefact]:
        """Return artefacts of earlier jobs in use: model, rows in common, disclosure."""
        signed, artefacts = self.signed, dict[str, Artefact]()
        if signed.model is not None and stage not in signed.protocol.before:
            artefacts[flow.MODEL] = shards.load_shard(self.files.used_model_folder)
        if signed.alignment_job is not None and self.table.frame is not None:
            artefacts |= self.table.rows_in_common.load(signed.alignment_job)
        if signed.reused_disclosure is not None and signed.role is not flow.AGGREGATOR:
            artefacts[flow.DISCLOSURE] = self.table.disclosures.load(signed.reused_disclosure)
        return artefacts


@dataclass(frozen=True)
class StagePlace:
    """A stage in one attempt, and the last place before its start."""

    stage: str
    attempt: int
    place: Place
    kept: Mapping[Place, str] = field(default_factory=dict)  # see `flow.StageAttempt`


def stage_context(
    signed: SignedJob,
    at: StagePlace,
    frame: Frame | None,
    seed: Secrets,
    lasting: Callable[[str], Secrets],
    **more: Any,
) -> StageContext[Settings]:
    """Return the context of a stage: the facts of the job, the rows, the secrets, and `more`."""
    return StageContext(
        party=signed.party,
        role=signed.role,
        table=signed.table,
        params=signed.params_of(at.stage),
        frame=frame,
        validation=signed.held_out(frame),
        job=signed.id,
        attempt=StageAttempt(
            origin=signed.job_digest(at.stage),
            digest=signed.job_digest(at.stage, str(at.attempt)),
            place=at.place,
            kept=at.kept,
            is_replayable=signed.is_recorded,
        ),
        secrets=StageSecrets(
            attempt=seed.child(at.stage, at.attempt),
            job=seed.child(at.stage, "every attempt"),
            lasting=lasting,
        ),
        **more,
    )
