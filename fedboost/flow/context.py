"""What a party brings to one stage of a job."""

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
    """The certificates of a job's parties at work."""

    def sign(self, text: bytes) -> bytes:
        """Our signature under a text."""

    def check(self, party: str, text: bytes, signature: bytes) -> None:
        """Refuses, with a PeerError, what that party has not signed."""


class Notebook(Protocol):
    """What a party must know again in every later attempt, whatever happens to this one."""

    def read(self) -> dict[str, Any]:
        """Return what was written last; nothing at first."""

    def write(self, facts: dict[str, Any]) -> None:
        """JSON; on the disk when this returns."""


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
    """An attempt at a stage: what sets it apart from others, and where it begins."""

    origin: bytes  # 32 of them that no other job, manifest or stage has
    digest: bytes  # and 32 that no other attempt has
    place: Place = START  # behind which the stage is opened
    # The places that we could go on from, and their `HISTORY` if any.
    kept: Mapping[Place, str] = field(default_factory=dict)
    is_replayable: bool = False  # keys and encryption are drawn from `StageSecrets.attempt`, too


@dataclass(frozen=True)
class StageSecrets:
    """A party's secrets at a stage, by how long they last."""

    attempt: Secrets  # fresh for this stage and attempt
    job: Secrets  # of this stage, the same in every attempt: for what must not be redrawn
    # By a job's id: of what that job told first, as long as the store lives, for whatever tells it
    # again. Only of the party itself, so that nobody else can compute it.
    lasting: Callable[[str], Secrets]


@dataclass(frozen=True)
class StageServices:
    """Services that a party has at a stage."""

    signer: Signer
    notebook: Notebook
    workers: Workers
    part_workers: PartWorkers = field(default_factory=Embedded)  # who adds up rows
    peer_bytes_max: int = sys.maxsize  # of memory here, that what one peer sends may take


@dataclass(frozen=True)
class StageContext(Generic[P_co]):
    """Facts of a party's stage of a job, with the secrets and services that it brings."""

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
        """The party's rows; a ProtocolError for a party without data."""
        if self.frame is None:
            raise ProtocolError(f"{self.party} has no table in this job")
        return self.frame

    @property
    def label(self) -> NDArray[np.float64]:
        """The label of each row; a ProtocolError for a table without."""
        if self.data.label is None:
            raise ProtocolError(f"{self.party}'s table has no label")
        return self.data.label

    @property
    def parts(self) -> dict[str, NDArray[np.int32]]:
        """The rows of `frame` by what they are for: train, and validation if any is held out."""
        import numpy as np

        parts = {"train": np.flatnonzero(~self.validation).astype(np.int32)}
        if self.validation.any():
            parts["validation"] = np.flatnonzero(self.validation).astype(np.int32)
        return parts

    @property
    def held_out_charges(self) -> tuple[Charge, ...]:
        """Return what a host's message is charged with by which the guest can score the rows held
        out. A job's account counts each row once, whatever further messages say of it.
        """
        count = int(self.validation.sum())
        return (Charge(Spent.ROWS, count),) if count else ()

    @property
    def peers(self) -> tuple[str, ...]:
        """Everybody else at the table."""
        return tuple(p for p in self.table.of(tuple(Role)) if p != self.party)
