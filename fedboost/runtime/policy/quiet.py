"""What others may read of an error about our table: its kind. Its owner reads all of it.

Whatever an outsider asks of a node, its errors leave through here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Protocol, TypeVar

from fedboost.errors import FedboostError, OwnersError

Reply = TypeVar("Reply")


class Hushing(Protocol):
    """A node that knows what its owner lets others read."""

    def hush(self, job: str, error: OwnersError) -> FedboostError:
        """Return what leaves of an error; all of it stays for the owner."""


def quietly(method: Callable[..., Awaitable[Reply]]) -> Callable[..., Awaitable[Reply]]:
    """The method of a node that others call, (node, caller, request, …), with hushed errors."""

    @wraps(method)
    async def hushed(node: Hushing, caller: Any, request: Any, *more: Any) -> Reply:
        try:
            return await method(node, caller, request, *more)
        except OwnersError as error:
            raise node.hush(getattr(request, "job", ""), error) from None

    return hushed
