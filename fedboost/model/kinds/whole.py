"""Trees that every party holds whole, and uses without the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from fedboost.flow import Artefact
from fedboost.ground.arrays import Floats, Indices
from fedboost.model import branches, export, whole
from fedboost.model.branches import Picture
from fedboost.model.kinds.kind import Exported, Frames, Gains, ImportanceShare, Shards, SharedRule
from fedboost.model.kinds.vertical import VerticalModel, add_gains
from fedboost.model.vertical import GUEST, Whole


class WholeModel(VerticalModel):
    """Trees whose splits belong to no party; most is as for a guest that owns all of them."""

    is_whole: ClassVar[bool] = True
    scored_by: ClassVar[str] = ""

    def exported_parts(self, shard: Artefact) -> Exported:
        """Return the nodes, without owners."""
        return export.facts_of(shard), {
            "nodes": export.node_entries(whole.as_guest_shard(shard), owners=False)
        }

    def importance(self, shard: Artefact) -> list[ImportanceShare]:
        """Return gain and splits of all columns, by name."""
        return super().importance(whole.as_guest_shard(shard))

    def tree_lines(self, shard: Artefact, trees: int, first: int = 0) -> list[str]:
        """Return all splits, at every party."""
        return self.guest_lines(shard, trees, first)

    def shared_rules(
        self, shard: Artefact, names: Collection[str] | None = None
    ) -> tuple[list[SharedRule], int]:
        """Return all rules: every one is known."""
        return super().shared_rules(whole.as_guest_shard(shard), names)

    def picture(self, shard: Artefact, tree: int) -> Picture:
        """Return a tree with all splits; errors as in `check_tree`."""
        return branches.picture_of_whole(whole.as_joined(shard), tree)

    def join_shards(self, shard: Artefact, hosts: Shards) -> Whole:
        """Return all trees; their columns belong to no party."""
        return whole.as_joined(shard)

    def margins(
        self, shards: Shards, guest: str, frames: Frames, held: Mapping[str, Indices]
    ) -> Floats:
        """Return the margins of one party's table."""
        return whole.margins(shards[guest], frames[guest])

    def column_gains(self, shards: Shards, guest: str) -> Gains | None:
        """Return the totals of splits by column, of no party."""
        arrays, gains = whole.as_guest_shard(shards[guest]).arrays, Gains()
        inner = arrays["owner"] == GUEST
        worth = arrays["gain"][inner], arrays["cover"][inner]
        add_gains(gains, "", shards[guest], arrays["feature"][inner], worth)
        return gains
