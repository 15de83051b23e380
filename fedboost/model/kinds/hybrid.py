"""Trees of two parts: the guest's top, and each host's subtrees below its bottom nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedboost.core.partition import ROOT
from fedboost.data.frame import FrameValues
from fedboost.flow import GUEST, Artefact
from fedboost.ground.arrays import Floats, Indices
from fedboost.ground.errors import ConfigError
from fedboost.model import branches, columns, export, hybrid, rounds, vertical
from fedboost.model.batches import row_batches
from fedboost.model.branches import Picture
from fedboost.model.hybrid import NO_BOTTOM, Tops
from fedboost.model.kinds.kind import Exported, Facts, Frames, Gains, ModelKind, Shards, SharedRule
from fedboost.model.kinds.vertical import VerticalModel, add_gains
from fedboost.model.vertical import GUEST as OWN
from fedboost.model.vertical import LEAF, GuestNode


class HybridModel(VerticalModel):
    """Trees of two parts."""

    scored_by: ClassVar[str] = "predict-hybrid"
    scores_common: ClassVar[bool] = False

    def scoring_params(self, facts: Facts) -> dict[str, Any]:
        """Return the job's param about scored or unscored splits."""
        return {"split": facts["split"]}

    def needs_job(self, facts: Facts) -> bool:
        """Return True for unscored splits: their leaf values lie encrypted at hosts."""
        return bool(facts["split"] == "unscored")

    def check_released(self, facts: Facts) -> None:
        """See `ModelKind`."""
        raise ConfigError(
            "a hybridtree model averages over the hosts that have a row, as no XGBoost model can, "
            "so released splits are of no use",
            todo="fedboost model predict scores rows with it",
            model=facts["job"],
        )

    def check_joined(self, facts: Facts) -> None:
        """See `ModelKind`."""
        raise ConfigError(
            "a hybridtree model averages over the hosts that have a row, as no XGBoost model can",
            todo="--format json writes each party's own part",
            model=facts["job"],
        )

    def exported_parts(self, shard: Artefact) -> Exported:
        """Return a guest's shard with the hosts' nodes below its part, or a host's shard."""
        facts, entries = super().exported_parts(shard)
        return facts, entries | ({"below": _entries_below(shard)} if _is_guests(shard) else {})

    def nodes(self, shard: Artefact) -> list[GuestNode]:
        """Return the nodes that a guest knows, of its own part and of hosts' parts."""
        return [*super().nodes(shard), *hybrid.known_nodes_below(shard)]

    def lines_below(self, shard: Artefact, tree: int) -> Iterator[str]:
        """Yield a line for each host about its nodes below a tree."""
        _, below = hybrid.from_arrays(shard.arrays)
        for host, name in enumerate(shard.facts["hosts"], start=1):
            parts = [part for part in below if (part.host, part.node.tree) == (host, tree)]
            under = sum(part.under != NO_BOTTOM for part in parts)
            if shard.facts["split"] == "unscored":
                yield f"  {name}: below {under} bottom nodes, unseen"
                continue
            splits = [part.node.gain for part in parts if part.node.owner != LEAF]
            yield (
                f"  {name}: {len(splits)} splits below {under} bottom nodes "
                f"(gain {sum(splits):.4g} in all)"
            )

    def shared_rules(
        self, shard: Artefact, names: Collection[str] | None = None
    ) -> tuple[list[SharedRule], int]:
        """Refuse: no rule is whole at one party."""
        raise ConfigError(
            "every rule of a hybridtree model ends at a host, so that none is whole here",
            todo="count the rules of a model trained on pooled data",
        )

    def picture(self, shard: Artefact, tree: int) -> Picture:
        """Return a tree with notes at a guest's leaves: the hosts that continue below."""
        drawn = super().picture(shard, tree)
        if not _is_guests(shard):
            return drawn
        return replace(drawn, root=branches.with_notes(drawn.root, ROOT, _leaf_notes(shard, tree)))

    join_shards = ModelKind.join_shards

    def margins(
        self, shards: Shards, guest: str, frames: Frames, held: Mapping[str, Indices]
    ) -> Floats:
        """Add up the guest's leaves and the mean of hosts', as predict-hybrid for scored splits."""
        model = shards[guest]
        tops = Tops.of(model)
        known, divided = tops.numbers(model), tops.numbers(model, divided=True)
        values = {
            party: columns.model_values(shards[party].facts, frames[party]) for party in frames
        }
        n_rows, outputs = frames[guest].n_rows, rounds.outputs(model.facts)
        margin = np.tile(np.array(model.facts["base_margin"], np.float64), (n_rows, 1))
        value = tops.arrays["value"].astype(np.float64)
        for rows in row_batches(n_rows, len(outputs)):
            at = tops.bottom(values[guest], rows)
            added, holders = np.zeros((*at.shape, value.shape[1])), np.zeros(len(at), np.int64)
            for number, host in enumerate(model.facts["hosts"]):
                first, stop = np.searchsorted(held[host], [rows.start, rows.stop]).tolist()
                inside = held[host][first:stop] - rows.start
                holders[inside] += 1
                bottom = known[number][at[inside]], divided[number][at[inside]]
                kept = slice(first, stop)
                added[inside] += _host_values(
                    model, shards[host], number, (values[host], kept), bottom
                )
            mean = np.maximum(holders, 1)[:, None]
            for tree, output in enumerate(outputs):
                margin[rows, output] += value[at[:, tree]] + added[:, tree] / mean
        return margin

    def column_gains(self, shards: Shards, guest: str) -> Gains | None:
        """Return the totals of splits; None if splits were not scored."""
        model, gains = shards[guest], Gains()
        if model.facts["split"] == "unscored":
            return None
        arrays = Tops.of(model).arrays
        at_host = arrays["owner"] == OWN
        worth = arrays["gain"][at_host], arrays["cover"][at_host]
        add_gains(gains, guest, model, arrays["feature"][at_host], worth)
        for number, host in enumerate(model.facts["hosts"], start=1):
            at_host = (model.arrays["below_host"] == number) & (model.arrays["below_owner"] != LEAF)
            shard = shards[host]
            place = vertical.positions(shard.arrays)
            splits = {name: model.arrays[f"below_{name}"][at_host] for name in ("tree", "node")}
            indices = np.array([place[key] for key in vertical.node_keys(splits)], np.int64)
            feature = shard.arrays["feature"][indices]
            worth = model.arrays["below_gain"][at_host], model.arrays["below_cover"][at_host]
            add_gains(gains, host, shard, feature, worth)
        return gains


