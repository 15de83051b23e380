"""The manifest: everything the parties of a job agree to, in one canonical text that each signs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from fedboost import __version__
from fedboost.ground.build_version import build_version
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.ground.formats import WIRE_VERSION, WIRE_VERSIONS_SPOKEN
from fedboost.ground.settings import Settings, parse_settings
from fedboost.ground.wire import json_object
from fedboost.job import ChosenScheme, JobSpec, Name, encryption_of

# 30,000 columns with names of 30 characters. The 1,000 jobs of a day take a gigabyte of a store at
# most; jobs that ended before they were approved leave only outlines.
MANIFEST_BYTES_MAX = 1 << 20
# Name of a user; of one on a coordinator's page "ana via coordinator hq", as the coordinator says.
SUBMITTER = r"^([A-Za-z][A-Za-z0-9_-]{0,62} via coordinator )?[a-z][a-z0-9-]{0,62}$"


class JobMember(Settings):
    """One party of the job, known by its certificate; it may sign with a later one."""

    name: Name
    certificate: str  # PEM, as the job was submitted or completed; empty in a draft


class Submission(Settings):
    """The submitter's signature with its key and time; see `submitted.sign_submission`."""

    key: str = Field(pattern=r"^[!-~]{1,64}$")
    signed_at: int = Field(ge=0, lt=1 << 40)  # seconds since 1970, by the submitter's clock
    certificate: str  # PEM, as the job was submitted
    signature: str = Field(pattern=r"^(?:[0-9a-f]{2})+$")

    @property
    def raw(self) -> bytes:
        """The signature itself."""
        return bytes.fromhex(self.signature)


class Manifest(Settings):
    """The signed content of a job. Its hash is in every message of the job."""

    job: str = Field(pattern=r"^[a-z0-9-]{1,80}$")
    coordinator: Name
    submitter: str = Field(pattern=SUBMITTER)
    spec: JobSpec
    members: list[JobMember]
    submission: Submission | None = None  # None without certificates
    scheme: ChosenScheme | None = None  # of a job that says `encryption.scheme: auto`
    wire_version: int = WIRE_VERSION  # the highest that all daemons of the job speak
    version: str = __version__  # the coordinator's

    @model_serializer(mode="wrap")
    def _serialise(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `scheme` out where the job leaves no choice."""
        return {key: value for key, value in write(self).items() if key != "scheme" or value}

    @property
    def is_draft(self) -> bool:
        """Return whether it lacks what its parties say, because one could not be reached."""
        return not all(member.certificate for member in self.members)

    @property
    def params(self) -> dict[str, Any]:
        """Return the protocol's settings: the job file's, with the scheme that was chosen."""
        params = self.spec.params
        return params if self.scheme is None else self.scheme.fill_scheme(params)

    @property
    def encryption(self) -> dict[str, str]:
        """Return `scheme` and `because` of a job with encryption; empty of any other."""
        return encryption_of(self.spec.params, self.scheme)

    def encode(self) -> bytes:
        """Return the canonical text: JSON with sorted keys and no spaces."""
        return canonical_json(self.model_dump(mode="json"))


def canonical_json(raw: object) -> bytes:
    """Return JSON in its signed form: keys sorted, no spaces; raise ValueError for NaN."""
    return json.dumps(raw, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def decode_manifest(text: bytes) -> Manifest:
    """Return the manifest in `text`; raise PeerError unless it is valid and canonical."""
    if len(text) > MANIFEST_BYTES_MAX:
        raise PeerError(f"a manifest has at most {MANIFEST_BYTES_MAX} bytes, this one {len(text)}")
    raw = json_object(text, "the manifest")
    try:
        manifest = parse_settings(Manifest, raw)
        written = manifest.encode()
    except ConfigError as error:
        raise PeerError(f"the manifest is invalid: {error.what}", todo=error.todo) from None
    except ValueError:
        raise PeerError("the manifest holds invalid numbers") from None
    if written != text:
        raise PeerError(
            "the manifest is not written as this version writes it",
            todo="run the same fedboost version on every party",
        )
    return manifest


@dataclass(frozen=True)
class ManifestOutline:
    """Facts of an approved or own manifest that every version can read."""

    coordinator: str
    submitter: str
    protocol: str
    version: str
    wire_version: int
    parties: tuple[str, ...]
    encryption: str  # "SCHEME: why this one"; empty without encryption

    @property
    def is_spoken(self) -> bool:
        """Return whether this build speaks the job's number of the wire."""
        return self.wire_version in WIRE_VERSIONS_SPOKEN

    def check_spoken(self) -> None:
        """Raise ConfigError if the job began under a wire that this build does not speak."""
        if not self.is_spoken:
            raise ConfigError(
                f"the job began under fedboost {self.version} (wire {self.wire_version}), here "
                f"runs {build_version()} (wire {WIRE_VERSION})",
                todo=f"run fedboost {self.version} everywhere until it is over, or submit it anew",
            )


def read_outline(text: bytes) -> ManifestOutline:
    """Read the outline that our own store has of a manifest, also if another version wrote it."""
    raw = json.loads(text)
    chosen = parse_settings(ChosenScheme, raw["scheme"]) if raw.get("scheme") else None
    encryption = encryption_of(raw["spec"]["params"], chosen)
    return ManifestOutline(
        coordinator=raw["coordinator"],
        submitter=raw["submitter"],
        protocol=raw["spec"]["protocol"],
        version=raw["version"],
        wire_version=raw.get("wire_version", 1),  # missing where no text is kept, before store 12
        parties=tuple(member["name"] for member in raw["members"]),
        encryption="{scheme}: {because}".format_map(encryption) if encryption else "",
    )


def manifest_sha256(text: bytes) -> bytes:
    """Return the hash of a manifest's text: 32 bytes, signed by every party."""
    return hashlib.sha256(text).digest()
