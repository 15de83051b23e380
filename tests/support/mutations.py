"""What a hostile sender makes of a message: under its envelope, in its bytes, in what it says.

Everything is derived from envelopes and message descriptors, so that a new message type gets all
of it without anybody having to remember.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from google.protobuf.message import Message

from fedboost import flow
from fedboost.crypto.intersection import SMALL_ORDER
from fedboost.ground import wire
from fedboost.messages.array_pb2 import Array
from fedboost.messages.exchange_pb2 import Envelope
from tests.support.federated import resealed

Sealed = tuple[Envelope, bytes]
Forgeries = Iterator[tuple[str, Sealed]]
Labelled = Iterator[tuple[str, Message]]

GIB_2 = 1 << 31
POINT_BYTES = 32  # of Curve25519
POINTS_SPOILT = 3  # of the points of small order, how many are tried in each field
LONG_NAME = "n" * 10_000

# Under the envelope


def misdirected(envelope: Envelope, payload: bytes, protocol: flow.Protocol[Any]) -> Forgeries:
    """The message under envelopes that do not fit it, its place, its sender or its receiver."""

    def under(**changes: Any) -> Sealed:
        changed = Envelope()
        changed.CopyFrom(envelope)
        for name, value in changes.items():
            setattr(changed, name, value)
        return changed, payload

    yield "another job", under(job="job-2")
    yield "no job", under(job="")
    yield "another manifest", under(manifest_sha256=b"\x01" * 32)
    yield "a shortened manifest", under(manifest_sha256=envelope.manifest_sha256[:-1])
    yield "a salt cut short", under(salt=envelope.salt[:-1])
    yield "an earlier attempt", under(attempt=envelope.attempt - 1)
    yield "a later attempt", under(attempt=envelope.attempt + 1)
    yield "another stage", under(stage="echo" if envelope.stage != "echo" else "align")
    yield "a step that is none", under(step="../../etc/passwd")
    yield "no step", under(step="")
    yield "a step that gives something else", under(step=_other_step(envelope, protocol))
    yield "a stranger", under(sender="mallory")
    yield "nobody's", under(sender="")
    yield "the coordinator's", under(sender="coordinator")
    yield "somebody else's to read", under(receiver="mallory")
    yield "its sender's to read", under(receiver=envelope.sender)
    yield "a kind that is none", under(kind="os.system")
    yield "a kind that nobody takes here", under(kind="fedboost.exchange.Envelope")
    yield "2 GiB announced", under(payload_bytes=GIB_2)
    yield "the most bytes announced", under(payload_bytes=(1 << 64) - 1)
    yield "a byte less announced", under(payload_bytes=max(len(payload) - 1, 0))
    yield "a byte more announced", under(payload_bytes=len(payload) + 1)
    yield "another hash", under(payload_sha256=bytes(32))
    yield "no hash", under(payload_sha256=b"")
    given = protocol.step(envelope.step)
    if given is not None and not given.streams:
        yield "a part of a whole", under(part=1)
        yield "the beginning of a whole", under(last=False)


def _other_step(envelope: Envelope, protocol: flow.Protocol[Any]) -> str:
    """A step that gives another kind than the envelope says, or none."""
    return next(
        step.name
        for step in protocol.flow
        if step.gives is None or step.gives.DESCRIPTOR.full_name != envelope.kind
    )


# In its bytes


def damaged(envelope: Envelope, payload: bytes) -> Forgeries:
    """The message with other bytes, as the network leaves them or as a liar seals them."""
    for place in (0, 1, 7, 8, 20, 63):
        if place < 8 * len(payload):
            data = bytearray(payload)
            data[place // 8] ^= 1 << (place % 8)
            yield f"bit {place} flipped", (envelope, bytes(data))
    if payload:
        data = bytearray(payload)
        data[-1] ^= 0x80
        yield "the last bit flipped", (envelope, bytes(data))
        yield "cut short on the way", (envelope, payload[:-1])
        yield "nothing on the way", (envelope, b"")
    yield "longer on the way", (envelope, payload + b"\0")
    if len(payload) > 2:
        yield "truncated", resealed(envelope, payload[:-1])
    yield "extended", resealed(envelope, payload + b"\xff")
    yield "an unknown field", resealed(envelope, payload + b"\xfa\x01\x01x")
    yield "an unknown number", resealed(envelope, payload + b"\xf8\x7f\x01")
    yield "an endless length", resealed(envelope, payload + b"\x12\xff\xff\xff\xff\x07")
    yield "a broken varint", resealed(envelope, payload + b"\x08" + b"\xff" * 11)
    yield "field 0", resealed(envelope, payload + b"\x00\x01")
    yield "a group", resealed(envelope, payload + b"\x0b" * 200)
    yield "pickled code", resealed(envelope, payload + b"\x80\x04cos\nsystem\n(S'true'\ntR.")


# In what it says


def lies(message: Message) -> Labelled:
    """The message with every field, one after the other, saying what no honest party says."""
    yield from spoilt_forms(message)
    yield from spoilt_values(message)
    yield "nothing said", type(message)()


def bad_arrays(array: Array) -> Iterator[tuple[str, Array]]:
    """The same array, wrong in each way that an array can be wrong in form."""
    size = len(array.data)
    yield "dtype", Array(dtype="f8", shape=array.shape, data=array.data)
    yield "no dtype", Array(shape=array.shape, data=array.data)
    yield "longer shape", Array(dtype=array.dtype, shape=[array.shape[0] + 1], data=array.data)
    yield "endless shape", Array(dtype=array.dtype, shape=[2**63 + 1], data=array.data)
    yield "square", Array(dtype=array.dtype, shape=[*array.shape, 1], data=array.data)
    yield "no shape", Array(dtype=array.dtype, data=array.data)
    yield "more data", Array(dtype=array.dtype, shape=array.shape, data=array.data + b"\0")
    if size:
        yield "less data", Array(dtype=array.dtype, shape=array.shape, data=array.data[:-1])
    yield (
        "one more value",
        Array(
            dtype=array.dtype,
            shape=[array.shape[0] + 1],
            data=array.data + bytes(np.dtype(array.dtype).itemsize),
        ),
    )


def bad_names(names: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The same names or bytes, wrong in each way that a list can be wrong."""
    data = not names or isinstance(names[0], bytes)
    yield "more", [*names, b"stranger" if data else "stranger"]
    if names:
        yield "less", names[:-1]
        yield "twice", [*names, names[-1]]
        yield "none", []
    if names and data:
        yield "a longer one", [*names[:-1], names[-1] + b"\0"]
        yield "a shorter one", [names[0][:-1], *names[1:]]


