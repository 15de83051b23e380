"""The guest of a pairwise alignment: finds which of its rows each host has, and keeps them all."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto import id_digests
from fedboost.crypto.intersection import (
    POINT_BYTES,
    Exponent,
    Points,
    as_keys,
    multiply,
    read_points,
)
from fedboost.crypto.set_sizes import SET_IDS_MAX
from fedboost.data.holdout import canonical_order
from fedboost.encoded_ids import EncodedIds
from fedboost.errors import PeerError
from fedboost.flow import Artefact, Out, Place, StageContext
from fedboost.messages.job_pb2 import Count, MatchedIds, StatusReport
from fedboost.messages.protocol.align_pairs_pb2 import (
    CommonDigests,
    GuestSet,
    HostSet,
    ReturnedSet,
)
from fedboost.messages.protocol.align_pb2 import RowsDigest
from fedboost.protocols.align_pairs import pair
from fedboost.slot import Slot

Indices = NDArray[np.int64]


@dataclass
class Meeting:
    """What the guest remembers of one host."""

    exponent: Exponent
    order: Indices = field(default_factory=lambda: np.empty(0, np.int64))  # in which the ids left
    theirs = Slot[Points]("a set of the host")  # blinded by both
    common = Slot[Indices]("ids that the host has")  # their places, ascending
    digest: bytes = b""  # over these ids


@dataclass
class Guest:
    """What the guest remembers between steps."""

    context: StageContext
    rows: Indices  # all of the table, in canonical order
    ids: EncodedIds  # theirs; every place below is one in this list
    meetings: dict[str, Meeting]  # by host


def begin(context: StageContext) -> Guest:
    """A guest with its ids in canonical order and a fresh exponent for each host."""
    rows = canonical_order(context.data.ids)
    ids = context.data.ids.take(rows)
    return Guest(
        context, rows, ids, {host: Meeting(Exponent.random()) for host in context.table.hosts}
    )


def blind_ids(guest: Guest) -> Out:
    """To each host the own ids as points, under the exponent and in the secret order for it;
    padded as our policy says.
    """
    sets = {}
    for host, meeting in guest.meetings.items():
        points = pair.points_of(guest.ids, host, guest.context)
        meeting.order = guest.context.secrets.permutation(len(points), "order", host)
        blinded = multiply(points[meeting.order], meeting.exponent, guest.context.workers)
        sets[host] = GuestSet(points=len(blinded), data=blinded.tobytes())
    return Out(send=sets)


def blind_theirs(guest: Guest, got: Mapping[str, HostSet]) -> Out:
    """Every host's set once more, to be compared with the own."""
    for host, offered in got.items():
        meeting = guest.meetings[host]
        meeting.theirs = pair.blind_again(offered, meeting.exponent, guest.context, host)
    return Out()


def meet(guest: Guest, got: Mapping[str, ReturnedSet]) -> Out:
    """Finds what is in both sets of each pair, and tells the host keyed digests of these ids."""
    named = {}
    for host, returned in got.items():
        meeting = guest.meetings[host]
        points = read_points(returned.points, returned.data, f"the guest's set from {host}")
        if len(points) != len(meeting.order):
            raise PeerError(
                f"{host} returned {len(points)} points, the guest's set has {len(meeting.order)}",
                party=host,
            )
        theirs = set(as_keys(meeting.theirs))
        is_theirs = np.array([point in theirs for point in as_keys(points)], np.bool_)
        meeting.common = np.sort(meeting.order[is_theirs])
        if (meeting.common >= len(guest.ids)).any():
            raise PeerError(f"{host} returned points that no id of both has", party=host)
        pair.check_opened(len(meeting.common), guest.context)
        ids = guest.ids.take(meeting.common)
        key = id_digests.fresh_key()
        meeting.digest = id_digests.digest_of_all(ids, key)
        digests = id_digests.digests(ids, key)
        named[host] = CommonDigests(key=key, ids=len(ids), data=digests.tobytes())
    return Out(send=named)


def compare_rows(guest: Guest, got: Mapping[str, RowsDigest]) -> Out:
    """Refuses a host that kept other rows; tells how many rows any host has, and none."""
    for host, rows in got.items():
        if not hmac.compare_digest(rows.digest, guest.meetings[host].digest):
            raise PeerError(f"{host} kept other rows than the guest", party=host)
    held = np.zeros(len(guest.ids), np.bool_)
    for common in _common(guest).values():
        held[common] = True
    aligned = int(held.sum())
    counts = {"aligned": aligned, "alone": len(guest.ids) - aligned}
    ids = [MatchedIds(party=guest.context.party, brought=len(guest.ids), matched=aligned)]
    for host, meeting in guest.meetings.items():
        brought, matched = len(meeting.theirs), len(meeting.common)
        ids.append(MatchedIds(party=host, brought=brought, matched=matched))
    told = [Count(name=name, count=n) for name, n in counts.items()]
    return Out(told=StatusReport(counts=told, ids=ids))


def snapshot(_: Guest, __: Place) -> Artefact:
    """Nothing is worth keeping before the end."""
    return Artefact()


def restore(_: Guest, __: Artefact) -> StatusReport:
    """An alignment starts anew: its exponents are gone."""
    return StatusReport()


def finish(guest: Guest) -> Artefact:
    """Return all rows of the table in canonical order, and for each host which of them it has.

    `rows` int64 (n,); `with_HOST` int64 (m,), ascending, in the order of the table's hosts: the
    host's row j is the guest's row `with_HOST[j]`.
    """
    held = {f"with_{host}": common for host, common in _common(guest).items()}
    return Artefact(arrays={"rows": guest.rows, **held})


def bytes_max(guest: Guest, step: str) -> int:
    """A host's set may be as large as a table; what returns is as large as the own."""
    own = max(len(guest.ids), guest.context.limits.ids_padded_to or 0)
    count = {"blind_theirs": SET_IDS_MAX, "meet": own}.get(step, 0)
    return count * POINT_BYTES + 1024


def _common(guest: Guest) -> dict[str, Indices]:
    """Return the indices of the ids that each host has; known once all have met."""
    return {host: meeting.common for host, meeting in guest.meetings.items()}
