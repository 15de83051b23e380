"""Messages as bytes, and arrays as messages: the only module that reads and checks either."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import DecodeError, Message

from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.messages import array_pb2, exchange_pb2, fault_pb2, job_pb2, party_pb2
from fedboost.messages.array_pb2 import Array

if TYPE_CHECKING:  # processes that send no arrays do not load numpy
    import numpy as np
    from numpy.typing import NDArray

M = TypeVar("M", bound=Message)

MESSAGE_BYTES_MAX = 1 << 30  # protobuf itself ends at 2 GiB
ROWS_NAMES = ("points", "ids", "rows")  # of fields that count the people in a message
COUNT_MAX = (1 << 63) - 1  # a column of the ledger holds no more
CONTROL_BYTES_MAX = 4 << 20  # the control plane asks and answers small
PIECE_BYTES = 1 << 20  # of a payload in transit, well below gRPC's limit of 4 MiB

_ITEM_BYTES = {"u1": 1, "i4": 4, "i8": 8, "f4": 4, "f8": 8}  # little-endian on the wire


def encode(message: Message) -> bytes:
    """Return the message's bytes, the same for the same content."""
    return message.SerializeToString(deterministic=True)


def decode(kind: type[M], payload: bytes, sender: str) -> M:
    """Return the message in `payload`; a PeerError if it is malformed or has unknown fields."""
    name = kind.DESCRIPTOR.name
    try:
        message = kind.FromString(payload)
    except DecodeError:
        raise PeerError(f"{sender} sent bytes that are no {name}") from None
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        raise PeerError(
            f"{sender} sent a {name} with fields this version does not know",
            todo="run the same fedboost version on every party",
        )
    return message


def json_object(text: bytes, what: str) -> dict[str, Any]:
    """Return the JSON object in a message, empty for an empty text; a PeerError about `what`."""
    try:
        value = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise PeerError(f"{what} must be a JSON object")
    return value


def pack(values: NDArray[np.generic]) -> Array:
    """Return a numpy array as a message; dtypes u1, i4, i8, f4, f8."""
    import numpy as np

    name = values.dtype.str[1:]
    if name not in _ITEM_BYTES:
        raise ProtocolError(f"arrays of {values.dtype} do not travel")
    array = np.ascontiguousarray(values, dtype=f"<{name}")
    return Array(dtype=name, shape=array.shape, data=array.tobytes())


def unpack(
    array: Array, dtype: str, shape: tuple[int | None, ...], what: str
) -> NDArray[np.generic]:
    """Return the numpy array in a message, read-only and without a copy.

    `dtype` is u1, i4, i8, f4 or f8; None in `shape` stands for any length. A PeerError about `what`
    names the expected and the received dtype or shape.
    """
    import numpy as np

    expected = f"{what} must be {dtype} {_shape_text(shape)}"
    if array.dtype != dtype:
        raise PeerError(f"{expected}, got dtype {array.dtype[:8]!r}")
    got = tuple(array.shape)
    fits = len(got) == len(shape) and all(
        want is None or want == have for want, have in zip(shape, got, strict=True)
    )
    if not fits:
        raise PeerError(f"{expected}, got {_shape_text(got[:8])}")
    count = 1
    for length in got:
        count *= length
    if len(array.data) != count * _ITEM_BYTES[dtype]:
        raise PeerError(f"{expected}, got {len(array.data)} bytes for {count} values")
    try:
        return np.frombuffer(array.data, dtype=f"<{dtype}").reshape(got)
    except ValueError:  # an empty array with a huge side
        raise PeerError(f"{expected}, got {_shape_text(got[:8])}") from None


def pack_bits(bits: NDArray[np.bool_]) -> Array:
    """Return booleans as a message of one bit each, the last byte filled with zeros."""
    import numpy as np

    return pack(np.packbits(bits))


def unpack_bits(array: Array, count: int, what: str) -> NDArray[np.bool_]:
    """Return the `count` booleans that `pack_bits` wrote."""
    import numpy as np

    data = unpack(array, "u1", ((count + 7) // 8,), what)
    bits = np.unpackbits(data.view(np.uint8))
    if bits[count:].any():
        raise PeerError(f"{what}: bits set beyond the {count} expected ones")
    return bits[:count].view(np.bool_)


def count_values(message: Message) -> int:
    """Return how many numbers a message carries: the largest of its arrays and counts."""
    counts = [0]
    for field, value in message.ListFields():
        if isinstance(value, Array):
            counts.append(len(value.data) // _ITEM_BYTES.get(value.dtype, 1))
        elif isinstance(value, Message):
            counts.append(count_values(value))
        elif field.name in ("count", *ROWS_NAMES) and isinstance(value, int):
            counts.append(value)
    return min(max(counts), COUNT_MAX)


def count_rows(message: Message) -> int | None:
    """Return how many people a message is about, None if it has no count; for the ledger."""
    for field, value in message.ListFields():
        if field.name in ROWS_NAMES and isinstance(value, int):
            return min(value, COUNT_MAX)
    return None


def describe(message: Message) -> str:
    """Return a message's name and the shapes in it, never its content."""
    parts = []
    for field, value in message.ListFields():
        if isinstance(value, Array):
            parts.append(f"{field.name}={value.dtype[:8]}{list(value.shape[:8])}")
        elif isinstance(value, bytes):
            parts.append(f"{field.name}={len(value)} bytes")
        elif isinstance(value, Message):
            parts.append(f"{field.name}={describe(value)}")
        elif isinstance(value, int | str | float | bool):
            parts.append(field.name)
        else:
            parts.append(f"{field.name}[{len(value)}]")
    return f"{message.DESCRIPTOR.name}({', '.join(parts)})"


def cut_payload(payload: bytes) -> Iterator[exchange_pb2.Piece]:
    """Yield the pieces of a payload (at least one), each with its checksum."""
    view = memoryview(payload)
    for start in range(0, max(len(view), 1), PIECE_BYTES):
        data = bytes(view[start : start + PIECE_BYTES])
        yield exchange_pb2.Piece(data=data, crc32=zlib.crc32(data))


def piece_data(piece: exchange_pb2.Piece, sender: str) -> bytes:
    """Return a piece's data; a PeerError if it was damaged in transit."""
    if len(piece.data) > PIECE_BYTES or zlib.crc32(piece.data) != piece.crc32:
        raise PeerError(f"{sender} sent a piece whose checksum does not match")
    return piece.data


def hide_content(message_types: Iterable[type[Message]]) -> None:
    """Make messages of these types print their shape instead of their content (also in logs)."""
    for kind in message_types:
        kind.__repr__ = kind.__str__ = describe  # type: ignore[method-assign,assignment]


def message_types(module: ModuleType) -> list[type[Message]]:
    """Return the message types that a generated module defines."""
    return [getattr(module, name) for name in module.DESCRIPTOR.message_types_by_name]


def _shape_text(shape: tuple[int | None, ...]) -> str:
    return "[" + " × ".join("n" if length is None else str(length) for length in shape) + "]"


for _module in (array_pb2, exchange_pb2, fault_pb2, job_pb2, party_pb2):
    hide_content(message_types(_module))
