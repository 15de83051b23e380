"""The guest of a pairwise alignment: finds which of its rows each host has, and keeps them all."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
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
from fedboost.crypto.set_sizes import CURVE_IDS_MAX
from fedboost.data.holdout import canonical_order
from fedboost.flow import Artefact, DisclosureInfo, Out, StageContext
from fedboost.ground.arrays import Indices
from fedboost.ground.errors import PeerError
from fedboost.ground.slot import Slot
from fedboost.job import Alignment
from fedboost.messages.job_pb2 import Count, MatchedIds, StatusReport
from fedboost.messages.protocol.align_pairs_pb2 import CommonDigests, GuestSet, HostSet, ReturnedSet
from fedboost.messages.protocol.align_pb2 import RowsDigest
from fedboost.messages.protocol.oblivious_pb2 import Choice, Greeting, Tags
from fedboost.oblivious.guest import ask_parts, choose_method, guest_side
from fedboost.oblivious.side import Aligning, Side, refuse_sampled, restore, snapshot
from fedboost.protocols.align_pairs import pair

__all__ = (
    "ask_parts", "begin", "blind_ids", "blind_theirs", "bytes_max", "choose_method",
    "compare_rows", "count_common", "finish", "match_tags", "meet", "open_transfers", "restore",
    "snapshot", "start_transfers",
)  # fmt: skip


@dataclass
class Meeting:
    """State of the guest about one host."""

    exponent: Exponent
    order: Indices = field(default_factory=lambda: np.empty(0, np.int64))  # order of the sent ids
    theirs = Slot[Points]("a set of the host")  # blinded by both
    common = Slot[Indices]("ids that the host has")  # indices of our ids, ascending
    digest: bytes = b""  # over these ids


@dataclass
class Guest(Aligning):
    """State of the guest between steps; its `ids` are those of `rows`, in their order."""

    rows: Indices  # all of the table, in canonical order
    meetings: dict[str, Meeting]  # by host


def begin(context: StageContext[Alignment]) -> Guest:
    """Return a guest with its ids in canonical order and a fresh exponent for each host."""
    rows = canonical_order(context.data.ids)
    ids = context.data.ids.take(rows)
    meetings = {host: Meeting(Exponent.random()) for host in context.table.hosts}
    return Guest(context, ids, rows, meetings)


def blind_ids(guest: Guest) -> Out:
    """Send each host our ids as points, under an exponent and in a secret order for this host.

    They are padded as our policy says. With an oblivious function they are a sample.
    """
    sets = {}
    for host, meeting in guest.meetings.items():
        sample = None
        if guest.side is not None:
            sample = guest.side.sampled_ids(settled=host in guest_side(guest).settled)
            meeting.exponent = Exponent.random()
        points = pair.points_of(guest.ids, host, guest.context, sample)
        of = pair.sample_purpose(sample)
        meeting.order = guest.context.secrets.attempt.permutation(len(points), "order", host, *of)
        blinded = multiply(points[meeting.order], meeting.exponent, guest.context.services.workers)
        sets[host] = GuestSet(points=len(blinded), data=blinded.tobytes())
    return Out(send=sets)


def blind_theirs(guest: Guest, got: Mapping[str, HostSet]) -> Out:
    """Blind every host's set once more, to compare it with ours."""
    for host, offered in got.items():
        meeting = guest.meetings[host]
        if guest.side is not None:
            settled = host in guest_side(guest).settled
            guest.side.check_sampled(host, offered.points, settled=settled)
        meeting.theirs = pair.blind_again(offered, meeting.exponent, guest.context, host)
        if guest.side is None:
            guest.count_brought(host, len(meeting.theirs))
    return Out()


def meet(guest: Guest, got: Mapping[str, ReturnedSet]) -> Out:
    """Find the ids of both in each pair, and send the host keyed digests of them."""
    refuse_sampled(guest.side)
    named = {}
    for host, returned in got.items():
        meeting = guest.meetings[host]
        meeting.common = np.sort(meeting.order[_is_in_both(meeting, returned, host)])
        if (meeting.common >= len(guest.ids)).any():
            raise PeerError(f"{host} returned points that no id of both has", party=host)
        pair.check_opened(len(meeting.common), guest.context)
        ids = guest.ids.take(meeting.common)
        key = id_digests.fresh_key()
        meeting.digest = id_digests.digest_of_all(ids, key)
        digests = id_digests.digests(ids, key)
        named[host] = CommonDigests(key=key, ids=len(ids), data=digests.tobytes())
    first, charged = next(iter(named)), guest.charged()  # every set once
    about = {host: charged if host == first else DisclosureInfo() for host in named}
    return Out(send=named, about=about)


