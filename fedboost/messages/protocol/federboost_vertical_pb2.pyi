from fedboost.messages import array_pb2 as _array_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BucketIds(_message.Message):
    __slots__ = ("buckets", "missing", "categorical", "ids")
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    CATEGORICAL_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    buckets: _array_pb2.Array
    missing: _array_pb2.Array
    categorical: _array_pb2.Array
    ids: _array_pb2.Array
    def __init__(self, buckets: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., missing: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., categorical: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., ids: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...

class OwnSplits(_message.Message):
    __slots__ = ("trees", "nodes", "columns", "buckets", "missing_left", "sets")
    TREES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    MISSING_LEFT_FIELD_NUMBER: _ClassVar[int]
    SETS_FIELD_NUMBER: _ClassVar[int]
    trees: _array_pb2.Array
    nodes: _array_pb2.Array
    columns: _array_pb2.Array
    buckets: _array_pb2.Array
    missing_left: _array_pb2.Array
    sets: _array_pb2.Array
    def __init__(self, trees: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., nodes: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., columns: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., buckets: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., missing_left: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., sets: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...
