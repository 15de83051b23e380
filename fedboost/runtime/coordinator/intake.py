"""Accepts submissions: reads the job, gets its parties' certificates, writes the manifest."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from fedboost import flow, protocols
from fedboost.ground.errors import ConfigError, JobError
from fedboost.ground.settings import parse_settings
from fedboost.job import ChosenScheme, JobSpec
from fedboost.messages import job_pb2, party_pb2
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.manifest import JobMember, Manifest, Submission
from fedboost.runtime.jobs.submitted import check_age, check_size, submitter_of
from fedboost.runtime.jobs.wire_numbers import SpokenNumbers, highest_common_number
from fedboost.runtime.store.store import Store
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.identity import Peer


class Introducing(Protocol):
    """A party that sends its certificate and its offer of schemes."""

    def hello(self) -> Awaitable[job_pb2.HelloReply]: ...

    def offer_schemes(
        self, request: party_pb2.SchemesRequest
    ) -> Awaitable[party_pb2.SchemesReply]: ...


class Intake:
    """Turns submissions of a coordinator's users into manifests."""

    def __init__(
        self, config: CoordinatorConfig, store: Store, link: Callable[[str], Introducing]
    ) -> None:
        self.config, self._store, self._link = config, store, link

    async def terms(
        self, id_: str, spec: JobSpec, submitter: str, submission: Submission | None
    ) -> Manifest | None:
        """Return the manifest of a new job; None if the job was handed in before.

        A ConfigError if a party is unknown, or if the daemons have no number of the wire in common;
        an UnreachableError if a party's certificate has ended or is revoked.
        """
        if self._is_taken(id_, spec, submitter):
            return None
        parties = spec.parties.table().of(tuple(flow.Role))
        for party in parties:
            if party not in self.config.parties:
                nearest = difflib.get_close_matches(party, self.config.parties, n=1, cutoff=0.0)[0]
                raise ConfigError(
                    f"the coordinator knows no party {party!r}", todo=f"did you mean {nearest!r}?"
                )
        replies = await asyncio.gather(*(self._link(party).hello() for party in parties))
        wire_version = highest_common_number(
            [
                SpokenNumbers.of_this_build(self.config.name),
                *map(SpokenNumbers.of_reply, parties, replies),
            ]
        )
        scheme = await self._choose_scheme(spec, parties)
        if self._is_taken(id_, spec, submitter):  # meanwhile
            return None
        terms = Manifest(
            job=id_,
            coordinator=self.config.name,
            submitter=submitter,
            spec=spec,
            members=[
                JobMember(name=party, certificate=said.certificate)
                for party, said in zip(parties, replies, strict=True)
            ],
            submission=submission,
            scheme=scheme,
            wire_version=wire_version,
        )
        check_size(terms.encode())
        if self.config.tls is not None:  # every party checks this; the user hears of it now
            authorities = Authorities(self.config.tls)
            for member in terms.members:
                authorities.verify(member.certificate.encode())
            submitter_of(terms, authorities)
        if submission is not None:
            check_age(submission)
        return terms

    def _is_taken(self, id_: str, spec: JobSpec, submitter: str) -> bool:
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
        replies = await asyncio.gather(*(self._link(p).offer_schemes(request) for p in parties))
        offers = {
            party: choice.SchemeOffer(
                tuple(said.named),
                {**dict.fromkeys(said.too_small, "rows"), **dict.fromkeys(said.denied, "policy")},
            )
            for party, said in zip(parties, replies, strict=True)
        }
        return choice.choose_scheme(params, offers)


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
