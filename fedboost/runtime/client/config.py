"""Settings of a client: the coordinator's address, and the user's identity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import model_validator

from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import Settings, expand_path, parse_settings, read_yaml
from fedboost.runtime.transport.addresses import (
    INSECURE,
    RelayAddress,
    Remote,
    check_protection,
    check_ways,
)
from fedboost.runtime.transport.identity import (
    CertificateFaultError,
    CertificateRole,
    owner_of_certificate,
    read_certificate,
)
from fedboost.runtime.transport.roots import CertificateOwner
from fedboost.runtime.transport.tls import TlsFiles

COORDINATOR_NAME = "coord"  # default name of a client's coordinator
CLIENT_FILE = Path(".config/fedboost/client.yaml")  # below the home folder


class ClientConfig(Settings):
    """Address of the coordinator and identity of the user; ``client.yaml``, variables or flags."""

    coordinator: Remote
    tls: TlsFiles | None = None  # absent only with insecure_loopback
    insecure_loopback: bool = False
    relay: RelayAddress | None = None  # of a coordinator whose address is `relay`

    def warnings(self) -> list[str]:
        """Return warnings about these settings for the user, one sentence each."""
        return [INSECURE] if self.insecure_loopback else []

    @model_validator(mode="after")
    def _check_protection(self) -> ClientConfig:
        addresses = {self.coordinator.name: self.coordinator.address}
        check_protection(self.tls, self.insecure_loopback, addresses)
        check_ways(addresses.values(), self.relay, "direct")
        if self.tls is not None:
            pins: dict[CertificateOwner, Path | None] = {
                ("coordinator", self.coordinator.name): self.coordinator.ca
            }
            object.__setattr__(self, "tls", self.tls.with_pins(pins))
        return self


def client_config(
    coordinator: str | None, tls: Path | TlsFiles | None, env: Mapping[str, str], home: Path
) -> ClientConfig:
    """Return the client's settings: flag before variable before ``~/.config/fedboost/client.yaml``.

    `coordinator` (or FEDBOOST_COORDINATOR) is ``[NAME@]HOST:PORT``, or ``[NAME@]relay`` with the
    relay's ``[NAME@]HOST:PORT`` in FEDBOOST_RELAY; `tls` (or FEDBOOST_TLS) a
    folder with ca.pem and the user's NAME.pem and NAME.key (FEDBOOST_USER picks one of several
    users in it), or the files themselves. A COORDINATOR-ca.pem in that folder is the CA that alone
    certifies the coordinator of that name. Raise ConfigError for a missing or wrong setting, with
    its source.
    """
    path = home / CLIENT_FILE
    raw = read_yaml(path) if path.exists() else None
    settings: Any = dict(raw) if isinstance(raw, Mapping) else ({} if raw is None else raw)
    where = {"file": str(path)} if raw is not None else {}
    spoken = coordinator or env.get("FEDBOOST_COORDINATOR")
    chosen = tls or (Path(env["FEDBOOST_TLS"]) if env.get("FEDBOOST_TLS") else None)
    folder = None if isinstance(chosen, TlsFiles) else chosen
    if isinstance(settings, dict):
        if isinstance(chosen, TlsFiles):
            settings["tls"] = chosen.model_dump()
        elif folder is not None:
            settings["tls"] = _folder_tls(expand_path(folder), env.get("FEDBOOST_USER"))
        if chosen is not None:
            settings.pop("insecure_loopback", None)
        if relay := env.get("FEDBOOST_RELAY"):
            name, at, address = relay.rpartition("@")
            settings["relay"] = {"address": address, **({"name": name} if at else {})}
        if spoken:
            settings["coordinator"] = _coordinator_settings(spoken, folder)
    if not settings:
        raise ConfigError(
            "no coordinator is given",
            todo=f"give --coordinator HOST:PORT and --tls DIR, or write ~/{CLIENT_FILE}",
        )
    return parse_settings(ClientConfig, settings, **where)


def config_without_tls(name: str, address: str) -> ClientConfig:
    """Return how to reach a daemon of this machine that uses no TLS."""
    return ClientConfig(coordinator=Remote(name=name, address=address), insecure_loopback=True)


def _coordinator_settings(spoken: str, folder: Path | None) -> dict[str, str]:
    name, at, address = spoken.rpartition("@")
    if not at:
        coordinators = names_with_role(expand_path(folder), "coordinator") if folder else []
        name = coordinators[0] if len(coordinators) == 1 else COORDINATOR_NAME
    pinned = None if folder is None else expand_path(folder) / f"{name}-ca.pem"
    ca = {} if pinned is None or not pinned.exists() else {"ca": str(pinned)}
    return {"name": name, "address": address, **ca}


def _folder_tls(folder: Path, user: str | None) -> dict[str, str]:
    if not (folder / "ca.pem").exists():
        raise ConfigError(
            "there is no ca.pem in the folder", todo="check --tls DIR", folder=str(folder)
        )
    users = [name for name in names_with_role(folder, "user") if (folder / f"{name}.key").exists()]
    if user is None and len(users) == 1:
        user = users[0]
    if user not in users:
        names = ", ".join(users) or "none"
        raise ConfigError(
            f"expected the certificate and key of one user, found: {names}",
            todo="set FEDBOOST_USER to one of them" if users else "fedboost certs create --user",
            folder=str(folder),
        )
    files = {"ca": "ca.pem", "cert": f"{user}.pem", "key": f"{user}.key"}
    return {key: str(folder / name) for key, name in files.items()}


def names_with_role(folder: Path, role: CertificateRole) -> list[str]:
    """Return the names of `role` with a NAME.pem in the folder."""
    names = []
    for path in sorted(folder.glob("*.pem")):
        try:
            holder = owner_of_certificate(read_certificate(path.read_bytes()))
        except (OSError, CertificateFaultError):
            continue
        if holder.role == role and holder.name == path.stem:
            names.append(holder.name)
    return names
