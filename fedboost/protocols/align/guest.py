"""The guest of an alignment: compares the blinded sets and names the rows in common."""

import hmac
from collections.abc import Iterator, Mapping

import numpy as np

from fedboost.crypto import id_digests
from fedboost.crypto.intersection import as_keys, read_points
from fedboost.crypto.set_sizes import check_common
from fedboost.flow import Out
from fedboost.ground.errors import DataError, PeerError
from fedboost.messages.job_pb2 import Count, MatchedIds, StatusReport
from fedboost.messages.protocol.align_pb2 import CommonDigests, CommonSet, FullSet, Hint, RowsDigest
from fedboost.messages.protocol.oblivious_pb2 import Choice, Greeting, Tags
from fedboost.oblivious.guest import ask_parts, choose_method, guest_side
from fedboost.oblivious.side import refuse_sampled, restore, snapshot
from fedboost.protocols.align.ring import (
    Member,
    begin,
    blind_ids,
    bytes_max,
    check_origin,
    close_ring,
    finish,
    keep_common_rows,
    party_behind,
    pass_on,
)

__all__ = (
    "ask_parts", "begin", "blind_ids", "bytes_max", "choose_method", "close_ring", "compare_rows",
    "count_common", "finish", "intersect", "match_hints", "match_tags", "name_rows",
    "open_transfers", "pass_on", "restore", "snapshot", "start_transfers",
)  # fmt: skip


def intersect(guest: Member, got: Mapping[str, FullSet]) -> Out:
    """Send the points in every set to the last host, the first to unblind them; refuse too few."""
    refuse_sampled(guest.side)
    common = _points_in_all(guest, got)
    guest.shared = len(common)
    check_common(_require_common(guest, guest.shared), guest.context.limits.intersection_min)
    data = b"".join(sorted(common))
    message = CommonSet(points=len(common), data=data)
    return Out(send={guest.context.table.hosts[-1]: message}, about=guest.charged())


def name_rows(guest: Member, got: CommonSet) -> Out:
    """Find our rows among the opened points, and send the hosts keyed digests of their ids."""
    points = read_points(got.points, got.data, "the opened set")
    if len(points) != guest.shared:
        raise PeerError(
            f"the opened set has {len(points)} points, {guest.shared} were to be opened"
        )
    row_of = {point: row for row, point in enumerate(as_keys(guest.own))}
    try:
        common = np.array([row_of[point] for point in as_keys(points)], np.int64)
    except KeyError:
        raise PeerError("the opened set holds points that are not the guest's") from None
    key = id_digests.fresh_key()
    digests = id_digests.digests(guest.ids.take(np.sort(common)), key)
    guest.digest = keep_common_rows(guest, common, key)
    return Out(send=CommonDigests(key=key, ids=len(common), data=digests.tobytes()))


def start_transfers(guest: Member, got: Mapping[str, Greeting]) -> Out:
    """Draw the key of the ids' digests from all nonces; send each host our half of transfers."""
    return guest_side(guest).start(guest, got, joint=True)


def count_common(guest: Member, got: Mapping[str, FullSet]) -> Out:
    """Count the points of a sample that are in every set; too few lead to a larger sample."""
    side, count = guest_side(guest), len(_points_in_all(guest, got))
    for party, points in guest.brought.items():
        side.check_sampled(party, points)
    if side.sample_share == 1.0:
        _require_common(guest, count)
    return side.count(dict.fromkeys(guest.context.table.hosts, count), may_be_none=False)


def open_transfers(guest: Member, got: Mapping[str, Choice]) -> Out:
    """Read the hosts' halves of the transfers."""
    return guest_side(guest).open(got, hints=len(got) > 1)


def match_tags(guest: Member, got: Iterator[Mapping[str, Tags]]) -> Iterator[Out]:
    """Find and name the ids in common with the only host, by its tags; refuse none at all."""
    yield from _match_ids(guest, got)


def match_hints(guest: Member, got: Iterator[Mapping[str, Hint]]) -> Iterator[Out]:
    """Find and name the ids that all parties have, by the hosts' hints; refuse none at all."""
    yield from _match_ids(guest, got)


def compare_rows(guest: Member, got: Mapping[str, RowsDigest]) -> Out:
    """Refuse a host with other rows, or the same rows in another order."""
    if guest.side is not None:
        side = guest_side(guest)
        common = side.rows(guest.context.table.hosts[0])
        check_common(_require_common(guest, len(common)), max(side.least.values()))
        guest.digest, guest.brought = keep_common_rows(guest, common, side.key), side.sizes
    for host, rows in got.items():
        if not hmac.compare_digest(rows.digest, guest.digest):
            raise PeerError(f"{host} kept other rows than the guest", party=host)
    matched = len(guest.rows)
    table = guest.context.table
    ids = [
        MatchedIds(party=party, brought=guest.brought[party], matched=matched)
        for party in (table.guest, *table.hosts)
    ]
    return Out(told=StatusReport(counts=[Count(name="aligned", count=matched)], ids=ids))


def _match_ids(guest: Member, got: Iterator[Mapping[str, Tags | Hint]]) -> Iterator[Out]:
    side = guest_side(guest)
    for out in side.find(got):
        if out.told is not None and out.told.ends:  # of the last part
            _require_common(guest, len(side.rows(guest.context.table.hosts[0])))
        yield out


def _points_in_all(guest: Member, got: Mapping[str, FullSet]) -> set[bytes]:
    """Return the points in every set, and note the sizes of the sets."""
    common = set(as_keys(guest.kept))
    table = guest.context.table
    guest.brought = {party_behind(table, table.guest, 1): len(guest.kept)}
    for host, full in got.items():
        check_origin(full.origin, party_behind(table, host, 1), host)
        guest.brought[full.origin] = full.points
        common &= set(as_keys(read_points(full.points, full.data, f"the set from {host}")))
    return common


def _require_common(guest: Member, count: int) -> int:
    """Return the number of ids that all parties have; a DataError if there are none."""
    if not count:
        raise DataError(
            "no id is held by all parties",
            party=guest.context.party,
            todo="check that every party names the same id columns, written the same way; "
            "a data set's id_format changes how",
            kind="no id is held by all parties",
        )
    return count
