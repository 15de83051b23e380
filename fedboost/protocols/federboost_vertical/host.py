"""A host of vertical FederBoost: sends noisy buckets once, and keeps the splits of its columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core import binning, forest
from fedboost.core.binning import Binning
from fedboost.core.bins import SparseBins
from fedboost.core.categories import NO_THRESHOLD, SET_BYTES, set_members
from fedboost.core.placement import ColumnShares
from fedboost.core.tree import NODES_MAX
from fedboost.data.frame import Frame
from fedboost.flow import (
    DISCLOSURE,
    Artefact,
    Charge,
    DisclosureInfo,
    Out,
    Place,
    Spent,
    StageContext,
)
from fedboost.ground import wire
from fedboost.ground.errors import ConfigError, DataError, PeerError, ProtocolError
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.protocol.federboost_vertical_pb2 import OwnSplits
from fedboost.model import columns, telling, vertical
from fedboost.model.telling import TELLING, Telling
from fedboost.model.vertical import OwnSplit
from fedboost.protocols.federboost_vertical import buckets
from fedboost.protocols.federboost_vertical.buckets import Buckets
from fedboost.protocols.federboost_vertical.params import FederBoostVerticalParams

SPLIT_BYTES = 64  # of one split in a message, its set among them


@dataclass
class Host:
    """State of a host between steps."""

    context: StageContext[FederBoostVerticalParams]
    telling: Telling
    splits: list[OwnSplit] = field(default_factory=list)


def begin(context: StageContext[FederBoostVerticalParams]) -> Host:
    """Return a host with fresh cut points, or those of an earlier disclosure or attempt."""
    facts = context.services.notebook.read().get(TELLING)
    if DISCLOSURE in context.artefacts:
        facts = context.artefacts[DISCLOSURE].facts
    return Host(context, _fresh_telling(context) if facts is None else telling.read_telling(facts))


def _fresh_telling(context: StageContext[FederBoostVerticalParams]) -> Telling:
    """Return the settings of our disclosure: public cut points, or equal shares of rows."""
    frame, params = context.data, context.params
    cuts = binning.fit(
        frame.values,
        params.buckets,
        frame.categorical,
        rows=~context.validation,
        group_cuts=frame.group_cuts,
    )
    public = _public_cuts_by_column(params.public_cuts.get(context.party, {}), frame)
    chosen = tuple(public.get(c, quantiles) for c, quantiles in enumerate(cuts.cuts))
    most = max([params.buckets, *(len(column_cuts) + 1 for column_cuts in chosen)])
    fitted = Binning(most, chosen, cuts.categories)
    bins = fitted.transform(frame.values)
    if isinstance(bins, SparseBins):
        bins = bins.dense()
    return Telling(
        job=context.job,
        mark=telling.mark_of(context.secrets.lasting(context.job)),
        id_columns=frame.id_columns,
        columns=frame.columns,
        categories=columns.categories(frame, fitted),
        binning=fitted,
        missing=tuple((bins == fitted.missing).any(axis=0).tolist()),
        epsilon=params.epsilon,
    )


def send_buckets(host: Host) -> Out:
    """Send the bucket of every row in every column, with the noise that the job asks for.

    Cut points are settled and noise belongs to ids and values. So a repeated attempt, with any
    rows of the same table, reveals nothing more.
    """
    frame, terms = host.context.data, host.telling
    # The policy has not allowed new ones, and the cut points need not be this table's.
    if DISCLOSURE in host.context.artefacts:
        raise ProtocolError("the job uses earlier buckets again and tells no new ones")
    notebook = host.context.services.notebook
    notebook.write({**notebook.read(), TELLING: terms.facts()})
    told = terms.tell_values(frame.values, frame.ids, host.context)
    missing = np.array(terms.missing, np.bool_)
    message = buckets.write_message(
        Buckets(terms.count, missing, terms.binning.is_categorical, told.ids)
    )
    if message.ByteSize() > wire.MESSAGE_BYTES_MAX:
        raise DataError(
            f"the buckets of {frame.n_rows} rows and {len(terms.columns)} columns exceed a message",
            todo="select fewer columns, or fewer buckets",
        )
    smallest = min(int(np.unique(column, return_counts=True)[1].min()) for column in told.ids.T)
    each = math.inf if terms.epsilon is None else terms.epsilon
    noise = tuple(Charge(Spent.EPSILON, each, name) for name in terms.columns)
    charges = (*noise, *_placement_charges(host, told.ids, each), *host.context.held_out_charges)
    numbers = frame.n_rows, int(terms.count.sum()), smallest
    about = DisclosureInfo(*numbers, terms.epsilon, charges, told.noisy, is_free_again=True)
    return Out(send=message, about=about)


def keep_splits(host: Host, got: OwnSplits) -> Out:
    """Keep the splits of our columns, with the cut points that only we know."""
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
    most = int(forest.first_tree_numbers(host.context.params)[-1])
    _check_numbers(trees, most, "trees")
    # Nodes of the last layer are leaves.
    _check_numbers(nodes, (1 << host.context.params.max_depth) - 1, "nodes")
    _check_numbers(numbers, len(host.telling.columns), "columns")
    indices = trees * NODES_MAX + nodes
    if (np.diff(indices) <= 0).any():
        raise PeerError("the guest sent the splits of a node twice, or not in order")
    cuts = host.telling.binning
    by_category = cuts.is_categorical[numbers]
    count = int(by_category.sum())
    sets = iter(wire.unpack(got.sets, "u1", (count, SET_BYTES), "the sets of categories"))
    rows = zip(trees, nodes, numbers, last, missing_left, by_category, strict=True)
    host.splits = [
        OwnSplit(
            *(int(tree), int(node), int(column)),
            *_split_rule(cuts, int(column), int(bucket), bool(left), next(sets) if held else None),
        )
        for tree, node, column, bucket, left, held in rows
    ]
    return Out()


def snapshot(_: Host, __: Place) -> Artefact:
    """Keep nothing: buckets follow from table, settled cut points and the store's secret."""
    return Artefact()


