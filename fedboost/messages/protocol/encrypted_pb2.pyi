from fedboost.messages import array_pb2 as _array_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Ciphertexts(_message.Message):
    __slots__ = ("count", "data")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    count: int
    data: bytes
    def __init__(self, count: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Nonce(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    def __init__(self, nonce: _Optional[bytes] = ...) -> None: ...

class EncryptionKey(_message.Message):
    __slots__ = ("scheme", "key", "value_bits", "first_tree", "nonces")
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_BITS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TREE_FIELD_NUMBER: _ClassVar[int]
    NONCES_FIELD_NUMBER: _ClassVar[int]
    scheme: str
    key: bytes
    value_bits: int
    first_tree: int
    nonces: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, scheme: _Optional[str] = ..., key: _Optional[bytes] = ..., value_bits: _Optional[int] = ..., first_tree: _Optional[int] = ..., nonces: _Optional[_Iterable[bytes]] = ...) -> None: ...

class EncryptedGradients(_message.Message):
    __slots__ = ("tree", "first_row", "rows", "taking_part", "trees", "tree_key")
    TREE_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TAKING_PART_FIELD_NUMBER: _ClassVar[int]
    TREES_FIELD_NUMBER: _ClassVar[int]
    TREE_KEY_FIELD_NUMBER: _ClassVar[int]
    tree: int
    first_row: int
    rows: Ciphertexts
    taking_part: _array_pb2.Array
    trees: _array_pb2.Array
    tree_key: bytes
    def __init__(self, tree: _Optional[int] = ..., first_row: _Optional[int] = ..., rows: _Optional[_Union[Ciphertexts, _Mapping]] = ..., taking_part: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., trees: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., tree_key: _Optional[bytes] = ...) -> None: ...

class SignedSums(_message.Message):
    __slots__ = ("sums",)
    SUMS_FIELD_NUMBER: _ClassVar[int]
    sums: Ciphertexts
    def __init__(self, sums: _Optional[_Union[Ciphertexts, _Mapping]] = ...) -> None: ...

class SumsCommitment(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    def __init__(self, digest: _Optional[bytes] = ...) -> None: ...

class SignSeed(_message.Message):
    __slots__ = ("seed",)
    SEED_FIELD_NUMBER: _ClassVar[int]
    seed: bytes
    def __init__(self, seed: _Optional[bytes] = ...) -> None: ...

class OpenedSums(_message.Message):
    __slots__ = ("sums", "salt")
    SUMS_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    sums: _array_pb2.Array
    salt: bytes
    def __init__(self, sums: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., salt: _Optional[bytes] = ...) -> None: ...

class CandidateSums(_message.Message):
    __slots__ = ("candidates", "packages", "columns", "categories", "missing")
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    PACKAGES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    candidates: _array_pb2.Array
    packages: Ciphertexts
    columns: _array_pb2.Array
    categories: _array_pb2.Array
    missing: _array_pb2.Array
    def __init__(self, candidates: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., packages: _Optional[_Union[Ciphertexts, _Mapping]] = ..., columns: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., categories: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., missing: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...

class WonSplits(_message.Message):
    __slots__ = ("nodes", "tied", "candidates", "sizes")
    NODES_FIELD_NUMBER: _ClassVar[int]
    TIED_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    nodes: _array_pb2.Array
    tied: _array_pb2.Array
    candidates: _array_pb2.Array
    sizes: _array_pb2.Array
    def __init__(self, nodes: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., tied: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., candidates: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., sizes: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...

class RowDivisions(_message.Message):
    __slots__ = ("nodes", "goes_right")
    NODES_FIELD_NUMBER: _ClassVar[int]
    GOES_RIGHT_FIELD_NUMBER: _ClassVar[int]
    nodes: _array_pb2.Array
    goes_right: _array_pb2.Array
    def __init__(self, nodes: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., goes_right: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...

class AnswerKey(_message.Message):
    __slots__ = ("key", "signature")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    signature: bytes
    def __init__(self, key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class SharedRows(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _array_pb2.Array
    def __init__(self, rows: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...

class LeafAnswers(_message.Message):
    __slots__ = ("packages",)
    PACKAGES_FIELD_NUMBER: _ClassVar[int]
    packages: Ciphertexts
    def __init__(self, packages: _Optional[_Union[Ciphertexts, _Mapping]] = ...) -> None: ...
