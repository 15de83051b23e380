from fedboost.messages import array_pb2 as _array_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Standing(_message.Message):
    __slots__ = ("history", "kept", "tag_key", "signature")
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    TAG_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    history: bytes
    kept: _containers.RepeatedCompositeFieldContainer[Stand]
    tag_key: bytes
    signature: bytes
    def __init__(self, history: _Optional[bytes] = ..., kept: _Optional[_Iterable[_Union[Stand, _Mapping]]] = ..., tag_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Stand(_message.Message):
    __slots__ = ("place", "history")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    place: _containers.RepeatedScalarFieldContainer[int]
    history: bytes
    def __init__(self, place: _Optional[_Iterable[int]] = ..., history: _Optional[bytes] = ...) -> None: ...

class MaskKeys(_message.Message):
    __slots__ = ("epoch", "keys", "commitments", "signature")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    COMMITMENTS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    keys: _array_pb2.Array
    commitments: _array_pb2.Array
    signature: bytes
    def __init__(self, epoch: _Optional[int] = ..., keys: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., commitments: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., signature: _Optional[bytes] = ...) -> None: ...

class DealtShares(_message.Message):
    __slots__ = ("epoch", "mask_keys", "self_masks")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MASK_KEYS_FIELD_NUMBER: _ClassVar[int]
    SELF_MASKS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    mask_keys: _array_pb2.Array
    self_masks: _array_pb2.Array
    def __init__(self, epoch: _Optional[int] = ..., mask_keys: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., self_masks: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...

class Masked(_message.Message):
    __slots__ = ("number", "words", "withheld", "members")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    WITHHELD_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    number: int
    words: _array_pb2.Array
    withheld: bool
    members: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, number: _Optional[int] = ..., words: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., withheld: _Optional[bool] = ..., members: _Optional[_Iterable[str]] = ...) -> None: ...

class Gathered(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Total(_message.Message):
    __slots__ = ("number", "closed", "words")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    number: int
    closed: bool
    words: _array_pb2.Array
    def __init__(self, number: _Optional[int] = ..., closed: _Optional[bool] = ..., words: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...

class Survivors(_message.Message):
    __slots__ = ("number", "parties", "signature")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    number: int
    parties: _containers.RepeatedScalarFieldContainer[str]
    signature: bytes
    def __init__(self, number: _Optional[int] = ..., parties: _Optional[_Iterable[str]] = ..., signature: _Optional[bytes] = ...) -> None: ...

class RevealedShares(_message.Message):
    __slots__ = ("number", "survivors", "shares", "keys", "commitments", "context", "members", "threshold")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    COMMITMENTS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    number: int
    survivors: _containers.RepeatedScalarFieldContainer[str]
    shares: _array_pb2.Array
    keys: _array_pb2.Array
    commitments: _array_pb2.Array
    context: bytes
    members: _containers.RepeatedScalarFieldContainer[str]
    threshold: int
    def __init__(self, number: _Optional[int] = ..., survivors: _Optional[_Iterable[str]] = ..., shares: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., keys: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., commitments: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., context: _Optional[bytes] = ..., members: _Optional[_Iterable[str]] = ..., threshold: _Optional[int] = ...) -> None: ...
