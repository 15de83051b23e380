"""Settings of boosted networks."""

from __future__ import annotations

from fedboost.aggregation.sums import Aggregation
from fedboost.core import objectives, weight_checks
from fedboost.core.gbun import GbunParams
from fedboost.data.frame import Frame
from fedboost.flow import AGGREGATOR, Asks, Role
from fedboost.ground.errors import DataError
from fedboost.model import labels
from fedboost.model.networks import feature_ids


class GbunJobParams(GbunParams, Aggregation):
    """Boosted networks, and the effect of a lost party on the job."""


def check_table(role: Role, params: GbunJobParams, frame: Frame, held_out: bool) -> None:
    """Refuse a table of ours that the job cannot learn from, before anything has left us."""
    if role is AGGREGATOR:
        return
    labels.check_held_out(params, held_out)
    if frame.label is None:
        raise DataError("the table has no label", todo="name it in the job: label: …")
    objectives.check_labels(params, frame.label, learn=False)
    if frame.weight is not None:
        weight_checks.check_weight(frame.label, frame.weight)
    if frame.categories:
        raise DataError(
            "networks read numbers, not categories",
            column=next(iter(frame.categories)),
            todo="leave the column out with data: ignore, or write it as columns of 0 and 1",
        )
    if frame.is_sparse:
        feature_ids(frame.columns)


def policy_demands(params: GbunJobParams) -> Asks:
    """Return the demands on a party's policy: how near a search comes to single rows.

    Standardised columns need no search.
    """
    searches = params.columns != "standard"
    return Asks(quantile_tolerance=params.quantile_tolerance if searches else None)
