"""What others read of a party: its owner of jobs and messages, the coordinator of what it tells."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from fedboost import __version__, flow, wire
from fedboost.messages import party_pb2
from fedboost.messages.job_pb2 import HelloReply, Told
from fedboost.messages.reveals import REVEALS
from fedboost.runtime import declared, manifest
from fedboost.runtime.config import PartyConfig
from fedboost.runtime.identity import Identity
from fedboost.runtime.ledger import Disclosure
from fedboost.runtime.outbox import Noted
from fedboost.runtime.store import Job


def disclosure(direction: str, noted: Noted) -> Disclosure:
    """The ledger's row for a message that leaves ("out") or has come ("in")."""
    envelope, about = noted.envelope, noted.about
    reveals, protection = REVEALS[envelope.kind]
    return Disclosure(
        direction="out" if direction == "out" else "in",
        job=envelope.job,
        attempt=envelope.attempt,
        stage=envelope.stage,
        step=envelope.step,
        number=envelope.number,
        part=envelope.part,
        kind=envelope.kind,
        peer=envelope.receiver if direction == "out" else envelope.sender,
        bytes=envelope.payload_bytes,
        values=wire.count_values(noted.message),
        rows=wire.count_rows(noted.message) if about.rows is None else about.rows,
        groups=about.groups,
        smallest_group=about.smallest_group,
        epsilon=None if about.epsilon is None else float(about.epsilon),
        protection=protection,
        reveals=reveals,
        sha256=envelope.payload_sha256.hex(),
        salt=envelope.salt.hex(),
    )


def greeting(ours: Identity) -> HelloReply:
    """Who a daemon is, as it tells whoever may ask."""
    return HelloReply(
        name=ours.name,
        role=ours.role,
        version=__version__,
        wire_version=wire.WIRE_VERSION,
        clock=time.time(),
        certificate=ours.certificate_pem.decode(),
    )


def owned(config: PartyConfig, job: Job, tells: str = "") -> party_pb2.OwnedJob:
    """A job as its party's owner sees it; `tells` says what sums tell of its table."""
    terms = manifest.decode(job.manifest)
    selection = terms.spec.data.get(config.name)
    shown = party_pb2.OwnedJob(
        id=job.id,
        name=job.name,
        protocol=terms.spec.protocol,
        state=job.state,
        coordinator=terms.coordinator,
        submitter=terms.submitter,
        parties=terms.spec.parties.table().of(tuple(flow.Role)),
        dataset="" if selection is None else selection.dataset or "",
        updated=job.updated,
        tells=tells,
        uses=[party_pb2.Use(about=a, says=s) for a, s in declared.in_words(config, terms)],
    )
    if job.reason:
        shown.reason.what = job.reason
    return shown


def owned_by(
    config: PartyConfig, jobs: Iterable[Job], tells: Callable[[Job], str]
) -> party_pb2.OwnedJobs:
    """All jobs of a party."""
    return party_pb2.OwnedJobs(jobs=[owned(config, job, tells(job)) for job in jobs])


def values_told(told: Told) -> int:
    """How many values about labels the coordinator hears: metrics, and the points of curves."""
    points = sum(wire.count_values(curve) for curve in told.curves)
    rounds = sum(len(one.metrics) for one in told.rounds)
    return len(told.metrics) + len(told.best) + rounds + points


def let_out(told: Told, tells: Collection[str]) -> Told:
    """What of a party's words its owner's policy lets the coordinator hear."""
    heard = Told()
    heard.CopyFrom(told)
    if "metrics" not in tells:
        heard.ClearField("metrics")
        heard.ClearField("best")
        for one in heard.rounds:
            one.ClearField("metrics")
    if "curves" not in tells:
        heard.ClearField("curves")
        heard.ClearField("importance")
    return heard
