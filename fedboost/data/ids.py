"""One byte string per row that names it, the same on every party whatever its column types.

An id is one or several parts. Each part is written canonically and prefixed by its length (4
bytes, big endian), so no two different ids have the same bytes. Canonical is:

- whole numbers in decimal digits: integer 17, 17.0 in a float column, "17" and "17.0" in text
  are the same; "017", "+17" and "17.00" are text, different from 17 and from each other;
- text in Unicode normal form C, without blanks around it, upper and lower case as they are;
- dates as ``2024-01-31``.

An owner's `IdFormat` then changes these texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedboost.data.columns import kind_of, plain
from fedboost.data.sources import IdFormat
from fedboost.errors import DataError

PART_BYTES_MAX = 1024  # an id longer than this is a document, and would be sent to no use
_PREFIX = [size.to_bytes(4, "big") for size in range(PART_BYTES_MAX + 1)]


def encode_ids(
    columns: Sequence[pa.ChunkedArray], names: Sequence[str], how: IdFormat | None = None
) -> list[bytes]:
    """The n ids read from one or several columns of n cells, each a part of the id.

    DataError where a cell is missing, a type cannot name rows, or a float column holds what is
    no whole number or more than its type counts exactly. Whether ids differ is not checked here.
    """
    parts = [_parts(column, name, how) for column, name in zip(columns, names, strict=True)]
    if len(parts) == 1:
        return parts[0]
    return [b"".join(row) for row in zip(*parts, strict=True)]


def spelled(column: pa.ChunkedArray, name: str, how: IdFormat) -> pa.ChunkedArray:
    """Return the texts of an id column in another spelling; refuses as `encode_ids` does."""
    return _formatted(_canonical(plain(column), name), how)


def shared_ids(ids: Sequence[bytes]) -> tuple[int, int]:
    """Return how many rows do not have an id of their own, and how many ids they share."""
    seen: set[bytes] = set()
    twice: set[bytes] = set()
    extra = 0
    if len(set(ids)) == len(ids):
        return 0, 0
    for row in ids:
        if row in seen:
            twice.add(row)
            extra += 1
        seen.add(row)
    return extra + len(twice), len(twice)


def parts_of(id_: bytes) -> list[str]:
    """Return the texts of the parts of an encoded id."""
    found, at = [], 0
    while at < len(id_):
        size = int.from_bytes(id_[at : at + 4], "big")
        found.append(id_[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return found


def _parts(column: pa.ChunkedArray, name: str, how: IdFormat | None) -> list[bytes]:
    texts = spelled(column, name, how or IdFormat())
    missing = pc.sum(pc.or_kleene(pc.is_null(texts), pc.equal(texts, "")), min_count=0).as_py()
    if missing:
        raise DataError(
            f"{missing} of {len(texts)} rows have no id",
            column=name,
            todo="give every row an id, or leave these rows out",
            kind="rows have no id",
        )
    rows = pc.cast(texts, pa.large_binary()).to_pylist()
    long = sum(len(row) > PART_BYTES_MAX for row in rows)
    if long:
        raise DataError(
            f"{long} of {len(rows)} ids are longer than {PART_BYTES_MAX} bytes",
            column=name,
            todo="use a shorter id column",
        )
    return [_PREFIX[len(row)] + row for row in rows]


def _canonical(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    kind = kind_of(column.type)
    if kind == "integer" or column.type in (pa.date32(), pa.date64()):
        return pc.cast(
            pc.cast(column, pa.date32()) if kind == "date" else column, pa.large_string()
        )
    if kind in ("number", "decimal"):
        return _whole_numbers(column, name)
    if kind == "text":
        texts = pc.utf8_trim_whitespace(pc.utf8_normalize(column, form="NFC"))
        digits = pc.replace_substring_regex(texts, r"^(-?(?:0|[1-9][0-9]*))\.0$", r"\1")
        return pc.replace_substring_regex(digits, r"^-0$", "0")
    if kind == "empty":
        return pc.cast(column, pa.large_string())
    raise DataError(
        f"a column of type {column.type} cannot hold ids",
        column=name,
        todo="write ids as text or whole numbers",
    )


def _formatted(texts: pa.ChunkedArray, how: IdFormat) -> pa.ChunkedArray:
    if how.strip:
        texts = pc.replace_substring_regex(texts, r"[\s\p{Z}]", "")
    if how.lower:
        texts = pc.utf8_lower(texts)
    if how.zfill:
        cells = [None if t in (None, "") else t.zfill(how.zfill) for t in texts.to_pylist()]
        texts = pa.chunked_array([pa.array(cells, pa.large_string())])
    return texts


def _whole_numbers(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Decimal digits of a float or decimal column's whole numbers; a NaN is missing."""
    if kind_of(column.type) == "decimal":
        try:
            return pc.cast(pc.cast(column, pa.decimal256(76, 0)), pa.large_string())
        except pa.ArrowInvalid:
            raise _not_whole("some", column.type, name) from None
    exact = 2.0 ** (np.finfo(column.type.to_pandas_dtype()).nmant + 1)
    values = pc.cast(column, pa.float64())
    values = pc.if_else(pc.is_nan(values), None, values)
    whole = pc.and_(pc.equal(values, pc.floor(values)), pc.less(pc.abs(values), exact))
    wrong = pc.sum(pc.invert(whole), min_count=0).as_py()
    if wrong:
        raise _not_whole(f"{wrong} of {len(column)}", column.type, name)
    return pc.cast(pc.cast(values, pa.int64()), pa.large_string())


def _not_whole(count: str, kind: pa.DataType, name: str) -> DataError:
    return DataError(
        f"{count} ids in a column of type {kind} are not whole numbers that it holds exactly",
        column=name,
        todo="write ids as text or integers",
    )
