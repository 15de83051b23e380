"""The settings files of a party, a coordinator and a client.

Relative paths in them are relative to the folder in which the command runs; ~ is the home folder.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from fedboost.data.sources import SourceSpec
from fedboost.errors import ConfigError, PolicyError
from fedboost.runtime.identity import CertificateFaultError, Role, owner, read_certificate
from fedboost.runtime.logs import LogFormat
from fedboost.runtime.policy import Name, Names, Policy, undeclared
from fedboost.runtime.tls import FilePath, TlsFiles
from fedboost.settings import Settings, expanded, parse, read_yaml

HOST_PATTERN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
DATASET_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
COORDINATOR_NAME = "coord"  # what a client expects where nothing says otherwise
CLIENT_FILE = Path(".config/fedboost/client.yaml")  # below the home folder


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[ipv6]:port``; a ConfigError where it is neither."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        good = _is_ip(host)
    else:
        good = HOST_PATTERN.fullmatch(host) is not None
    if colon and good and port.isascii() and port.isdigit() and int(port) <= 65535:
        return host, int(port)
    raise ConfigError(f"{address!r} is not an address", todo="write HOST:PORT or [IPV6]:PORT")


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` cannot leave this machine."""
    host, _ = split_address(address)
    return host == "localhost" or (_is_ip(host) and ipaddress.ip_address(host).is_loopback)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _listen(text: str) -> str:
    try:
        split_address(text)
    except ConfigError as error:
        raise ValueError(f"{error.what}: {error.todo}") from None
    return text


def _address(text: str) -> str:
    if split_address(_listen(text))[1] == 0:
        raise ValueError(f"{text!r} has port 0, which nobody can call")
    return text


def _host(text: str) -> str:
    if HOST_PATTERN.fullmatch(text) or _is_ip(text):
        return text.lower()
    raise ValueError(f"{text!r} is neither a host's name nor an address; leave port and https out")


def _dataset(text: str) -> str:
    if DATASET_PATTERN.fullmatch(text):
        return text
    raise ValueError(f"{text!r} is not a data set's name: letters, digits and . _ -, 63 at most")


Listen = Annotated[str, AfterValidator(_listen)]  # host:port; port 0 takes any free one
Address = Annotated[str, AfterValidator(_address)]  # host:port
DatasetName = Annotated[str, AfterValidator(_dataset)]
HostName = Annotated[str, AfterValidator(_host)]


class Timers(Settings):
    """Every wait and its limit, in seconds; tests shorten them."""

    step_s: float = Field(600.0, gt=0)  # one step of a protocol, computation included
    call_s: float = Field(20.0, gt=0)  # one small question with a small answer
    peer_lost_s: float = Field(15.0, gt=0)  # silence after which a peer counts as lost
    retry_first_s: float = Field(0.5, gt=0)  # first pause before trying again; doubles
    retry_max_s: float = Field(20.0, gt=0)  # longest pause before trying again
    keepalive_s: float = Field(10.0, gt=0)  # between two pings, calls or not
    keepalive_timeout_s: float = Field(5.0, gt=0)  # wait for a ping's answer
    approval_s: float = Field(604_800.0, gt=0)  # a job waits this long for a person
    # A checkpoint of a short round, or inside one, comes no sooner behind the last; 0: every layer.
    keep_s: float = Field(1.0, ge=0)
    shutdown_s: float = Field(10.0, gt=0)  # calls that still run at the end may take this

    @model_validator(mode="after")
    def _ordered(self) -> Timers:
        if self.retry_first_s > self.retry_max_s:
            raise ValueError("retry_first_s must not be above retry_max_s")
        return self


class MetricsConfig(Settings):
    """Where Prometheus asks the daemon for its figures, by plain HTTP and without signing in."""

    listen: Listen
    allow_remote: bool = False  # other addresses than loopback: whoever reaches it reads it

    @model_validator(mode="after")
    def _near(self) -> MetricsConfig:
        if not (self.allow_remote or is_loopback(self.listen)):
            raise ValueError(f"{self.listen} is not loopback: choose 127.0.0.1, or allow_remote")
        return self


class CoordinatorRetention(Settings):
    """After how many days jobs that are over vanish by themselves; absent: never."""

    jobs_days: float | None = Field(None, gt=0, le=36_500)  # since a job ended


class Retention(CoordinatorRetention):
    """The same at a party. Ledger, accounts and the names of deleted jobs stay for ever."""

    models_days: float | None = Field(None, gt=0, le=36_500)  # since a model was made


class Remote(Settings):
    """Another daemon: the name its certificate must carry, and where it listens."""

    name: Name
    address: Address


