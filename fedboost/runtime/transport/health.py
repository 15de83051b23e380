"""The health service that common tools ask for (grpc.health.v1): whether a daemon serves.

Its two messages are those of protobuf's own wrappers on the wire, one field of the same number and
type each; so we register no file that another library of the same process may have as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

SERVICE = "grpc.health.v1.Health"
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3  # HealthCheckResponse.ServingStatus


class Health:
    """One daemon's health. It tells everybody whom the TLS handshake lets in."""

    def __init__(self, services: Collection[str]) -> None:
        """`services` are the full names of what the daemon serves; "" stands for all of it."""
        self._services = {"", *services}
        self._stops = asyncio.Event()

    def stop(self) -> None:
        """From here on nothing is served; whoever watches hears it."""
        self._stops.set()

    def handler(self) -> Any:
        """Return what a server adds to its generic handlers."""
        reads: dict[str, Any] = {
            "request_deserializer": StringValue.FromString,
            "response_serializer": Int32Value.SerializeToString,
        }
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.unary_unary_rpc_method_handler(self.check, **reads),
                "Watch": grpc.unary_stream_rpc_method_handler(self.watch, **reads),
            },
        )

    async def check(self, request: StringValue, context: Any) -> Int32Value:
        """Return how a service is now; NOT_FOUND for one that is none of ours."""
        if request.value not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return Int32Value(value=self._now(request.value))

    async def watch(self, request: StringValue, _: Any) -> AsyncIterator[Int32Value]:
        """Return how a service is, and again when that changes."""
        yield Int32Value(value=self._now(request.value))
        await self._stops.wait()
        if request.value in self._services:
            yield Int32Value(value=NOT_SERVING)

    def _now(self, service: str) -> int:
        if service not in self._services:
            return SERVICE_UNKNOWN
        return NOT_SERVING if self._stops.is_set() else SERVING
