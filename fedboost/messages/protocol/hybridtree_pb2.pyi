from fedboost.messages import array_pb2 as _array_pb2
from fedboost.messages.protocol import encrypted_pb2 as _encrypted_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BottomRows(_message.Message):
    __slots__ = ("gradients", "at", "open")
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    gradients: _encrypted_pb2.EncryptedGradients
    at: _array_pb2.Array
    open: _array_pb2.Array
    def __init__(self, gradients: _Optional[_Union[_encrypted_pb2.EncryptedGradients, _Mapping]] = ..., at: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., open: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...

class ChosenSplits(_message.Message):
    __slots__ = ("won", "open")
    WON_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    won: _encrypted_pb2.WonSplits
    open: _array_pb2.Array
    def __init__(self, won: _Optional[_Union[_encrypted_pb2.WonSplits, _Mapping]] = ..., open: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...
