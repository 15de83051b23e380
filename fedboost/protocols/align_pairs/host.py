"""A host of a pairwise alignment: blinds the guest's set, and keeps the common rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto import id_digests
from fedboost.crypto.intersection import POINT_BYTES, Exponent, multiply
from fedboost.crypto.set_sizes import CURVE_IDS_MAX
from fedboost.data.holdout import canonical_rows
from fedboost.flow import Artefact, Charge, DisclosureInfo, Out, Spent, StageContext
from fedboost.ground.slot import Slot
from fedboost.job import Alignment
from fedboost.messages.protocol.align_pairs_pb2 import CommonDigests, GuestSet, HostSet, ReturnedSet
from fedboost.messages.protocol.align_pb2 import RowsDigest
from fedboost.messages.protocol.oblivious_pb2 import SampleCount
from fedboost.oblivious.host import answer_with_tags, greet, hear_start, host_side, keep_named
from fedboost.oblivious.method import ECDH, check_method
from fedboost.oblivious.side import Aligning, restore, snapshot
from fedboost.protocols.align_pairs import pair

__all__ = (
    "answer_with_tags", "begin", "blind_again", "bytes_max", "choose_seeds", "finish", "greet",
    "hear_count", "hear_start", "keep_named", "keep_rows", "offer_ids", "restore", "snapshot",
    "tell_rows",
)  # fmt: skip


@dataclass
class Host(Aligning):
    """State of a host between steps."""

    exponent: Exponent
    rows = Slot[NDArray[np.int64]]("rows that the guest has")  # of the table


def begin(context: StageContext[Alignment]) -> Host:
    """Return a host with its ids and a fresh exponent."""
    return Host(context, context.data.ids, Exponent.random())


def offer_ids(host: Host) -> Out:
    """Send our ids as points under our exponent, in secret order, padded as our policy says.

    With an oblivious function they are a sample.
    """
    sample = None
    if host.side is not None:
        sample = host.side.sampled_ids(settled=host_side(host).settled)
        host.exponent = Exponent.random()
    points = pair.points_of(host.ids, host.context.party, host.context, sample)
    order = host.context.secrets.attempt.permutation(
        len(points), "order", *pair.sample_purpose(sample)
    )
    blinded = multiply(points[order], host.exponent, host.context.services.workers)
    message = HostSet(points=len(blinded), data=blinded.tobytes())
    return Out(send=message, about=host.charged())


def blind_again(host: Host, got: GuestSet) -> Out:
    """Return the guest's set under our exponent as well, in the order it came in.

    The guest can then open all ids in common, even if it names fewer later: the charge is the
    largest possible number. It can only count the ids of a sample, which we return in secret order.
    """
    guest = host.context.table.guest
    if host.side is not None:
        host.side.check_sampled(guest, got.points, settled=host_side(host).settled)
    blinded = pair.blind_again(got, host.exponent, host.context, guest)
    if host.side is not None:
        of = pair.sample_purpose(host.side.sampled_ids())
        order = host.context.secrets.attempt.permutation(len(blinded), "returned", *of)
        return Out(send=ReturnedSet(points=len(blinded), data=blinded[order].tobytes()))
    check_method(host.context.params, len(blinded), ECDH, guest)
    host.count_brought(guest, len(blinded))
    most = min(len(blinded), len(host.ids))
    message = ReturnedSet(points=len(blinded), data=blinded.tobytes())
    return Out(send=message, about=host.charged(Charge(Spent.IDS, most)))


def keep_rows(host: Host, got: CommonDigests) -> Out:
    """Find our rows by their digests, maybe none, and send one digest over all of them."""
    pair.check_opened(got.ids, host.context)
    return _keep_common(host, id_digests.named_rows(host.ids, got.key, got.ids, got.data), got.key)


def hear_count(host: Host, got: SampleCount) -> Out:
    """Refuse to go on if fewer ids are in common than our policy opens, except for none."""
    return host_side(host).take_count(got, may_be_none=True)


def choose_seeds(host: Host) -> Out:
    """Send our half of the transfers."""
    return host_side(host).send_transfers(host)


def tell_rows(host: Host) -> Out:
    """Send one digest over all our common rows, maybe none."""
    side = host_side(host)
    rows = side.rows(host.context.table.guest)
    pair.check_opened(len(rows), host.context)
    return _keep_common(host, rows, side.key)


def finish(host: Host) -> Artefact:
    """Return the rows that the guest has, in canonical order: `rows` int64 (m,)."""
    return Artefact(arrays={"rows": host.rows})


def bytes_max(host: Host, step: str) -> int:
    """Return the largest size of a message: the policy's limit for the guest's set, else our size.

    Common ids are never more than our own.
    """
    if step == "keep_rows":
        return len(host.ids) * id_digests.ID_DIGEST_BYTES + 1024
    if host.side is not None and step != "blind_again":
        return host.side.bytes_max(step)
    return min(CURVE_IDS_MAX, host.context.limits.peer_ids_max) * POINT_BYTES + 1024


def _keep_common(host: Host, common: NDArray[np.int64], key: bytes) -> Out:
    """Keep the common rows, and send a digest over all of them."""
    host.rows = canonical_rows(host.ids, common)
    digest = id_digests.digest_of_all(host.ids, key, host.rows)
    return Out(
        send=RowsDigest(digest=digest, rows=len(host.rows)), about=DisclosureInfo(len(host.rows))
    )