def start_transfers(guest: Guest, got: Mapping[str, Greeting]) -> Out:
    """Draw the key of the ids' digests from all nonces; send each host our half of transfers."""
    return guest_side(guest).start(guest, got, joint=False)


def count_common(guest: Guest, got: Mapping[str, ReturnedSet]) -> Out:
    """Count the points of a sample in both sets of each pair, in an order unknown to both.

    Too few lead to a larger sample; none at all are not too few.
    """
    side = guest_side(guest)
    counts = {
        host: int(_is_in_both(guest.meetings[host], returned, host).sum())
        for host, returned in got.items()
    }
    open_ = {host: count for host, count in counts.items() if host not in side.settled}
    return side.count(open_, may_be_none=True)


def open_transfers(guest: Guest, got: Mapping[str, Choice]) -> Out:
    """Read the hosts' halves of the transfers."""
    return guest_side(guest).open(got, hints=False)


def match_tags(guest: Guest, got: Iterator[Mapping[str, Tags]]) -> Iterator[Out]:
    """Find the ids in common with each host by its tags, and name them."""
    yield from guest_side(guest).find(got)


def compare_rows(guest: Guest, got: Mapping[str, RowsDigest]) -> Out:
    """Refuse a host with other rows; report how many rows hosts have, and how many no host has."""
    if guest.side is not None:
        _keep_common(guest, guest.side)
    for host, rows in got.items():
        if not hmac.compare_digest(rows.digest, guest.meetings[host].digest):
            raise PeerError(f"{host} kept other rows than the guest", party=host)
    held = np.zeros(len(guest.ids), np.bool_)
    for common in _common_by_host(guest).values():
        held[common] = True
    aligned = int(held.sum())
    counts = {"aligned": aligned, "alone": len(guest.ids) - aligned}
    ids = [MatchedIds(party=guest.context.party, brought=len(guest.ids), matched=aligned)]
    for host, meeting in guest.meetings.items():
        brought = len(meeting.theirs) if guest.side is None else guest.side.sizes[host]
        ids.append(MatchedIds(party=host, brought=brought, matched=len(meeting.common)))
    entries = [Count(name=name, count=n) for name, n in counts.items()]
    return Out(told=StatusReport(counts=entries, ids=ids))


def finish(guest: Guest) -> Artefact:
    """Return all rows of the table in canonical order, and the rows of each host among them.

    `rows` int64 (n,); `with_HOST` int64 (m,), ascending, in the order of the table's hosts: the
    host's row j is the guest's row `with_HOST[j]`.
    """
    held = {f"with_{host}": common for host, common in _common_by_host(guest).items()}
    return Artefact(arrays={"rows": guest.rows, **held})


def bytes_max(guest: Guest, step: str) -> int:
    """Return the largest size of a message: the policy's limit for a host's set, else our size."""
    limits = guest.context.limits
    size, theirs = max(len(guest.ids), limits.ids_padded_to or 0), limits.peer_ids_max
    count = {"blind_theirs": min(CURVE_IDS_MAX, theirs), "meet": size, "count_common": size}.get(
        step, 0
    )
    if guest.side is not None and not count:
        return guest.side.bytes_max(step)
    return count * POINT_BYTES + 1024


def _keep_common(guest: Guest, side: Side) -> None:
    """Keep the rows in common with each host; refuse too few."""
    for host, meeting in guest.meetings.items():
        meeting.common = side.rows(host)
        pair.check_opened(len(meeting.common), guest.context)
        meeting.digest = id_digests.digest_of_all(guest.ids, side.key, meeting.common)


def _is_in_both(meeting: Meeting, returned: ReturnedSet, host: str) -> NDArray[np.bool_]:
    """Return which points of our set, in the order a host returned them, are in the host's set."""
    points = read_points(returned.points, returned.data, f"the guest's set from {host}")
    if len(points) != len(meeting.order):
        raise PeerError(
            f"{host} returned {len(points)} points, the guest's set has {len(meeting.order)}",
            party=host,
        )
    theirs = set(as_keys(meeting.theirs))
    return np.array([point in theirs for point in as_keys(points)], np.bool_)


def _common_by_host(guest: Guest) -> dict[str, Indices]:
    """Return the indices of the ids that each host has; known after the last exchange."""
    return {host: meeting.common for host, meeting in guest.meetings.items()}
