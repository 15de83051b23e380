"""Checks of a party's table for boosting on its labels."""

from __future__ import annotations

from fedboost.core import objectives, weight_checks
from fedboost.core.params import BoostingParams
from fedboost.data.frame import Frame
from fedboost.ground.errors import ConfigError, DataError


def check_table(params: BoostingParams, frame: Frame, held_out: bool) -> None:
    """Refuse a guest's table that the job cannot learn from; `held_out`: whether rows are."""
    check_held_out(params, held_out)
    if frame.label is None:
        raise DataError("the guest's table has no label", todo="name it in the job: label: …")
    objectives.check_labels(params, frame.label, learn=True)


def check_encrypted(params: BoostingParams, frame: Frame, held_out: bool) -> None:
    """Refuse the same, and weights that would mark rows in sums of encrypted gradients."""
    check_table(params, frame, held_out)
    if frame.weight is not None:
        weight_checks.check_weight_ratio(frame.weight)


def check_held_out(params: BoostingParams, held_out: bool) -> None:
    """Refuse early stopping without validation rows: none asked for, or too few to hold any out."""
    if params.early_stopping_rounds is not None and not held_out:
        raise ConfigError(
            "early_stopping_rounds needs validation rows and there are none",
            todo="add validation: {fraction: 0.3} to the job, or leave early_stopping_rounds out",
        )
