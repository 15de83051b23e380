"""What a checkpoint keeps of a dataclass, derived from its fields: none of them can be forgotten.

All values that a field has, however deep it lies in lists, dicts and other dataclasses, stand one
behind the other in one array, named by the way to it; texts stand in facts. So a state has as many
arrays as its type has fields, whatever it holds.

    trees: list[Tree]              trees                  how many trees
        totals: dict[int, Sums]    trees.each.totals      how many of each tree, then `.key`
                                   …totals.value.shape    and their shapes, and all numbers

Values of a list stand behind those before them, in every array. So what a `Growing` list has gained
since a checkpoint is a piece of its own, and the pieces one behind the other are the list.
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
# A list that only ever gains values at its end, and whose values never change.
Growing = Annotated[list[T], _GROWS]


@dataclass_transform(kw_only_default=True, eq_default=False)
def state(kind: type[T]) -> type[T]:
    """Make a dataclass of a class that checkpoints keep; a TypeError names a field they cannot."""
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
        """Return texts and arrays of the values from place `start` on."""
        columns = Columns()
        self.codec.put(self.values[start : self.count], self.name, columns)
        return columns.texts, columns.arrays


def parted_state(kind: type[T], held: T) -> tuple[dict[str, Any], Arrays, dict[str, GrownList]]:
    """Return facts and arrays of the fields of `kind`, a dataclass, in `held`: all but what
    `Growing` lists hold, and these lists by name.
    """
    columns = Columns()
    _codec_of(cast(Any, kind)).put([held], "", columns)
    return {TEXTS: columns.texts}, columns.arrays, columns.grown


def joined_state(
    facts: Mapping[str, Any], arrays: Arrays, pieces: Iterable[tuple[Texts, Arrays]]
) -> tuple[dict[str, Any], Arrays]:
    """Return a state's facts and arrays with what its lists have gained, piece behind piece."""
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
    """Return what `joined_state` has joined; a DataError where anything lacks or is too much."""
    columns = Columns(dict(facts.get(TEXTS, {})), dict(arrays))
    [value] = _codec_of(cast(Any, kind)).take(1, "", columns)
    unknown = [*columns.texts, *columns.arrays]
    if unknown:
        raise DataError(f"a state has {unknown[0]}, which {kind.__name__} has not")
    return cast(T, value)


def restore_into(held: T, kept: T) -> None:
    """Set each field of the state `kept` in `held`, an object of the same kind or of one below."""
    for name in (part.name for part in fields(cast(Any, kept))):
        now, value = getattr(held, name, None), getattr(kept, name)
        if is_dataclass(now) and type(now) is not type(value) and isinstance(now, type(value)):
            restore_into(now, value)
        elif is_dataclass(now) and value is None:
            raise DataError(
                f"what was kept has no {name}, which this attempt has",
                todo="set the party's policy back to what it was, or submit the job anew",
            )
        else:
            setattr(held, name, value)


