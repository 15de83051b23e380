"""Kinds of values that several settings of daemons have."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from fedboost.runtime.transport.addresses import Name


def _or_unlimited(given: object) -> object:
    return math.inf if given is None else given


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("a name appears twice")
    return names


Names = Annotated[tuple[Name, ...], Field(strict=False), AfterValidator(_unique)]
Words = Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_unique)]
Ratio = Annotated[float, BeforeValidator(_or_unlimited), Field(ge=0.0)]  # null and .inf: no limit
