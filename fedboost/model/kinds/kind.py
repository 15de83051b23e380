"""The interface of a kind of models: whatever depends on what a model is made of is asked here."""

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
Gains = dict[tuple[str, str], float]  # by party and column; no party: everybody's
Exported = tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]  # facts, and lists of entries


@dataclass(frozen=True)
class ImportanceShare:
    """What the trees owe to one column, or to all columns of another party."""

    party: str
    column: str  # empty: another party's, which has not told their names
    splits: int
    gain: float | None  # summed; None at a host, which does not know it


@dataclass(frozen=True)
class SharedRule:
    """A split rule and the trees, numbered from 0, of which it is a leaf."""

    rule: list[str]  # a condition each, in words
    columns: list[str]
    trees: list[int]
    share: float  # of all trees


class ModelKind(ABC):
    """What models are made of; it holds nothing of a model, and is asked with its shards."""

    is_whole: ClassVar[bool] = False  # whether every party holds the model whole
    scored_by: ClassVar[str] = ""  # the protocol that scores rows; empty: each party does so alone
    scores_common: ClassVar[bool] = True  # whether a row is scored only if every party has it

    # By the facts of a shard

    def described(self, facts: Facts) -> dict[str, Any]:
        """Return the model's facts in a few words: what `model list` shows."""
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
        """Return how many rounds the model has."""
        return len(facts["forest"])

    def is_hashed(self, facts: Facts) -> bool:
        """Return whether it takes any columns, which it finds by their numbers."""
        return False

    def scoring_params(self, facts: Facts) -> dict[str, Any]:
        """Return what a job of `scored_by` says beside the model."""
        return {}

    def asks_hosts(self, facts: Facts) -> bool:
        """Return whether rows are scored by a job even where all shards lie in one place."""
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
        """Refuse, by a ConfigError, models of which a host has no part to release to the guest."""
        if self.is_whole:
            raise ConfigError(
                "every party holds the whole model, so nobody has to release a part of it",
                todo=f"fedboost model export {facts['job']} --out model.json",
                model=facts["job"],
            )

    def check_joined(self, facts: Facts) -> None:
        """Refuse, by a ConfigError, models that no XGBoost model can stand for."""
        del facts

    def check_tree(self, facts: Facts, tree: int) -> None:
        """Refuse, by a ConfigError, a tree, counted from 0, that the model does not have."""
        branches.check_tree(facts, tree)

    def batch_rows(self, facts: Facts) -> int:
        """Return how many rows of a table to score together: their bits are those of all at once.

        Only a model that is whole is asked.
        """
        return BATCH_ROWS

    # One shard

    def exported(self, shard: Artefact) -> str:
        """Return the JSON text of one party's shard; `export` says what it holds."""
        return export.text_of(*self.exported_parts(shard))

    @abstractmethod
    def exported_parts(self, shard: Artefact) -> Exported:
        """Return what that text holds, the lists with a line for each entry."""

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
        """Return split rules that are whole here, most trees first, and how many others there are.

        With `names` only the rules that ask for one of these columns. A ConfigError where the model
        has no rules, or no column of such a name.
        """

    def picture(self, shard: Artefact, tree: int) -> Picture:
        """Return a tree as the owner of a shard knows it; refuses as `check_tree` does."""
        self.check_tree(shard.facts, tree)
        raise NotImplementedError

    # All shards in one place

    def joined(self, shard: Artefact, hosts: Shards) -> Whole:
        """Return all trees with everybody's splits; `shard` is the guest's, or a whole model's.

        Refuses as `check_joined` does.
        """
        self.check_joined(shard.facts)
        raise NotImplementedError

    @abstractmethod
    def margins(
        self, shards: Shards, guest: str, frames: Frames, held: Mapping[str, Indices]
    ) -> Floats:
        """Return float64 (rows of the guest, outputs), with the bits that a job would give.

        `held`: of each host the rows of the guest that it has, int64 ascending; its frame has these
        rows in this order. A whole model needs the guest's shard and frame alone. A DataError where
        a table lacks a column of the model.
        """

    def predict(
        self, shards: Shards, guest: str, frames: Frames, held: Mapping[str, Indices]
    ) -> Floats:
        """Return probabilities or means, by the objective; see `margins`."""
        margins = self.margins(shards, guest, frames, held)
        return objectives.transform(shards[guest].facts["objective"], margins)

    def predict_alone(self, shard: Artefact, frame: Frame) -> Floats:
        """Return the same of a model that is whole."""
        assert self.is_whole
        return self.predict({"": shard}, "", {"": frame}, {})

    def gains(self, shards: Shards, guest: str) -> Gains | None:
        """Return summed gain by party and column; None where nobody knows it.

        Owners tell one another no names: that all are known is the luck of one process.
        """
        return None
