"""Certificates of the daemons that we call, checked like those of callers: CA, dates, revocation.

gRPC's client does not read lists of revoked certificates, and does not show us the certificate of
the other end. A daemon therefore states its certificate at a first connection, which carries
nothing else. We check it, and further connections accept this certificate alone: TLS then proves
that the daemon holds its key.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import grpc
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from fedboost.ground.errors import PeerError, UnreachableError
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.health import CERTIFICATE_KEY, CHECK_METHOD
from fedboost.runtime.transport.identity import (
    CALLED_ROLES,
    CERTIFICATE_BYTES_MAX,
    Peer,
    read_certificate,
)

DaemonTarget: TypeAlias = tuple[str, str]  # name of a daemon, and gRPC's target of it
Channel: TypeAlias = grpc.aio.Channel


@dataclass(frozen=True)
class Callee:
    """A daemon's checked certificate."""

    peer: Peer
    certificate_pem: bytes
    not_after: datetime


class Callees:
    """The checked certificates of the daemons that we call."""

    def __init__(self, authorities: Authorities, within_s: float) -> None:
        """Check by `authorities`; a daemon states its certificate `within_s` seconds."""
        self._authorities, self._within_s = authorities, within_s
        self._known: dict[DaemonTarget, Callee] = {}
        self._asking: dict[DaemonTarget, asyncio.Task[None]] = {}

    def certificate_of(self, target: DaemonTarget) -> bytes | None:
        """Return the only certificate that connections to a daemon accept, None before a check."""
        known = self._known.get(target)
        return None if known is None else known.certificate_pem

    def forget(self, target: DaemonTarget) -> None:
        """Have a daemon state its certificate again."""
        self._known.pop(target, None)

    def forget_all(self) -> None:
        """Have all daemons state their certificates again: our CAs may be others."""
        self._known.clear()

    async def check(
        self, target: DaemonTarget, connect: Callable[[], Channel], renewed: Callable[[], None]
    ) -> None:
        """Have a daemon state its certificate, unless the known one counts still.

        `connect` opens a channel that accepts any certificate of our CAs; `renewed` is called when
        another certificate is known. Raise UnreachableError unless the certificate counts now, and
        AioRpcError if the link is down.
        """
        known = self._known.get(target)
        if known is not None and self._counts(known):
            return
        self.forget(target)
        if target not in self._asking:
            asking = asyncio.create_task(self._learn(target, connect(), renewed))
            self._asking[target] = asking
            asking.add_done_callback(lambda done: self._note_answer(target, done))
        await asyncio.shield(self._asking[target])  # calls at once share one answer

    async def _learn(
        self, target: DaemonTarget, channel: Channel, renewed: Callable[[], None]
    ) -> None:
        self._known[target] = self._checked(target, await self._ask(target[0], channel))
        renewed()

    def _note_answer(self, target: DaemonTarget, asking: asyncio.Task[None]) -> None:
        del self._asking[target]
        if not asking.cancelled():
            asking.exception()  # every caller may have gone meanwhile

    def _counts(self, known: Callee) -> bool:
        try:
            self._authorities.refuse_revoked(known.peer)
        except UnreachableError:
            return False
        return datetime.now(UTC) <= known.not_after

    def _checked(self, target: DaemonTarget, certificate_pem: bytes) -> Callee:
        name, _ = target
        try:
            peer = self._authorities.verify(certificate_pem)
        except PeerError as error:
            raise UnreachableError(error.what, party=name, todo=error.todo) from None
        if peer.name != name or peer.role not in CALLED_ROLES:
            raise UnreachableError(
                f"the daemon called as {name} states the certificate of {peer}, not of {name}",
                party=name,
                todo="correct the address in the settings file",
            )
        not_after = read_certificate(certificate_pem).not_valid_after_utc
        return Callee(peer, certificate_pem, not_after)

    async def _ask(self, name: str, channel: Channel) -> bytes:
        """Return the certificate that a daemon states, in PEM."""
        try:
            call = channel.unary_unary(
                CHECK_METHOD,
                request_serializer=StringValue.SerializeToString,
                response_deserializer=Int32Value.FromString,
            )(StringValue(), timeout=self._within_s)
            await call
            metadata = await call.initial_metadata()
        finally:
            await channel.close()
        stated = next((value for key, value in metadata if key == CERTIFICATE_KEY), b"")
        if not isinstance(stated, bytes) or not 0 < len(stated) <= CERTIFICATE_BYTES_MAX:
            raise UnreachableError(
                f"{name} does not state its certificate",
                party=name,
                todo="run the same version everywhere",
            )
        return ssl.DER_cert_to_PEM_cert(stated).encode()