class Page(Settings):
    """The page that a daemon serves to people beside its own port."""

    listen: Address  # a port of its own
    user: Name  # in whose name the page acts, as far as that user may
    allow_remote: bool = False  # by TLS with the daemon's certificate, and then from anywhere
    names: Annotated[tuple[HostName, ...], Field(strict=False)] = ()  # by which browsers may call
    session_hours: float = Field(12.0, gt=0.0, le=168.0)  # from signing in until it ends


class DaemonConfig(Settings):
    """What the files of a party and of the coordinator have in common."""

    name: Name  # as in our certificate
    listen: Listen
    tls: TlsFiles | None = None  # absent only with insecure_loopback
    store: FilePath  # our folder: SQLite, models, checkpoints, ledger
    timers: Timers = Timers()
    workers: int = Field(  # processes for cryptography; default: the cores we may use
        default_factory=lambda: len(os.sched_getaffinity(0)), ge=1, le=1024
    )
    insecure_loopback: bool = False  # development on one machine without TLS
    metrics: MetricsConfig | None = None  # absent: nobody is told any
    logs: LogFormat = "text"  # json: one object a line
    page: Page | None = None  # absent: none is served

    def addresses(self) -> dict[str, str]:
        """Everybody's address by name, ours included."""
        return {self.name: self.listen}

    def warnings(self) -> list[str]:
        """What the daemon must say at its start about these settings; one sentence each."""
        found = [_INSECURE] if self.insecure_loopback else []
        if self.metrics is not None and not is_loopback(self.metrics.listen):
            found.append(f"whoever reaches {self.metrics.listen} reads the daemon's metrics")
        if self.page is not None and self.page.allow_remote:
            found.append(f"the page on {self.page.listen} can be reached from other machines")
        return found

    @model_validator(mode="after")
    def _protected(self) -> DaemonConfig:
        _check_protection(self.tls, self.insecure_loopback, self.addresses())
        if self.page is not None:
            _check_page(self.page, self.tls)
        return self


class PartyConfig(DaemonConfig):
    """The file of ``fedboost party serve``; an aggregator is a party without data sets."""

    coordinator: Remote
    peers: Mapping[Name, Address] = Field(default_factory=dict)
    datasets: Mapping[DatasetName, SourceSpec] = Field(default_factory=dict)
    policy: Policy = Policy()
    retention: Retention = Retention()

    def addresses(self) -> dict[str, str]:
        """Everybody's address by name, ours and the coordinator's included."""
        return {
            **self.peers,
            self.coordinator.name: self.coordinator.address,
            self.name: self.listen,
        }

    @model_validator(mode="after")
    def _consistent(self) -> PartyConfig:
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
        for sentence in undeclared(self.policy, declared):
            raise ValueError(sentence)
        if self.page is not None and self.page.user not in self.policy.approvers:
            raise ValueError(
                f"page.user is {self.page.user!r}, whom policy.approvers does not name"
            )
        return self


class Users(Settings):
    """Who may do what at the coordinator; nobody unless named."""

    submit: Names = ()
    read: Names = ()
    cancel: Names = ()

    def judge(self, action: Literal["submit", "read", "cancel"], user: str) -> None:
        """Nothing; a PolicyError unless `user` may `action`."""
        if user not in getattr(self, action):
            raise PolicyError(
                f"{user} may not {action} jobs here",
                todo=f"ask the coordinator's owner to add {user} to users.{action}",
                key=f"users.{action}",
            )


class CoordinatorConfig(DaemonConfig):
    """The file of ``fedboost coordinator serve``."""

    parties: Mapping[Name, Address] = Field(min_length=1)
    users: Users = Users()
    auto_resume: bool = True  # jobs that paused because somebody was gone go on when all are there
    retention: CoordinatorRetention = CoordinatorRetention()

    def addresses(self) -> dict[str, str]:
        """Everybody's address by name, ours included."""
        return {**self.parties, self.name: self.listen}

    @model_validator(mode="after")
    def _consistent(self) -> CoordinatorConfig:
        if self.name in self.parties:
            raise ValueError(f"a party cannot be called {self.name!r} like the coordinator")
        if self.page is not None and self.page.user not in self.users.read:
            raise ValueError(f"page.user is {self.page.user!r}, whom users.read does not name")
        return self


