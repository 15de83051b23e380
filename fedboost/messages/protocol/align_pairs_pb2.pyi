from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GuestSet(_message.Message):
    __slots__ = ("points", "data")
    POINTS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    points: int
    data: bytes
    def __init__(self, points: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class HostSet(_message.Message):
    __slots__ = ("points", "data")
    POINTS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    points: int
    data: bytes
    def __init__(self, points: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ReturnedSet(_message.Message):
    __slots__ = ("points", "data")
    POINTS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    points: int
    data: bytes
    def __init__(self, points: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class CommonDigests(_message.Message):
    __slots__ = ("key", "ids", "data")
    KEY_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    ids: int
    data: bytes
    def __init__(self, key: _Optional[bytes] = ..., ids: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...
