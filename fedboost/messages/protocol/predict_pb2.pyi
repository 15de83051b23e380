from fedboost.messages import array_pb2 as _array_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Questions(_message.Message):
    __slots__ = ("trees", "nodes", "counts", "rows")
    TREES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    trees: _array_pb2.Array
    nodes: _array_pb2.Array
    counts: _array_pb2.Array
    rows: _array_pb2.Array
    def __init__(self, trees: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., nodes: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., counts: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., rows: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...

class Directions(_message.Message):
    __slots__ = ("goes_right",)
    GOES_RIGHT_FIELD_NUMBER: _ClassVar[int]
    goes_right: _array_pb2.Array
    def __init__(self, goes_right: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...