class ClientConfig(Settings):
    """Where the coordinator is and who we are; ``client.yaml``, variables or flags."""

    coordinator: Remote
    tls: TlsFiles | None = None  # absent only with insecure_loopback
    insecure_loopback: bool = False

    def warnings(self) -> list[str]:
        """What a command must say about these settings; one sentence each."""
        return [_INSECURE] if self.insecure_loopback else []

    @model_validator(mode="after")
    def _protected(self) -> ClientConfig:
        places = {self.coordinator.name: self.coordinator.address}
        _check_protection(self.tls, self.insecure_loopback, places)
        return self


_INSECURE = "insecure_loopback is on: no link is encrypted and nobody is who they say they are"


def _check_protection(tls: TlsFiles | None, insecure: bool, addresses: Mapping[str, str]) -> None:
    if not insecure:
        if tls is None:
            raise ValueError("tls is missing: give ca, cert and key (fedboost certs create)")
        return
    if tls is not None:
        raise ValueError("insecure_loopback and tls exclude each other: remove one of them")
    for name, address in addresses.items():
        if not is_loopback(address):
            raise ValueError(f"insecure_loopback is refused: {name} at {address} is not loopback")


def _check_page(page: Page, tls: TlsFiles | None) -> None:
    if page.allow_remote and tls is None:
        raise ValueError("page.allow_remote needs tls: a page goes through no network in the clear")
    if not page.allow_remote and not is_loopback(page.listen):
        raise ValueError(
            f"page.listen is {page.listen}, which other machines can reach: listen on 127.0.0.1 "
            "and come through an SSH tunnel, or set page.allow_remote"
        )


def client_config(
    coordinator: str | None, tls: Path | TlsFiles | None, env: Mapping[str, str], home: Path
) -> ClientConfig:
    """The client's settings: flag before variable before ``~/.config/fedboost/client.yaml``.

    `coordinator` (or FEDBOOST_COORDINATOR) is ``[NAME@]HOST:PORT``; `tls` (or FEDBOOST_TLS) a
    folder with ca.pem and the user's NAME.pem and NAME.key (FEDBOOST_USER picks one of several
    users in it), or the files themselves. A ConfigError says what is missing or wrong, and where it
    was written.
    """
    path = home / CLIENT_FILE
    raw = read_yaml(path) if path.exists() else None
    settings: Any = dict(raw) if isinstance(raw, Mapping) else ({} if raw is None else raw)
    where = {"file": str(path)} if raw is not None else {}
    spoken = coordinator or env.get("FEDBOOST_COORDINATOR")
    said = tls or (Path(env["FEDBOOST_TLS"]) if env.get("FEDBOOST_TLS") else None)
    folder = None if isinstance(said, TlsFiles) else said
    if isinstance(settings, dict):
        if isinstance(said, TlsFiles):
            settings["tls"] = said.model_dump()
        elif folder is not None:
            settings["tls"] = _folder_tls(expanded(folder), env.get("FEDBOOST_USER"))
        if said is not None:
            settings.pop("insecure_loopback", None)
        if spoken:
            settings["coordinator"] = _remote(spoken, folder)
    if not settings:
        raise ConfigError(
            "no coordinator is given",
            todo=f"give --coordinator HOST:PORT and --tls DIR, or write ~/{CLIENT_FILE}",
        )
    return parse(ClientConfig, settings, **where)


def _remote(spoken: str, folder: Path | None) -> dict[str, str]:
    name, at, address = spoken.rpartition("@")
    if not at:
        found = owners(expanded(folder), "coordinator") if folder else []
        name = found[0] if len(found) == 1 else COORDINATOR_NAME
    return {"name": name, "address": address}


def _folder_tls(folder: Path, user: str | None) -> dict[str, str]:
    if not (folder / "ca.pem").exists():
        raise ConfigError(
            "there is no ca.pem in the folder", todo="check --tls DIR", folder=str(folder)
        )
    found = [name for name in owners(folder, "user") if (folder / f"{name}.key").exists()]
    if user is None and len(found) == 1:
        user = found[0]
    if user not in found:
        names = ", ".join(found) or "none"
        raise ConfigError(
            f"expected the certificate and key of one user, found: {names}",
            todo="set FEDBOOST_USER to one of them" if found else "fedboost certs create --user",
            folder=str(folder),
        )
    files = {"ca": "ca.pem", "cert": f"{user}.pem", "key": f"{user}.key"}
    return {key: str(folder / name) for key, name in files.items()}


def owners(folder: Path, role: Role) -> list[str]:
    """The names of everybody in `role` whose NAME.pem lies in the folder."""
    names = []
    for path in sorted(folder.glob("*.pem")):
        try:
            found = owner(read_certificate(path.read_bytes()))
        except (OSError, CertificateFaultError):
            continue
        if found.role == role and found.name == path.stem:
            names.append(found.name)
    return names
