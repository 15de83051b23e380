"""Stores in which `fedboost model` finds shards: one party's, or all of a local cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from fedboost.cli.cluster import CLUSTER_FOLDER
from fedboost.cli.connect import CONFIG_VARIABLE, DIRECTORY, FILE, Command
from fedboost.flow import GUEST, Artefact
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import load_settings
from fedboost.model import kinds, shards
from fedboost.model.export import SHARD_BYTES_MAX
from fedboost.model.vertical import Whole
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.party.owner import releases
from fedboost.runtime.store.forgetting import delete_model, refuse_used


@dataclass(frozen=True)
class Shelves:
    """The stores at hand, by party."""

    stores: dict[str, Path]
    config: PartyConfig | None = None  # settings of the one party with a store here
    cluster: Path | None = None  # folder of the local cluster

    def models(self) -> list[str]:
        """Return every model with a shard here."""
        held = (shards.model_ids(store / "models") for store in self.stores.values())
        return sorted({name for names in held for name in names})

    def named(self, text: str) -> str:
        """Return the model meant by a text, see `shards.resolve_model`."""
        return text if text in self.models() else shards.resolve_model(text, self._known_models())

    def has(self, text: str) -> bool:
        """Return whether a model that `text` can mean is here."""
        return bool(shards.matching_models(text, self._known_models()))

    def _known_models(self) -> shards.KnownModels:
        facts = {model: self.facts(model) for model in self.models()}
        return {model: (str(held["name"]), str(held["created"])) for model, held in facts.items()}

    def holders(self, model: str) -> dict[str, dict[str, Any]]:
        """Return the facts of a model's shards here, by party, the guest first; ConfigError if
        none.
        """
        shards_here = {}
        for party, store in self.stores.items():
            folder = shards.folder_of(store / "models", model)
            if shards.has_shard(folder):
                shards_here[party] = shards.load_facts(folder)
        if not shards_here:
            raise ConfigError(f"there is no model {model} here", todo="fedboost model list")
        return dict(
            sorted(shards_here.items(), key=lambda item: (item[1]["role"] != GUEST, item[0]))
        )

    def facts(self, model: str) -> dict[str, Any]:
        """Return the guest's facts of a model, or another party's if the guest's are not here."""
        return next(iter(self.holders(model).values()))

    def shard(self, model: str, party: str | None = None) -> Artefact:
        """Return the party's shard of a model; without a party the guest's, or another one here."""
        holders = self.holders(model)
        chosen = party or next(iter(holders))
        if chosen not in holders:
            raise ConfigError(
                f"there is no shard of the model of {chosen} here",
                todo=f"name one of: {', '.join(holders)}",
                model=model,
            )
        return shards.load_shard(self.folder(model, chosen))

    def guest_shard(self, model: str) -> Artefact:
        """Return the guest's shard; if only hosts' shards are here, raise ConfigError with the
        guest's name.
        """
        shard = self.shard(model)
        if shard.facts["role"] != GUEST:
            guest = shard.facts["guest"]
            raise ConfigError(
                f"the trees of the model are stored at its guest {guest}",
                todo=f"run the command there, with --config of {guest}",
                model=model,
            )
        return shard

    def folder(self, model: str, party: str) -> Path:
        """Return the folder of a party's shard of a model."""
        return shards.folder_of(self.stores[party] / "models", model)

    def delete(self, model: str, party: str) -> None:
        """Remove a party's shard of a model, the disclosures to the party in its training, and its
        record for audits; raise ConfigError if a job needs it.
        """
        refuse_used(self.stores[party], model)
        delete_model(self.stores[party], model)


CLUSTER = click.option(
    "--cluster",
    type=DIRECTORY,
    metavar="DIR",
    help=f"A local cluster's folder: all its stores.  [default: {CLUSTER_FOLDER}]",
)
CONFIG = click.option(
    "--config",
    type=FILE,
    metavar="PARTY.yaml",
    help=f"A party's settings file: its store.  [env var: {CONFIG_VARIABLE}]",
)


def store_options(command: Command) -> Command:
    """Add `--config` and `--cluster` to a command, and pass it the `shelves` that they name."""

    @wraps(command)
    def with_shelves(*, config: Path | None, cluster: Path | None, **given: Any) -> Any:
        return command(**given, shelves=open_shelves(config, cluster))

    return CONFIG(CLUSTER(with_shelves))


