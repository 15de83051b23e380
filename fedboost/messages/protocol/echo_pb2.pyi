from fedboost.messages import array_pb2 as _array_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Call(_message.Message):
    __slots__ = ("numbers",)
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    numbers: _array_pb2.Array
    def __init__(self, numbers: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("total",)
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    total: _array_pb2.Array
    def __init__(self, total: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...
