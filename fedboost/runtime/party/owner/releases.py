"""A host's consent to a merged model: its splits, signed for the guest, and a row in both ledgers.

The file has two lines: JSON, then the host's signature over that text with its certificate. It
names the model, the host and the receiver, so that it is of no use for another model or party.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import AwareDatetime, Field, ValidationError

from fedboost.flow import GUEST, Artefact
from fedboost.ground.errors import (
    ConfigError,
    DataError,
    FedboostError,
    PeerError,
    UnreachableError,
)
from fedboost.ground.settings import Settings
from fedboost.ground.wire import COUNT_MAX
from fedboost.job import Name
from fedboost.model import kinds
from fedboost.model.export import SHARD_BYTES_MAX, HostShard, host_shard, without_unused_columns
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import SALT_BYTES, Direction, DisclosureRow
from fedboost.runtime.policy.judgement import Signatures, Trust, signer_at
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.tls import TlsFiles

# Their names in ledgers.
KIND, STAGE, STEP = "fedboost.model.Release", "model", "release"
REVEALS = (
    "to the guest, what this host's splits of the model ask: columns by name, thresholds, "
    "categories, and where missing values go."
)
PROTECTION = "signed with the host's certificate; a file that is handed over, not encrypted."


class Release(Settings):
    """The signed content."""

    what: Literal["fedboost model release 1"] = "fedboost model release 1"
    model: str
    party: Name
    receiver: Name
    at: AwareDatetime
    number: int = Field(ge=0, le=COUNT_MAX)  # of this party's releases of the model
    salt: str = Field(pattern=rf"^[0-9a-f]{{{2 * SALT_BYTES}}}$")
    shard: HostShard

    def encode(self) -> bytes:
        """Return the signed text: JSON with sorted keys and no spaces, on one line."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return text.encode()


@dataclass(frozen=True)
class ReleaseFile:
    """A release and its signature, as in its file."""

    release: Release
    text: bytes
    signature: bytes

    @cached_property
    def shard(self) -> Artefact:
        """The host's part of the model; a DataError if its splits are impossible."""
        return host_shard(self.release.shard, party=self.release.party)

    @property
    def file_bytes(self) -> bytes:
        """The file's content."""
        return self.text + b"\n" + base64.b64encode(self.signature) + b"\n"

    def disclosure(self, direction: Direction) -> DisclosureRow:
        """Return the row for a ledger: the host's own ("out") or the guest's ("in")."""
        release = self.release
        return DisclosureRow(
            direction=direction,
            job=release.model,
            stage=STAGE,
            step=STEP,
            number=release.number,
            kind=KIND,
            peer=release.receiver if direction == "out" else release.party,
            bytes=len(self.text),
            values=len(release.shard.splits),
            protection=PROTECTION,
            reveals=REVEALS,
            sha256=hashlib.sha256(self.text).hexdigest(),
            salt=release.salt,
        )


def draft_release(config: PartyConfig, shard: Artefact, receiver: str, ledger: Ledger) -> Release:
    """Return a host's splits of a model, to be released to `receiver`.

    A ConfigError if there is nothing to release or the receiver is not the model's guest; a
    PolicyError if the policy does not list the receiver.
    """
    facts, model = shard.facts, shard.facts["job"]
    kind = kinds.kind_of(facts)
    kind.check_released(facts)
    if facts["role"] == GUEST:
        raise ConfigError(
            f"{facts['party']} is the model's guest, to whom the others release their splits",
            todo=f"run the command at {', '.join(facts['hosts'])}",
            model=model,
        )
    if receiver != facts["guest"]:
        raise ConfigError(
            f"the guest of the model is {facts['guest']}, and nobody else can use the splits",
            todo=f"--to {facts['guest']}",
            model=model,
        )
    config.policy.judge_release(receiver)
    told = HostShard.model_validate_json(kind.exported(shard))
    return Release(
        model=model,
        party=config.name,
        receiver=receiver,
        at=ledger.now(),
        number=sum((row.step, row.direction) == (STEP, "out") for row in ledger.rows(model)),
        salt=secrets.token_hex(SALT_BYTES),
        shard=without_unused_columns(told),
    )