@dataclass
class Columns:
    """The values of a state's fields, by name; whatever is taken is gone."""

    texts: Texts = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)
    grown: dict[str, GrownList] = field(default_factory=dict)

    def put(self, name: str, values: NDArray[Any]) -> None:
        """Add a field's values, int64 or whatever they are; none leave no trace."""
        if len(values):
            self.arrays[name] = values

    def take(self, name: str, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Remove `count` values of a field."""
        column = self.arrays.pop(name, np.empty(0, dtype)) if count else np.empty(0, dtype)
        if column.dtype != dtype or column.shape != (count,):
            raise DataError(
                f"a state has {column.dtype} {column.shape} as {name}, expected {dtype} {(count,)}"
            )
        return column


class Codec(ABC):
    """How values of one type are kept, all that a state has of a field at once."""

    @abstractmethod
    def put(self, values: Sequence[Any], name: str, into: Columns) -> None:
        """Add the values under a name."""

    @abstractmethod
    def take(self, count: int, name: str, out: Columns) -> list[Any]:
        """Remove so many values."""


@dataclass(frozen=True)
class NumberCodec(Codec):
    """Numbers and bools."""

    dtype: np.dtype[Any]

    def put(self, values: Sequence[Any], name: str, into: Columns) -> None:
        """Add them as an array."""
        into.put(name, np.array(values, self.dtype))

    def take(self, count: int, name: str, out: Columns) -> list[Any]:
        """Remove them, as Python's numbers where they were."""
        column = out.take(name, self.dtype, count)
        return list(column) if self.dtype == np.float32 else cast(list[Any], column.tolist())


class Strings(Codec):
    """Strings."""

    def put(self, values: Sequence[Any], name: str, into: Columns) -> None:
        """Add them as a fact."""
        if values:
            into.texts[name] = list(values)

    def take(self, count: int, name: str, out: Columns) -> list[Any]:
        """Remove them."""
        values = out.texts.pop(name, []) if count else []
        if len(values) != count:
            raise DataError(f"a state has {len(values)} texts as {name}, expected {count}")
        return values


@dataclass(frozen=True)
class Blocks(Codec):
    """Arrays of one dtype, or bytes: their shapes, and all their numbers."""

    dtype: np.dtype[Any]
    is_bytes: bool = False

    def put(self, values: Sequence[Any], name: str, into: Columns) -> None:
        """Add copies."""
        arrays = [np.frombuffer(v, np.uint8) if self.is_bytes else v for v in values]
        SHAPES.put([array.shape for array in arrays], f"{name}.shape", into)
        flat = [array.astype(self.dtype, copy=False).ravel() for array in arrays]
        into.put(name, np.concatenate([np.empty(0, self.dtype), *flat]))

    def take(self, count: int, name: str, out: Columns) -> list[Any]:
        """Remove them, each an array of its own."""
        shapes = SHAPES.take(count, f"{name}.shape", out)
        sizes = [int(np.prod(shape)) for shape in shapes]
        whole = out.take(name, self.dtype, sum(sizes))
        parts = _parts(whole, sizes)
        if self.is_bytes:
            return [part.tobytes() for part in parts]
        return [part.reshape(s).copy() for part, s in zip(parts, shapes, strict=True)]


@dataclass(frozen=True)
class Optionals(Codec):
    """Values that may be None."""

    inner: Codec

    def put(self, values: Sequence[Any], name: str, into: Columns) -> None:
        """Add whether there is each, and those that there are."""
        into.put(name, np.array([value is not None for value in values], np.bool_))
        self.inner.put([v for v in values if v is not None], f"{name}.value", into)

    def take(self, count: int, name: str, out: Columns) -> list[Any]:
        """Remove them."""
        given = out.take(name, np.dtype(np.bool_), count)
        values = iter(self.inner.take(int(given.sum()), f"{name}.value", out))
        return [next(values) if there else None for there in given]


@dataclass(frozen=True)
class Many(Codec):
    """Lists, tuples of any length, sets; sets are kept in their order."""

    kind: type
    inner: Codec

    def put(self, values: Sequence[Any], name: str, into: Columns) -> None:
        """Add how many each has, and all of them."""
        ordered = [sorted(v) if self.kind in (set, frozenset) else v for v in values]
        into.put(name, np.array([len(value) for value in ordered], np.int64))
        self.inner.put([item for value in ordered for item in value], f"{name}.each", into)

    def take(self, count: int, name: str, out: Columns) -> list[Any]:
        """Remove them."""
        lengths = out.take(name, np.dtype(np.int64), count).tolist()
        items = self.inner.take(sum(lengths), f"{name}.each", out)
        return [self.kind(part) for part in _parts(items, lengths)]


@dataclass(frozen=True)
class GrowingLists(Codec):
    """`Growing` lists: that of a whole state beside it, those of parts of which there are several
    as any list.
    """

    many: Many

    def put(self, values: Sequence[Any], name: str, into: Columns) -> None:
        """Add how many there are, and the list itself."""
        if len(values) != 1:
            self.many.put(values, name, into)
            return
        [items] = values
        into.put(name, np.array([len(items)], np.int64))
        into.grown[name] = GrownList(items, len(items), f"{name}.each", self.many.inner)

    def take(self, count: int, name: str, out: Columns) -> list[Any]:
        """Remove them."""
        return self.many.take(count, name, out)


@dataclass(frozen=True)
class Fields(Codec):
    """Parts that each value has: a dataclass's fields, a tuple's places, a dict's pairs."""

    make: Any
    parts: Mapping[Any, Codec]  # by name, or by place

    def put(self, values: Sequence[Any], name: str, into: Columns) -> None:
        """Add each part of all values."""
        for part, codec in self.parts.items():
            by_name = isinstance(part, str)
            held = [getattr(v, part) if by_name else v[part] for v in values]
            codec.put(held, f"{name}.{part}" if name else part, into)

    def take(self, count: int, name: str, out: Columns) -> list[Any]:
        """Remove them, and make the values of them."""
        columns = {
            part: codec.take(count, f"{name}.{part}" if name else part, out)
            for part, codec in self.parts.items()
        }
        rows = zip(*columns.values(), strict=True) if columns else iter([()] * count)
        return [self.make(dict(zip(columns, row, strict=True))) for row in rows]


@dataclass(frozen=True)
class Dicts(Codec):
    """Dicts, in their order."""

    pairs: Many

    def put(self, values: Sequence[Any], name: str, into: Columns) -> None:
        """Add them as lists of pairs."""
        self.pairs.put([list(value.items()) for value in values], name, into)

    def take(self, count: int, name: str, out: Columns) -> list[Any]:
        """Remove them."""
        return [dict(value) for value in self.pairs.take(count, name, out)]


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
    """Return the codec of a type; a TypeError where there is none."""
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
    """Return the codec of a list, tuple, set or dict, or of what an alias stands for."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple and args[-1] is not Ellipsis:
        return _indices_of(args)
    if origin in (list, tuple, set, frozenset):
        return Many(cast(type, origin), _codec_of(args[0]))
    if origin in (dict, Mapping):
        return Dicts(Many(list, _indices_of(args)))
    if hasattr(origin, "__value__"):  # an alias of the language, as NDArray is from NumPy 2.5 on
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


def _parts(whole: Any, lengths: Sequence[int]) -> list[Any]:
    """Return the stretches of these lengths that make up a whole."""
    ends = np.cumsum(np.array(lengths, np.int64)).tolist()
    return [whole[end - length : end] for end, length in zip(ends, lengths, strict=True)]
