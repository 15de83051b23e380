"""Where `fedboost model` finds shards: in one party's store, or in all of a local cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from fedboost.cli.cluster import FOLDER
from fedboost.cli.connect import CONFIG_VARIABLE, DIRECTORY, FILE, Command
from fedboost.flow import GUEST, Artefact
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import load
from fedboost.model import kinds, shards
from fedboost.model.export import FILE_BYTES_MAX
from fedboost.model.vertical import Whole
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.party.owner import releases
from fedboost.runtime.store.forgetting import delete_model, refuse_used


@dataclass(frozen=True)
class Shelves:
    """The stores at hand, by party."""

    stores: dict[str, Path]
    config: PartyConfig | None = None  # of the one party whose store it is
    cluster: Path | None = None  # the folder whose stores they are

    def models(self) -> list[str]:
        """Every model of which a shard is here."""
        held = (shards.names(store / "models") for store in self.stores.values())
        return sorted({name for names in held for name in names})

    def named(self, text: str) -> str:
        """See `shards.meant`, of the models here."""
        return text if text in self.models() else shards.meant(text, self._known())

    def has(self, text: str) -> bool:
        """Return whether a model that `text` can mean is here."""
        return bool(shards.matching(text, self._known()))

    def _known(self) -> shards.Known:
        facts = {model: self.facts(model) for model in self.models()}
        return {model: (str(held["name"]), str(held["created"])) for model, held in facts.items()}

    def holders(self, model: str) -> dict[str, dict[str, Any]]:
        """The facts of a model's shards here, by party, the guest first; a ConfigError if none."""
        shards_here = {}
        for party, store in self.stores.items():
            folder = shards.folder_of(store / "models", model)
            if model in shards.names(store / "models"):
                shards_here[party] = shards.load_facts(folder)
        if not shards_here:
            raise ConfigError(f"there is no model {model} here", todo="fedboost model list")
        return dict(
            sorted(shards_here.items(), key=lambda item: (item[1]["role"] != GUEST, item[0]))
        )

    def facts(self, model: str) -> dict[str, Any]:
        """The facts of a model as its guest has them, or whichever shard is here."""
        return next(iter(self.holders(model).values()))

    def shard(self, model: str, party: str | None = None) -> Artefact:
        """The party's shard of a model; without a party the guest's, or whichever is here."""
        holders = self.holders(model)
        chosen = party or next(iter(holders))
        if chosen not in holders:
            raise ConfigError(
                f"no shard of the model lies at {chosen} here",
                todo=f"name one of: {', '.join(holders)}",
                model=model,
            )
        return shards.load(self.folder(model, chosen))

    def guest_shard(self, model: str) -> Artefact:
        """The guest's shard; a ConfigError names the guest where only hosts' shards are here."""
        shard = self.shard(model)
        if shard.facts["role"] != GUEST:
            guest = shard.facts["guest"]
            raise ConfigError(
                f"the trees of the model lie at its guest {guest}",
                todo=f"run the command there, with --config of {guest}",
                model=model,
            )
        return shard

    def folder(self, model: str, party: str) -> Path:
        """Return the folder of a party's shard of a model."""
        return shards.folder_of(self.stores[party] / "models", model)

    def delete(self, model: str, party: str) -> None:
        """Remove a party's shard of a model, what its training has disclosed to the party, and
        what the party has kept of it for an audit; a ConfigError where a job needs it.
        """
        refuse_used(self.stores[party], model)
        delete_model(self.stores[party], model)


CLUSTER = click.option(
    "--cluster",
    type=DIRECTORY,
    metavar="DIR",
    help=f"A local cluster's folder: all its stores.  [default: {FOLDER}]",
)
CONFIG = click.option(
    "--config",
    type=FILE,
    metavar="PARTY.yaml",
    help=f"A party's settings file: its store.  [env var: {CONFIG_VARIABLE}]",
)


def stores(command: Command) -> Command:
    """Add `--config` and `--cluster`; the command gets the `shelves` whose models they mean."""

    @wraps(command)
    def opened(*, config: Path | None, cluster: Path | None, **given: Any) -> Any:
        return command(**given, shelves=open_shelves(config, cluster))

    return CONFIG(CLUSTER(opened))


PARTY = click.option("--party", metavar="NAME", help="Whose shard; absent: the guest's.")
RELEASED = click.option(
    "--with",
    "released",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="A host's release of its splits to the guest; once for each host.",
)


def open_shelves(config: Path | None, cluster: Path | None) -> Shelves:
    """The stores that the options name; a ConfigError where they name two things or nothing."""
    if config is not None and cluster is not None:
        raise ConfigError("--config and --cluster exclude each other", todo="give one of them")
    if config is None and cluster is None and CONFIG_VARIABLE in os.environ:
        config = Path(os.environ[CONFIG_VARIABLE])
    if config is not None:
        party = load(PartyConfig, config)
        return Shelves({party.name: party.store}, config=party)
    folder = cluster or FOLDER
    parties = {path.parent.name: path.parent for path in sorted((folder / "var").glob("*/models"))}
    if not parties:
        raise ConfigError(
            "there is no local cluster in the folder",
            todo="give --config PARTY.yaml or --cluster DIR",
            folder=str(folder),
        )
    return Shelves(parties, cluster=folder)


def pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """The ``PARTY=SOMETHING`` texts of an option; a ConfigError for a bad or doubled one."""
    stores: dict[str, str] = {}
    for text in texts:
        party, equals, value = text.partition("=")
        if not (party and equals and value):
            raise ConfigError(f"{option} {text!r} is not PARTY=…", todo=f"write {option} bank=…")
        if party in stores:
            raise ConfigError(f"{option} names {party} twice", todo="name every party once")
        stores[party] = value
    return stores


def in_order(
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
    """The shards of a model's hosts: those `released` to the guest, else from stores here.

    Each release is checked, and stands in the guest's ledger when this returns; errors as
    `releases.read` raises them, and a ConfigError where a host has released twice.
    """
    model = guest.facts["job"]
    here = shelves.holders(model)
    hosts = {host: shelves.shard(model, host) for host in guest.facts["hosts"] if host in here}
    if not released:
        return hosts
    config = shelves.config
    if config is None:
        raise ConfigError(
            "--with belongs to --config of the model's guest: a local cluster has every store here",
            todo="leave --with out",
        )
    files = [releases.read(config, _file(path), model, file=str(path)) for path in released]
    named = [file.release.party for file in files]
    twice = sorted({party for party in named if named.count(party) > 1})
    if twice:
        raise ConfigError(f"--with names {twice[0]} twice", todo="give the release that counts")
    with closing(Ledger(config.store / "store.sqlite")) as ledger:
        for file in files:
            releases.note(ledger, file)
    return hosts | {file.release.party: file.shard for file in files}


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read the file: {error.strerror}",
            file=str(path),
            todo="check the path and who may read it",
        ) from None


def whole_model(shelves: Shelves, model: str, released: Sequence[Path]) -> Whole:
    """Assemble a model from shards here and from what hosts have released.

    A ConfigError where parts are missing, naming whose, and for models that are no trees of one
    part each.
    """
    facts = shelves.facts(model)
    kind = kinds.of(facts)
    if kind.is_whole and released:
        raise ConfigError(
            "every party holds the whole model: nobody has released a part of it",
            todo="leave --with out",
            model=model,
        )
    kind.check_joined(facts)
    if kind.is_whole:
        return kind.joined(shelves.shard(model), {})
    guest = shelves.guest_shard(model)
    return kind.joined(guest, host_shards(shelves, guest, released))
