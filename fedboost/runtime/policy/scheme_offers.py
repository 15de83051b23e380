"""What a party says to a coordinator that asks which encryption schemes a job may use."""

from __future__ import annotations

from fedboost.data.row_count import row_count_most
from fedboost.encrypted import choice
from fedboost.errors import FedboostError
from fedboost.flow import GUEST
from fedboost.job import JobSpec
from fedboost.messages.party_pb2 import SchemesReply
from fedboost.runtime.jobs.manifest import Manifest
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.policy.judgement import Judge


def scheme_offer(judge: Judge, coordinator: str, spec: JobSpec) -> SchemesReply:
    """Return what is against which scheme; nothing of a job that we would refuse anyway, so that
    its coordinator learns of no table that it may not use.

    The guest's rows count, as no sum has more; a table that cannot be read says so when it is.
    """
    terms = Manifest(job="asked", coordinator=coordinator, submitter="asked", spec=spec, members=[])
    job = SignedJob(judge.config.name, terms, b"")
    try:
        judge.job(job)
        role = job.role
    except FedboostError:
        return SchemesReply()
    rows = None
    if role is GUEST:
        try:
            rows = row_count_most(judge.config.datasets[job.dataset])
        except (OSError, FedboostError):
            rows = None
    offer = choice.offer(job.params, judge.config.policy.schemes, rows)
    return SchemesReply(
        named=offer.named,
        denied=[name for name, why in offer.against.items() if why == "policy"],
        too_small=[name for name, why in offer.against.items() if why == "rows"],
    )
