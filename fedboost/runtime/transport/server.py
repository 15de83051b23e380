"""gRPC server: identity of callers, public parts of errors, assembly of messages from chunks."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import grpc

from fedboost.ground import wire
from fedboost.ground.errors import (
    ConfigError,
    FedboostError,
    PeerError,
    PolicyError,
    UnreachableError,
)
from fedboost.messages.exchange_pb2 import Chunk, Envelope, Parcel, Receipt
from fedboost.messages.party_pb2 import StepCall, StepReply
from fedboost.runtime.process import logs
from fedboost.runtime.process.bridge import log_failure
from fedboost.runtime.transport import status
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.channel import CLAIM_KEY, channel_options
from fedboost.runtime.transport.identity import (
    NAME_PATTERN,
    ROLES,
    Peer,
    peer_from_auth_context,
    refuse_expired,
)
from fedboost.runtime.transport.posting import IncomingStream, IncomingStreams, OutgoingStreams
from fedboost.runtime.transport.tls import ServerCertificates

log = logging.getLogger(__name__)


class _GoneCallers(logging.Filter):
    """Leaves out errors about the end of a call if its caller has gone."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return type(error).__name__ != "ExecuteBatchError"  # private to gRPC


logging.getLogger("grpc._cython.cygrpc").addFilter(_GoneCallers())

FIRST_SIGN_S = 0.1  # from a call to the first sign of life; many steps are over by then
HEARTBEAT_S = 2.0  # between two signs of life while a step works
JUDGED_AGAIN_S = 1.0  # between two checks of the caller of an idle stream
STREAMS_MAX = 256  # calls of one connection at once; further ones wait at the caller


class CallerGate:
    """Identification of callers, by certificate; without TLS (loopback) by their claim."""

    def __init__(
        self, authorities: Authorities | None, clock: Callable[[], datetime] | None = None
    ) -> None:
        self._authorities = authorities
        self._clock = clock or (lambda: datetime.now(UTC))
        self.refused: Callable[[FedboostError], None] = lambda _: None  # receives every refusal
        self.arrived: Callable[[Any], None] = lambda _: None  # receives every admitted call

    def identify_caller(self, context: Any) -> Peer:
        """Return the caller; refuse a certificate that is not from our CA, revoked or expired.

        It is called at each call, and again before each message of a stream.
        """
        peer = (
            self._claimed_peer(context)
            if self._authorities is None
            else self._peer_by_certificate(context)
        )
        self.arrived(context)
        return peer

    def _peer_by_certificate(self, context: Any) -> Peer:
        assert self._authorities is not None
        shown = context.auth_context()
        peer = peer_from_auth_context(shown)
        self._authorities.roots().check_issuer(bytes(shown["x509_pem_cert"][0]))
        try:
            refuse_expired(shown, self._clock())
            self._authorities.refuse_revoked(peer)
        except UnreachableError as error:
            if peer.role == "user":  # no job waits for it
                raise PolicyError(error.what, todo=error.todo) from None
            raise
        return peer

    @staticmethod
    def _claimed_peer(context: Any) -> Peer:
        claim = dict(context.invocation_metadata()).get(CLAIM_KEY, "")
        role, _, name = str(claim).partition(":")
        for known in ROLES:
            if role == known and NAME_PATTERN.fullmatch(name):
                return Peer(known, name, fingerprint="", serial=0)
        raise PolicyError(
            "the caller does not give its name", todo="set insecure_loopback there too"
        )


class Servicer:
    """A gRPC service that passes calls to a node's methods, in snake case, as (caller, request)."""

    def __init__(
        self,
        node: object,
        gate: CallerGate,
        service: Any,
        outgoing: OutgoingStreams | None = None,
    ) -> None:
        """Bind the methods; `outgoing` are the party's own streams, which can carry receipts."""
        self._streams = IncomingStreams(outgoing or OutgoingStreams())
        for method in service.methods:
            if method.client_streaming:
                streams = method.server_streaming
                handles = (
                    _post_handler(node, gate, self._streams)
                    if streams
                    else _delivery_handler(node, gate)
                )
                setattr(self, method.name, handles)
                continue
            function = getattr(node, _snake_case(method.name))
            if method.name == "RunStep":
                handler: Any = _heartbeat_handler(node, gate)
            elif method.server_streaming:
                handler = _stream_handler(function, gate)
            else:
                handler = _unary_handler(function, gate)
            setattr(self, method.name, handler)

    def end_streams(self) -> None:
        """End the posting streams of peers, which have no end themselves."""
        self._streams.end()


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _public_refusal(error: BaseException, gate: CallerGate) -> FedboostError:
    """Return the public part of an error, after logging and counting it."""
    if not isinstance(error, FedboostError):
        log.error("a call failed unexpectedly", exc_info=error)
        error = FedboostError(
            f"unexpected {type(error).__name__}",
            todo="see the daemon's log, and report it as a bug",
        )
    elif error.private:
        log.warning("%s (%s)", error.what, error.private)
    gate.refused(error)
    return error


async def _abort_call(context: Any, error: BaseException, gate: CallerGate) -> None:
    code, text, metadata = status.status_of_error(_public_refusal(error, gate))
    await context.abort(code, text, trailing_metadata=metadata)


def _unary_handler(function: Callable[[Peer, Any], Awaitable[Any]], gate: CallerGate) -> Any:
    async def handler(request: Any, context: Any) -> Any:
        logs.note_call(getattr(request, "envelope", request))
        try:
            return await function(gate.identify_caller(context), request)
        except Exception as error:  # every failure becomes one typed refusal
            await _abort_call(context, error, gate)

    return handler