def spoilt_forms(message: Message) -> Labelled:
    """Every field of a message, spoilt in form; (label, message)."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if isinstance(value, Array) and not message.HasField(field.name):
            changed = _copy(message)  # may be absent; empty, it has no dtype
            getattr(changed, field.name).SetInParent()
            yield f"{field.name}: empty", changed
        elif isinstance(value, Array):
            for label, bad in bad_arrays(value):
                yield f"{field.name}: {label}", _with(message, field.name, bad)
            changed = _copy(message)
            changed.ClearField(field.name)
            yield f"{field.name}: absent", changed
        elif field.cpp_type == field.CPPTYPE_STRING and field.is_repeated:
            for label, names in bad_names(list(value)):
                yield f"{field.name}: {label}", _with(message, field.name, names)
        elif field.message_type is not None and field.is_repeated:
            inners = list(value)
            empty = getattr(type(message)(), field.name).add()
            yield f"{field.name}: an empty one", _with(message, field.name, [*inners, empty])
            if inners:
                yield f"{field.name}: twice", _with(message, field.name, [*inners, inners[-1]])
                for label, inner in spoilt_forms(inners[0]):
                    changed = [inner, *inners[1:]]
                    yield f"{field.name}[0].{label}", _with(message, field.name, changed)
        elif field.message_type is not None:
            for label, inner in spoilt_forms(value):
                yield f"{field.name}.{label}", _with(message, field.name, inner)
        elif isinstance(value, bytes):
            for label, data in (("less", value[:-1]), ("more", value + b"\0"), ("none", b"")):
                yield f"{field.name}: {label}", _with(message, field.name, data)
        elif isinstance(value, int):
            for label, number in (("more", value + 1), ("endless", 2**32 - 1)):
                yield f"{field.name}: {label}", _with(message, field.name, number)


def spoilt_values(message: Message) -> Labelled:
    """Every field of a message in good form, with values that cannot be; (label, message)."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if isinstance(value, Array):
            if message.HasField(field.name) and value.data:
                for label, data in _bad_values(value):
                    bad = Array(dtype=value.dtype, shape=value.shape, data=data)
                    yield f"{field.name}: {label}", _with(message, field.name, bad)
        elif field.cpp_type == field.CPPTYPE_STRING and field.is_repeated:
            are_bytes = bool(value) and isinstance(value[0], bytes)
            wrong = _bad_bytes(value[0]) if are_bytes else iter(_BAD_TEXTS.items())
            for label, told in wrong if value else ():
                yield f"{field.name}: {label}", _with(message, field.name, [told, *value[1:]])
        elif field.message_type is not None and field.is_repeated:
            for label, inner in spoilt_values(value[0]) if value else ():
                yield f"{field.name}[0].{label}", _with(message, field.name, [inner, *value[1:]])
        elif field.message_type is not None:
            for label, inner in spoilt_values(value) if message.HasField(field.name) else ():
                yield f"{field.name}.{label}", _with(message, field.name, inner)
        elif isinstance(value, bytes):
            for label, data in _bad_bytes(value):
                yield f"{field.name}: {label}", _with(message, field.name, data)
        elif isinstance(value, str):
            for label, text in _BAD_TEXTS.items():
                yield f"{field.name}: {label}", _with(message, field.name, text)
        elif isinstance(value, bool):
            yield f"{field.name}: turned", _with(message, field.name, not value)
        elif isinstance(value, int):
            most = 2 ** (63 if field.cpp_type == field.CPPTYPE_UINT64 else 31)
            for label, number in (("zero", 0), ("sign bit", most), ("most", 2 * most - 1)):
                if number != value:
                    yield f"{field.name}: {label}", _with(message, field.name, number)


