"""Interface of the kinds of models, with all differences between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedboost.core import objectives
from fedboost.data.frame import BATCH_ROWS, Frame
from fedboost.flow import Artefact
from fedboost.ground.arrays import Floats, Indices
from fedboost.ground.errors import ConfigError
from fedboost.model import branches, export
from fedboost.model.branches import Picture
from fedboost.model.vertical import Whole

Facts = Mapping[str, Any]  # of a shard
Frames = Mapping[str, Frame]  # by party
Shards = Mapping[str, Artefact]  # by party
Exported = tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]  # facts, and lists of entries


@dataclass
class SplitTotals:
    """The splits of a column, and what they add up to."""

    splits: int = 0
    gain: float = 0.0
    cover: float = 0.0  # hessian sums of the nodes divided

    def add(self, gain: float, cover: float) -> None:
        """Add a split."""
        self.splits += 1
        self.gain += gain
        self.cover += cover


Gains = dict[tuple[str, str], SplitTotals]  # by party and column; no party: everybody's


@dataclass(frozen=True)
class ImportanceShare:
    """Importance of one column in the trees, or of all columns of another party."""

    party: str
    column: str  # empty: all columns of another party, with unknown names
    splits: int
    gain: float | None  # summed; None at a host, which does not know it


@dataclass(frozen=True)
class SharedRule:
    """A split rule and the trees, numbered from 0, that have a leaf of it."""

    rule: list[str]  # a condition each, in words
    columns: list[str]
    trees: list[int]
    share: float  # of all trees


class ModelKind(ABC):
    """Kind of models; it holds no model, and its methods take shards."""

    is_whole: ClassVar[bool] = False  # whether every party holds the model whole
    scored_by: ClassVar[str] = ""  # the protocol that scores rows; empty: each party does so alone
    scores_common: ClassVar[bool] = True  # whether a row is scored only if every party has it

    # By the facts of a shard

    def summary(self, facts: Facts) -> dict[str, Any]:
        """Return a summary of the model's facts, for `model list`."""
        history, rounds = facts.get("history") or [], self.rounds(facts)
        return {
            "model": facts["job"],
            "name": facts["name"],
            "protocol": facts["protocol"],
            "party": facts["party"],
            "role": facts["role"],
            "guest": facts["guest"],
            "hosts": facts["hosts"],
            "rounds": rounds,
            "trees": facts["trees"],
            "objective": facts.get("objective", ""),
            "metrics": history[rounds - 1] if 0 < rounds <= len(history) else {},
            "created": facts.get("created", ""),
            "columns": facts["columns"],
            "whole": self.is_whole,
        }

    def rounds(self, facts: Facts) -> int:
        """Return the number of rounds of the model."""
        return len(facts["forest"])

    def is_hashed(self, facts: Facts) -> bool:
        """Return whether it takes any columns and finds them by their numbers."""
        return False

    def scoring_params(self, facts: Facts) -> dict[str, Any]:
        """Return the params of a job of `scored_by` besides the model."""
        return {}

    def needs_job(self, facts: Facts) -> bool:
        """Return whether a job scores rows even if all shards lie in one place."""
        return False

    def check_scored_by(self, protocol: str, facts: Facts) -> None:
        """Refuse, by a ConfigError, a prediction job of another protocol than the kind's."""
        if not self.scored_by:
            raise ConfigError(
                "every party holds the model whole, and predicts with it alone, without a job",
                todo=f"fedboost model predict {facts['job']} --config PARTY.yaml "
                "--data PARTY=… --out P.parquet",
            )
        if self.scored_by != protocol:
            raise ConfigError(
                f"a model of {facts['protocol']} is scored by {self.scored_by}, not by {protocol}",
                todo=f"protocol: {self.scored_by}",
            )

    def check_released(self, facts: Facts) -> None:
        """Refuse, by a ConfigError, models without a part that a host could release."""
        if self.is_whole:
            raise ConfigError(
                "every party holds the whole model, so nobody has to release a part of it",
                todo=f"fedboost model export {facts['job']} --out model.json",
                model=facts["job"],
            )

    def check_joined(self, facts: Facts) -> None:
        """Refuse, by a ConfigError, models that XGBoost cannot represent."""
        del facts

    def check_tree(self, facts: Facts, tree: int) -> None:
        """Refuse, by a ConfigError, a tree, counted from 0, that the model does not have."""
        branches.check_tree(facts, tree)

    def batch_rows(self, facts: Facts) -> int:
        """Return the number of rows to score together; predictions have the same bits as for all at
        once.

        Only for a whole model.
        """
        return BATCH_ROWS

    # One shard

    def exported(self, shard: Artefact) -> str:
        """Return the JSON text of one party's shard; `export` describes it."""
        return export.json_text(*self.exported_parts(shard))

    @abstractmethod
    def exported_parts(self, shard: Artefact) -> Exported:
        """Return the facts of that text, and its lists with a line for each entry."""

    @abstractmethod
    def importance(self, shard: Artefact) -> list[ImportanceShare]:
        """Return gain and splits, greatest first: own columns by name, others' as one sum each."""

    @abstractmethod
    def tree_lines(self, shard: Artefact, trees: int, first: int = 0) -> list[str]:
        """Return so many trees from `first` on as text, as far as the shard's owner knows them."""

    @abstractmethod
    def shared_rules(
        self, shard: Artefact, names: Collection[str] | None = None
    ) -> tuple[list[SharedRule], int]:
        """Return split rules that are whole here, most trees first, and the number of other rules.

        With `names` only the rules with a condition on one of these columns. A ConfigError if the
        model has no rules, or no column of such a name.
        """

    def picture(self, shard: Artefact, tree: int) -> Picture:
        """Return a tree as the owner of a shard knows it; errors as in `check_tree`."""
        self.check_tree(shard.facts, tree)
        raise NotImplementedError

    # All shards in one place

    def join_shards(self, shard: Artefact, hosts: Shards) -> Whole:
        """Return all trees with all splits; `shard` is the guest's, or a whole model's.

        Errors as in `check_joined`.
        """
        self.check_joined(shard.facts)
        raise NotImplementedError

    @abstractmethod
    def margins(
        self, shards: Shards, guest: str, frames: Frames, held: Mapping[str, Indices]
    ) -> Floats:
        """Return float64 (rows of the guest, outputs), with the bits that a job would give.

        `held`: for each host the rows of the guest that it has, int64 ascending; its frame has
        these rows in this order. A whole model needs only the guest's shard and frame. A DataError
        if a table lacks a column of the model.
        """

    def predict(
        self, shards: Shards, guest: str, frames: Frames, held: Mapping[str, Indices]
    ) -> Floats:
        """Return probabilities or means, by the objective; see `margins`."""
        margins = self.margins(shards, guest, frames, held)
        return objectives.transform(shards[guest].facts["objective"], margins)

    def predict_alone(self, shard: Artefact, frame: Frame) -> Floats:
        """Return the same for a whole model."""
        assert self.is_whole
        return self.predict({"": shard}, "", {"": frame}, {})

    def column_gains(self, shards: Shards, guest: str) -> Gains | None:
        """Return the totals of splits by party and column; None if gains are unknown.

        Parties do not tell one another the names of columns; all are known only if one process has
        all shards.
        """
        return None