PARTY = click.option("--party", metavar="NAME", help="Owner of the shard; by default the guest.")
RELEASED = click.option(
    "--with",
    "released",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="A host's release of its splits to the guest; once for each host.",
)


def open_shelves(config: Path | None, cluster: Path | None) -> Shelves:
    """Return the stores that the options name; raise ConfigError for two options or no store."""
    if config is not None and cluster is not None:
        raise ConfigError("--config and --cluster exclude each other", todo="give one of them")
    if config is None and cluster is None and CONFIG_VARIABLE in os.environ:
        config = Path(os.environ[CONFIG_VARIABLE])
    if config is not None:
        party = load_settings(PartyConfig, config)
        return Shelves({party.name: party.store}, config=party)
    folder = cluster or CLUSTER_FOLDER
    parties = {path.parent.name: path.parent for path in sorted((folder / "var").glob("*/models"))}
    if not parties:
        raise ConfigError(
            "there is no local cluster in the folder",
            todo="give --config PARTY.yaml or --cluster DIR",
            folder=str(folder),
        )
    return Shelves(parties, cluster=folder)


def parse_pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Read the ``PARTY=VALUE`` texts of an option; raise ConfigError for a bad or doubled one."""
    stores: dict[str, str] = {}
    for text in texts:
        party, equals, value = text.partition("=")
        if not (party and equals and value):
            raise ConfigError(f"{option} {text!r} is not PARTY=…", todo=f"write {option} bank=…")
        if party in stores:
            raise ConfigError(f"{option} names {party} twice", todo="name every party once")
        stores[party] = value
    return stores


def data_in_order(
    data: Mapping[str, str], needed: Sequence[str], why: tuple[str, str]
) -> dict[str, str]:
    """Return `--data` for each of the `needed`; a ConfigError where it lacks one, or has others.

    `why` speaks of one that is needed, and of one that is not.
    """
    for party in needed:
        if party not in data:
            raise ConfigError(
                f"--data is missing for {party}, {why[0]}", todo=f"add --data {party}=…"
            )
    for party in data:
        if party not in needed:
            raise ConfigError(
                f"--data names {party}, {why[1]}", todo=f"the parties are {', '.join(needed)}"
            )
    return {party: data[party] for party in needed}


def host_shards(shelves: Shelves, guest: Artefact, released: Sequence[Path]) -> dict[str, Artefact]:
    """Return the shards of a model's hosts: released to the guest, otherwise from stores here.

    Each release is checked, and is in the guest's ledger on return. Raise the errors of
    `releases.read_release`, and ConfigError if a host has released twice.
    """
    model = guest.facts["job"]
    here = shelves.holders(model)
    hosts = {host: shelves.shard(model, host) for host in guest.facts["hosts"] if host in here}
    if not released:
        return hosts
    config = shelves.config
    if config is None:
        raise ConfigError(
            "--with needs --config of the model's guest: a local cluster has every store here",
            todo="leave --with out",
        )
    files = [
        releases.read_release(config, _read_file(path), model, file=str(path)) for path in released
    ]
    named = [file.release.party for file in files]
    twice = sorted({party for party in named if named.count(party) > 1})
    if twice:
        raise ConfigError(f"--with names {twice[0]} twice", todo="give only the valid release")
    with closing(Ledger(config.store / "store.sqlite")) as ledger:
        for file in files:
            releases.note_release(ledger, file)
    return hosts | {file.release.party: file.shard for file in files}


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(SHARD_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read the file: {error.strerror}",
            file=str(path),
            todo="check the path and the file's permissions",
        ) from None


def whole_model(shelves: Shelves, model: str, released: Sequence[Path]) -> Whole:
    """Assemble a model from shards here and from the hosts' releases.

    Raise ConfigError with the owner's name if a part is missing, and for models that are not trees
    with one part for each party.
    """
    facts = shelves.facts(model)
    kind = kinds.kind_of(facts)
    if kind.is_whole and released:
        raise ConfigError(
            "every party holds the whole model, so there are no releases",
            todo="leave --with out",
            model=model,
        )
    kind.check_joined(facts)
    if kind.is_whole:
        return kind.join_shards(shelves.shard(model), {})
    guest = shelves.guest_shard(model)
    return kind.join_shards(guest, host_shards(shelves, guest, released))
