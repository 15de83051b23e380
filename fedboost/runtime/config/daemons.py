"""The settings files of a party and of a coordinator.

Relative paths in them are relative to the working folder of the command; ~ is the home folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import PolicyError
from fedboost.ground.printable import without_login
from fedboost.ground.settings import Settings
from fedboost.runtime.config.fields import Names
from fedboost.runtime.config.metrics import MetricsConfig
from fedboost.runtime.config.page import Page, check_page
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.config.relay import RelayService
from fedboost.runtime.process.logs import LogFormat
from fedboost.runtime.process.threads import count_cores
from fedboost.runtime.transport.addresses import (
    INSECURE,
    CertifiedName,
    Listen,
    PinnedAddress,
    Reach,
    RelayAddress,
    Remote,
    Timers,
    check_protection,
    check_ways,
    is_loopback,
    own_address,
    split_address,
)
from fedboost.runtime.transport.roots import CertificateOwner
from fedboost.runtime.transport.signing_tokens import SigningToken
from fedboost.runtime.transport.tls import FilePath, TlsFiles

DATASET_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def _checked_dataset(text: str) -> str:
    if DATASET_PATTERN.fullmatch(text):
        return text
    raise ValueError(f"{text!r} is not a data set's name: letters, digits and . _ -, 63 at most")


DatasetName = Annotated[str, AfterValidator(_checked_dataset)]


def _checked_endpoint(text: str) -> str:
    scheme, _, address = text.partition("://")
    if scheme not in ("http", "https"):
        shown = without_login(text)
        raise ValueError(f"{shown!r} is no endpoint: write http://HOST:PORT or https://HOST:PORT")
    split_address(address)
    return text


class TracesConfig(Settings):
    """OpenTelemetry collector of the daemon's spans, by OTLP over gRPC."""

    endpoint: Annotated[
        str, AfterValidator(_checked_endpoint)
    ]  # http://HOST:PORT or https://HOST:PORT
    allow_remote: bool = False  # http to others than loopback: the receiver can read them

    @model_validator(mode="after")
    def _check_endpoint(self) -> TracesConfig:
        if self.is_open and not self.allow_remote:
            raise ValueError(f"{self.endpoint} is not loopback: use https, or allow_remote")
        return self

    @property
    def is_open(self) -> bool:
        """Return whether spans go through a network in the clear."""
        scheme, _, address = self.endpoint.partition("://")
        return scheme == "http" and not is_loopback(address)


class CoordinatorRetention(Settings):
    """Number of days after which ended jobs are deleted; absent: never."""

    jobs_days: float | None = Field(None, gt=0, le=36_500)  # since a job ended


class Retention(CoordinatorRetention):
    """The same at a party. Ledger, accounts and the names of deleted jobs stay for ever."""

    models_days: float | None = Field(None, gt=0, le=36_500)  # since a model was made


class LocalWorkers(Settings):
    """Workers of Dask on this machine."""

    local: int = Field(ge=1, le=256)  # processes


def _checked_scheduler(text: str) -> str:
    scheme, _, address = text.partition("://")
    if scheme != "tls":
        raise ValueError(
            f"{without_login(text)!r} is no scheduler that we connect to: write tls://HOST:PORT, "
            "for only clusters with mutual TLS are asked"
        )
    split_address(address)
    return text


def _dask_kind(value: Any) -> str:
    return "(address)" if isinstance(value, str) else "(local)"


def _workers_kind(value: Any) -> str:
    kinds = {int: "(number)", str: "(word)"}
    return kinds.get(type(value), "(dask)")


class DaskWorkers(Settings):
    """Workers of Dask that add up rows for a party; needs fedboost[dask]."""

    dask: Annotated[  # tls://HOST:PORT of a scheduler, or `local`
        Annotated[str, AfterValidator(_checked_scheduler), Tag("(address)")]
        | Annotated[LocalWorkers, Tag("(local)")],
        Discriminator(_dask_kind),
    ]
    tls: TlsFiles | None = None  # files of the cluster's own CA; absent for local ones
    gradients: bool = False  # workers may have gradients, which tell labels, and add up plain rows

    @model_validator(mode="after")
    def _check_protection(self) -> DaskWorkers:
        if (self.tls is None) == isinstance(self.dask, str):
            raise ValueError("a cluster's address needs tls, and local workers make their own")
        return self

    @property
    def address(self) -> str | None:
        """Return where the cluster's scheduler is; None for local workers."""
        return self.dask if isinstance(self.dask, str) else None

    @property
    def local_workers(self) -> int:
        """Return the number of local worker processes; 0 for a cluster."""
        return 0 if isinstance(self.dask, str) else self.dask.local


