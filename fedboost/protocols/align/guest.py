"""The guest of an alignment: compares the blinded sets and names the rows in common."""

import hmac
from collections.abc import Mapping

import numpy as np

from fedboost.crypto import id_digests
from fedboost.crypto.intersection import as_keys, read_points
from fedboost.crypto.set_sizes import check_common
from fedboost.errors import DataError, PeerError
from fedboost.flow import Out
from fedboost.messages.job_pb2 import Count, MatchedIds, StatusReport
from fedboost.messages.protocol.align_pb2 import CommonDigests, CommonSet, FullSet, RowsDigest
from fedboost.protocols.align.ring import (
    Member,
    begin,
    behind,
    blind_ids,
    bytes_max,
    check_origin,
    close_ring,
    finish,
    pass_on,
    restore,
    settle,
    snapshot,
)

__all__ = (
    "begin", "blind_ids", "bytes_max", "close_ring", "compare_rows", "finish", "intersect",
    "name_rows", "pass_on", "restore", "snapshot",
)  # fmt: skip


def intersect(guest: Member, got: Mapping[str, FullSet]) -> Out:
    """The points in every set, to the last host, which begins to unblind them; not too few."""
    common = set(as_keys(guest.kept))
    table = guest.context.table
    guest.brought = {behind(table, table.guest, 1): len(guest.kept)}
    for host, full in got.items():
        check_origin(full.origin, behind(table, host, 1), host)
        guest.brought[full.origin] = full.points
        common &= set(as_keys(read_points(full.points, full.data, f"the set from {host}")))
    if not common:
        raise DataError(
            "no id is held by all parties",
            party=guest.context.party,
            todo="check that every party names the same id columns, written the same way; "
            "a data set's id_format changes how",
            kind="no id is held by all parties",
        )
    guest.shared = len(common)
    check_common(guest.shared, guest.context.limits.intersection_min)
    data = b"".join(sorted(common))
    return Out(send={guest.context.table.hosts[-1]: CommonSet(points=len(common), data=data)})


def name_rows(guest: Member, got: CommonSet) -> Out:
    """Finds the own rows among the opened points and tells the hosts keyed digests of their ids."""
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
    guest.digest = settle(guest, common, key)
    return Out(send=CommonDigests(key=key, ids=len(common), data=digests.tobytes()))


def compare_rows(guest: Member, got: Mapping[str, RowsDigest]) -> Out:
    """Refuses a host that kept other rows, or the same in another order."""
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
