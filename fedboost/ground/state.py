"""Checkpoints of dataclasses, derived from their fields: no field can be forgotten.

All values of a field, at any depth in lists, dicts and other dataclasses, stand one behind the
other in one array, named by the path to the field; texts stand in facts. So a state has as many
arrays as its type has fields, at any size.

    trees: list[Tree]              trees                  how many trees
        totals: dict[int, Sums]    trees.each.totals      how many of each tree, then `.key`
                                   …totals.value.shape    and their shapes, and all numbers

Values of a list stand behind those before them, in every array. So the values that a `Growing` list
gained since a checkpoint are one piece, and the pieces one behind the other are the list.
"""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import (
    Annotated,
    Any,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)
from typing import get_type_hints as hints_of

import numpy as np
from numpy.typing import NDArray

from fedboost.ground.errors import DataError

T = TypeVar("T")
Arrays = dict[str, NDArray[np.generic]]

Texts = dict[str, list[str]]

TEXTS = "texts"  # the fact that holds them, by field
_GROWS = "grows"
# A list that only gains values at its end; its values never change.
Growing = Annotated[list[T], _GROWS]


@dataclass_transform(kw_only_default=True, eq_default=False)
def state_class(kind: type[T]) -> type[T]:
    """Make a class a dataclass for checkpoints; a TypeError names a field that they cannot hold."""
    made = dataclass(kw_only=True, eq=False, repr=False)(kind)
    _codec_of(cast(Any, made))
    return made


@dataclass(frozen=True)
class GrownList:
    """A `Growing` list of a state as it was when the state was taken."""

    values: Sequence[Any] = field(repr=False)  # the list itself, which may have gained more since
    count: int
    name: str  # of the values' arrays and texts
    codec: Codec

    def since(self, start: int) -> tuple[Texts, Arrays]:
        """Return texts and arrays of the values from index `start` on."""
        columns = FieldColumns()
        self.codec.put_values(self.values[start : self.count], self.name, columns)
        return columns.texts, columns.arrays


def split_state(kind: type[T], held: T) -> tuple[dict[str, Any], Arrays, dict[str, GrownList]]:
    """Return facts and arrays of the fields of `kind`, a dataclass, in `held`, and its lists by
    name.

    The values of `Growing` lists are only in these lists.
    """
    columns = FieldColumns()
    _codec_of(cast(Any, kind)).put_values([held], "", columns)
    return {TEXTS: columns.texts}, columns.arrays, columns.grown


def join_state(
    facts: Mapping[str, Any], arrays: Arrays, pieces: Iterable[tuple[Texts, Arrays]]
) -> tuple[dict[str, Any], Arrays]:
    """Return a state's facts and arrays with the pieces of its `Growing` lists, in order."""
    texts: Texts = {}
    parts: dict[str, list[NDArray[Any]]] = {}
    for gained, columns in pieces:
        for name, more in gained.items():
            texts.setdefault(name, []).extend(more)
        for name, column in columns.items():
            parts.setdefault(name, []).append(column)
    held = {name: np.concatenate(more) for name, more in parts.items()}
    if texts:
        facts = {**facts, TEXTS: {**facts.get(TEXTS, {}), **texts}}
    return {**facts}, {**arrays, **held}


def load_state(kind: type[T], facts: Mapping[str, Any], arrays: Arrays) -> T:
    """Return the state that `join_state` joined; a DataError if a field is missing or unknown."""
    columns = FieldColumns(dict(facts.get(TEXTS, {})), dict(arrays))
    [value] = _codec_of(cast(Any, kind)).take_values(1, "", columns)
    unknown = [*columns.texts, *columns.arrays]
    if unknown:
        raise DataError(f"a state has {unknown[0]}, which {kind.__name__} has not")
    return cast(T, value)


def restore_into(held: T, kept: T) -> None:
    """Set each field of the state `kept` in `held`, an object of the same class or a subclass."""
    for name in (part.name for part in fields(cast(Any, kept))):
        now, value = getattr(held, name, None), getattr(kept, name)
        if is_dataclass(now) and type(now) is not type(value) and isinstance(now, type(value)):
            restore_into(now, value)
        elif is_dataclass(now) and value is None:
            raise DataError(
                f"the checkpoint has no {name}, which this attempt has",
                todo="set the party's policy back, or submit the job again",
            )
        else:
            setattr(held, name, value)


