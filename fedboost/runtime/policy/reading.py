"""Views of a party: jobs and messages for its owner, reports for the coordinator, and errors about
its table for any other reader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import wraps
from typing import Any, Protocol, TypeVar

from fedboost import flow
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, OwnersError
from fedboost.messages import party_pb2
from fedboost.messages.job_pb2 import StatusReport
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.jobs import manifest
from fedboost.runtime.policy import declared
from fedboost.runtime.store.store import StoredJob


def owned_job(config: PartyConfig, job: StoredJob, tells: str = "") -> party_pb2.OwnedJob:
    """Return a job for its party's owner; `tells` describes the content of sums about the table.

    Return only the outline if the job ended before it was approved, or if another version wrote it.
    """
    try:
        terms = manifest.decode_manifest(job.manifest)
    except FedboostError:
        return outlined_job(job)
    selection = terms.spec.data.get(config.name)
    shown = party_pb2.OwnedJob(
        id=job.id,
        name=job.name,
        protocol=terms.spec.protocol,
        state=job.state.shown,
        coordinator=terms.coordinator,
        submitter=terms.submitter,
        parties=terms.spec.parties.table().of(tuple(flow.Role)),
        dataset="" if selection is None else selection.dataset or "",
        updated=job.updated,
        tells=tells,
        uses=[party_pb2.Use(about=a, says=s) for a, s in declared.request_in_words(config, terms)],
    )
    if job.reason:
        shown.reason.what = job.reason
    return shown


def outlined_job(job: StoredJob) -> party_pb2.OwnedJob:
    """Return a job with only the facts of its outline."""
    terms = manifest.read_outline(job.outline)
    shown = party_pb2.OwnedJob(
        id=job.id,
        name=job.name,
        protocol=terms.protocol,
        state=job.state.shown,
        coordinator=terms.coordinator,
        submitter=terms.submitter,
        parties=terms.parties,
        updated=job.updated,
    )
    if job.reason:
        shown.reason.what = job.reason
    return shown


def count_label_values(report: StatusReport) -> int:
    """Return the number of values about labels in a report: metrics, and points of curves."""
    points = sum(wire.count_values(curve) for curve in report.curves)
    rounds = sum(len(a_round.metrics) for a_round in report.rounds)
    return len(report.metrics) + len(report.best) + rounds + points


def allowed_report(report: StatusReport, tells: Collection[str]) -> StatusReport:
    """Return the part of a party's report that its policy allows the coordinator to read."""
    heard = StatusReport()
    heard.CopyFrom(report)
    if "metrics" not in tells:
        heard.ClearField("metrics")
        heard.ClearField("best")
        for a_round in heard.rounds:
            a_round.ClearField("metrics")
        heard.ClearField("warnings")  # a protocol's, about labels
    if "curves" not in tells:
        heard.ClearField("curves")
        heard.ClearField("importance")
    return heard


Reply = TypeVar("Reply")


class Hushing(Protocol):
    """A node that knows the content its owner lets others read."""

    def public_error(self, job: str, error: OwnersError) -> FedboostError:
        """Return the public part of an error; the whole error stays with the owner."""


def hush_errors(method: Callable[..., Awaitable[Reply]]) -> Callable[..., Awaitable[Reply]]:
    """Wrap a node's method, (node, caller, request, …), so that its errors are hushed."""

    @wraps(method)
    async def call_hushed(node: Hushing, caller: Any, request: Any, *more: Any) -> Reply:
        try:
            return await method(node, caller, request, *more)
        except OwnersError as error:
            id_ = getattr(request, "job", "") or getattr(request, "id", "")
            raise node.public_error(id_, error) from None

    return call_hushed
