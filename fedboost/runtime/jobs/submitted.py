"""Submissions of users: a job file's content, checked without asking the parties."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fedboost import flow, protocols
from fedboost.ground.errors import ConfigError, FedboostError, PeerError
from fedboost.ground.settings import parse_settings
from fedboost.job import VIA, JobSpec
from fedboost.messages.job_pb2 import SubmitRequest
from fedboost.runtime.jobs.manifest import (
    MANIFEST_BYTES_MAX,
    Manifest,
    Submission,
    canonical_json,
)
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.identity import Identity, Peer, check_signature

SUBMISSION_KEY_BYTES = 16  # of the random key of one submission
TITLE = "fedboost submission 2"  # separates these signatures from all others
AGE_MAX_S = 86_400.0  # maximal age of a submission at a coordinator, and at a party's first contact
SKEW_MAX_S = 300.0  # maximal advance of a submitter's clock


def submission_id(spec: JobSpec, submitter: str, key: str) -> str:
    """Return the id of a submission: the job's name, and a hash that identifies a repeated
    submission.
    """
    stem = re.sub(r"[^a-z0-9]+", "-", spec.name.lower()).strip("-")[:40]
    content = canonical_json([submitter, key, spec.model_dump(mode="json")])
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:8]}"


def page_submitter(person: str, coordinator: Peer) -> str:
    """Return the submitter of a job from a coordinator's page: who used it, as it says itself."""
    return f"{person}{VIA}{coordinator}"


def asks_at(submitter: str, coordinator: str) -> str:
    """Return who wants a job and where: ``ana at hq``, ``ana on the page of hq``."""
    person, via, _ = submitter.partition(VIA)
    return f"{person} on the page of {coordinator}" if via else f"{person} at {coordinator}"


def signing_time() -> int:
    """Return the current time in seconds since 1970, for a signature."""
    return int(time.time())


def sign_submission(spec: JobSpec, key: str, coordinator: str, identity: Identity) -> Submission:
    """Sign a submission, so that it cannot be altered or used at another coordinator or for another
    job.
    """
    at = signing_time()
    return Submission(
        key=key,
        signed_at=at,
        certificate=identity.certificate_pem.decode(),
        signature=identity.sign(_signed_text(spec, key, coordinator, at)).hex(),
    )


def submission_request(
    spec: bytes, key: str, coordinator: str, identity: Identity | None
) -> SubmitRequest:
    """Return a user's request to a coordinator, signed if an `identity` is given."""
    request = SubmitRequest(spec=spec, key=key)
    if identity is not None:
        signed = sign_submission(_parse_spec(spec), key, coordinator, identity)
        request.certificate, request.signature = signed.certificate.encode(), signed.raw
        request.signed_at = signed.signed_at
    return request


def submitter_of(terms: Manifest, authorities: Authorities) -> Peer:
    """Return the signer of a job's submission; raise PeerError if the manifest differs or its
    certificate does not count, UnreachableError if that is revoked.
    """
    submission = terms.submission
    if submission is None:
        raise PeerError("the job's submission has no signature", todo="submit it anew")
    certificate = submission.certificate.encode()
    peer = authorities.verify(certificate)
    leads = ("coordinator", terms.coordinator) == (peer.role, peer.name)
    person, via, _ = terms.submitter.partition(VIA)
    signer = page_submitter(person, peer) if via and leads else peer.name
    if terms.submitter != signer or (peer.role == "user") == bool(via):
        raise PeerError(f"the job names {terms.submitter} as its submitter, {peer} has signed it")
    text = _signed_text(terms.spec, submission.key, terms.coordinator, submission.signed_at)
    check_signature(certificate, peer, text, submission.raw)
    if terms.job != submission_id(terms.spec, terms.submitter, submission.key):
        raise PeerError("the job's id does not fit its submission")
    return peer


def check_age(submission: Submission) -> None:
    """Raise PeerError for a submission that was signed too long ago, or in the future.

    It is called at the first contact with the job, so an old signature cannot start a job later.
    """
    age_s = time.time() - submission.signed_at
    if not -SKEW_MAX_S <= age_s <= AGE_MAX_S:
        when = f"{age_s / 3600:.1f} hours ago" if age_s > 0 else f"{-age_s / 60:.0f} minutes ahead"
        raise PeerError(
            f"the job's submission was signed {when}; it counts for {AGE_MAX_S / 3600:.0f} hours",
            todo="submit it anew; if it is new, set the clocks (NTP)",
        )


