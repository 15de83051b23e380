"""Boosted networks, which every party holds whole: they have no trees, splits or rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from fedboost.core.networks import block_rows
from fedboost.data.frame import BATCH_ROWS
from fedboost.flow import Artefact
from fedboost.ground.arrays import Floats, Indices
from fedboost.ground.errors import ConfigError
from fedboost.ground.ids import IDS_MAX
from fedboost.model import export, networks
from fedboost.model.kinds.kind import (
    Exported,
    Facts,
    Frames,
    ImportanceShare,
    ModelKind,
    Shards,
    SharedRule,
)


class NetworkModel(ModelKind):
    """Rounds of networks."""

    is_whole: ClassVar[bool] = True

    def summary(self, facts: Facts) -> dict[str, Any]:
        """Return the summary, with the outputs of each network and its reading of columns."""
        details = {"outputs": facts["outputs"], "reading": facts["reading"]}
        return super().summary(facts) | details

    def rounds(self, facts: Facts) -> int:
        """See `ModelKind`."""
        return int(facts["rounds"])

    def is_hashed(self, facts: Facts) -> bool:
        """Return True for columns of sparse tables that are read as they are."""
        return bool(facts["sparse"]) and facts["reading"] == "standard"

    def batch_rows(self, facts: Facts) -> int:
        """Return whole blocks of the networks' product, which decide the rounding of sums; for
        sparse rows, whose blocks depend on their values, all rows.
        """
        block = block_rows(facts["outputs"])
        return IDS_MAX if facts["sparse"] else max(block, BATCH_ROWS // block * block)

    def check_joined(self, facts: Facts) -> None:
        """See `ModelKind`."""
        raise ConfigError(
            "XGBoost reads trees, and the model is made of networks",
            todo=f"fedboost model export {facts.get('job', 'ID')} --format json",
        )

    def check_tree(self, facts: Facts, tree: int) -> None:
        """See `ModelKind`."""
        raise ConfigError(
            "the model is made of networks, which have no trees",
            todo=f"fedboost model show {facts['job']}",
        )

    def exported_parts(self, shard: Artefact) -> Exported:
        """Return rounds; weights as the shortest texts of 32-bit floats, a list for each output."""
        read = {
            name: shard.arrays[name].tolist()
            for name in (*networks.SCALE_ARRAYS, *networks.CUTS)
            if name in shard.arrays
        }
        listed = [
            {
                "network": a_round.network.number,
                "mean": a_round.normal.mean.tolist(),
                "deviation": a_round.normal.deviation.tolist(),
                "weights": [
                    [export.shortest_float(value) for value in weights]
                    for weights in a_round.weights
                ],
            }
            for a_round in networks.load_rounds(shard)
        ]
        return export.facts_of(shard) | read, {"networks": listed}

    def importance(self, shard: Artefact) -> list[ImportanceShare]:
        """Return nothing: networks have no importance of single columns."""
        return []

    def tree_lines(self, shard: Artefact, trees: int, first: int = 0) -> list[str]:
        """Return the network of each round, and the range of its outputs' weights."""
        return [
            f"round {number}: network {a_round.network.number}, weights from "
            f"{a_round.weights.min():.4g} to {a_round.weights.max():.4g}"
            for number, a_round in enumerate(
                networks.load_rounds(shard)[first : first + trees], first
            )
        ]

    def shared_rules(
        self, shard: Artefact, names: Collection[str] | None = None
    ) -> tuple[list[SharedRule], int]:
        """Refuse: networks have no rules."""
        raise ConfigError(
            "the model is made of networks, which have no split rules",
            todo="fedboost model show prints its facts",
        )

    def margins(
        self, shards: Shards, guest: str, frames: Frames, held: Mapping[str, Indices]
    ) -> Floats:
        """Return the margins of one party's table."""
        return networks.margins(shards[guest], frames[guest])
