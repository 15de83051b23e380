from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class BlindedSet(_message.Message):
    __slots__ = ("origin", "points", "data")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    origin: str
    points: int
    data: bytes
    def __init__(self, origin: _Optional[str] = ..., points: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class FullSet(_message.Message):
    __slots__ = ("origin", "points", "data")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    origin: str
    points: int
    data: bytes
    def __init__(self, origin: _Optional[str] = ..., points: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class CommonSet(_message.Message):
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

class RowsDigest(_message.Message):
    __slots__ = ("digest", "rows")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    rows: int
    def __init__(self, digest: _Optional[bytes] = ..., rows: _Optional[int] = ...) -> None: ...

class PairKey(_message.Message):
    __slots__ = ("key", "signature")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    signature: bytes
    def __init__(self, key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Hint(_message.Message):
    __slots__ = ("number", "ids", "data")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    number: int
    ids: int
    data: bytes
    def __init__(self, number: _Optional[int] = ..., ids: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...
