"""The files of a job at a party: checkpoints, what stages left, what steps wrote down."""

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
    """What a party's store holds of a job; implements `flow.Notebook`."""

    signed: SignedJob
    store: Store
    # By stage, of checkpoints that were there when this attempt began.
    histories: dict[str, dict[Place, str]] = field(default_factory=dict)
    _checkpoints: Checkpoints = field(default_factory=Checkpoints)

    def __post_init__(self) -> None:
        self._transcripts = Transcripts(self.store.folder)

    # What later attempts must find unchanged

    def pin(self, name: str, digest: str) -> bool:
        """Return whether a digest is the first kept under a name; keeps it if none was."""
        before = self._checkpoints.load(self._folder(name))
        if before is None:
            self._checkpoints.save(self._folder(name), START, {"digest": digest}, {})
        return before is None or bool(before.state["digest"] == digest)

    def pinned(self, name: str) -> str:
        """Return the digest kept under a name; empty where there is none."""
        kept = self._checkpoints.load(self._folder(name))
        return "" if kept is None else str(kept.state["digest"])

    def read(self) -> dict[str, Any]:
        """Return what the job's steps have written down; see `flow.Notebook`."""
        notebook = self._checkpoints.load(self._folder("notebook"))
        return {} if notebook is None else notebook.state

    def write(self, facts: dict[str, Any]) -> None:
        """Keep what a step must know again in every later attempt; see `flow.Notebook`."""
        self._checkpoints.save(self._folder("notebook"), START, facts, {})

    # Checkpoints

    def how_far(self) -> BeginReply:
        """Return the stages that are finished and the checkpoints that are whole."""
        stages = self.signed.stages
        reply = BeginReply(stages_done=[name for name in stages if self.is_done(name)])
        for name in stages:
            places = self._checkpoints.whole(self._folder(name))
            self.histories[name] = {kept.place: kept.state.get(flow.HISTORY, "") for kept in places}
            for round_, *within in self.histories[name]:
                reply.kept.append(Kept(stage=name, round=round_, within=within))
        return reply

    def keep(self, stage: str, place: Place, taken: Artefact) -> None:
        """Keep a checkpoint at a place of a stage; an aggregator has nothing to go on from."""
        if self.signed.role is flow.AGGREGATOR:
            return
        self._transcripts.add(self.signed.id, place, taken.transcript)
        self._checkpoints.save(self._folder(stage), place, taken.facts, taken.arrays, taken.grown)

    def let_go(self) -> None:
        """Let go of what checkpoints remember of a session that is over."""
        self._checkpoints.let_go()

    def kept(self, stage: str, place: Place) -> Artefact | None:
        """Return the checkpoint at a place and delete those behind it; None at a stage's start."""
        self._transcripts.discard_after(self.signed.id, place)
        self._checkpoints.discard_after(self._folder(stage), place)
        if place == START or self.signed.role is flow.AGGREGATOR:
            return None
        checkpoint = self._checkpoints.load(self._folder(stage), place)
        assert checkpoint is not None
        return Artefact(checkpoint.state, checkpoint.arrays)

    # Finished stages

    def is_done(self, stage: str) -> bool:
        """Return whether the stage has left its artefact, whole; one that is torn is made again."""
        return bool(self._checkpoints.whole(self._folder(f"{stage}-done")))

    def artefact(self, stage: str) -> Artefact:
        """Return what a finished stage left."""
        artefact = self._checkpoints.load(self._folder(f"{stage}-done"))
        assert artefact is not None
        return Artefact(artefact.state, artefact.arrays)

    def done(self) -> dict[str, Artefact]:
        """Return what each finished stage left."""
        return {name: self.artefact(name) for name in self.signed.stages if self.is_done(name)}

    def reopen(self, stage: str) -> None:
        """Make a stage unfinished, before what it left is replaced.

        Who dies while one model replaces another then has neither of them.
        """
        folder = self._folder(f"{stage}-done")
        if folder.exists():
            with on_disk(folder):
                shutil.rmtree(folder)
                sync_folder(folder.parent)

    def finish(self, stage: str, left: Artefact) -> None:
        """Keep what a stage left: from now on it is finished."""
        self._checkpoints.save(self._folder(f"{stage}-done"), START, left.facts, left.arrays)

    # What the job's people look for

    @property
    def model(self) -> Path:
        """The folder of the model's shard, once the job is done."""
        return self.store.models / self.signed.id

    @property
    def used_model(self) -> Path:
        """The folder of the shard of the model that the job uses."""
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

    def _folder(self, name: str) -> Path:
        return self.store.job_folder(self.signed.id) / name
