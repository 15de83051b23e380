"""A host of a pairwise alignment: blinds the guest's set, and keeps the rows that both have."""

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
    """What a host remembers between steps."""

    exponent: Exponent
    rows = Slot[NDArray[np.int64]]("rows that the guest has")  # of the table


def begin(context: StageContext[Alignment]) -> Host:
    """A host with its ids and a fresh exponent."""
    return Host(context, context.data.ids, Exponent.random())


def offer_ids(host: Host) -> Out:
    """The own ids as points under the own exponent, in secret order; padded as our policy says.

    With an oblivious function a sample of them.
    """
    sample = None
    if host.side is not None:
        sample = host.side.sampled(settled=host_side(host).settled)
        host.exponent = Exponent.random()
    points = pair.points_of(host.ids, host.context.party, host.context, sample)
    order = host.context.secrets.attempt.permutation(len(points), "order", *pair.named(sample))
    blinded = multiply(points[order], host.exponent, host.context.services.workers)
    message = HostSet(points=len(blinded), data=blinded.tobytes())
    return Out(send=message, about=host.charged())


def blind_again(host: Host, got: GuestSet) -> Out:
    """The guest's set under the own exponent as well, in the order in which it came.

    With it the guest can open all ids in common, whatever it names later: as many are charged as
    there can be. Of a sample it can but count them, for the order is our secret.
    """
    guest = host.context.table.guest
    if host.side is not None:
        host.side.check_sampled(guest, got.points, settled=host_side(host).settled)
    blinded = pair.blind_again(got, host.exponent, host.context, guest)
    if host.side is not None:
        of = pair.named(host.side.sampled())
        order = host.context.secrets.attempt.permutation(len(blinded), "returned", *of)
        return Out(send=ReturnedSet(points=len(blinded), data=blinded[order].tobytes()))
    check_method(host.context.params, len(blinded), ECDH, guest)
    host.take_in(guest, len(blinded))
    most = min(len(blinded), len(host.ids))
    message = ReturnedSet(points=len(blinded), data=blinded.tobytes())
    return Out(send=message, about=host.charged(Charge(Spent.IDS, most)))


def keep_rows(host: Host, got: CommonDigests) -> Out:
    """Finds the own rows by their digests, maybe none, and answers one digest over all of them."""
    pair.check_opened(got.ids, host.context)
    return _settled(host, id_digests.named_rows(host.ids, got.key, got.ids, got.data), got.key)


def hear_count(host: Host, got: SampleCount) -> Out:
    """Refuse to go on where fewer ids are in common than our policy opens, but none."""
    return host_side(host).hear_count(got, may_be_none=True)


def choose_seeds(host: Host) -> Out:
    """Our half of the transfers."""
    return host_side(host).choose(host)


def tell_rows(host: Host) -> Out:
    """One digest over all our rows in common, maybe none."""
    side = host_side(host)
    rows = side.rows(host.context.table.guest)
    pair.check_opened(len(rows), host.context)
    return _settled(host, rows, side.key)


def finish(host: Host) -> Artefact:
    """The rows that the guest has, in canonical order: `rows` int64 (m,)."""
    return Artefact(arrays={"rows": host.rows})


def bytes_max(host: Host, step: str) -> int:
    """The guest's set may be as large as our policy lets it; what is common is no larger than the
    own.
    """
    if step == "keep_rows":
        return len(host.ids) * id_digests.DIGEST_BYTES + 1024
    if host.side is not None and step != "blind_again":
        return host.side.bytes_max(step)
    return min(CURVE_IDS_MAX, host.context.limits.peer_ids_max) * POINT_BYTES + 1024


def _settled(host: Host, common: NDArray[np.int64], key: bytes) -> Out:
    """Keep the rows in common, and tell a digest over all of them."""
    host.rows = canonical_rows(host.ids, common)
    digest = id_digests.digest_of_all(host.ids, key, host.rows)
    return Out(
        send=RowsDigest(digest=digest, rows=len(host.rows)), about=DisclosureInfo(len(host.rows))
    )
