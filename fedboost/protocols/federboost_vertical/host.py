"""A host of vertical FederBoost: tells noisy buckets once, and keeps the splits of its columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import binning, forest
from fedboost.core.binning import Binning
from fedboost.core.bins import SparseBins
from fedboost.core.categories import NO_THRESHOLD, SET_BYTES, members
from fedboost.core.tree import NODES_MAX
from fedboost.crypto import noise
from fedboost.data.frame import Frame
from fedboost.errors import ConfigError, DataError, PeerError, ProtocolError
from fedboost.flow import DISCLOSURE, About, Artefact, Charge, Out, Place, Seat, Spent
from fedboost.messages.job_pb2 import Told
from fedboost.messages.protocol.federboost_vertical_pb2 import OwnSplits
from fedboost.model import columns, vertical
from fedboost.model.vertical import OwnSplit
from fedboost.protocols.federboost_vertical import buckets
from fedboost.protocols.federboost_vertical.buckets import Buckets

SPLIT_BYTES = 64  # of one split in a message, its set among them


@dataclass
class Host:
    """What a host remembers between steps."""

    seat: Seat
    binning: Binning
    names: list[str]  # of its columns
    categories: dict[str, list[str]]  # of each categorical one, by bucket
    splits: list[OwnSplit] = field(default_factory=list)


def begin(seat: Seat) -> Host:
    """The cut points of the own columns: public ones, or equal shares of the training rows."""
    if DISCLOSURE in seat.artefacts:
        facts = seat.artefacts[DISCLOSURE].facts
        return Host(seat, _binning(facts), facts["columns"], facts["categories"])
    frame, params = seat.frame, seat.params
    assert frame is not None
    cuts = binning.fit(frame.values[~seat.validation], params.buckets, frame.categorical)
    public = _public(params.public_cuts.get(seat.party, {}), frame)
    own = tuple(public.get(c, found) for c, found in enumerate(cuts.cuts))
    most = max([params.buckets, *(len(one) + 1 for one in own)])
    fitted = Binning(most, own, cuts.categories)
    return Host(seat, fitted, list(frame.columns), columns.categories(frame, fitted))


def send_buckets(me: Host) -> Out:
    """The bucket of every row in every column, with the noise that the job asks for.

    The noise comes from the job's secret, which the operating system drew: an attempt that is
    made again tells the same, so that it tells nothing more.
    """
    frame, epsilon = me.seat.frame, me.seat.params.epsilon
    assert frame is not None
    # No policy was asked for new ones, and the cut points need not be this table's.
    if DISCLOSURE in me.seat.artefacts:
        raise ProtocolError("the job uses earlier buckets again and tells no new ones")
    bins = me.binning.transform(frame.values)
    if isinstance(bins, SparseBins):
        bins = bins.dense()
    missing = (bins == me.binning.missing).any(axis=0)
    count = me.binning.n_bins + missing
    ids = np.asfortranarray(np.minimum(bins, me.binning.n_bins.astype(np.uint8)))
    if epsilon is not None:
        for c, values in enumerate(count.tolist()):
            ids[:, c] = noise.randomised(ids[:, c], values, epsilon, me.seat.job_secrets, c)
    told = Buckets(count.astype(np.int32), missing, me.binning.is_categorical, ids)
    message = buckets.write(told)
    if message.ByteSize() > wire.MESSAGE_BYTES_MAX:
        raise DataError(
            f"the buckets of {frame.n_rows} rows and {len(me.names)} columns exceed a message",
            todo="select fewer columns, or fewer buckets",
        )
    smallest = min(int(np.unique(own, return_counts=True)[1].min()) for own in ids.T)
    told_each = math.inf if epsilon is None else epsilon
    charges = tuple(Charge(Spent.EPSILON, told_each, name) for name in me.names)
    about = About(frame.n_rows, int(count.sum()), smallest, epsilon, charges, is_free_again=True)
    return Out(send=message, about=about)


def keep_splits(me: Host, got: OwnSplits) -> Out:
    """The splits of the own columns, at the cut points that nobody else knows."""
    trees = wire.unpack(got.trees, "i4", (None,), "the trees of our splits").astype(np.int64)
    nodes, numbers, last = (
        wire.unpack(array, "i4", (len(trees),), f"the {what} of our splits").astype(np.int64)
        for array, what in (
            (got.nodes, "nodes"),
            (got.columns, "columns"),
            (got.buckets, "buckets"),
        )
    )
    missing_left = wire.unpack_bits(got.missing_left, len(trees), "where missing values go")
    most = int(forest.starts(me.seat.params)[-1])
    _within(trees, most, "trees")
    _within(
        nodes, (1 << me.seat.params.max_depth) - 1, "nodes"
    )  # those of the last layer are leaves
    _within(numbers, len(me.names), "columns")
    places = trees * NODES_MAX + nodes
    if (np.diff(places) <= 0).any():
        raise PeerError("the guest sent the splits of a node twice, or not in order")
    by_category = me.binning.is_categorical[numbers]
    count = int(by_category.sum())
    sets = iter(wire.unpack(got.sets, "u1", (count, SET_BYTES), "the sets of categories"))
    rows = zip(trees, nodes, numbers, last, missing_left, by_category, strict=True)
    me.splits = [
        OwnSplit(
            *(int(tree), int(node), int(column)),
            *_rule(me.binning, int(column), int(bucket), bool(left), next(sets) if held else None),
        )
        for tree, node, column, bucket, left, held in rows
    ]
    return Out()


def snapshot(_: Host, __: Place) -> Artefact:
    """Nothing: the buckets follow from the table and the job's secret."""
    return Artefact()