def _signed_text(spec: JobSpec, key: str, coordinator: str, at: int) -> bytes:
    """Return the signed text: the job as parties read it, with its coordinator, key and time."""
    return canonical_json([TITLE, coordinator, key, at, spec.model_dump(mode="json")])


def check_size(text: bytes) -> None:
    """Refuse, by a ConfigError, a job or a manifest that no party would keep."""
    if len(text) > MANIFEST_BYTES_MAX:
        raise ConfigError(
            f"a job has at most {MANIFEST_BYTES_MAX:,} bytes, this one {len(text):,}",
            todo="leave long lists out: declare columns in the parties' files",
        )


def _parse_spec(text: bytes) -> JobSpec:
    check_size(text)
    try:
        raw = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ConfigError(
            "the job is not JSON", todo="submit it with fedboost job submit"
        ) from None
    return parse_settings(JobSpec, raw)


def _refuse_constant(constant: str) -> None:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError(constant)


def read_spec(text: bytes) -> JobSpec:
    """Read a job file's content, checked without asking the parties."""
    spec = _parse_spec(text)
    table = spec.parties.table()  # one guest
    protocol = protocols.load_protocol(spec.protocol)
    params = parse_settings(protocol.params, spec.params, section="params")
    if spec.alignment is not None and protocols.aligning_stage(spec, params) is None:
        raise ConfigError(
            f"a job of {spec.protocol} like this one aligns no rows",
            todo="leave alignment out",
            key="alignment",
        )
    adds_up = flow.AGGREGATOR in protocol.modules
    if adds_up and table.aggregator is None:
        raise ConfigError(
            f"{spec.protocol} needs an aggregator and parties names none",
            todo=f"aggregator: a separate party, or {table.guest}",
            key="parties.aggregator",
        )
    if table.aggregator is not None and not adds_up:
        raise ConfigError(
            f"{spec.protocol} has no part for an aggregator",
            todo="leave it out",
            key="parties.aggregator",
        )
    check_replayable(spec, params)
    return spec


def check_replayable(spec: JobSpec, params: Any) -> None:
    """Refuse a job that asks for a replay which its protocol, or its settings, cannot give."""
    if not spec.replayable:
        return
    protocol = protocols.load_protocol(spec.protocol)
    if protocol.replay is not None:
        lacks = protocol.replay.lacks(params)
    else:
        able = [name for name, known in protocols.load_all().items() if known.replay]
        lacks = f"jobs of {spec.protocol} cannot be replayed, only those of {', '.join(able)}"
    if lacks:
        raise ConfigError(lacks, todo="leave replayable out", key="replayable")


async def submit_jobs(
    jobs: Sequence[JobSpec], submit: Callable[[JobSpec], Awaitable[str]]
) -> dict[str, str]:
    """Submit the jobs of a file, one for each guest; return their ids by guest.

    An error says which were handed in before it.
    """
    ids: dict[str, str] = {}
    for job in jobs:
        try:
            ids[job.parties.table().guest] = await submit(job)
        except FedboostError as error:
            raise (error.at(handed_in=", ".join(ids.values())) if ids else error) from None
    return ids


def check_spec(spec: JobSpec, **where: str) -> None:
    """Raise a ConfigError for a job that a coordinator would refuse.

    Also for several guests of a protocol with a single guest.
    """
    try:
        if (
            spec.parties.guests is not None
            and not protocols.load_protocol(spec.protocol).several_guests
        ):
            able = [name for name, known in protocols.load_all().items() if known.several_guests]
            raise ConfigError(
                f"{spec.protocol} trains with one guest, and the job names several",
                todo=f"name one as guest: NAME; {', '.join(able)} trains a model for each",
                key="parties.guests",
            )
        for job in spec.split_by_guest():
            read_spec(job.model_dump_json().encode())
    except FedboostError as error:
        raise error.at(**where) from None