def sign_release(config: PartyConfig, release: Release, ledger: Ledger) -> ReleaseFile:
    """Return the release under the party's signature, after its row is in the party's ledger.

    A ConfigError if the party has no certificate.
    """
    tls = _tls_files(config)
    signatures = Signatures(Trust.of_files(tls, config.name), insecure=False)
    text = release.encode()
    made = ReleaseFile(release, text, signatures.sign(text))
    ledger.record(made.disclosure("out"))
    return made


def read_release(config: PartyConfig, content: bytes, model: str, **where: str) -> ReleaseFile:
    """Return a host's release of a model to this party; `where` goes into errors.

    A ConfigError if the file is no release or is for another model or party; a PeerError unless the
    host signed it with a certificate that was valid then and is not revoked; a DataError if its
    splits are impossible.
    """
    try:
        released = _parse_file(content)
        release = released.release
        _check_subject(config, release, model)
        _check_signature(_tls_files(config), released)
        assert released.shard.facts["party"] == release.party  # decodes it, so errors show now
    except FedboostError as error:
        raise error.at(**where) from None
    return released


def note_release(ledger: Ledger, file: ReleaseFile) -> None:
    """Add a received release to the receiver's ledger, unless it is there already."""
    row = file.disclosure("in")
    if all(entry.sha256 != row.sha256 for entry in ledger.rows(row.job) if entry.direction == "in"):
        ledger.record(row)


def _parse_file(content: bytes) -> ReleaseFile:
    """Parse a file, which must have exactly the bytes of `ReleaseFile.file_bytes`."""
    if len(content) > SHARD_BYTES_MAX:
        raise ConfigError(
            f"the file has {len(content)} bytes, too many for a release",
            todo="take the file that fedboost model release wrote",
        )
    text, _, rest = content.partition(b"\n")
    try:
        release_file = ReleaseFile(
            Release.model_validate_json(text), text, base64.b64decode(rest[:-1], validate=True)
        )
        if release_file.file_bytes != content:
            raise ValueError
    except (ValidationError, binascii.Error, ValueError):
        raise ConfigError(
            "the file is no release of a model",
            todo="its owner writes one with: fedboost model release",
        ) from None
    return release_file


def _check_subject(config: PartyConfig, release: Release, model: str) -> None:
    shard = release.shard
    said = (shard.job, shard.party, shard.guest)
    if said != (release.model, release.party, release.receiver):
        raise DataError(
            "the released splits belong to another model or party than the release names",
            party=release.party,
            todo="have the party release its splits again",
        )
    if release.receiver != config.name:
        raise ConfigError(
            f"{release.party} has released its splits to {release.receiver}, not to {config.name}",
            party=release.party,
            todo="ask for a release to this party",
        )
    if release.model != model:
        raise ConfigError(
            f"the splits of {release.party} are of the model {release.model[:80]}, not of {model}",
            todo=f"ask for: fedboost model release {model}",
            party=release.party,
        )


def _check_signature(tls: TlsFiles, file: ReleaseFile) -> None:
    release, authorities = file.release, Authorities(tls)
    signed = (release.party, file.text, file.signature, release.at)
    signer = signer_at(authorities.roots(), *signed)
    try:
        authorities.refuse_revoked(signer)
    except UnreachableError as error:
        raise PeerError(error.what, todo="ask for a new release", party=release.party) from None


def _tls_files(config: PartyConfig) -> TlsFiles:
    if config.tls is None:
        raise ConfigError(
            "insecure_loopback has no certificate to sign or check a consent with",
            todo="give the party tls: fedboost certs create",
        )
    return config.tls
