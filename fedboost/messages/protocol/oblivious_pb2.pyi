from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Greeting(_message.Message):
    __slots__ = ("ids", "nonce", "least")
    IDS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    LEAST_FIELD_NUMBER: _ClassVar[int]
    ids: int
    nonce: bytes
    least: int
    def __init__(self, ids: _Optional[int] = ..., nonce: _Optional[bytes] = ..., least: _Optional[int] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("ids", "nonces", "point", "largest")
    IDS_FIELD_NUMBER: _ClassVar[int]
    NONCES_FIELD_NUMBER: _ClassVar[int]
    POINT_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    ids: int
    nonces: _containers.RepeatedScalarFieldContainer[bytes]
    point: bytes
    largest: int
    def __init__(self, ids: _Optional[int] = ..., nonces: _Optional[_Iterable[bytes]] = ..., point: _Optional[bytes] = ..., largest: _Optional[int] = ...) -> None: ...

class Choice(_message.Message):
    __slots__ = ("points",)
    POINTS_FIELD_NUMBER: _ClassVar[int]
    points: bytes
    def __init__(self, points: _Optional[bytes] = ...) -> None: ...

class SampleCount(_message.Message):
    __slots__ = ("ids", "is_last")
    IDS_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    ids: int
    is_last: bool
    def __init__(self, ids: _Optional[int] = ..., is_last: _Optional[bool] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("number", "ids", "data")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    number: int
    ids: int
    data: bytes
    def __init__(self, number: _Optional[int] = ..., ids: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Tags(_message.Message):
    __slots__ = ("number", "ids", "data")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    number: int
    ids: int
    data: bytes
    def __init__(self, number: _Optional[int] = ..., ids: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Named(_message.Message):
    __slots__ = ("number", "ids", "data")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    number: int
    ids: int
    data: bytes
    def __init__(self, number: _Optional[int] = ..., ids: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...
