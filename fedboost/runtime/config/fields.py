"""Kinds of values that several settings of daemons have."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from fedboost.runtime.transport.addresses import HOST_PATTERN, CertifiedName, is_ip


def _unlimited_as_infinity(given: object) -> object:
    return math.inf if given is None else given


def _checked_unique(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("a name appears twice")
    return names


Names = Annotated[tuple[CertifiedName, ...], Field(strict=False), AfterValidator(_checked_unique)]
DistinctWords = Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_checked_unique)]
Ratio = Annotated[
    float, BeforeValidator(_unlimited_as_infinity), Field(ge=0.0)
]  # null and .inf: no limit


def _checked_host(text: str) -> str:
    if HOST_PATTERN.fullmatch(text) or is_ip(text):
        return text.lower()
    raise ValueError(f"{text!r} is neither a host's name nor an address; leave port and https out")


HostName = Annotated[str, AfterValidator(_checked_host)]
