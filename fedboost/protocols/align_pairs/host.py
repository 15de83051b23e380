"""A host of a pairwise alignment: blinds the guest's set, and keeps the rows that both have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto import id_digests
from fedboost.crypto.intersection import POINT_BYTES, Exponent, multiply
from fedboost.crypto.set_sizes import SET_IDS_MAX
from fedboost.data.holdout import canonical_rows
from fedboost.encoded_ids import EncodedIds
from fedboost.flow import Artefact, Charge, DisclosureInfo, Out, Place, Spent, StageContext
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.protocol.align_pairs_pb2 import (
    CommonDigests,
    GuestSet,
    HostSet,
    ReturnedSet,
)
from fedboost.messages.protocol.align_pb2 import RowsDigest
from fedboost.protocols.align_pairs import pair
from fedboost.slot import Slot


@dataclass
class Host:
    """What a host remembers between steps."""

    context: StageContext
    ids: EncodedIds
    exponent: Exponent
    rows = Slot[NDArray[np.int64]]("rows that the guest has")  # of the table


def begin(context: StageContext) -> Host:
    """A host with its ids and a fresh exponent."""
    return Host(context, context.data.ids, Exponent.random())


def offer_ids(host: Host) -> Out:
    """The own ids as points under the own exponent, in secret order; padded as our policy says."""
    points = pair.points_of(host.ids, host.context.party, host.context)
    order = host.context.secrets.permutation(len(points), "order")
    blinded = multiply(points[order], host.exponent, host.context.workers)
    return Out(send=HostSet(points=len(blinded), data=blinded.tobytes()))


def blind_again(host: Host, got: GuestSet) -> Out:
    """The guest's set under the own exponent as well, in the order in which it came.

    With it the guest can open all ids in common, whatever it names later: as many are charged as
    there can be.
    """
    blinded = pair.blind_again(got, host.exponent, host.context, host.context.table.guest)
    most = min(len(blinded), len(host.ids))
    message = ReturnedSet(points=len(blinded), data=blinded.tobytes())
    return Out(send=message, about=DisclosureInfo(charges=(Charge(Spent.IDS, most),)))


def keep_rows(host: Host, got: CommonDigests) -> Out:
    """Finds the own rows by their digests, maybe none, and answers one digest over all of them."""
    pair.check_opened(got.ids, host.context)
    common = id_digests.named_rows(host.ids, got.key, got.ids, got.data)
    host.rows = canonical_rows(host.ids, common)
    digest = id_digests.digest_of_all(host.ids.take(host.rows), got.key)
    return Out(
        send=RowsDigest(digest=digest, rows=len(host.rows)), about=DisclosureInfo(len(host.rows))
    )


def snapshot(_: Host, __: Place) -> Artefact:
    """Nothing is worth keeping before the end."""
    return Artefact()


def restore(_: Host, __: Artefact) -> StatusReport:
    """An alignment starts anew: its exponent is gone."""
    return StatusReport()


def finish(host: Host) -> Artefact:
    """The rows that the guest has, in canonical order: `rows` int64 (m,)."""
    return Artefact(arrays={"rows": host.rows})


def bytes_max(host: Host, step: str) -> int:
    """The guest's set may be as large as a table; what is common is no larger than the own."""
    if step == "keep_rows":
        return len(host.ids) * id_digests.DIGEST_BYTES + 1024
    return SET_IDS_MAX * POINT_BYTES + 1024
