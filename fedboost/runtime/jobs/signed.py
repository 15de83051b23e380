"""A job as one party sees it: the signed manifest, and the facts that follow for the party.

Nothing here changes during the job, and only the facts of a used model are read from a store.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedboost import flow, protocols
from fedboost.data.selection import Selection
from fedboost.flow import Role
from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.ground.settings import Settings, parse_settings
from fedboost.job import Alignment
from fedboost.model import shards
from fedboost.runtime.jobs.manifest import Manifest

if TYPE_CHECKING:
    from fedboost.data.frame import Frame


@dataclass(frozen=True)
class SignedJob:
    """Content behind a party's signature under a manifest; created before the party judges it."""

    party: str
    manifest: Manifest
    manifest_sha256: bytes

    @property
    def id(self) -> str:
        """The job's id."""
        return self.manifest.job

    @cached_property
    def table(self) -> flow.Table:
        """The parties of the job and their roles."""
        return self.manifest.spec.parties.table()

    @cached_property
    def protocol(self) -> flow.Protocol[Settings]:
        """The protocol that the job runs; earlier stages have their own."""
        return protocols.load_protocol(self.manifest.spec.protocol)

    @cached_property
    def params(self) -> Any:
        """The settings of the job's protocol; a ConfigError if they are invalid."""
        return parse_settings(self.protocol.params, self.manifest.params, section="params")

    @property
    def role(self) -> Role:
        """The role of this party in the job; a ConfigError if it has none."""
        role = self.table.role_of(self.party)
        if role is None:
            raise ConfigError(
                f"the job has no part for {self.party}",
                party=self.party,
                todo="name the party in the job, or leave it alone",
            )
        return role

    @cached_property
    def peers(self) -> tuple[str, ...]:
        """Return all parties of the job but this one."""
        return tuple(party for party in self.table.of(tuple(Role)) if party != self.party)

    @property
    def stages(self) -> tuple[str, ...]:
        """The protocols of the job, in order."""
        return protocols.stages_of_job(self.manifest.spec, self.params)

    @property
    def dataset(self) -> str:
        """The name of the party's data set; empty where the job reads none of its tables."""
        selection = self.manifest.spec.data.get(self.party)
        return "" if selection is None else selection.dataset or ""

    @property
    def guest_label(self) -> str | None:
        """The guest's label column, where the job trains and this party brings no label."""
        selection = self.manifest.spec.data.get(self.table.guest)
        if (
            selection is None
            or self.protocol.leaves != "model"
            or self.role in self.protocol.tables.labelled
        ):
            return None
        return selection.label

    @property
    def model(self) -> str | None:
        """The id of the model that the job uses, if it uses one."""
        return self.protocol.used_model(self.params)

    @property
    def reused_disclosure(self) -> str | None:
        """Return the id of the job whose disclosure this one uses again, if it does."""
        return self.protocol.used_disclosure(self.params)

    @property
    def alignment_job(self) -> str | None:
        """Return the id of the job whose rows in common this one uses again, if it does."""
        return self.manifest.spec.alignment_job

    @property
    def contributors(self) -> int | None:
        """Return the number of parties in the job's sums under masks; None without masks."""
        if flow.AGGREGATOR not in self.protocol.modules:
            return None
        return len(self.table.of(flow.EVERYBODY))

    @property
    def goes_on(self) -> bool:
        """Return whether the job goes on without hosts that are lost."""
        return getattr(self.params, "dropout", "wait") == "continue"

    @property
    def is_recorded(self) -> bool:
        """Return whether this party keeps the data for a replay of the job."""
        return self.manifest.spec.replayable and self.role is flow.GUEST

    def job_digest(self, *within: str) -> bytes:
        """Return 32 bytes that are unique to this job and to `within`."""
        named = (self.id, self.manifest_sha256.hex(), *within)
        return hashlib.sha256("\0".join(("fedboost stage 1", *named)).encode()).digest()

    def held_out(self, frame: Frame | None) -> NDArray[np.bool_]:
        """Return a stage's rows held out, (n_rows,); a hybrid job has no common count."""
        held = self.manifest.spec.validation
        if held is None or frame is None:
            return np.zeros(0 if frame is None else frame.n_rows, np.bool_)
        return held.rows(frame.ids, by_id=self.protocol.tables.rows is flow.RowsUsed.GUESTS)

    @property
    def scored_share(self) -> float:
        """Return the share of this party's rows in common that are held out and scored for the
        guest; 0 if rows stay with their owner.
        """
        held = self.manifest.spec.validation
        trains = self.protocol.leaves == "model" and self.role is Role.HOST
        if held is None or not trains or self.protocol.tables.rows is flow.RowsUsed.OWN:
            return 0.0
        return held.held_out_share

    def params_of(self, stage: str) -> Any:
        """Return the settings of a stage: the job's own, or its protocol's for an earlier stage.

        Raise ConfigError if they are invalid.
        """
        alignment = self.manifest.spec.alignment
        if protocols.load_protocol(stage).leaves == "rows" and isinstance(alignment, Alignment):
            return alignment
        if stage == self.protocol.name:
            return self.params
        use = self.protocol.model
        more = None if use is None else use.before.get(stage)
        given = {} if more is None else {"model": self.model, **more}
        return parse_settings(protocols.load_protocol(stage).params, given, section="params")

    # With the models of the party's store

    def selection(self, models: Path) -> Selection | None:
        """Return the selection from the party's table, from the job or from the model that it uses;
        None without a table. `models` is the store's folder of models.
        """
        selection = self.manifest.spec.data.get(self.party)
        trains = self.protocol.leaves == "model"  # and may look at further columns
        if selection is None or self.model is None or trains:
            return selection
        facts = self.used_model(models)
        columns = facts["columns"] if selection.columns is None else selection.columns
        kinds = [name for name in columns if name in facts["categories"]]
        return selection.model_copy(update={"columns": columns, "categorical": kinds})

    def used_model(self, models: Path) -> dict[str, Any]:
        """Return facts of the model that the job uses; a ConfigError if they do not fit it.

        Only the guest that trained a model may use it, with the hosts in the order of training.
        """
        facts = shards.load_facts(models / str(self.model))
        trained: tuple[Any, Any] = (facts["guest"], facts["hosts"])
        if trained != (self.table.guest, list(self.table.hosts)):
            raise ConfigError(
                f"the model belongs to guest {trained[0]} and hosts {', '.join(trained[1])}",
                todo="name the same parties in the job, hosts in the same order",
                model=str(self.model),
            )
        if self.protocol.model is not None:
            try:
                self.protocol.model.fits(self.params, facts)
            except FedboostError as error:
                raise error.at(party=self.party, model=str(self.model)) from None
        return facts
