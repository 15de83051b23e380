"""Tables drawn from a grammar, written as people write them, with what pandas or DuckDB reads."""

import bz2
import datetime as dt
import gzip
import io
import warnings
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import feather

from fedboost.data.columns import MISSING_WORDS

KINDS = ("whole", "large", "real", "word", "flag", "day")
NAMES = ("a", "größe", "通话", "x y", "a.b", "A", "it's", 'q"q', "c,d", "s;t", "v|w", "1", "_")
WORDS = ("a", "größe", "x y", "NAN a", 'q"q', "c,d", "s;t", "v|w", "two\nlines", " b", "007", "1-2")
WIDTHS = (*(1, 2, 3, 4, 5, 6) * 8, 40, 300, 3000)
PACKED = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}
SIGNS = ((".", None), (".", None), (",", None), (".", ","), (",", "."), (",", " "), (".", "'"))
DAY_ONE = dt.date(1970, 1, 1)


@dataclass
class Drawn:
    """A written table: its declaration, its columns' kinds, and a data frame of another reader."""

    declared: dict[str, Any]
    kinds: dict[str, str]
    expected: pd.DataFrame
    id: str = "id"
    said: str = ""  # about the case, where it fails


def drawn(seed: int, folder: Path, width: int | None = None) -> Drawn:
    """Draw a table and write it into a folder."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 30)) if width is None else 3
    width = int(rng.choice(WIDTHS)) if width is None else width
    kinds = _kinds(rng, width)
    cells = {name: _cells(rng, kind, rows) for name, kind in kinds.items()}
    ids = [f"r{n}" for n in rng.permutation(rows)] if rng.random() < 0.5 else list(range(rows))
    form = str(rng.choice(["csv"] * 4 + ["parquet", "parquet", "arrow", "folder"]))
    write = {"csv": _csv, "parquet": _file, "arrow": _file, "folder": _folder}[form]
    found = write(rng, folder, kinds, {"id": ids, **cells}, form)
    days = [name for name, kind in found.kinds.items() if kind == "day"]
    found.declared |= {"dates": days}
    return found


def _kinds(rng: np.random.Generator, width: int) -> dict[str, str]:
    few = list(rng.permutation(NAMES)[: min(width, len(NAMES))])
    names = [str(name) for name in few] + [f"gene_{n}" for n in range(width - len(few))]
    some = KINDS if width < 100 else ("whole", "real")
    return {name: str(rng.choice(some)) for name in names}


def _cells(rng: np.random.Generator, kind: str, rows: int) -> list[Any]:
    absent = rng.random(rows) < rng.choice([0, 0, 0.2, 1], p=[0.4, 0.2, 0.37, 0.03])
    make = {
        "whole": lambda: int(rng.integers(-(10**6), 10**6)),
        "large": lambda: int(rng.integers(10**18, 9 * 10**18)),
        "real": lambda: round(float(rng.normal(0, 10 ** rng.integers(0, 6))), 3),
        "word": lambda: str(rng.choice(WORDS)),
        "flag": lambda: bool(rng.integers(2)),
        "day": lambda: DAY_ONE + dt.timedelta(days=int(rng.integers(-30000, 2932896))),
    }[kind]
    return [None if gone else make() for gone in absent]


def _csv(
    rng: np.random.Generator, folder: Path, kinds: dict[str, str], cells: dict[str, Any], _: str
) -> Drawn:
    delimiter = str(rng.choice([",", ";", "\t", "|"]))
    codec = str(rng.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "cp1252"]))
    decimal, thousands = SIGNS[rng.integers(len(SIGNS))]
    packed, end = str(rng.choice(list(PACKED))), str(rng.choice(["\n", "\r\n"]))
    has_line, is_german = rng.random() < 0.1, rng.random() < 0.3
    if codec == "cp1252":
        cells = {name.replace("通话", "call"): column for name, column in cells.items()}
        kinds = {name.replace("通话", "call"): kind for name, kind in kinds.items()}

    def quoted(text: str) -> str:
        if set(text) & {delimiter, '"', "\n", "\r"} or text != text.strip() or rng.random() < 0.05:
            return '"' + text.replace('"', '""') + '"'
        return text

    def spelled(value: Any, kind: str) -> str:
        if value is None:
            return str(rng.choice(MISSING_WORDS))
        if kind == "real" or (kind == "whole" and thousands):
            text = f"{value:,}" if thousands else str(value)
            text = text.replace(",", "\0").replace(".", decimal).replace("\0", thousands or "")
            return quoted(text)
        if kind == "day":
            return f"{value:%d.%m.}{value.year:04}" if is_german else value.isoformat()
        return quoted(str(value))

    columns = [
        [quoted(name), *(spelled(value, kinds.get(name, "id")) for value in column)]
        for name, column in cells.items()
    ]
    lines = [f"sep={delimiter}"] if has_line else []
    lines += [delimiter.join(row) for row in zip(*columns, strict=True)]
    data = "".join(line + end for line in lines).encode(codec)
    path = folder / f"t.{'tsv' if delimiter == chr(9) else 'csv'}{packed}"
    path.write_bytes(PACKED[packed](data))
    declared: dict[str, Any] = {"path": str(path), "decimal": decimal, "thousands": thousands}
    declared |= {"delimiter": delimiter} if delimiter in ";|" and not has_line else {}
    declared |= {"encoding": codec} if codec == "cp1252" else {}
    texts = [name for name, kind in kinds.items() if kind in ("word", "day")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = pd.read_csv(
            io.BytesIO(data), sep=delimiter, encoding=codec, skiprows=int(has_line),
            decimal=decimal, thousands=thousands, keep_default_na=False,
            na_values=list(MISSING_WORDS), dtype=dict.fromkeys([*texts, "id"], str),
        )  # fmt: skip
    for name in (name for name, kind in kinds.items() if kind == "day"):
        moments = pd.to_datetime(expected[name], format="%d.%m.%Y" if is_german else "ISO8601")
        expected[name] = moments
    return Drawn(declared, kinds, expected, said=f"{declared} {codec} {end!r}")


TYPES: dict[str, tuple[Any, ...]] = {
    "whole": (pa.int32(), pa.int64(), pa.float64(), pa.decimal128(12, 2), pa.string()),
    "large": (pa.int64(), pa.uint64(), pa.decimal128(22, 0), pa.string()),
    "real": (pa.float64(), pa.string()),
    "word": (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())),
    "flag": (pa.bool_(), pa.string()),
    "day": (pa.date32(), pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us", "UTC")),
}


def _arrow(
    rng: np.random.Generator, kinds: dict[str, str], cells: dict[str, Any], types: dict[str, Any]
) -> pa.Table:
    columns = {"id": pa.array(cells["id"])}
    for name, kind in kinds.items():
        chosen = types.setdefault(name, TYPES[kind][rng.integers(len(TYPES[kind]))])
        values = cells[name]
        if pa.types.is_string(chosen):
            values = [None if value is None else str(value) for value in values]
        elif pa.types.is_decimal(chosen):
            values = [None if value is None else Decimal(value) for value in values]
        elif pa.types.is_timestamp(chosen):
            midnight = dt.time(tzinfo=dt.UTC if chosen.tz else None)
            values = [value and dt.datetime.combine(value, midnight) for value in values]
        elif pa.types.is_dictionary(chosen):
            columns[name] = pa.array(values, pa.string()).dictionary_encode()
            continue
        columns[name] = pa.array(values, chosen)
    return pa.table(columns)


def _file(
    rng: np.random.Generator, folder: Path, kinds: dict[str, str], cells: dict[str, Any], form: str
) -> Drawn:
    table = _arrow(rng, kinds, cells, {})
    path = folder / f"t.{form}"
    if form == "arrow":
        feather.write_feather(table, path, compression=str(rng.choice(["lz4", "uncompressed"])))
        return Drawn({"path": str(path)}, kinds, _in_pandas(table), said=str(table.schema))
    is_old = bool(rng.integers(2))
    pq.write_table(table, path, use_deprecated_int96_timestamps=is_old, row_group_size=7)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        read = connection.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table()
    found = _in_pandas(read.rename_columns(table.column_names))
    return Drawn({"path": str(path)}, kinds, found, said=f"{table.schema} int96 {is_old}")


def _folder(
    rng: np.random.Generator, folder: Path, kinds: dict[str, str], cells: dict[str, Any], _: str
) -> Drawn:
    rows, types = len(cells["id"]), dict[str, Any]()
    parts, tables = np.array_split(np.arange(rows), min(rows, int(rng.integers(1, 4)))), []
    (folder / "t").mkdir()
    for number, part in enumerate(parts):
        some = {name: kind for name, kind in kinds.items() if number == 0 or rng.random() < 0.7}
        chosen = {name: [column[row] for row in part] for name, column in cells.items()}
        tables.append(_arrow(rng, some, chosen, types))
        pq.write_table(tables[-1], folder / "t" / f"{number}.parquet")
    expected = pd.concat(map(_in_pandas, tables), ignore_index=True)
    return Drawn({"path": str(folder / "t")}, kinds, expected, said=f"folder of {len(parts)}")


def _in_pandas(table: pa.Table) -> pd.DataFrame:
    return pd.DataFrame({name: table.column(name).to_pylist() for name in table.column_names})
