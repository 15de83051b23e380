"""A data owner's own party from Python: the jobs that want its data, and its shards of models.

with PartyClient("bank@127.0.0.1:7101", tls="certs/ana") as bank:
    bank.approve(bank.jobs()[-1].id)
    model = load_model(bank.fetch_model(bank.models()[-1].id, "models"))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from fedboost.messages import party_pb2
from fedboost.runtime.client.client import Owner
from fedboost.runtime.party.owner import model_store
from fedboost.sdk.background import Connected
from fedboost.sdk.jobs import Metrics, dataclass_of_message, metrics_of, utc_time
from fedboost.sdk.places import Tls, party_at


@dataclass(frozen=True)
class OwnedJob:
    """A job as a party's owner sees it."""

    id: str
    name: str
    protocol: str
    state: str
    reason: str  # why it ended, if it did not finish
    coordinator: str
    submitter: str
    parties: tuple[str, ...]
    dataset: str  # ours that it uses; empty: none
    updated: datetime  # UTC
    tells: str  # what sums reveal of our table, in a sentence; empty: nothing
    uses: dict[str, str]  # what the job wants of us, in words: id columns, columns, label, …


@dataclass(frozen=True)
class OwnedModel:
    """A model with a shard at a party, described by the shard."""

    id: str
    name: str
    protocol: str
    role: str  # the party's own: guest | host
    guest: str
    hosts: tuple[str, ...]
    objective: str
    rounds: int
    trees: int
    whole: bool  # whether the shard is the whole model, so that it predicts alone
    created: str  # UTC, ISO 8601
    metrics: Metrics = field(default_factory=dict)


class PartyClient(Connected):
    """An owner's client of the own party's daemon; a context manager, and safe in threads.

    The party's policy must name the user as an approver.
    """

    def __init__(self, address: str, *, tls: Tls | None = None, user: str | None = None) -> None:
        """Connect to `address`, ``NAME@HOST:PORT`` or the party's settings file; the rest as in
        `Client`.
        """
        self._owner = Owner(party_at(address, tls, user), user=user or "user")
        super().__init__(self._owner)

    def __repr__(self) -> str:
        return f"PartyClient({self._owner.name!r})"

    def jobs(self) -> list[OwnedJob]:
        """Return every job that the party has seen, with those that wait for approval."""
        return [_owned_job(job) for job in self.run(self._owner.jobs()).jobs]

    def approve(self, job: str) -> OwnedJob:
        """Approve a job that waits for a person's approval."""
        return _owned_job(self.run(self._owner.approve(job)))

    def deny(self, job: str, reason: str = "") -> OwnedJob:
        """Refuse a job; all its parties see the reason."""
        return _owned_job(self.run(self._owner.deny(job, reason)))

    def models(self) -> list[OwnedModel]:
        """Return every model with a shard at the party."""
        return [_owned_model(model) for model in self.run(self._owner.models()).models]

    def fetch_model(self, model: str, folder: str | Path) -> Path:
        """Write the party's shard of a model to the folder `folder`/`model`, and return its path.

        The party's ledger records the user. See `load_model` for its use.
        """
        return model_store.write_shard(
            Path(folder), model, self.run(self._owner.fetch_model(model))
        )


def _owned_job(message: party_pb2.OwnedJob) -> OwnedJob:
    return dataclass_of_message(
        OwnedJob,
        message,
        reason=message.reason.what,
        parties=tuple(message.parties),
        updated=utc_time(message.updated),
        uses={use.about: use.says for use in message.uses},
    )


def _owned_model(message: party_pb2.OwnedModel) -> OwnedModel:
    return dataclass_of_message(
        OwnedModel, message, hosts=tuple(message.hosts), metrics=metrics_of(message.metrics)
    )
