"""The files of a job at a party: checkpoints, results of stages, the notebook of its steps."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedboost import flow
from fedboost.flow import START, Artefact, Place
from fedboost.ground.disk import PUBLIC_MODE, make_folder, on_disk, sync_folder, write_file
from fedboost.messages.party_pb2 import BeginReply, Kept
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.store.checkpoints import Checkpoints
from fedboost.runtime.store.store import Store
from fedboost.runtime.store.transcripts import Transcripts


@dataclass
class JobFiles:
    """The files of a job in a party's store; implements `flow.Notebook`."""

    signed: SignedJob
    store: Store
    # By stage, for the checkpoints that existed when this attempt began.
    histories: dict[str, dict[Place, str]] = field(default_factory=dict)
    _checkpoints: Checkpoints = field(default_factory=Checkpoints)

    def __post_init__(self) -> None:
        self._transcripts = Transcripts(self.store.folder)

    # Digests that later attempts must find unchanged

    def pin_digest(self, name: str, digest: str) -> bool:
        """Return whether a digest is the first kept under a name; keep it if the name has none."""
        before = self._checkpoints.load(self._checkpoint_folder(name))
        if before is None:
            self._checkpoints.save(self._checkpoint_folder(name), START, {"digest": digest}, {})
        return before is None or bool(before.state["digest"] == digest)

    def pinned_digest(self, name: str) -> str:
        """Return the digest kept under a name; empty if the name has none."""
        kept = self._checkpoints.load(self._checkpoint_folder(name))
        return "" if kept is None else str(kept.state["digest"])

    def read(self) -> dict[str, Any]:
        """Return the facts that the job's steps have noted; see `flow.Notebook`."""
        notebook = self._checkpoints.load(self._checkpoint_folder("notebook"))
        return {} if notebook is None else notebook.state

    def write(self, facts: dict[str, Any]) -> None:
        """Keep a step's facts for all later attempts; see `flow.Notebook`."""
        self._checkpoints.save(self._checkpoint_folder("notebook"), START, facts, {})

    # Checkpoints

    def saved_progress(self) -> BeginReply:
        """Return the finished stages and the complete checkpoints."""
        stages = self.signed.stages
        reply = BeginReply(stages_done=[name for name in stages if self.is_done(name)])
        for name in stages:
            places = self._checkpoints.loadable_checkpoints(self._checkpoint_folder(name))
            self.histories[name] = {kept.place: kept.state.get(flow.HISTORY, "") for kept in places}
            for round_, *within in self.histories[name]:
                reply.kept.append(Kept(stage=name, round=round_, within=within))
        return reply

    def keep(self, stage: str, place: Place, taken: Artefact) -> None:
        """Save a checkpoint at a place of a stage; an aggregator needs none."""
        if self.signed.role is flow.AGGREGATOR:
            return
        self._transcripts.add(self.signed.id, place, taken.transcript)
        self._checkpoints.save(
            self._checkpoint_folder(stage), place, taken.facts, taken.arrays, taken.grown
        )

    def let_go(self) -> None:
        """Free the memory of checkpoints from a session that has ended."""
        self._checkpoints.let_go()

    def kept(self, stage: str, place: Place) -> Artefact | None:
        """Return the checkpoint at a place and delete later ones; None at a stage's start."""
        self._transcripts.discard_after(self.signed.id, place)
        self._checkpoints.discard_after(self._checkpoint_folder(stage), place)
        if place == START or self.signed.role is flow.AGGREGATOR:
            return None
        checkpoint = self._checkpoints.load(self._checkpoint_folder(stage), place)
        assert checkpoint is not None
        return Artefact(checkpoint.state, checkpoint.arrays)

    # Finished stages

    def is_done(self, stage: str) -> bool:
        """Return whether the complete result of a stage is there; a torn one is made again."""
        return bool(
            self._checkpoints.loadable_checkpoints(self._checkpoint_folder(f"{stage}-done"))
        )

    def artefact_of(self, stage: str) -> Artefact:
        """Return the result of a finished stage."""
        artefact = self._checkpoints.load(self._checkpoint_folder(f"{stage}-done"))
        assert artefact is not None
        return Artefact(artefact.state, artefact.arrays)

    def done(self) -> dict[str, Artefact]:
        """Return the results of the finished stages by name."""
        return {name: self.artefact_of(name) for name in self.signed.stages if self.is_done(name)}

    def reopen_stage(self, stage: str) -> None:
        """Make a stage unfinished before its result is replaced.

        If the process dies while one model replaces another, neither of them is left.
        """
        folder = self._checkpoint_folder(f"{stage}-done")
        if folder.exists():
            with on_disk(folder):
                shutil.rmtree(folder)
                sync_folder(folder.parent)

    def finish(self, stage: str, left: Artefact) -> None:
        """Save the result of a stage, which is finished from now on."""
        self._checkpoints.save(
            self._checkpoint_folder(f"{stage}-done"), START, left.facts, left.arrays
        )

    # The files that users read

    @property
    def model(self) -> Path:
        """The folder of the model's shard, once the job is done."""
        return self.store.models / self.signed.id

    @property
    def used_model_folder(self) -> Path:
        """The folder of the shard of the model that the job predicts with."""
        return self.store.models / str(self.signed.model)

    @property
    def predictions(self) -> Path:
        """The file of predictions, once the job is done."""
        return self.store.folder / "predictions" / f"{self.signed.id}.parquet"

    @property
    def report(self) -> Path:
        """The file of the guest's report, once the job is done."""
        return self.store.folder / "reports" / f"{self.signed.id}.html"

    def write_result(self, result: dict[str, Any]) -> None:
        """Write the job's result as JSON into the job's folder of the store."""
        folder = self.store.job_folder(self.signed.id)
        make_folder(folder)
        write_file(folder / "result.json", json.dumps(result, indent=1).encode(), PUBLIC_MODE)

    def _checkpoint_folder(self, name: str) -> Path:
        return self.store.job_folder(self.signed.id) / name