class DaemonConfig(Settings):
    """Common settings of a party and of the coordinator."""

    name: CertifiedName  # as in our certificate
    listen: Listen
    tls: TlsFiles | None = None  # absent only with insecure_loopback
    store: FilePath  # our folder: SQLite, models, checkpoints, ledger
    timers: Timers = Timers()
    # Processes for cryptography: their number, or `embedded` for one for each available core; a
    # party may add up encrypted rows on Dask beside them.
    workers: Annotated[
        Annotated[Literal["embedded"], Tag("(word)")]
        | Annotated[int, Field(ge=1, le=1024), Tag("(number)")]
        | Annotated[DaskWorkers, Tag("(dask)")],
        Discriminator(_workers_kind),
    ] = "embedded"
    insecure_loopback: bool = False  # development on one machine without TLS
    metrics: MetricsConfig | None = None  # absent: no metrics
    traces: TracesConfig | None = None  # needs fedboost[otel]; absent: none are made
    logs: LogFormat = "text"  # json: one object a line
    page: Page | None = None  # absent: none is served
    # How we call other daemons: at their addresses; all through `relay`; through `relay` where an
    # address does not answer.
    reach: Reach = "direct"

    @property
    def processes(self) -> int:
        """Return the number of local processes for cryptography."""
        return self.workers if isinstance(self.workers, int) else count_cores()

    def addresses(self) -> dict[str, str]:
        """Return all addresses by name, ours included."""
        return {self.name: self.listen}

    def pinned_authorities(self) -> dict[CertificateOwner, Path | None]:
        """Return the CA of each owner of a certificate who has another than ours."""
        return {}

    @property
    def dialed_relay(self) -> RelayAddress | None:
        """Return the relay that brings calls to us and takes ours."""
        return None

    def warnings(self) -> list[str]:
        """Return the warnings about these settings at the daemon's start; one sentence each."""
        insecure = [INSECURE] if self.insecure_loopback else []
        if self.metrics is not None and not is_loopback(self.metrics.listen):
            insecure.append(
                f"everyone who can connect to {self.metrics.listen} reads the daemon's metrics"
            )
        if self.traces is not None and self.traces.is_open:
            insecure.append(f"traces are sent to {self.traces.endpoint} in the clear")
        if self.page is not None and self.page.allow_remote:
            insecure.append(f"the page on {self.page.listen} can be reached from other machines")
        return insecure

    @model_validator(mode="after")
    def _check_protection(self) -> DaemonConfig:
        check_protection(self.tls, self.insecure_loopback, self.addresses())
        check_ways(self.addresses().values(), self.dialed_relay, self.reach)
        if self.dialed_relay is not None and self.tls is None:
            raise ValueError("relay needs tls: what passes a relay is encrypted for its receiver")
        if self.page is not None:
            check_page(self.page, self.tls)
        if self.tls is not None:  # frozen for everybody else: pins stand beside the names they pin
            object.__setattr__(self, "tls", self.tls.with_pins(self.pinned_authorities()))
        return self


def undeclared_names(policy: Policy, declared: Mapping[str, Any]) -> list[str]:
    """Return sentences on policy names missing in `declared` (``peers``, ``datasets``, …)."""
    named = {
        "coordinators": policy.coordinators,
        "peers": policy.peers,
        "datasets": policy.datasets,
        "predict.peers": policy.predict.peers,
    }
    return [
        f"policy.{key} names {name!r}, which the file does not declare"
        for key, names in named.items()
        for name in names
        if name not in declared[key.rpartition(".")[2]]
    ]