def restore(_: Host, __: Artefact) -> Told:
    """Nothing to carry on."""
    return Told()


def finish(me: Host) -> Artefact:
    """The host's shard, and the cut points under which it may be asked again."""
    sizes = forest.sizes(me.seat.params).tolist()
    facts = {
        "columns": me.names,
        "categories": me.categories,
        "trees": int(forest.starts(me.seat.params)[-1]),  # at most: early stopping is the guest's
        "trees_per_round": me.seat.params.trees_per_round,
        "forest": sizes,
    }
    kept = None if DISCLOSURE in me.seat.artefacts else Artefact(_facts(me))
    return Artefact(facts, vertical.splits_to_arrays(me.splits), kept)


def bytes_max(me: Host, _: str) -> int:
    """Every node of every tree."""
    nodes = int(forest.starts(me.seat.params)[-1]) << me.seat.params.max_depth
    return min(wire.MESSAGE_BYTES_MAX, SPLIT_BYTES * nodes + wire.CONTROL_BYTES_MAX)


def _public(named: Mapping[str, tuple[float, ...]], frame: Frame) -> dict[int, NDArray[np.float32]]:
    """The job's cut points by column number."""
    found = {}
    for name, cuts in named.items():
        if name not in frame.columns or name in frame.categories:
            raise ConfigError(
                "public_cuts names a column that the table does not have, or has as categories",
                column=name,
                todo="name a column of numbers",
            )
        found[frame.columns.index(name)] = np.unique(np.array(cuts, np.float32))
    return found


def _rule(
    cuts: Binning, column: int, last: int, missing_left: bool, held: NDArray[np.generic] | None
) -> tuple[np.float32, bool, bytes]:
    """A split's threshold, where missing values go, and its set; refuses what cannot be."""
    count = int(cuts.n_bins[column])
    if held is None:
        if not 0 <= last < count:
            raise PeerError(f"the guest splits a column of {count} buckets behind bucket {last}")
        return cuts.threshold(column, last), missing_left, b""
    own = held.tobytes()
    if last != buckets.BY_SET or not any(own) or max(members(own)) >= count:
        raise PeerError(f"the guest splits a column of {count} categories by others")
    return NO_THRESHOLD, missing_left, own


def _within(numbers: NDArray[np.int64], most: int, what: str) -> None:
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < most:
        raise PeerError(f"the guest sent splits of {what} that there are not")


def _facts(me: Host) -> dict[str, Any]:
    return {
        "columns": me.names,
        "categories": me.categories,
        "max_bin": me.binning.max_bin,
        "cuts": [cuts.tolist() for cuts in me.binning.cuts],
        "codes": {str(c): codes.tolist() for c, codes in me.binning.categories.items()},
    }


def _binning(facts: Mapping[str, Any]) -> Binning:
    cuts = tuple(np.array(own, np.float32) for own in facts["cuts"])
    codes = {int(c): np.array(own, np.int32) for c, own in facts["codes"].items()}
    return Binning(facts["max_bin"], cuts, codes)
