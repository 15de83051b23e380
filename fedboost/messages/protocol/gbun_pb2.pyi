from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Inputs(_message.Message):
    __slots__ = ("sparse", "names")
    SPARSE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    sparse: bool
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sparse: _Optional[bool] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...
