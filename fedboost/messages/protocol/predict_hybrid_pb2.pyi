from fedboost.messages import array_pb2 as _array_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BottomPlaces(_message.Message):
    __slots__ = ("first_row", "rows", "slots")
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    first_row: int
    rows: int
    slots: _array_pb2.Array
    def __init__(self, first_row: _Optional[int] = ..., rows: _Optional[int] = ..., slots: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...

class LeafPlaces(_message.Message):
    __slots__ = ("leaves",)
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    leaves: _array_pb2.Array
    def __init__(self, leaves: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...
