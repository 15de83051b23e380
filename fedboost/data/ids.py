"""Ids: one byte string per row, the same on every party for any types of columns.

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

from fedboost.data.columns import decoded_column, kind_of
from fedboost.data.sources import IdFormat
from fedboost.ground.errors import DataError
from fedboost.ground.ids import LENGTH_BYTES, EncodedIds, frame_ids

ID_PART_BYTES_MAX = 1024  # a longer id is a document, and sending it is no use
SIGN = r"^[+-]"
BLANKS = " \t\n\f\r"  # of ASCII, inside a text


def encode_ids(
    columns: Sequence[pa.ChunkedArray], names: Sequence[str], how: IdFormat | None = None
) -> EncodedIds:
    """Return the n ids in one or several columns of n cells, each column a part of the id.

    DataError if a cell is missing, a type cannot name rows, or a float column holds a fraction or a
    number that its type cannot count exactly. Whether ids differ is not checked here.
    """
    return frame_ids(*(_id_part(*column, how) for column in zip(columns, names, strict=True)))


def id_texts(column: pa.ChunkedArray, name: str, how: IdFormat) -> pa.ChunkedArray:
    """Return the texts of an id column in the spelling `how`; errors as in `encode_ids`."""
    return _formatted_texts(_canonical_texts(decoded_column(column), name), how)


def shared_ids(ids: EncodedIds) -> tuple[int, int]:
    """Return how many rows share their id with another row, and how many ids they share."""
    hashes = ids.hashes()
    hashes.sort()
    if (hashes[1:] != hashes[:-1]).all():  # the usual case, in a quarter of the memory
        return 0, 0
    first = ids.first()
    again = first[first != np.arange(len(ids))]
    shared = len(np.unique(again))
    return len(again) + shared, shared


def refuse_shared(ids: EncodedIds, names: Sequence[str], n_rows: int) -> None:
    """Raise a DataError if ids, read from columns `names` of `n_rows` rows, are equal."""
    rows, shared = shared_ids(ids)
    if rows:
        raise DataError(
            f"{rows} of {n_rows} rows share their id with another row ({shared} ids)",
            column=", ".join(names),
            todo="leave one row per id, or name more id columns",
            kind="rows share their id with another row",
        )


def parts_of(id_: bytes) -> list[str]:
    """Return the texts of the parts of an encoded id."""
    parts, at = [], 0
    while at < len(id_):
        size = int.from_bytes(id_[at : at + LENGTH_BYTES], "big")
        at += LENGTH_BYTES + size
        parts.append(id_[at - size : at].decode())
    return parts


def _id_part(column: pa.ChunkedArray, name: str, how: IdFormat | None) -> EncodedIds:
    texts = id_texts(column, name, how or IdFormat())
    missing = pc.sum(pc.or_kleene(pc.is_null(texts), pc.equal(texts, "")), min_count=0).as_py()
    if missing:
        raise DataError(
            f"{missing} of {len(texts)} rows have no id",
            column=name,
            todo="give every row an id, or leave these rows out",
            kind="rows have no id",
        )
    rows = _ids_of_texts(texts.combine_chunks())
    long = int((rows.sizes > ID_PART_BYTES_MAX).sum())
    if long:
        raise DataError(
            f"{long} of {len(rows)} ids are longer than {ID_PART_BYTES_MAX} bytes",
            column=name,
            todo="use a shorter id column",
        )
    return rows


def _ids_of_texts(texts: pa.LargeStringArray) -> EncodedIds:
    """Return texts, with none missing, as ids that share Arrow's memory."""
    _, offsets, data = texts.buffers()
    if not len(texts):
        return EncodedIds.of([])
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    cells = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    return EncodedIds(cells, ends - ends[0] if ends[0] else ends)


def _canonical_texts(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    kind = kind_of(column.type)
    if kind == "integer" or column.type in (pa.date32(), pa.date64()):
        return pc.cast(
            pc.cast(column, pa.date32()) if kind == "date" else column, pa.large_string()
        )
    if kind in ("number", "decimal"):
        return _whole_numbers(column, name)
    if kind == "text":
        # Each guard saves a copy of the column: normal form C leaves ASCII as it is.
        if not pc.all(pc.string_is_ascii(column)).as_py():
            column = pc.utf8_normalize(column, form="NFC")
        texts = pc.utf8_trim_whitespace(column)
        if pc.equal(*(pc.sum(pc.binary_length(c)) for c in (texts, column))).as_py():
            texts = column
        if pc.any(pc.ends_with(texts, ".0")).as_py():
            texts = pc.replace_substring_regex(texts, r"^(-?(?:0|[1-9][0-9]*))\.0$", r"\1")
        if pc.any(pc.equal(texts, "-0")).as_py():
            texts = pc.if_else(pc.equal(texts, "-0"), "0", texts)
        return texts
    if kind == "empty":
        return pc.cast(column, pa.large_string())
    raise DataError(
        f"a column of type {column.type} cannot hold ids",
        column=name,
        todo="write ids as text or whole numbers",
    )


def _formatted_texts(texts: pa.ChunkedArray, how: IdFormat) -> pa.ChunkedArray:
    if how.strip:
        for blank in BLANKS:  # three times as fast as one expression
            if pc.any(pc.match_substring(texts, blank)).as_py():
                texts = pc.replace_substring(texts, blank, "")
        if not pc.all(pc.string_is_ascii(texts)).as_py():
            texts = pc.replace_substring_regex(texts, r"\p{Z}", "")
    if how.lower:
        texts = pc.utf8_lower(texts)
    if how.zfill:
        texts = pc.if_else(pc.equal(texts, ""), texts, _zeros_before(texts, how.zfill))
    return texts


def _zeros_before(texts: pa.ChunkedArray, width: int) -> pa.ChunkedArray:
    """Return texts with zeros before them, after any sign, up to `width` characters."""
    filled, signed = pc.utf8_lpad(texts, width, "0"), pc.match_substring_regex(texts, SIGN)
    if not pc.any(signed).as_py():
        return filled
    digits = pc.utf8_lpad(pc.utf8_slice_codeunits(texts, 1), width - 1, "0")
    sign = pc.utf8_slice_codeunits(texts, 0, 1)
    nothing = pa.scalar("", pa.large_string())
    return pc.if_else(signed, pc.binary_join_element_wise(sign, digits, nothing), filled)


def _whole_numbers(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return the whole numbers of a float or decimal column as digits; NaN is missing."""
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
