"""What a party has of one job, on disk and in memory: its table, artefacts, seat at a stage."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedboost import flow, protocols
from fedboost.crypto.secrets import Secrets
from fedboost.crypto.workers import Workers
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.disk import PUBLIC_MODE, make_folder, on_disk, sync_folder, write_file
from fedboost.errors import ConfigError, DataError, FedboostError, ProtocolError
from fedboost.flow import START, Artefact, Place, Role, Seat, Signer
from fedboost.messages.job_pb2 import Told
from fedboost.messages.party_pb2 import BeginReply, Kept
from fedboost.model import shards
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.jobs.manifest import Manifest
from fedboost.runtime.party.answers import Answers
from fedboost.runtime.party.session import Session
from fedboost.runtime.process.clock import now
from fedboost.runtime.store.checkpoints import Checkpoints
from fedboost.runtime.store.disclosures import Disclosures, rows_again, with_rows
from fedboost.runtime.store.rows_in_common import RowsInCommon, described
from fedboost.runtime.store.store import Store
from fedboost.runtime.store.transcripts import END, Transcripts
from fedboost.settings import parse

if TYPE_CHECKING:
    import pyarrow as pa

    from fedboost.data.frame import Frame

log = logging.getLogger(__name__)


@dataclass
class Work:
    """One job at one party."""

    party: str
    terms: Manifest
    manifest_sha256: bytes
    store: Store
    attempt: int = -1  # none has begun in this process
    session: Session | None = None
    halted: FedboostError | None = None  # why this attempt is over here
    fault: FedboostError | None = None  # of our table; others read its kind
    frame: Frame | None = None
    id_cells: pa.Table | None = None  # of `frame`, as the party's table has them
    answers: Answers = field(default_factory=Answers)  # of this attempt
    heard: float = field(default_factory=now)  # when the coordinator last called
    cpu_started: float = 0.0
    cpu_steps: float = 0.0
    sent: dict[str, tuple[int, int]] = field(default_factory=dict)  # bytes and messages by peer
    passed_over: set[str] = field(default_factory=set)  # see `Outbox`, of sessions that are closed
    # By stage, of checkpoints that were there when this attempt began.
    histories: dict[str, dict[Place, str]] = field(default_factory=dict)
    _checkpoints: Checkpoints = field(default_factory=Checkpoints)

    def __post_init__(self) -> None:
        self.table = self.terms.spec.parties.table()
        self.protocol = protocols.named(self.terms.spec.protocol)
        self.params: Any = parse(self.protocol.params, self.terms.spec.params, section="params")

    @property
    def id(self) -> str:
        """The job's id."""
        return self.terms.job

    @property
    def role(self) -> Role:
        """What this party does in the job."""
        role = self.table.role_of(self.party)
        if role is None:
            raise ConfigError(f"the job has no part for {self.party}", party=self.party)
        return role

    @property
    def stages(self) -> tuple[str, ...]:
        """The protocols of the job, in order."""
        return protocols.stages(self.terms.spec, self.params)

    @property
    def model(self) -> str | None:
        """The id of the model that the job uses, if it uses one."""
        return self.protocol.used_model(self.params)

    @property
    def reused(self) -> str | None:
        """The id of the job whose disclosure this one uses again, if it does."""
        return self.protocol.used_disclosure(self.params)

    @property
    def aligned_by(self) -> str | None:
        """The id of the job whose rows in common this one uses again, if it does."""
        return self.terms.spec.alignment

    @property
    def contributors(self) -> int | None:
        """How many parties' values the job adds up under masks; None where it does not."""
        if flow.AGGREGATOR not in self.protocol.modules:
            return None
        return len(self.table.of(flow.EVERYBODY))

    def settle(self) -> None:
        """Adds what the closing session sent to the job's totals, and lets it go."""
        if self.session is not None:
            for peer, sent in self.session.sent.items():
                count, messages = self.sent.get(peer, (0, 0))
                self.sent[peer] = (count + sent.bytes, messages + sent.messages)
            self.passed_over |= self.session.passed_over
            self.session.release()
        self.session = None

    @property
    def unsure(self) -> set[str]:
        """Peers who may lack something that was sent to them."""
        return self.passed_over | (self.session.passed_over if self.session else set())

    # The table

    def selection(self) -> Selection | None:
        """What the job says of our table, or the model that it only uses; None without one."""
        said = self.terms.spec.data.get(self.party)
        trains = self.protocol.leaves == "model"  # and may look at further columns
        if said is None or self.model is None or trains:
            return said
        facts = self.used_model()
        own = facts["columns"] if said.columns is None else said.columns
        kinds = [name for name in own if name in facts["categories"]]
        return said.model_copy(update={"columns": own, "categorical": kinds})

    def read_table(self, source: SourceSpec) -> None:
        """Loads the party's table; refuses one that changed since the first attempt."""
        from fedboost.data.loading import load_with_ids

        self.check_disclosure()
        selection = self.selection()
        assert selection is not None
        labelled = self.role in self.protocol.labelled
        self.frame, self.id_cells = load_with_ids(
            source,
            selection,
            party=self.party,
            needs_label=labelled,
            needs_features=self.role is not flow.GUEST or self.protocol.is_horizontal,
        )
        for note in self.frame.notes:
            log.info("%s: %s", self.id, note)
        digest = self.frame.digest().hex()
        before = self._checkpoints.load(self._folder("table"))
        if before is None:
            self._checkpoints.save(self._folder("table"), START, {"digest": digest}, {})
        elif before.state["digest"] != digest:
            raise DataError(
                "the table has changed since the job began",
                party=self.party,
                file=source.name,
                todo="put the old table back, or submit a new job",
                kind="the table has changed since the job began",
            )

    def used_model(self) -> dict[str, Any]:
        """Facts of the model that the job uses; a ConfigError where its parties are not the job's,
        or the job's settings do not fit it.

        Only the guest that trained a model may use it, with the hosts in the order of training.
        """
        facts = shards.load_facts(self.used_model_folder)
        trained: tuple[Any, Any] = (facts["guest"], facts["hosts"])
        if trained != (self.table.guest, list(self.table.hosts)):
            raise ConfigError(
                f"the model belongs to guest {trained[0]} and hosts {', '.join(trained[1])}",
                todo="name the same parties in the job, hosts in the same order",
                model=str(self.model),
            )
        if self.protocol.fits is not None:
            try:
                self.protocol.fits(self.params, facts)
            except FedboostError as error:
                raise error.at(party=self.party, model=str(self.model)) from None
        return facts

    def check_disclosure(self) -> None:
        """Refuses to use again what was never disclosed here, or to others."""
        if self.reused is None:
            return
        try:
            self.disclosures.check(self.reused, self.protocol.name, self.table)
        except ConfigError as error:
            raise error.at(party=self.party) from None

    def check_alignment(self, least: int) -> None:
        """Refuses rows in common of which an earlier job left nothing here that fits this one."""
        if self.aligned_by is not None and self.frame is not None:
            stage = protocols.aligns(self.terms.spec, self.params) or ""
            asked = described(stage, self.party, self.terms.spec, self.frame)
            self.rows_in_common.check(self.aligned_by, asked, least)

    def told_again(self, stage: str) -> Told:
        """What the guest told of the rows in common when an earlier job found them; once a job."""
        if self.aligned_by is None or self.frame is None or stage != self.stages[0]:
            return Told()
        return self.rows_in_common.told(self.aligned_by)

    def check_table(self) -> None:
        """Refuses a table that the job's protocol, or the model that it uses, cannot use."""
        from fedboost.model import columns

        if self.frame is None:
            return
        try:
            if self.model is not None:
                columns.places(self.used_model(), self.frame)
            if self.protocol.check is not None:
                held = self.terms.spec.validation is not None
                self.protocol.check(self.role, self.params, self.frame, held)
        except FedboostError as error:
            raise error.at(party=self.party) from None

    # Seats

    def seat(
        self, stage: str, place: Place, workers: Workers, policy: Policy, signer: Signer
    ) -> Seat:
        """What the party brings to a stage behind a place; a ProtocolError unless it is due."""
        artefacts = {name: self.artefact(name) for name in self.stages if self.is_done(name)}
        self._check_turn(stage, artefacts)
        if self.model is not None and stage not in self.protocol.before:
            artefacts[flow.MODEL] = shards.load(self.used_model_folder)
        if self.aligned_by is not None and self.frame is not None:
            artefacts |= self.rows_in_common.load(self.aligned_by)
        if self.reused is not None and self.role is not flow.AGGREGATOR:
            artefacts[flow.DISCLOSURE] = self.disclosures.load(self.reused)
        frame = self._rows(stage, artefacts)
        self._pin(stage, frame)
        seed = Secrets(self.store.vault.seed(self.id))
        return Seat(
            party=self.party,
            role=self.role,
            table=self.table,
            params=self._params_of(stage),
            frame=frame,
            validation=self.validation(frame),
            secrets=seed.child(stage, self.attempt),
            job_secrets=seed.child(stage, "every attempt"),
            lasting_secrets=self.store.vault.lasting,
            job=self.id,
            origin=self._named(stage),
            context=self._named(stage, str(self.attempt)),
            place=place,
            kept=self.histories.get(stage, {}),
            signer=signer,
            notebook=self,
            workers=workers,
            artefacts=artefacts,
            limits=policy,
        )

    def _named(self, *within: str) -> bytes:
        """32 bytes that no other job has, and nothing else within the job."""
        named = (self.id, self.manifest_sha256.hex(), *within)
        return hashlib.sha256("\0".join(("fedboost stage 1", *named)).encode()).digest()

    # What lies on disk

    def read(self) -> dict[str, Any]:
        """What the job's steps have written down; see `flow.Notebook`."""
        found = self._checkpoints.load(self._folder("notebook"))
        return {} if found is None else found.state

    def write(self, facts: dict[str, Any]) -> None:
        """Keeps what a step must know again in every later attempt; see `flow.Notebook`."""
        self._checkpoints.save(self._folder("notebook"), START, facts, {})

    def how_far(self) -> BeginReply:
        """The stages this party has finished and the checkpoints it still has."""
        reply = BeginReply(stages_done=[name for name in self.stages if self.is_done(name)])
        for name in self.stages:
            found = self._checkpoints.whole(self._folder(name))
            self.histories[name] = {one.place: one.state.get(flow.HISTORY, "") for one in found}
            for round_, *within in self.histories[name]:
                reply.kept.append(Kept(stage=name, round=round_, within=within))
        return reply

    def keep(self, stage: str, place: Place, taken: Artefact) -> None:
        """Keeps a checkpoint at a place of a stage; an aggregator has nothing to go on from."""
        if self.role is flow.AGGREGATOR:
            return
        Transcripts(self.store.folder).add(self.id, place, taken.transcript)
        self._checkpoints.save(self._folder(stage), place, taken.facts, taken.arrays)

    def kept(self, stage: str, place: Place) -> Artefact | None:
        """The checkpoint at a place, and none behind it any more; None for the start of a stage."""
        Transcripts(self.store.folder).discard_after(self.id, place)
        self._checkpoints.discard_after(self._folder(stage), place)
        if place == START or self.role is flow.AGGREGATOR:
            return None
        found = self._checkpoints.load(self._folder(stage), place)
        assert found is not None
        return Artefact(found.state, found.arrays)

    def is_done(self, stage: str) -> bool:
        """Whether the stage has left its artefact, whole; one that is torn is made again."""
        return bool(self._checkpoints.whole(self._folder(f"{stage}-done")))

    def artefact(self, stage: str) -> Artefact:
        """What a finished stage left."""
        found = self._checkpoints.load(self._folder(f"{stage}-done"))
        assert found is not None
        return Artefact(found.state, found.arrays)

    def close(self, stage: str, left: Artefact) -> None:
        """Keeps what a stage left, and puts a model or predictions where they are looked for.

        A stage that is closed anew is not done until it is: who dies while one model replaces the
        other has none of them.
        """
        protocol, done = protocols.named(stage), self._folder(f"{stage}-done")
        if done.exists():
            with on_disk(done):
                shutil.rmtree(done)
                sync_folder(done.parent)
        if left.disclosure is not None:
            kept = left.disclosure
            # The guest's labels have to stand beside the same rows again.
            if self.frame is not None and self.role is flow.GUEST:
                rows = self._aligned()
                if rows is not None:
                    kept = with_rows(kept, [self.frame.ids[row] for row in rows.tolist()])
            self.disclosures.save(self.id, kept, protocol.name, self.table)
        if protocol.leaves == "rows" and self.frame is not None:
            told = self.session.told if self.session is not None else []
            facts = described(stage, self.party, self.terms.spec, self.frame)
            self.rows_in_common.save(self.id, left, facts, told)
        if protocol.leaves == "model" and self.role is not flow.AGGREGATOR:
            facts = {
                "protocol": protocol.name,
                "job": self.id,
                "name": self.terms.spec.name,
                "party": self.party,
                "role": str(self.role),
                "guest": self.table.guest,
                "hosts": list(self.table.hosts),
                "id": self.terms.spec.data[self.party].id,
                "ids": {party: data.id for party, data in self.terms.spec.data.items()},
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            Transcripts(self.store.folder).add(self.id, END, left.transcript)
            shards.save(self.model_folder, Artefact({**facts, **left.facts}, left.arrays))
        own = stage == self.protocol.name  # another job's are the first margins of its training
        if own and protocol.leaves == "predictions" and "prediction" in left.arrays:
            self._write_predictions(left)
        self._checkpoints.save(done, START, left.facts, left.arrays)

    @property
    def model_folder(self) -> Path:
        """Where the model's shard lies once the job is done."""
        return self.store.folder / "models" / self.id

    @property
    def disclosures(self) -> Disclosures:
        """What jobs have disclosed, for others to use again."""
        return Disclosures(self.store.folder)

    @property
    def rows_in_common(self) -> RowsInCommon:
        """What jobs have aligned, for others to use again."""
        return RowsInCommon(self.store.folder)

    @property
    def used_model_folder(self) -> Path:
        """Where the shard lies of the model that the job uses."""
        return self.store.folder / "models" / str(self.model)

    @property
    def predictions_file(self) -> Path:
        """Where predictions lie once the job is done."""
        return self.store.folder / "predictions" / f"{self.id}.parquet"

    @property
    def report_file(self) -> Path:
        """Where the guest's report lies once the job is done."""
        return self.store.folder / "reports" / f"{self.id}.html"

    def write_result(self, result: dict[str, Any]) -> None:
        """The job's result as JSON in the job's folder of the store."""
        folder = self.store.job_folder(self.id)
        make_folder(folder)
        write_file(folder / "result.json", json.dumps(result, indent=1).encode(), PUBLIC_MODE)

    def _rows(self, stage: str, artefacts: Mapping[str, Artefact]) -> Frame | None:
        """Our table at a stage: its aligned rows, or what was disclosed before."""
        if self.frame is None:
            return None
        if flow.DISCLOSURE in artefacts:
            try:
                return rows_again(self.frame, artefacts[flow.DISCLOSURE])
            except DataError as error:
                raise error.at(party=self.party) from None
        rows = None if protocols.named(stage).leaves == "rows" else self._aligned()
        return self.frame if rows is None else self.frame.take(rows)

    def _pin(self, stage: str, frame: Frame | None) -> None:
        """Refuses a stage with other rows than an earlier attempt at it had."""
        if frame is None:
            return
        folder, digest = self._folder(f"{stage}-rows"), frame.ids_digest().hex()
        before = self._checkpoints.load(folder)
        if before is None:
            self._checkpoints.save(folder, START, {"digest": digest}, {})
        elif before.state["digest"] != digest:
            raise DataError(
                "the rows in common are not those with which the job began",
                party=self.party,
                todo="submit a new job",
            )

    def _aligned(self) -> NDArray[np.int64] | None:
        """Of our table the rows that an alignment has left, in their order; None without one."""
        if self.aligned_by is not None:
            (left,) = self.rows_in_common.load(self.aligned_by).values()
            return left.arrays["rows"].astype(np.int64)
        for name in self.stages:
            if protocols.named(name).leaves == "rows" and self.is_done(name):
                return self.artefact(name).arrays["rows"].astype(np.int64)
        return None

    def validation(self, frame: Frame | None) -> NDArray[np.bool_]:
        """Which rows of a stage are held out; parties of a hybrid job know no common count."""
        held = self.terms.spec.validation
        if held is None or frame is None:
            return np.zeros(0 if frame is None else frame.n_rows, np.bool_)
        return held.rows(frame.ids, by_id=self.protocol.is_hybrid)

    def _check_turn(self, stage: str, done: Mapping[str, Artefact]) -> None:
        if stage not in self.stages:
            raise ProtocolError(f"the job has no stage {stage[:64]!r}", job=self.id)
        missing = [name for name in self.stages[: self.stages.index(stage)] if name not in done]
        if missing:
            raise ProtocolError(f"the stage {stage} needs {missing[0]} first", job=self.id)

    def _params_of(self, stage: str) -> Any:
        """The job's own for its own protocol; an earlier stage has those that this one gives it."""
        if stage == self.protocol.name:
            return self.params
        more = self.protocol.before_model.get(stage)
        given = {} if more is None else {"model": self.model, **more}
        return parse(protocols.named(stage).params, given, section="params")

    def _write_predictions(self, left: Artefact) -> None:
        """The ids as the party's table has them, in its order, and beside them the predictions."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from fedboost.data.predictions import predictions_table

        rows = self._aligned()
        assert self.id_cells is not None
        assert rows is not None
        objective = "" if self.model is None else self.used_model().get("objective", "")
        table = predictions_table(self.id_cells, rows, left.arrays["prediction"], objective)
        out = pa.BufferOutputStream()
        pq.write_table(table, out)
        write_file(self.predictions_file, out.getvalue().to_pybytes(), PUBLIC_MODE)

    def _folder(self, name: str) -> Path:
        return self.store.job_folder(self.id) / name