def _stream_handler(function: Callable[[Peer, Any], AsyncIterator[Any]], gate: CallerGate) -> Any:
    async def handler(request: Any, context: Any) -> AsyncIterator[Any]:
        logs.note_call(request)
        try:
            replies = aiter(function(gate.identify_caller(context), request))
            while (reply := await _next_while_let_in(replies, gate, context)) is not None:
                yield reply
        except Exception as error:
            await _abort_call(context, error, gate)

    return handler


async def _next_while_let_in(replies: AsyncIterator[Any], gate: CallerGate, context: Any) -> Any:
    """Return the next reply, None after the last; refuse when the caller's certificate becomes
    invalid.

    The caller is checked again while nothing happens.
    """
    coming = asyncio.ensure_future(anext(replies, None))
    try:
        while not coming.done():
            await asyncio.wait((coming,), timeout=JUDGED_AGAIN_S)
            gate.identify_caller(context)
        return coming.result()
    finally:
        if not coming.done():
            coming.cancel()
            await asyncio.wait((coming,))


def _heartbeat_handler(node: Any, gate: CallerGate) -> Any:
    async def handler(request: StepCall, context: Any) -> AsyncIterator[StepReply]:
        """Run steps for the leader of the job, and show signs of life meanwhile."""
        logs.note_call(request)
        try:
            caller = gate.identify_caller(context)
            node.check_leads(caller, request.job)
            task = asyncio.ensure_future(node.run_step(caller, request))
            task.add_done_callback(log_failure)  # the caller may have gone when it ends
            await asyncio.wait((task,), timeout=FIRST_SIGN_S)
            while not task.done():
                yield node.sign_of_life(request)
                await asyncio.wait((task,), timeout=HEARTBEAT_S)
                gate.identify_caller(context)
            yield task.result()
        except Exception as error:
            await _abort_call(context, error, gate)

    return handler


def _delivery_handler(node: Any, gate: CallerGate) -> Any:
    async def handler(chunks: AsyncIterator[Chunk], context: Any) -> Receipt:
        """Receive one message from an admitted caller, chunk by chunk."""
        try:
            caller = gate.identify_caller(context)
            first = await anext(aiter(chunks), None)
            if first is None or not first.HasField("envelope"):
                raise PeerError(f"{caller} began a message without an envelope")
            envelope = first.envelope
            logs.note_call(envelope)
            with node.admit(caller, envelope):
                payload = await _assemble_payload(chunks, envelope)
                gate.identify_caller(context)
                return Receipt(duplicate=await node.accept(caller, envelope, payload))
        except Exception as error:
            await _abort_call(context, error, gate)
            raise

    return handler


def _post_handler(node: Any, gate: CallerGate, streams: IncomingStreams) -> Any:
    async def handler(parcels: AsyncIterator[Parcel], context: Any) -> None:
        """Take in the messages that a peer posts, beside one another."""
        try:
            peer = gate.identify_caller(context)
            node.check_peer(peer)
            await context.send_initial_metadata(())  # the peer waits for it
            judge, refuse = (
                partial(gate.identify_caller, context),
                partial(_public_refusal, gate=gate),
            )
            stream = IncomingStream(node, judge, refuse, context.write, streams.outgoing)
            with streams.opened(peer, stream):
                await stream.take_parcels(parcels, JUDGED_AGAIN_S)
        except Exception as error:
            await _abort_call(context, error, gate)

    return handler


async def _assemble_payload(chunks: AsyncIterator[Chunk], envelope: Envelope) -> bytes:
    """Return the payload from its pieces; never hold more than the envelope announced."""
    payload = bytearray()
    async for chunk in chunks:
        if not chunk.HasField("piece"):
            raise PeerError(f"{envelope.sender} sent a second envelope in one message")
        payload += wire.piece_data(chunk.piece, envelope.sender)
        if len(payload) > envelope.payload_bytes:
            raise PeerError(f"{envelope.sender} sent more than the envelope announced")
    if len(payload) < envelope.payload_bytes:  # a link that broke looks like the end of a stream
        raise UnreachableError(
            f"a message of {envelope.sender} broke off after {len(payload)} of "
            f"{envelope.payload_bytes} bytes",
            party=envelope.sender,
            todo="the sender tries again; see its link",
        )
    return bytes(payload)


def bind_server(certificates: ServerCertificates | None, listen: str, timers: Timers) -> Any:
    """Return a gRPC server on `listen`, not started; raise ConfigError if the address is taken."""
    settings = [("grpc.so_reuseport", 0), ("grpc.max_concurrent_streams", STREAMS_MAX)]
    server = grpc.aio.server(options=[*channel_options(timers), *settings])
    try:
        if certificates is None:
            port = server.add_insecure_port(listen)
        else:
            credentials = grpc.dynamic_ssl_server_credentials(
                certificates.initial_configuration(),
                certificates,
                require_client_authentication=True,
            )
            port = server.add_secure_port(listen, credentials)
    except RuntimeError:
        port = 0
    if port == 0:
        raise _cannot_listen(listen)
    return server, port


def _cannot_listen(listen: str) -> ConfigError:
    """Return the reason why we cannot listen there, from the operating system: gRPC gives none."""
    host, _, port = listen.rpartition(":")
    todo = "give an address of this machine and a port: `listen`"
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            todo = "the address is not this machine's: change `listen`, e.g. to 0.0.0.0"
        elif error.errno == errno.EACCES:
            todo = "ports below 1024 are for root: change the port in `listen`"
        elif error.errno == errno.EADDRINUSE:
            todo = "is another daemon running there? change `listen`"
        return ConfigError(f"cannot listen on {listen}: {error.strerror or error}", todo=todo)
    return ConfigError(f"cannot listen on {listen}", todo=todo)
