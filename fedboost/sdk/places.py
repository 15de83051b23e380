"""Addresses of daemons and identities of users, as Python gives them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import expand_path, load_settings, parse_settings, user_home_folder
from fedboost.runtime.client.config import (
    ClientConfig,
    client_config,
    config_without_tls,
    names_with_role,
)
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.transport.tls import TlsFiles

# A folder with ca.pem, NAME.pem and NAME.key, or the three files themselves as ca, cert and key.
Tls: TypeAlias = str | Path | Mapping[str, str | Path] | TlsFiles


def coordinator_at(address: str | None, tls: Tls | None, user: str | None) -> ClientConfig:
    """Return a client's settings: arguments before FEDBOOST_* variables before client.yaml.

    Raise ConfigError for a missing or wrong setting, with its source.
    """
    env = dict(os.environ)
    if user is not None:
        env["FEDBOOST_USER"] = user
    config = client_config(address, _tls_files(tls), env, user_home_folder())
    for warning in config.warnings():
        warnings.warn(warning, stacklevel=3)
    return config


def party_at(address: str, tls: Tls | None, user: str | None) -> ClientConfig:
    """Return an owner's settings for the own party, from ``NAME@HOST:PORT`` or its settings file.

    Without a name, use the only party with a certificate in the folder `tls`.
    """
    if address.endswith((".yaml", ".yml")):
        party = load_settings(PartyConfig, Path(address))
        if party.insecure_loopback:
            return config_without_tls(party.name, party.listen)
        return coordinator_at(f"{party.name}@{party.listen}", tls, user)
    if "@" not in address:
        folder = expand_path(Path(tls)) if isinstance(tls, str | Path) else None
        parties = [] if folder is None else names_with_role(folder, "party")
        if len(parties) != 1:
            raise ConfigError(
                f"which party listens at {address}?",
                todo=f"write NAME@{address}, or the party's settings file",
            )
        address = f"{parties[0]}@{address}"
    return coordinator_at(address, tls, user)


def _tls_files(tls: Tls | None) -> Path | TlsFiles | None:
    if tls is None or isinstance(tls, TlsFiles):
        return tls
    return parse_settings(TlsFiles, dict(tls)) if isinstance(tls, Mapping) else Path(tls)
