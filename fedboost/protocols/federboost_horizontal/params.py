"""Settings of horizontal FederBoost."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from fedboost.aggregation.sums import Aggregation
from fedboost.core.params import TreeParams
from fedboost.core.quantiles import SearchParams
from fedboost.flow import Asks

JOB_ID = r"^[a-z0-9][a-z0-9-]{0,79}$"
SETTLED = ("domains", "max_bin", "quantile_tolerance")  # fixed by reused cut points
DOMAIN_MAX = 255  # values of a discrete column, with one bin each

Domain = Annotated[
    tuple[Annotated[float, Field(strict=True)] | Annotated[str, Field(strict=True)], ...],
    Field(min_length=1, max_length=DOMAIN_MAX, strict=False),
]


class FederBoostHorizontalParams(TreeParams, SearchParams, Aggregation):
    """Trees over rows of many parties; `max_bin` is the number of buckets of every column."""

    domains: dict[str, Domain] = Field(default_factory=dict)  # all values of discrete columns
    reuse: str | None = Field(None, pattern=JOB_ID)  # the job whose cut points are used again

    @model_validator(mode="after")
    def _domains_are_one_kind(self) -> Self:
        for name, values in self.domains.items():
            if len({isinstance(value, str) for value in values}) > 1:
                raise ValueError(f"domains of {name} mix texts and numbers")
            if isinstance(values[0], str):
                if len(set(values)) < len(values):
                    raise ValueError(f"domains of {name} name a category twice")
            elif not _is_rising(values):
                raise ValueError(f"domains of {name} do not rise, read as 32-bit floats")
            if len(values) > self.max_bin and self.reuse is None:
                raise ValueError(
                    f"domains of {name} have {len(values)} values, max_bin is {self.max_bin}"
                )
        return self

    @model_validator(mode="after")
    def _one_search(self) -> Self:
        both = sorted(self.model_fields_set.intersection(SETTLED))
        if self.reuse is not None and both:
            raise ValueError(f"{both[0]} was settled by the job in reuse: leave it out")
        return self

    @model_validator(mode="after")
    def _sums_are_enough(self) -> Self:
        if self.record.has_median_leaves:
            raise ValueError(
                f"{self.objective} takes medians of leaves, which sums do not give: "
                f"use {self.record.instead}"
            )
        return self

    @model_validator(mode="after")
    def _sums_do_not_repeat(self) -> Self:
        # Hessians may be the rows' weights, in every tree: the difference between two roots' sums
        # would then be the rows of the party that was lost in between, bin by bin.
        repeats = self.record.hessians_are_weights and self.goss is None
        if self.dropout == "continue" and repeats and self._row_share == 1.0:
            raise ValueError(
                "dropout: continue shows what a lost party added where sums repeat, as those of "
                f"{self.objective} do over all rows: set subsample, goss or forest, or dropout: "
                "wait"
            )
        return self

    @property
    def _row_share(self) -> float:
        """Largest share of the rows that a tree learns from."""
        if self.forest is None:
            return self.subsample
        moving = self.forest.dynamic
        return self.forest.subsample if moving is None else max(moving.subsample)


def policy_demands(params: FederBoostHorizontalParams) -> Asks:
    """Return the demands on a party's policy: how near the search comes to single rows."""
    return Asks(quantile_tolerance=params.quantile_tolerance, own_cells=True)


def _is_rising(values: Domain) -> bool:
    """Return whether numbers rise and are finite as 32-bit floats, so that cuts fit in between."""
    with np.errstate(over="ignore"):
        read = np.array(values, np.float64).astype(np.float32)
    return bool(np.isfinite(read).all() and (np.diff(read) > 0).all())
