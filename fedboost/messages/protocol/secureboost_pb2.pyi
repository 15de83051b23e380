from fedboost.messages import array_pb2 as _array_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frontier(_message.Message):
    __slots__ = ("divided", "goes_right", "open")
    DIVIDED_FIELD_NUMBER: _ClassVar[int]
    GOES_RIGHT_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    divided: _array_pb2.Array
    goes_right: _array_pb2.Array
    open: _array_pb2.Array
    def __init__(self, divided: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., goes_right: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., open: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...