_BAD_TEXTS = {
    "empty text": "",
    "a path": "../../etc/passwd",
    "a class": "os.system",
    "a NUL": "a\0b",
    "a long text": LONG_NAME,
}


def _bad_values(array: Array) -> Iterator[tuple[str, bytes]]:
    """Contents of the same length for an array; `u1` arrays hold bits, keys or digests."""
    if array.dtype in ("f4", "f8"):
        extremes: tuple[float, ...] = (math.nan, math.inf, -math.inf)
    elif array.dtype == "u1":
        yield from _bad_bytes(array.data)
        return
    else:
        kind = np.iinfo(array.dtype)
        extremes = (kind.min, kind.max, -1)
    for extreme in extremes:
        values = np.frombuffer(array.data, f"<{array.dtype}").copy()
        values[0] = extreme
        yield f"{extreme} first", values.tobytes()
        values[:] = extreme
        yield f"{extreme} throughout", values.tobytes()


def _bad_bytes(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Octets of the same length; where they can be points of a curve, those of small order."""
    found = {"zeros": bytes(len(data)), "ones": b"\xff" * len(data)}
    if data and len(data) % POINT_BYTES == 0:
        for place, point in enumerate(sorted(SMALL_ORDER)[-POINTS_SPOILT:]):
            small = int(point).to_bytes(POINT_BYTES, "little")
            found[f"point of small order {place}"] = small + data[POINT_BYTES:]
        found["the first point again"] = data[:POINT_BYTES] * (len(data) // POINT_BYTES)
    for label, other in found.items():
        if other != data:
            yield label, other


def _copy(message: Message) -> Any:
    changed = type(message)()
    changed.CopyFrom(message)
    return changed


def _with(message: Message, name: str, value: Any) -> Any:
    """The message with another value of one field."""
    changed = _copy(message)
    if isinstance(value, Message):
        getattr(changed, name).CopyFrom(value)
    elif isinstance(value, list):
        del getattr(changed, name)[:]
        getattr(changed, name).extend(value)
    else:
        setattr(changed, name, value)
    return changed


def lying(kind: type[Message], label: str) -> Callable[[bytes], bytes | None]:
    """A function that has a payload of that kind tell that lie; None where there is none."""

    def spoil(payload: bytes) -> bytes | None:
        message = kind.FromString(payload)
        for name, changed in lies(message):
            if name == label:
                data = wire.encode(changed)
                return None if data == payload else data
        return None

    return spoil


def labels(message: Message) -> tuple[str, ...]:
    """The names of the lies that change a message."""
    honest = wire.encode(message)
    return tuple(label for label, lie in lies(message) if wire.encode(lie) != honest)
