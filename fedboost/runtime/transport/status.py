"""Errors as gRPC statuses and back: the only place that knows gRPC's codes."""

from __future__ import annotations

import grpc
from google.protobuf.message import DecodeError

from fedboost.ground.errors import (
    ConfigError,
    DataError,
    FedboostError,
    JobError,
    PeerError,
    PolicyError,
    ProtocolError,
    StoreError,
    UnreachableError,
)
from fedboost.messages.fault_pb2 import Fault
from fedboost.runtime.transport import faults

FAULT_KEY = "fedboost-fault-bin"  # trailing metadata with the whole error
FAULT_BYTES_MAX = 6000  # gRPC drops metadata above 8 KiB

CODES: dict[type[FedboostError], grpc.StatusCode] = {
    FedboostError: grpc.StatusCode.INTERNAL,
    ConfigError: grpc.StatusCode.INVALID_ARGUMENT,
    StoreError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    DataError: grpc.StatusCode.FAILED_PRECONDITION,
    PolicyError: grpc.StatusCode.PERMISSION_DENIED,
    UnreachableError: grpc.StatusCode.ABORTED,  # not UNAVAILABLE: that is about this very link
    PeerError: grpc.StatusCode.DATA_LOSS,
    ProtocolError: grpc.StatusCode.OUT_OF_RANGE,
    JobError: grpc.StatusCode.CANCELLED,
}

# gRPC's own codes for a broken connection; a daemon's own refusal carries a Fault.
UNKNOWN_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"  # in gRPC's text
BROKEN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED)


def status_of_error(
    error: FedboostError,
) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """Return code, text and metadata of a refused call."""
    packed = faults.fault_of_error(error).SerializeToString()
    if len(packed) > FAULT_BYTES_MAX:
        packed = Fault(code=error.code, what=error.what[:FAULT_BYTES_MAX]).SerializeToString()
    code = next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)
    return code, error.code, ((FAULT_KEY, packed),)


def error_of_call(error: grpc.aio.AioRpcError, name: str, address: str) -> FedboostError:
    """Return the error that ended a call to `name`: the peer's own error if it sent one, otherwise
    the link's.
    """
    for key, value in error.trailing_metadata() or ():
        if key == FAULT_KEY and isinstance(value, bytes):
            try:
                return faults.error_of_fault(Fault.FromString(value))
            except DecodeError:
                break
    details = error.details() or ""
    if is_late(error):
        return UnreachableError(
            f"{name} did not answer in time",
            party=name,
            address=address,
            todo="see its log; is it overloaded or stopped?",
        )
    if error.code() in BROKEN:
        return _unavailable(details, name, address)
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return ConfigError(
            f"{name} runs a build of fedboost without this call",
            party=name,
            todo=f"upgrade {name}: fedboost --version says which build runs on a machine",
        )
    return PeerError(f"the call to {name} failed: {error.code().name}", party=name, private=details)


def is_link_down(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the call never reached a daemon, or lost it: worth another try."""
    told = any(key == FAULT_KEY for key, _ in error.trailing_metadata() or ())
    return error.code() in BROKEN and not told


def is_late(error: grpc.aio.AioRpcError) -> bool:
    """Return whether a call was not answered in time."""
    return error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def is_unknown_certificate(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the other end showed a certificate that the channel does not accept."""
    return is_link_down(error) and UNKNOWN_CERTIFICATE in (error.details() or "")


# Meaning of a link's failure by the words of gRPC's text; the first match counts. "{name}" is the
# peer, "{address}" its address.
_BY_WORDS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("Hostname Verification",),
        "the certificate of {address} is not {name}'s",
        "correct the address in the settings, or give that daemon a certificate of this name",
    ),
    (
        ("certificate has expired",),
        "the certificate of {name}, or of its CA, has expired",
        "give that daemon a new one: fedboost certs rotate",
    ),
    (
        (UNKNOWN_CERTIFICATE,),
        "the certificate of {name} is not one of our CA's",
        "both need valid certificates of one CA: fedboost certs show, fedboost doctor",
    ),
    (
        ("WRONG_VERSION_NUMBER",),
        "{address} does not speak TLS",
        "correct the address: another program listens there, or {name} runs without TLS",
    ),
    (
        ("tcp handshaker shutdown", "timed out", "unreachable", "No route"),
        "nothing answers at {address}: {name} cannot be reached",
        "start its machine, or open the firewall, which drops packets: fedboost doctor",
    ),
    (
        ("lookup", "errors resolving"),
        "the host of {address} has no address",
        "correct the address in the settings, or add the host to the DNS",
    ),
    (
        ("Handshake read failed (Endpoint closing)",),
        "{address} takes connections and says nothing",
        "see the log of {name}: it hangs, or a proxy stands before it",
    ),
    (
        ("Handshake read failed", "Socket closed"),
        "{name} closed the connection",
        "see its log: it has stopped, or does not accept our certificate: fedboost doctor",
    ),
    (
        ("handshake", "SSL", "TLS"),
        "the TLS handshake with {name} failed",
        "both need valid certificates of one CA, with their own names: fedboost doctor",
    ),
    (
        ("",),
        "{name} is not there",
        "start {name}'s daemon, or check the address and the firewall: fedboost doctor",
    ),
)


def _unavailable(details: str, name: str, address: str) -> UnreachableError:
    what, todo = next(
        (what, todo) for words, what, todo in _BY_WORDS if any(word in details for word in words)
    )
    return UnreachableError(
        what.format(name=name, address=address),
        party=name,
        address=address,
        todo=todo.format(name=name),
        private=details,
    )
