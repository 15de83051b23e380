from fedboost.messages import fault_pb2 as _fault_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecallRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RecallReply(_message.Message):
    __slots__ = ("text", "signature")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    text: bytes
    signature: bytes
    def __init__(self, text: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("job", "manifest_sha256", "attempt", "stage", "step", "number", "sender", "receiver", "kind", "part", "last", "payload_bytes", "payload_sha256", "salt")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_SHA256_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    job: str
    manifest_sha256: bytes
    attempt: int
    stage: str
    step: str
    number: int
    sender: str
    receiver: str
    kind: str
    part: int
    last: bool
    payload_bytes: int
    payload_sha256: bytes
    salt: bytes
    def __init__(self, job: _Optional[str] = ..., manifest_sha256: _Optional[bytes] = ..., attempt: _Optional[int] = ..., stage: _Optional[str] = ..., step: _Optional[str] = ..., number: _Optional[int] = ..., sender: _Optional[str] = ..., receiver: _Optional[str] = ..., kind: _Optional[str] = ..., part: _Optional[int] = ..., last: _Optional[bool] = ..., payload_bytes: _Optional[int] = ..., payload_sha256: _Optional[bytes] = ..., salt: _Optional[bytes] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("envelope", "piece")
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    envelope: Envelope
    piece: Piece
    def __init__(self, envelope: _Optional[_Union[Envelope, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ...) -> None: ...

class Parcel(_message.Message):
    __slots__ = ("envelope", "piece", "number", "held")
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    envelope: Envelope
    piece: Piece
    number: int
    held: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, envelope: _Optional[_Union[Envelope, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ..., number: _Optional[int] = ..., held: _Optional[_Iterable[int]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("data", "crc32")
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    crc32: int
    def __init__(self, data: _Optional[bytes] = ..., crc32: _Optional[int] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("duplicate", "number", "fault")
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    duplicate: bool
    number: int
    fault: _fault_pb2.Fault
    def __init__(self, duplicate: _Optional[bool] = ..., number: _Optional[int] = ..., fault: _Optional[_Union[_fault_pb2.Fault, _Mapping]] = ...) -> None: ...
