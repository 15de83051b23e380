"""Settings of vertical FederBoost."""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedboost.core.params import TreeParams
from fedboost.data.frame import Frame
from fedboost.flow import GUEST, Asks, Role
from fedboost.model import columns, labels
from fedboost.model.xgboost_json import import_xgboost

JOB_ID = r"^[a-z0-9][a-z0-9-]{0,79}$"
SETTLED = ("buckets", "epsilon", "public_cuts")  # fixed by a reused disclosure
BUCKETS_MAX = 254  # so a bucket, missing values included, fits into one byte

PublicCuts = Annotated[
    tuple[float, ...], Field(min_length=1, max_length=BUCKETS_MAX - 1, strict=False)
]


class FederBoostVerticalParams(TreeParams):
    """Trees, and the disclosure of hosts' columns; `max_bin` is for the guest's own columns."""

    buckets: int = Field(16, ge=2, le=BUCKETS_MAX)  # of a host's column, missing values aside
    epsilon: float | None = Field(4.0, gt=0.0)  # of a value, given the cut points; None: no noise
    public_cuts: dict[str, dict[str, PublicCuts]] = Field(
        default_factory=dict
    )  # by host and column
    reuse: str | None = Field(None, pattern=JOB_ID)  # the job whose disclosure is used again
    trainer: Literal["own", "xgboost"] = "own"  # software that grows the guest's trees

    @model_validator(mode="after")
    def _cuts_rise(self) -> Self:
        for host, by_name in self.public_cuts.items():
            for name, cuts in by_name.items():
                if any(low >= high for low, high in itertools.pairwise(cuts)):
                    raise ValueError(f"public_cuts of {host}.{name} do not rise")
        return self

    @model_validator(mode="after")
    def _trainer_can(self) -> Self:
        cannot = "multi_output" if self.multi_output else ""
        if self.column_rate < 1.0 or self.draws_within_trees:
            cannot = "sampling of columns by party"
        if self.trainer == "xgboost" and cannot:
            raise ValueError(f"trainer: xgboost cannot do the same with {cannot}: leave one out")
        return self

    @model_validator(mode="after")
    def _one_disclosure(self) -> Self:
        both = sorted(self.model_fields_set.intersection(SETTLED))
        if self.reuse is not None and both:
            raise ValueError(f"{both[0]} was settled by the job in reuse: leave it out")
        return self


def policy_demands(params: FederBoostVerticalParams) -> Asks:
    """Return the demands on a host's policy; none if the job reuses a disclosure."""
    if params.reuse is not None:
        return Asks()
    return Asks(epsilon=math.inf if params.epsilon is None else params.epsilon)


def check_table(role: Role, params: FederBoostVerticalParams, frame: Frame, held_out: bool) -> None:
    """Refuse labels and a trainer that the guest cannot use, before a host has sent anything."""
    if role is GUEST:
        if params.trainer == "xgboost":
            import_xgboost("xgboost")
        labels.check_table(params, frame, held_out)
        columns.directions(params.monotone_constraints, frame.columns, frame.categories)
