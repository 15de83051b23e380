"""Errors as gRPC statuses and back: the only place that knows gRPC's codes."""

from __future__ import annotations

import grpc
from google.protobuf.message import DecodeError

from fedboost.errors import (
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

# What gRPC itself says of a connection that broke; a daemon's own refusal carries a Fault.
BROKEN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED)


def to_status(error: FedboostError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """Code, text and metadata with which a call is refused."""
    packed = faults.to_message(error).SerializeToString()
    if len(packed) > FAULT_BYTES_MAX:
        packed = Fault(code=error.code, what=error.what[:FAULT_BYTES_MAX]).SerializeToString()
    code = next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)
    return code, error.code, ((FAULT_KEY, packed),)


def from_call(error: grpc.aio.AioRpcError, name: str, address: str) -> FedboostError:
    """The error that ended a call to `name`: its own words if it had any, else the link's."""
    for key, value in error.trailing_metadata() or ():
        if key == FAULT_KEY and isinstance(value, bytes):
            try:
                return faults.from_message(Fault.FromString(value))
            except DecodeError:
                break
    details = error.details() or ""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return UnreachableError(
            f"{name} did not answer in time",
            party=name,
            address=address,
            todo="see its log; is it overloaded or stopped?",
        )
    if error.code() in BROKEN:
        return _unavailable(details, name, address)
    return PeerError(f"the call to {name} failed: {error.code().name}", party=name, private=details)


def is_link_down(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the call never reached a daemon, or lost it: worth another try."""
    told = any(key == FAULT_KEY for key, _ in error.trailing_metadata() or ())
    return error.code() in BROKEN and not told


_HANDSHAKE = ("handshake", "CERTIFICATE", "certificate", "Ssl", "SSL", "TLS", "Verification")


def _unavailable(details: str, name: str, address: str) -> UnreachableError:
    if any(word in details for word in _HANDSHAKE):
        return UnreachableError(
            f"the TLS handshake with {name} failed: one does not trust the other's certificate",
            party=name,
            address=address,
            todo="both need valid certificates of one CA, with their own names: fedboost doctor",
            private=details,
        )
    return UnreachableError(
        f"{name} is not there",
        party=name,
        address=address,
        todo=f"start {name}'s daemon, or check the address and the firewall: fedboost doctor",
        private=details,
    )
