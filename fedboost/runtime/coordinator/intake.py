"""Accepts submissions: reads the job, gets its parties' certificates, writes the manifest."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from fedboost import flow, protocols
from fedboost.ground.errors import ConfigError, JobError, UnreachableError
from fedboost.ground.settings import parse_settings
from fedboost.job import ChosenScheme, JobSpec
from fedboost.messages import job_pb2, party_pb2
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.manifest import JobMember, Manifest, Submission
from fedboost.runtime.jobs.submitted import check_age, check_size, submitter_of
from fedboost.runtime.jobs.wire_numbers import SpokenNumbers, highest_common_number
from fedboost.runtime.store.store import Store, StoredJob
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.identity import Peer


class Introducing(Protocol):
    """A party that sends its certificate and its offer of schemes."""

    def hello(self, *, retries: bool = True) -> Awaitable[job_pb2.HelloReply]: ...

    def offer_schemes(
        self, request: party_pb2.SchemesRequest
    ) -> Awaitable[party_pb2.SchemesReply]: ...


class Intake:
    """Turns submissions of a coordinator's users into manifests."""

    def __init__(
        self, config: CoordinatorConfig, store: Store, link: Callable[[str], Introducing]
    ) -> None:
        self.config, self._store, self._link = config, store, link

    def draft(
        self, id_: str, spec: JobSpec, submitter: str, submission: Submission | None
    ) -> Manifest:
        """Return the manifest of a new job without what its parties say.

        A ConfigError if a party is unknown.
        """
        parties = spec.parties.table().of(tuple(flow.Role))
        for party in parties:
            if party not in self.config.parties:
                nearest = difflib.get_close_matches(party, self.config.parties, n=1, cutoff=0.0)[0]
                raise ConfigError(
                    f"the coordinator knows no party {party!r}", todo=f"did you mean {nearest!r}?"
                )
        terms = Manifest(
            job=id_,
            coordinator=self.config.name,
            submitter=submitter,
            spec=spec,
            members=[JobMember(name=party, certificate="") for party in parties],
            submission=submission,
        )
        check_size(terms.encode())
        if self.config.tls is not None:  # every party checks this; the user hears of it now
            submitter_of(terms, Authorities(self.config.tls))
        if submission is not None:
            check_age(submission)
        return terms

    async def complete(self, draft: Manifest, *, retries: bool = True) -> Manifest:
        """Return the manifest with its parties' certificates and the scheme of their choice.

        A ConfigError if the daemons have no number of the wire in common; an UnreachableError if a
        party is not there, or if its certificate has ended or is revoked.
        """
        parties = tuple(member.name for member in draft.members)
        replies = await asyncio.gather(*(self._hello_of(party, retries) for party in parties))
        wire_version = highest_common_number(
            [
                SpokenNumbers.of_this_build(self.config.name),
                *map(SpokenNumbers.of_reply, parties, replies),
            ]
        )
        members = [
            JobMember(name=party, certificate=said.certificate)
            for party, said in zip(parties, replies, strict=True)
        ]
        self._check_certificates(members)
        scheme = await self._choose_scheme(draft.spec, parties)
        agreed = {"members": members, "scheme": scheme, "wire_version": wire_version}
        terms = draft.model_copy(update=agreed)
        check_size(terms.encode())
        return terms

    async def complete_job(self, id_: str) -> StoredJob:
        """Return a job whose manifest is complete; its parties are asked if it is a draft.

        A ConfigError if the job's wire is not spoken here.
        """
        job = self._store.job(id_)
        manifest.read_outline(job.outline).check_spoken()
        draft = manifest.decode_manifest(job.manifest)
        if not draft.is_draft:
            return job
        terms = await self.complete(draft, retries=False)
        return self._store.replace_draft(id_, terms.encode())

    def is_taken(self, id_: str, spec: JobSpec, submitter: str) -> bool:
        """Return whether the job with that id is this one, handed in before."""
        try:
            terms = manifest.decode_manifest(self._store.job(id_).manifest)
        except JobError:
            return False
        return (terms.submitter, terms.spec) == (submitter, spec)

    async def _choose_scheme(self, spec: JobSpec, parties: Sequence[str]) -> ChosenScheme | None:
        """Ask the parties for schemes for `auto`, choose one; None if the job names its scheme."""
        from fedboost.encrypted.scheme import choice

        params = parse_settings(
            protocols.load_protocol(spec.protocol).params, spec.params, section="params"
        )
        if not choice.is_open(params):
            return None
        request = party_pb2.SchemesRequest(spec=spec.model_dump_json().encode())
        replies = await asyncio.gather(*(self._offer_of(party, request) for party in parties))
        offers = {
            party: choice.SchemeOffer(
                tuple(said.named),
                {**dict.fromkeys(said.too_small, "rows"), **dict.fromkeys(said.denied, "policy")},
            )
            for party, said in zip(parties, replies, strict=True)
        }
        return choice.choose_scheme(params, offers)

    def _check_certificates(self, members: Iterable[JobMember]) -> None:
        """Check what every party checks later, so that the user hears of it now."""
        if self.config.tls is None:
            return
        authorities = Authorities(self.config.tls)
        for member in members:
            try:
                authorities.verify(member.certificate.encode())
            except UnreachableError as error:
                raise error.at(party=member.name) from None

    async def _offer_of(
        self, party: str, request: party_pb2.SchemesRequest
    ) -> party_pb2.SchemesReply:
        try:
            return await self._link(party).offer_schemes(request)
        except UnreachableError as error:
            raise error.at(party=party) from None

    async def _hello_of(self, party: str, retries: bool) -> job_pb2.HelloReply:
        try:
            return await self._link(party).hello(retries=retries)
        except UnreachableError as error:
            raise error.at(party=party) from None


def signed_submission(caller: Peer, request: job_pb2.SubmitRequest) -> Submission:
    """Return the signed submission; a ConfigError if the request has no signature."""
    if not request.signature:
        raise ConfigError(
            "the submission is not signed",
            todo="hand it in with this version of fedboost, by the user's own certificate",
            user=caller.name,
        )
    raw = {
        "key": request.key,
        "signed_at": request.signed_at,
        "certificate": request.certificate.decode("ascii", "replace"),
        "signature": request.signature.hex(),
    }
    return parse_settings(Submission, raw, section="the submission")
