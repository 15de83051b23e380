"""Reply of a party to a coordinator about encryption schemes for a job."""

from __future__ import annotations

from fedboost.data.row_count import row_count_bound
from fedboost.data.sources import SourceSpec
from fedboost.encrypted.scheme import choice
from fedboost.flow import GUEST
from fedboost.ground.errors import FedboostError
from fedboost.job import JobSpec
from fedboost.messages.party_pb2 import SchemesReply
from fedboost.runtime.jobs.manifest import Manifest
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.policy.judgement import Judge


def scheme_offer(judge: Judge, coordinator: str, spec: JobSpec) -> SchemesReply:
    """Return the objections to each scheme; nothing for a job that we would refuse anyway, so its
    coordinator learns about no table that it may not use.

    The guest's number of rows counts, since no sum has more. If a person must approve jobs, this
    one is not approved yet, and the size visible to peers (`ids_padded_to`) counts instead.
    """
    terms = Manifest(job="asked", coordinator=coordinator, submitter="asked", spec=spec, members=[])
    job = SignedJob(judge.config.name, terms, b"")
    try:
        judge.job(job)
        role = job.role
    except FedboostError:
        return SchemesReply()
    policy, rows = judge.config.policy, None
    if role is GUEST:
        rows = policy.ids_padded_to
        if policy.approve == "never":
            rows = _rows_of(judge.config.datasets[job.dataset])
    offer = choice.make_offer(job.params, policy.schemes, rows)
    return SchemesReply(
        named=offer.named,
        denied=[name for name, why in offer.against.items() if why == "policy"],
        too_small=[name for name, why in offer.against.items() if why == "rows"],
    )


def _rows_of(source: SourceSpec) -> int | None:
    """Return at least the rows of a table; None if it is unreadable, which `begin` refuses."""
    try:
        return row_count_bound(source)
    except FedboostError:
        return None