def restore(_: Host, __: Artefact) -> StatusReport:
    """Restore nothing."""
    return StatusReport()


def finish(host: Host) -> Artefact:
    """Return the host's shard, with the settings of its disclosure for later jobs."""
    sizes = forest.trees_each_round(host.context.params).tolist()
    facts = {
        "columns": list(host.telling.columns),
        "categories": dict(host.telling.categories),
        TELLING: host.telling.for_model_values().facts(),
        # At most: early stopping is the guest's.
        "trees": int(forest.first_tree_numbers(host.context.params)[-1]),
        "trees_per_round": host.context.params.trees_per_round,
        "forest": sizes,
    }
    kept = None if DISCLOSURE in host.context.artefacts else Artefact(host.telling.facts())
    return Artefact(facts, vertical.splits_to_arrays(host.splits), kept)


def bytes_max(host: Host, _: str) -> int:
    """Return the size of a message with every node of every tree."""
    nodes = int(forest.first_tree_numbers(host.context.params)[-1]) << host.context.params.max_depth
    return min(wire.MESSAGE_BYTES_MAX, SPLIT_BYTES * nodes + wire.CONTROL_BYTES_MAX)


def _placement_charges(
    host: Host, ids: NDArray[np.integer[Any]], epsilon: float
) -> Iterator[Charge]:
    """Yield a charge for the share of rows that the noisy buckets of each column could place.

    A value of ε reveals at most ε·log2(e) bits of the log2 of its bucket.
    """
    n_bins, learnt = host.telling.binning.n_bins.astype(np.int64), ~host.context.validation
    bins = host.telling.binning.transform(host.context.data.values)
    shares = ColumnShares.of(bins, n_bins, learnt)
    bits = np.minimum(shares.entropy, epsilon * math.log2(math.e))
    placed = shares.placed(len(ids) * bits)
    for column in np.flatnonzero(placed).tolist():
        yield Charge(Spent.PLACED, float(placed[column]), host.telling.columns[column])


def _public_cuts_by_column(
    named: Mapping[str, tuple[float, ...]], frame: Frame
) -> dict[int, NDArray[np.float32]]:
    """Return the job's cut points by column number."""
    by_column = {}
    for name, cuts in named.items():
        if name not in frame.columns or name in frame.categories:
            raise ConfigError(
                "public_cuts names a column that the table does not have, or has as categories",
                column=name,
                todo="name a column of numbers",
            )
        by_column[frame.columns.index(name)] = np.unique(np.array(cuts, np.float32))
    return by_column


def _split_rule(
    cuts: Binning, column: int, last: int, missing_left: bool, held: NDArray[np.generic] | None
) -> tuple[np.float32, bool, bytes]:
    """Return a split's threshold, missing direction and set; refuse an impossible split."""
    count = int(cuts.n_bins[column])
    if held is None:
        if not 0 <= last < count:
            raise PeerError(f"the guest splits a column of {count} buckets behind bucket {last}")
        return cuts.threshold(column, last), missing_left, b""
    left_bins = held.tobytes()
    if last != buckets.BY_SET or not any(left_bins) or max(set_members(left_bins)) >= count:
        raise PeerError(f"the guest splits a column of {count} categories by others")
    return NO_THRESHOLD, missing_left, left_bins


def _check_numbers(numbers: NDArray[np.int64], most: int, what: str) -> None:
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < most:
        raise PeerError(f"the guest sent splits of {what} that there are not")