@dataclass
class FieldColumns:
    """Values of a state's fields, by name; values that are taken are removed."""

    texts: Texts = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)
    grown: dict[str, GrownList] = field(default_factory=dict)

    def add_field(self, name: str, values: NDArray[Any]) -> None:
        """Add a field's values in any dtype; an empty array is left out."""
        if len(values):
            self.arrays[name] = values

    def take_field(self, name: str, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Remove `count` values of a field and return them."""
        column = self.arrays.pop(name, np.empty(0, dtype)) if count else np.empty(0, dtype)
        if column.dtype != dtype or column.shape != (count,):
            raise DataError(
                f"a state has {column.dtype} {column.shape} as {name}, expected {dtype} {(count,)}"
            )
        return column


class Codec(ABC):
    """Encoding of values of one type, for all values of a field at once."""

    @abstractmethod
    def put_values(self, values: Sequence[Any], name: str, into: FieldColumns) -> None:
        """Add the values under a name."""

    @abstractmethod
    def take_values(self, count: int, name: str, out: FieldColumns) -> list[Any]:
        """Remove so many values and return them."""


@dataclass(frozen=True)
class NumberCodec(Codec):
    """Numbers and bools."""

    dtype: np.dtype[Any]

    def put_values(self, values: Sequence[Any], name: str, into: FieldColumns) -> None:
        """Add the values as an array."""
        into.add_field(name, np.array(values, self.dtype))

    def take_values(self, count: int, name: str, out: FieldColumns) -> list[Any]:
        """Remove the values and return them as Python numbers; float32 stays numpy's."""
        column = out.take_field(name, self.dtype, count)
        return list(column) if self.dtype == np.float32 else cast(list[Any], column.tolist())


class Strings(Codec):
    """Strings."""

    def put_values(self, values: Sequence[Any], name: str, into: FieldColumns) -> None:
        """Add the strings as a fact."""
        if values:
            into.texts[name] = list(values)

    def take_values(self, count: int, name: str, out: FieldColumns) -> list[Any]:
        """Remove the strings."""
        values = out.texts.pop(name, []) if count else []
        if len(values) != count:
            raise DataError(f"a state has {len(values)} texts as {name}, expected {count}")
        return values


@dataclass(frozen=True)
class Blocks(Codec):
    """Arrays of one dtype, or bytes: their shapes, and all their numbers."""

    dtype: np.dtype[Any]
    is_bytes: bool = False

    def put_values(self, values: Sequence[Any], name: str, into: FieldColumns) -> None:
        """Add copies of the arrays."""
        arrays = [np.frombuffer(v, np.uint8) if self.is_bytes else v for v in values]
        SHAPES.put_values([array.shape for array in arrays], f"{name}.shape", into)
        flat = [array.astype(self.dtype, copy=False).ravel() for array in arrays]
        into.add_field(name, np.concatenate([np.empty(0, self.dtype), *flat]))

    def take_values(self, count: int, name: str, out: FieldColumns) -> list[Any]:
        """Remove the arrays; each is a copy."""
        shapes = SHAPES.take_values(count, f"{name}.shape", out)
        sizes = [int(np.prod(shape)) for shape in shapes]
        whole = out.take_field(name, self.dtype, sum(sizes))
        parts = _split_lengths(whole, sizes)
        if self.is_bytes:
            return [part.tobytes() for part in parts]
        return [part.reshape(s).copy() for part, s in zip(parts, shapes, strict=True)]


@dataclass(frozen=True)
class Optionals(Codec):
    """Values that may be None."""

    inner: Codec

    def put_values(self, values: Sequence[Any], name: str, into: FieldColumns) -> None:
        """Add a bool for each value, False for None, and the values that are not None."""
        into.add_field(name, np.array([value is not None for value in values], np.bool_))
        self.inner.put_values([v for v in values if v is not None], f"{name}.value", into)

    def take_values(self, count: int, name: str, out: FieldColumns) -> list[Any]:
        """Remove the values."""
        given = out.take_field(name, np.dtype(np.bool_), count)
        values = iter(self.inner.take_values(int(given.sum()), f"{name}.value", out))
        return [next(values) if there else None for there in given]


@dataclass(frozen=True)
class Many(Codec):
    """Lists, tuples of any length, sets; sets are kept sorted."""

    kind: type
    inner: Codec

    def put_values(self, values: Sequence[Any], name: str, into: FieldColumns) -> None:
        """Add the length of each, and all items."""
        ordered = [sorted(v) if self.kind in (set, frozenset) else v for v in values]
        into.add_field(name, np.array([len(value) for value in ordered], np.int64))
        self.inner.put_values([item for value in ordered for item in value], f"{name}.each", into)

    def take_values(self, count: int, name: str, out: FieldColumns) -> list[Any]:
        """Remove the containers."""
        lengths = out.take_field(name, np.dtype(np.int64), count).tolist()
        items = self.inner.take_values(sum(lengths), f"{name}.each", out)
        return [self.kind(part) for part in _split_lengths(items, lengths)]


@dataclass(frozen=True)
class GrowingLists(Codec):
    """`Growing` lists: a list of the whole state stands beside it, lists of its parts are plain
    lists.
    """

    many: Many

    def put_values(self, values: Sequence[Any], name: str, into: FieldColumns) -> None:
        """Add the length, and the list itself beside the state."""
        if len(values) != 1:
            self.many.put_values(values, name, into)
            return
        [items] = values
        into.add_field(name, np.array([len(items)], np.int64))
        into.grown[name] = GrownList(items, len(items), f"{name}.each", self.many.inner)

    def take_values(self, count: int, name: str, out: FieldColumns) -> list[Any]:
        """Remove the lists."""
        return self.many.take_values(count, name, out)


@dataclass(frozen=True)
class Fields(Codec):
    """Values of several parts: a dataclass's fields, a tuple's items, a dict's pairs."""

    make: Any
    parts: Mapping[Any, Codec]  # by name, or by index

    def put_values(self, values: Sequence[Any], name: str, into: FieldColumns) -> None:
        """Add each part of all values."""
        for part, codec in self.parts.items():
            by_name = isinstance(part, str)
            held = [getattr(v, part) if by_name else v[part] for v in values]
            codec.put_values(held, f"{name}.{part}" if name else part, into)

    def take_values(self, count: int, name: str, out: FieldColumns) -> list[Any]:
        """Remove the parts, and make the values of them."""
        columns = {
            part: codec.take_values(count, f"{name}.{part}" if name else part, out)
            for part, codec in self.parts.items()
        }
        rows = zip(*columns.values(), strict=True) if columns else iter([()] * count)
        return [self.make(dict(zip(columns, row, strict=True))) for row in rows]


@dataclass(frozen=True)
class Dicts(Codec):
    """Dicts, in their order."""

    pairs: Many

    def put_values(self, values: Sequence[Any], name: str, into: FieldColumns) -> None:
        """Add the dicts as lists of pairs."""
        self.pairs.put_values([list(value.items()) for value in values], name, into)

    def take_values(self, count: int, name: str, out: FieldColumns) -> list[Any]:
        """Remove the dicts."""
        return [dict(value) for value in self.pairs.take_values(count, name, out)]


INTS = NumberCodec(np.dtype(np.int64))
SHAPES = Many(tuple, INTS)
PLAIN: dict[Any, Codec] = {
    int: INTS,
    bool: NumberCodec(np.dtype(np.bool_)),
    float: NumberCodec(np.dtype(np.float64)),
    np.float32: NumberCodec(np.dtype(np.float32)),
    str: Strings(),
    bytes: Blocks(np.dtype(np.uint8), is_bytes=True),
}


@cache
def _codec_of(hint: Any) -> Codec:
    """Return the codec of a type; a TypeError if there is none."""
    if hint in PLAIN:
        return PLAIN[hint]
    if is_dataclass(hint):
        return _fields_of(cast(type, hint))
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated and args[1:] == (_GROWS,):
        return GrowingLists(cast(Many, _codec_of(args[0])))
    if origin is np.ndarray:
        return _blocks_of(args[1])
    if origin in (Union, types.UnionType) and len(args) == 2 and args[1] is type(None):
        return Optionals(_codec_of(args[0]))
    return _container_of(hint)


def _container_of(hint: Any) -> Codec:
    """Return the codec of a list, tuple, set or dict, or of the type behind an alias."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple and args[-1] is not Ellipsis:
        return _indices_of(args)
    if origin in (list, tuple, set, frozenset):
        return Many(cast(type, origin), _codec_of(args[0]))
    if origin in (dict, Mapping):
        return Dicts(Many(list, _indices_of(args)))
    if hasattr(origin, "__value__"):  # a `type` alias, such as NDArray since NumPy 2.5
        return _codec_of(origin.__value__[args])
    raise TypeError(f"a checkpoint cannot keep a {hint}")


def _indices_of(hints: Sequence[Any]) -> Codec:
    """Return the codec of tuples of these types."""
    indices = {place: _codec_of(hint) for place, hint in enumerate(hints)}
    return Fields(lambda values: tuple(values.values()), indices)


def _blocks_of(dtype: Any) -> Codec:
    """Return the codec of arrays."""
    [scalar] = get_args(dtype)
    if scalar not in np.sctypeDict.values():
        raise TypeError(f"a checkpoint keeps arrays of one dtype, not of {scalar.__name__}")
    return Blocks(np.dtype(scalar))


def _fields_of(kind: type) -> Codec:
    """Return the codec of a dataclass."""
    hints, parts = hints_of(kind, include_extras=True), {}
    for part in fields(cast(Any, kind)):
        try:
            parts[part.name] = _codec_of(hints[part.name])
        except TypeError as error:
            raise TypeError(f"{kind.__name__}.{part.name}: {error}") from None
    return Fields(lambda values: kind(**values), parts)


def _split_lengths(whole: Any, lengths: Sequence[int]) -> list[Any]:
    """Return consecutive slices of these lengths."""
    ends = np.cumsum(np.array(lengths, np.int64)).tolist()
    return [whole[end - length : end] for end, length in zip(ends, lengths, strict=True)]
