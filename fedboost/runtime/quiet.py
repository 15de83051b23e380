"""What others may read of a fault of our table: its kind. Its owner reads all of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Protocol, TypeVar

from fedboost.errors import DataError, FedboostError

Reply = TypeVar("Reply")


class Hushing(Protocol):
    """A node that knows what its owner lets others read."""

    def hush(self, job: str, error: DataError) -> FedboostError:
        """What leaves of a fault of the own table; all of it stays for the owner."""


def quietly(
    method: Callable[[Any, Any, Any], Awaitable[Reply]],
) -> Callable[[Any, Any, Any], Awaitable[Reply]]:
    """The method of a node that a coordinator calls, with faults of the own table hushed."""

    @wraps(method)
    async def hushed(node: Hushing, caller: Any, request: Any) -> Reply:
        try:
            return await method(node, caller, request)
        except DataError as error:
            raise node.hush(request.job, error) from None

    return hushed