def _is_guests(shard: Artefact) -> bool:
    return bool(shard.facts["role"] == GUEST)


def _entries_below(shard: Artefact) -> list[dict[str, Any]]:
    """Return the hosts' nodes of trees in two parts, without the guest's key for them."""
    rows = []
    for part in hybrid.from_arrays(shard.arrays)[1]:
        node, host = part.node, shard.facts["hosts"][part.host - 1]
        row: dict[str, Any] = {"host": host, "tree": node.tree, "node": node.node}
        if part.under != NO_BOTTOM:
            row["under"] = part.under
        if node.owner == LEAF:
            rows.append({**row, "leaf": node.value.tolist(), "cover": node.cover})
        elif shard.facts["split"] == "scored":
            rows.append({**row, "gain": node.gain, "cover": node.cover})
        else:
            rows.append(row)
    return rows


def _leaf_notes(shard: Artefact, tree: int) -> dict[int, str]:
    """Return the hosts that continue below each bottom node of a tree of two parts, as text."""
    hosts_under: dict[int, list[str]] = {}
    for part in hybrid.from_arrays(shard.arrays)[1]:
        if part.node.tree == tree and part.under != NO_BOTTOM:
            hosts_under.setdefault(part.under, []).append(export.owner_name(shard, part.host))
    return {node: f"plus the mean of {', '.join(hosts)}" for node, hosts in hosts_under.items()}


def _host_values(
    model: Artefact,
    shard: Artefact,
    number: int,
    table: tuple[FrameValues, slice],
    bottom: tuple[Indices, Indices],
) -> Floats:
    """Return the values that a host's leaves add to rows, float64 (rows, trees, outputs of a leaf).

    `bottom` are the bottom nodes of the rows, int64 (rows, trees), by the host's numbers: all known
    ones, and only the divided ones.
    """
    at, divided = bottom
    values, rows = table
    added = np.zeros((*at.shape, model.arrays["value"].shape[1]))
    for tree, (nodes, worth) in hybrid.leaf_values(model, number + 1).items():
        below = hybrid.descend(shard.arrays, tree, values, rows, divided[:, tree])
        reached = np.where(divided[:, tree] == NO_BOTTOM, at[:, tree], below)
        (there,) = np.nonzero(reached != NO_BOTTOM)
        added[there, tree] = worth[np.searchsorted(nodes, reached[there])]
    return added
