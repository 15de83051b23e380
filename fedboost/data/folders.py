"""Files of a table: one or a folder's, here or in a storage, as one of Arrow's datasets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from fedboost.data import kinds
from fedboost.data.sources import RowFilter, SourceSpec, StorageKeys
from fedboost.data.stored import Stored, absent, gone, in_batches, refused
from fedboost.ground.errors import ConfigError, DataError, FedboostError

# Of what a storage says, in any case: a key is refused, a table is not there.
REFUSED = re.compile(
    r"access.?denied|forbidden|invalid_access|signature_does|expired|unauthori[sz]ed|"
    r"unrecognized_client|token|permission|credential|status 40[013]",
    re.IGNORECASE,
)
ABSENT = re.compile(r"no_such|not.?found|does not exist|no such file", re.IGNORECASE)


@dataclass(frozen=True)
class FileReader:
    """How Arrow reads files of one format."""

    format: str  # as datasets call it
    schema: Callable[[str, Any], pa.Schema]  # of a path in a file system; names may be twice
    streamed: Callable[[pa.NativeFile, list[str]], Iterator[pa.RecordBatch]]  # rows of a file
    scan: ds.FragmentScanOptions | None = None


@contextmanager
def refusing(source: SourceSpec, title: str) -> Iterator[None]:
    """Within it, what Arrow and storages say becomes a DataError where the table is absent, no
    table of the format called `title`, or may not be read; an UnreachableError where a storage
    does not answer.
    """
    try:
        yield
    except FedboostError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:  # also of names that are no text
        raise _said(error, title, is_remote=source.is_remote) from None


def stored(source: SourceSpec, files: ds.Dataset, reader: FileReader) -> Stored:
    """Return a dataset as an open table; of its rows, those that the source chooses."""
    chosen = _expression(source.rows, files.schema)

    def batches(names: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the chosen rows of these columns."""
        if source.is_remote or chosen is not None:
            rows = files.to_batches(columns=names, filter=chosen, fragment_scan_options=reader.scan)
        else:
            rows = _streamed(files, reader, names)
        for batch in rows:
            batch.validate(full=True)  # for instance that text is UTF-8
            yield batch

    return in_batches(files.schema, batches, lambda: int(files.count_rows(filter=chosen)))


def _streamed(files: ds.Dataset, reader: FileReader, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files on this machine, one after the other."""
    for part in files.get_fragments():
        if not part.physical_schema.equals(files.schema):  # the rest is in its folder's name
            yield from part.to_batches(schema=files.schema, columns=names)
            continue
        for batch in reader.streamed(part.open(), names):
            yield batch.select(names)  # a name with a point leads to other columns, too


def _said(error: Exception, title: str, *, is_remote: bool) -> FedboostError:
    private = str(error)
    if is_remote and not isinstance(error, ValueError | NotImplementedError):  # no faults of files
        if isinstance(error, FileNotFoundError) or ABSENT.search(private):
            return absent(private)
        return refused(private) if REFUSED.search(private) else gone(private)
    return DataError(
        f"the file is not readable {title}",
        todo="write it again; check its ending and who may read it",
        private=private,
    )


def dataset(source: SourceSpec, reader: FileReader) -> ds.Dataset:
    """Return the files of a source's path in the order of their names."""
    filesystem, path = storage(source)
    about = filesystem.get_file_info(path)
    if about.type is pafs.FileType.NotFound:
        raise absent("there is nothing at its path")
    if about.type is pafs.FileType.File:
        schema = reader.schema(path, filesystem)
        return ds.dataset([path], schema=schema, filesystem=filesystem, format=reader.format)
    entries = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
    inside = [entry.path for entry in entries if entry.type is pafs.FileType.File]
    inside = [file for file in sorted(inside) if not _is_hidden(file.removeprefix(path))]
    for kind in kinds.FORMATS.values():
        if kind.log and any(f"/{kind.log}/" in entry.path for entry in entries):
            raise ConfigError(
                f"the folder is a {kind.title} table", todo=f"write: format: {kind.name}"
            )
    if not inside:
        raise absent("its folder holds no files")
    base = {"partitioning": "hive", "partition_base_dir": path}
    return ds.dataset(inside, filesystem=filesystem, format=reader.format, **base)


def _is_hidden(path: str) -> bool:
    """Return True for what writers leave beside tables, such as ``_SUCCESS``."""
    return any(part[:1] in ("_", ".") for part in path.split("/"))


def storage(source: SourceSpec) -> tuple[Any, str]:
    """Return the file system of a source's path, and the path in it."""
    place = source.storage
    if place is None:
        return pafs.LocalFileSystem(), str(Path(source.path or "").absolute())
    parts = urlsplit(source.path or "")
    options = dict(parse_qsl(parts.query))
    wrong = sorted({*options} - {*(options if place.options is None else place.options)})
    if wrong:
        raise ConfigError(
            f"path: {place.scheme}:// knows no option {wrong[0]!r}",
            todo=f"write: {', '.join(place.options or ())}",
        )
    return place.opened(source, f"{parts.hostname}{parts.path}".rstrip("/"), options)


def key_texts(keys: StorageKeys) -> dict[str, str]:
    """Return the secrets themselves, read now; a DataError where one is not there."""
    texts = {}
    for name in StorageKeys.model_fields:
        reference = getattr(keys, name)
        if reference is not None:
            try:
                texts[name] = reference.read(f"keys.{name}")
            except ConfigError as error:
                raise refused("; ".join(error.lines())) from None
    return texts


def _expression(rows: Sequence[RowFilter], schema: pa.Schema) -> ds.Expression | None:
    """Return the condition that rows, row groups and folders are chosen by; None for all rows."""
    chosen = None
    for condition in rows:
        if condition.column not in schema.names:
            raise DataError(
                f"the table has no column {condition.column!r}, by which its rows are chosen",
                column=condition.column,
                todo="correct 'rows' of the data set",
                kind="the table lacks a column by which its rows are chosen",
            )
        kind, field = schema.field(condition.column).type, ds.field(condition.column)
        try:
            if condition.one_of is not None:
                parts = [field.isin(pa.array(condition.one_of).cast(kind))]
            else:
                low, high = condition.at_least, condition.below
                parts = [field >= pa.scalar(low).cast(kind)] if low is not None else []
                parts += [field < pa.scalar(high).cast(kind)] if high is not None else []
        except (pa.ArrowException, NotImplementedError):
            raise DataError(
                f"the values by which rows are chosen do not fit cells of type {kind}",
                column=condition.column,
                todo="correct 'rows' of the data set",
                kind="the values by which rows are chosen do not fit their column",
            ) from None
        for part in parts:
            chosen = part if chosen is None else chosen & part
    return chosen
