"""Health of a daemon by `grpc.health.v1`: the service, and a check of it from the same machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from datetime import UTC, datetime
from typing import Any, ClassVar, cast

import grpc
from cryptography.hazmat.primitives.serialization import Encoding
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from pydantic import ConfigDict

from fedboost.ground.errors import ConfigError, UnreachableError
from fedboost.ground.settings import Settings
from fedboost.runtime.process.pulse import Pulse
from fedboost.runtime.transport import status
from fedboost.runtime.transport.addresses import CertifiedName, Listen, own_address, split_address
from fedboost.runtime.transport.expiry import EXPIRED_REMEDY, time_text
from fedboost.runtime.transport.identity import CertificateFaultError, Identity, read_certificate
from fedboost.runtime.transport.tls import TlsFiles, read_pem

SERVICE = "grpc.health.v1.Health"
CHECK_METHOD = f"/{SERVICE}/Check"
CERTIFICATE_KEY = "fedboost-certificate-bin"  # initial metadata of a check: ours, in DER
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3  # HealthCheckResponse.ServingStatus

BEAT_S = 1.5  # of the event loop; a loop that is blocked for two beats is not healthy
GAP_SHOWN_S = 1.0  # a check that a blocked loop answers late reports the gap before its answer
CHECK_S = 3.0  # a probe ends after 5 s, and on a busy machine the command takes a second to start


class Health:
    """Health of one daemon, for every caller that passes the TLS handshake.

    A loop that hangs answers nothing at all, so callers set a deadline. A late answer says that the
    loop was blocked.
    """

    def __init__(
        self, services: Collection[str], identity: Callable[[], Identity] | None = None
    ) -> None:
        """Start as serving; `services` are the full names of the daemon's services, "" stands for
        all of them. Answers state the certificate of `identity`, see `callees`.
        """
        self._identity = identity
        self._services = {"", *services}
        self._stops = asyncio.Event()
        self._pulse = Pulse(BEAT_S)  # of the event loop

    def stop(self) -> None:
        """Report from now on that nothing is served, also to watchers."""
        self._stops.set()

    async def watch_loop(self) -> None:
        """Notice until cancelled when the event loop is blocked."""
        await self._pulse.beat_until_cancelled()

    def handler(self) -> Any:
        """Return a generic handler for a server."""
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
        """Return the state of a service; NOT_FOUND for an unknown one."""
        if request.value not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        if self._identity is not None:
            ours = read_certificate(self._identity().certificate_pem).public_bytes(Encoding.DER)
            await context.send_initial_metadata(((CERTIFICATE_KEY, ours),))
        return Int32Value(value=self._serving_status(request.value))

    async def watch(self, request: StringValue, _: Any) -> AsyncIterator[Int32Value]:
        """Yield the state of a service, and again when the daemon stops."""
        yield Int32Value(value=self._serving_status(request.value))
        await self._stops.wait()
        if request.value in self._services:
            yield Int32Value(value=NOT_SERVING)

    def _serving_status(self, service: str) -> int:
        if service not in self._services:
            return SERVICE_UNKNOWN
        blocked = self._pulse.stood_still_s(GAP_SHOWN_S) > 0
        return NOT_SERVING if self._stops.is_set() or blocked else SERVING


class DaemonEndpoint(Settings):
    """Address and certificate of a daemon, out of its settings file; other keys are not read."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    name: CertifiedName
    listen: Listen
    tls: TlsFiles | None = None

    def certificate_fault(self, now: datetime) -> str:
        """Return a sentence if the certificate has ended, so no connection opens; otherwise ""."""
        if self.tls is None:
            return ""
        try:
            ended = read_certificate(read_pem(self.tls.cert)).not_valid_after_utc
        except CertificateFaultError as fault:
            raise ConfigError(f"the certificate {fault}", file=str(self.tls.cert)) from None
        if ended > now:
            return ""
        return f"the certificate of {self.name} expired on {time_text(ended)}"

    def check_health(self, timeout_s: float = CHECK_S) -> None:
        """Raise UnreachableError unless the daemon at this address says in time that it serves."""
        if fault := self.certificate_fault(datetime.now(UTC)):
            raise UnreachableError(fault, party=self.name, todo=EXPIRED_REMEDY)
        address = self.local_address()
        with self._open_channel(address) as channel:
            check = channel.unary_unary(
                CHECK_METHOD,
                request_serializer=StringValue.SerializeToString,
                response_deserializer=Int32Value.FromString,
            )
            try:
                state = check(StringValue(), timeout=timeout_s).value
            except grpc.RpcError as error:
                failed = cast(grpc.aio.AioRpcError, error)  # which has the same accessors
                raise status.error_of_call(failed, self.name, address) from None
        if state != SERVING:
            raise UnreachableError(
                f"{self.name} does not serve now: it stops, or its event loop was blocked",
                party=self.name,
                todo="see its log",
            )

    def local_address(self) -> str:
        """Return the address of `listen` that this machine can call."""
        if split_address(self.listen)[1] == 0:
            raise ConfigError(
                f"listen {self.listen} names no port to check", todo="give `listen` a port"
            )
        return own_address(self.listen)

    def _open_channel(self, address: str) -> grpc.Channel:
        options: list[tuple[str, Any]] = [("grpc.enable_http_proxy", 0)]
        if self.tls is None:
            return grpc.insecure_channel(address, options)
        ca, key, cert = map(read_pem, (self.tls.ca, self.tls.key, self.tls.cert))
        options.append(("grpc.ssl_target_name_override", self.name))
        credentials = grpc.ssl_channel_credentials(ca, key, cert)
        return grpc.secure_channel(address, credentials, options)
