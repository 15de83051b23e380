"""Context of a party at one stage of a job: data, secrets and services."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from fedboost.flow.artefact import Artefact
from fedboost.flow.limits import PeerLimits
from fedboost.flow.roles import Role, Table
from fedboost.flow.run import START, Place
from fedboost.flow.steps import Charge, Spent
from fedboost.ground.errors import ProtocolError
from fedboost.ground.part_workers import Embedded, PartWorkers
from fedboost.ground.settings import Settings

if TYPE_CHECKING:  # a coordinator knows no tables
    import numpy as np
    from numpy.typing import NDArray

    from fedboost.crypto.secrets import Secrets
    from fedboost.data.frame import Frame
    from fedboost.ground.workers import Workers

P_co = TypeVar("P_co", bound=Settings, covariant=True)  # the protocol's own Settings


class Signer(Protocol):
    """Signatures by the certificates of a job's parties."""

    def sign(self, text: bytes) -> bytes:
        """Return our signature under a text."""

    def check(self, party: str, text: bytes, signature: bytes) -> None:
        """Refuse, with a PeerError, a signature that is not that party's."""


class Notebook(Protocol):
    """Facts that a party keeps for every later attempt."""

    def read(self) -> dict[str, Any]:
        """Return the facts written last; empty at first."""

    def write(self, facts: dict[str, Any]) -> None:
        """Write facts as JSON; they are on the disk when this returns."""


@dataclass
class MemoryNotebook(Notebook):
    """A notebook without a store: it lasts as long as its process."""

    facts: dict[str, Any] = field(default_factory=dict)

    def read(self) -> dict[str, Any]:
        """See `Notebook`."""
        return dict(self.facts)

    def write(self, facts: dict[str, Any]) -> None:
        """Keep the facts as JSON would; nothing reaches a disk."""
        self.facts = json.loads(json.dumps(facts))


@dataclass(frozen=True)
class StageAttempt:
    """An attempt at a stage: its identity, and the place it begins at."""

    origin: bytes  # 32 bytes, unique to job, manifest and stage
    digest: bytes  # 32 bytes, unique to the attempt
    place: Place = START  # the stage opens after this place
    # Places that we can resume from, and their `HISTORY` if any.
    kept: Mapping[Place, str] = field(default_factory=dict)
    is_replayable: bool = False  # keys and encryption are drawn from `StageSecrets.attempt`, too


@dataclass(frozen=True)
class StageSecrets:
    """Secrets of a party at a stage, by their lifetime."""

    attempt: Secrets  # fresh for this stage and attempt
    job: Secrets  # of this stage, the same in every attempt: for draws that must not be repeated
    # By a job's id: for the values that this job told first, as long as the store lives, for later
    # jobs that tell them again. Only the party itself can compute it.
    lasting: Callable[[str], Secrets]


@dataclass(frozen=True)
class StageServices:
    """Services that a party has at a stage."""

    signer: Signer
    notebook: Notebook
    workers: Workers
    part_workers: PartWorkers = field(default_factory=Embedded)  # add up rows
    peer_bytes_max: int = sys.maxsize  # limit of memory here for one peer's messages


@dataclass(frozen=True)
class StageContext(Generic[P_co]):
    """Facts of a party's stage of a job, with its secrets and services."""

    party: str
    role: Role
    table: Table
    job: str  # its id
    params: P_co
    limits: PeerLimits  # of the party's own policy
    frame: Frame | None  # the party's rows; None for a party without data
    validation: NDArray[np.bool_]  # rows of `frame` held out, on every party the same ids
    artefacts: Mapping[str, Artefact]  # of the stages before, by their names
    attempt: StageAttempt
    secrets: StageSecrets
    services: StageServices
    dataset: str = ""  # the name of the party's table in its own file

    @property
    def data(self) -> Frame:
        """Rows of the party; a ProtocolError for a party without data."""
        if self.frame is None:
            raise ProtocolError(f"{self.party} has no table in this job")
        return self.frame

    @property
    def label(self) -> NDArray[np.float64]:
        """Label of each row; a ProtocolError for a table without labels."""
        if self.data.label is None:
            raise ProtocolError(f"{self.party}'s table has no label")
        return self.data.label

    @property
    def parts(self) -> dict[str, NDArray[np.int32]]:
        """Rows of `frame` by their use: train, and validation if any are held out."""
        import numpy as np

        parts = {"train": np.flatnonzero(~self.validation).astype(np.int32)}
        if self.validation.any():
            parts["validation"] = np.flatnonzero(self.validation).astype(np.int32)
        return parts

    @property
    def held_out_charges(self) -> tuple[Charge, ...]:
        """Charge of a host's message that lets the guest score the rows held out.

        A job's account counts each row once, also if later messages tell more about it.
        """
        count = int(self.validation.sum())
        return (Charge(Spent.ROWS, count),) if count else ()

    @property
    def peers(self) -> tuple[str, ...]:
        """All other parties of the job."""
        return tuple(p for p in self.table.of(tuple(Role)) if p != self.party)
