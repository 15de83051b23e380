"""A party's context with other parts, for one that a test has at hand."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedboost.flow import StageContext

Fields = Mapping[str, Any]
SAME: Fields = {}


def altered(
    context: StageContext[Any],
    *,
    attempt: Fields = SAME,
    secrets: Fields = SAME,
    services: Fields = SAME,
    limits: Fields = SAME,
) -> StageContext[Any]:
    """Return the context with these fields of its parts, and these rules of the party's policy."""
    policy: Any = context.limits
    return replace(
        context,
        attempt=replace(context.attempt, **attempt),
        secrets=replace(context.secrets, **secrets),
        services=replace(context.services, **services),
        limits=policy.model_copy(update=limits) if limits else policy,
    )