class PartyConfig(DaemonConfig):
    """The file of ``fedboost party serve``; an aggregator is a party without data sets."""

    coordinator: Remote
    peers: Mapping[CertifiedName, PinnedAddress] = Field(default_factory=dict)
    # Users of other organisations who submit jobs: PEM of the CA that certifies each.
    submitters: Mapping[CertifiedName, FilePath] = Field(default_factory=dict)
    datasets: Mapping[DatasetName, SourceSpec] = Field(default_factory=dict)
    policy: Policy = Policy()
    retention: Retention = Retention()
    signing: SigningToken | None = None  # absent: the key of `tls` signs as well
    memory_gb: float | None = Field(None, gt=0, le=1_000_000)  # absent: all available memory
    # Of the store's disk, for files of large tables, deleted with their jobs; absent: all of it.
    disk_gb: float | None = Field(None, gt=0, le=1_000_000)
    rehearses: bool = False  # after a trial on one machine, say what default limits would allow
    relay: RelayAddress | None = None  # absent: we call and are called directly

    def addresses(self) -> dict[str, str]:
        """Return all addresses by name, ours and the coordinator's included."""
        return {
            **{name: peer.address for name, peer in self.peers.items()},
            self.coordinator.name: self.coordinator.address,
            self.name: self.listen,
        }

    def pinned_authorities(self) -> dict[CertificateOwner, Path | None]:
        """Return the CA of each owner of a certificate who has another than ours."""
        return {
            **{("party", name): peer.ca for name, peer in self.peers.items()},
            ("coordinator", self.coordinator.name): self.coordinator.ca,
            **{("user", name): ca for name, ca in self.submitters.items()},
        }

    @property
    def dialed_relay(self) -> RelayAddress | None:
        """Return the relay that brings calls to us and takes ours."""
        return self.relay

    @model_validator(mode="after")
    def _check_trial_is_local(self) -> PartyConfig:
        """Refuse trials across machines: their results contain figures about labels."""
        afar = [address for address in self.addresses().values() if not is_loopback(address)]
        if self.rehearses and afar:
            raise ValueError(f"rehearses is for trials on one machine, and {afar[0]} is another")
        return self

    @model_validator(mode="after")
    def _check_consistent(self) -> PartyConfig:
        for name in (self.name, self.coordinator.name):
            if name in self.peers:
                raise ValueError(f"peers must not hold {name!r}, which is no peer of ours")
        if self.name == self.coordinator.name:
            raise ValueError(f"the coordinator cannot be called {self.name!r} like ourselves")
        declared = {
            "coordinators": (self.coordinator.name,),
            "peers": self.peers,
            "datasets": self.datasets,
        }
        for sentence in undeclared_names(self.policy, declared):
            raise ValueError(sentence)
        for name in self.policy.approvers:
            if name in self.submitters:
                raise ValueError(
                    f"submitters gives {name!r} another CA, and policy.approvers lets it decide: "
                    "your own CA certifies who approves here"
                )
        for name in () if self.page is None else self.page.users:
            if name not in self.policy.approvers:
                raise ValueError(f"page names {name!r}, which is missing in policy.approvers")
        return self


class Users(Settings):
    """Rights of users at the coordinator; only named users have any."""

    submit: Names = ()
    read: Names = ()
    cancel: Names = ()
    # Users of other organisations: PEM of the CA that alone certifies each.
    ca: Mapping[CertifiedName, FilePath] = Field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Return everybody with a right, once."""
        return tuple(dict.fromkeys((*self.submit, *self.read, *self.cancel)))

    def judge(self, action: Literal["submit", "read", "cancel"], user: str) -> None:
        """Raise a PolicyError unless `user` may `action`."""
        if user not in getattr(self, action):
            raise PolicyError(
                f"{user} may not {action} jobs here",
                todo=f"ask the coordinator's owner to add {user} to users.{action}",
                key=f"users.{action}",
            )


def _relay_kind(value: Any) -> str:
    serves = isinstance(value, RelayService) or (isinstance(value, Mapping) and "listen" in value)
    return "(listen)" if serves else "(address)"


class CoordinatorConfig(DaemonConfig):
    """The file of ``fedboost coordinator serve``."""

    parties: Mapping[CertifiedName, PinnedAddress] = Field(min_length=1)
    users: Users = Users()
    auto_resume: bool = True  # paused jobs continue when all lost parties are back
    jobs_at_once: int = Field(default=16, ge=1, le=1000)  # more are queued, users in turn
    retention: CoordinatorRetention = CoordinatorRetention()
    # With `address` the relay that we dial; with `listen` one in this daemon.
    relay: (
        Annotated[
            Annotated[RelayAddress, Tag("(address)")] | Annotated[RelayService, Tag("(listen)")],
            Discriminator(_relay_kind),
        ]
        | None
    ) = None

    def addresses(self) -> dict[str, str]:
        """Return all addresses by name, ours included."""
        return {
            **{name: party.address for name, party in self.parties.items()},
            self.name: self.listen,
        }

    def pinned_authorities(self) -> dict[CertificateOwner, Path | None]:
        """Return the CA of each owner of a certificate who has another than ours."""
        return {
            **{("party", name): party.ca for name, party in self.parties.items()},
            **{("user", name): ca for name, ca in self.users.ca.items()},
        }

    @property
    def dialed_relay(self) -> RelayAddress | None:
        """Return the relay that brings calls to us and takes ours; our own by loopback."""
        if isinstance(self.relay, RelayService):
            return RelayAddress(address=own_address(self.relay.listen), name=self.name, proxy="")
        return self.relay

    @model_validator(mode="after")
    def _check_consistent(self) -> CoordinatorConfig:
        if isinstance(self.workers, DaskWorkers):
            raise ValueError("a coordinator adds up no rows: leave workers.dask to parties")
        if self.name in self.parties:
            raise ValueError(f"a party cannot be called {self.name!r} like the coordinator")
        tokens = self.relay.tokens if isinstance(self.relay, RelayService) else {}
        for name in tokens:
            if name not in {*self.parties, *self.users.names}:
                raise ValueError(f"relay.tokens names {name!r}, which is no party or user")
        for name in () if self.page is None else self.page.users:
            if name not in self.users.read:
                raise ValueError(f"page names {name!r}, which is missing in users.read")
        return self
