"""XGBoost's outputs of fitted trees: a real `Booster`, margins, contributions, leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.data.frame import Frame
from fedboost.flow import Artefact
from fedboost.model import contributions, kinds
from fedboost.model.unknown_categories import UNKNOWN_MAX
from fedboost.model.vertical import Whole
from fedboost.sdk.fitted import Fitted, Score, margin_shift
from fedboost.sdk.party_tables import RowsLike
from fedboost.sdk.refusals import InvalidParameterError, as_value_errors

Shards = Mapping[str, Artefact]
Frames = Mapping[str, Frame]
IterationRange = tuple[int, int]


class Boosted(Fitted):
    """The base of fitted estimators: scores beside classes and means."""

    def get_booster(self) -> Any:
        """Return the trees of all parties as an `xgboost.Booster`, for SHAP and
        `xgboost.plot_tree`.

        A vertical model's features are called ``PARTY.COLUMN``. XGBoost keeps leaves and sums in
        32-bit floats. A ConfigError where xgboost is not installed or cannot hold the model
        (`gbun`, `hybridtree`).
        """
        self._check_fitted()
        with as_value_errors():
            return contributions.booster(joined_model(self.shards_, self.guest_))

    def apply(self, X: RowsLike, iteration_range: IterationRange | None = None) -> Any:
        """Return the leaf of each row in each tree, int32 (n, trees), as XGBoost numbers nodes; by
        party as `predict` has it. Errors as of `get_booster`.
        """
        options = self._checked_range(iteration_range)
        return self._predicted(X, _xgboost_score(pred_leaf=True, **options))

    def _scores_as_asked(
        self,
        X: RowsLike,
        output_margin: bool,
        pred_contribs: bool,
        iteration_range: IterationRange | None,
        unknown_max: float = UNKNOWN_MAX,
    ) -> Any:
        """Return margins, contributions, or the margins of some rounds."""
        if pred_contribs:
            if iteration_range is not None:
                raise InvalidParameterError(
                    "contributions cover all rounds", todo="leave iteration_range out"
                )
            return self._predicted(X, self._contributed, unknown_max)
        if iteration_range is not None:
            return self._predicted(
                X,
                _xgboost_score(output_margin=output_margin, **self._checked_range(iteration_range)),
                unknown_max,
            )
        return self._predicted(X, _margins, unknown_max)

    def _checked_range(self, iteration_range: IterationRange | None) -> dict[str, Any]:
        self._check_fitted()
        options = _checked_range(iteration_range)
        end = options.get("iteration_range", (0, 0))[1]
        if end > self.best_round_ + 1:
            raise InvalidParameterError(
                f"iteration_range ends at round {end}, and the model has {self.best_round_ + 1}: "
                "those beyond the best one are not kept",
                todo=f"end at {self.best_round_ + 1} at most",
            )
        return options

    def _contributed(
        self, shards: Shards, guest: str, frames: Frames, held: Any
    ) -> NDArray[np.float32]:
        """Return the contributions of all columns; zero for a party without any split."""
        model = joined_model(shards, guest)
        parts = contributions.contributions(model, column_values(model, frames))
        known = self._columns()
        places = [known.index(column) for column in model.columns]
        contributed = np.zeros((*parts.shape[:2], len(known) + 1), np.float32)
        contributed[:, :, [*places, -1]] = parts
        return contributed[:, 0] if contributed.shape[1] == 1 else contributed

    def _predicted(
        self, X: RowsLike, score: Score | None = None, unknown_max: float = UNKNOWN_MAX
    ) -> Any:
        raise NotImplementedError


def _margins(shards: Shards, guest: str, frames: Frames, held: Any) -> NDArray[np.float64]:
    facts = shards[guest].facts
    return kinds.kind_of(facts).margins(shards, guest, frames, held) - margin_shift(facts)


def _xgboost_score(**options: Any) -> Score:
    """Return what XGBoost gives when `asked` like this, (n, outputs or trees)."""

    def score_by_xgboost(shards: Shards, guest: str, frames: Frames, held: Any) -> NDArray[Any]:
        model = joined_model(shards, guest)
        values = contributions.predict_with_xgboost(model, column_values(model, frames), **options)
        is_leaf = "pred_leaf" in options
        return values.astype(np.int32) if is_leaf else values.reshape(len(values), -1)

    return score_by_xgboost


def joined_model(shards: Shards, guest: str) -> Whole:
    """Return the trees of all parties, whose margins are XGBoost's."""
    facts = shards[guest].facts
    kind = kinds.kind_of(facts)
    kind.check_joined(facts)
    whole = kind.join_shards(
        shards[guest], {party: shard for party, shard in shards.items() if party != guest}
    )
    margin = np.array(whole.facts["base_margin"]) - margin_shift(facts)
    return replace(whole, facts={**whole.facts, "base_margin": margin.tolist()})


def column_values(model: Whole, frames: Frames) -> Any:
    """Return the values of all columns, in the model's order of parties."""
    if len(frames) == 1:
        return contributions.side_by_side(model, frames)
    return contributions.side_by_side(
        model, {party: frames[party] for party in contributions.parties(model)}
    )


def _checked_range(iteration_range: IterationRange | None) -> dict[str, Any]:
    if iteration_range is None:
        return {}
    is_pair = isinstance(iteration_range, tuple | list) and len(iteration_range) == 2
    if not is_pair or not all(
        isinstance(bound, int | np.integer) and bound >= 0 for bound in iteration_range
    ):
        raise InvalidParameterError(
            f"iteration_range is {iteration_range!r}",
            todo="give (first, end): rounds from 0, without the end; (0, 0) are all",
        )
    return {"iteration_range": (int(iteration_range[0]), int(iteration_range[1]))}
