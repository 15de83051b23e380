"""Files of a table, one or a folder of them, here or in a storage, as an Arrow dataset."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from fedboost.data.stored import (
    Stored,
    absent_error,
    check_names,
    in_batches,
    refused_error,
    unreachable_error,
)
from fedboost.ground.errors import ConfigError, DataError, FedboostError

# Words in the errors of storages, in any case: a key is refused, a table is absent.
REFUSED_WORDS = re.compile(
    r"access.?denied|forbidden|invalid_access|signature_does|expired|unauthori[sz]ed|"
    r"unrecognized_client|token|permission|credential|status 40[013]",
    re.IGNORECASE,
)
ABSENT_WORDS = re.compile(r"no_such|not.?found|does not exist|no such file", re.IGNORECASE)

SCHEMAS_AT_ONCE = 16  # that are read of a folder's files


@dataclass(frozen=True)
class FileReader:
    """Functions and options that read files of one format with Arrow."""

    title: str  # as errors have it
    format: str | ds.FileFormat  # Arrow's name of the format, or its options
    schema: Callable[[str, Any], pa.Schema]  # of a path in a file system; names may repeat
    streamed: Callable[[pa.NativeFile, list[str]], Iterator[pa.RecordBatch]]  # rows of a file
    scan: ds.FragmentScanOptions | None = None


@contextmanager
def translate_errors(source: SourceSpec, title: str) -> Iterator[None]:
    """Translate errors of Arrow and of storages.

    They become a DataError if the table is absent, may not be read, or is not of the format called
    `title`; and an UnreachableError if a storage does not answer.
    """
    try:
        yield
    except FedboostError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a name is no text
        raise _translated_error(error, title, is_remote=source.is_remote) from None


def stored_table(source: SourceSpec, files: ds.FileSystemDataset, reader: FileReader) -> Stored:
    """Return a dataset as an open table of the rows that the source chooses."""
    chosen = _row_condition(source.rows, files.schema)

    def batches(names: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the chosen rows of these columns."""
        if source.is_remote or chosen is not None:
            rows = files.to_batches(columns=names, filter=chosen, fragment_scan_options=reader.scan)
        else:
            rows = _rows_of_files(files, reader, names)
        for batch in rows:
            batch.validate(full=True)  # for instance that text is UTF-8
            yield batch

    return in_batches(files.schema, batches, lambda: int(files.count_rows(filter=chosen)))


def _rows_of_files(
    files: ds.FileSystemDataset, reader: FileReader, names: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files on this machine, one after the other."""
    for part in files.get_fragments():
        try:
            if not part.physical_schema.equals(files.schema):  # its folder or others add columns
                yield from part.to_batches(schema=files.schema, columns=names)
                continue
            for batch in reader.streamed(part.open(), names):
                yield batch.select(names)  # Arrow also reads nested columns for a.b
        except pa.ArrowException as error:
            if len(files.files) == 1:
                raise
            raise DataError(
                f"the file {Path(part.path).name} is damaged, or has values beyond the types of "
                "the folder's columns",
                todo="write it again with the columns and types of the others",
                private=str(error),
            ) from None


def _translated_error(error: Exception, title: str, *, is_remote: bool) -> FedboostError:
    private = str(error)
    if is_remote and not isinstance(error, ValueError | NotImplementedError):  # not a file's fault
        if isinstance(error, FileNotFoundError) or ABSENT_WORDS.search(private):
            return absent_error(private)
        return (
            refused_error(private) if REFUSED_WORDS.search(private) else unreachable_error(private)
        )
    return DataError(
        f"the file is not readable {title}",
        todo="write it again; check its ending and its read permissions",
        private=private,
    )


def dataset(source: SourceSpec, reader: FileReader) -> ds.FileSystemDataset:
    """Return the files of a source's path in the order of their names."""
    filesystem, path = file_system_and_path(source)
    about = filesystem.get_file_info(path)
    if about.type is pafs.FileType.NotFound:
        raise absent_error("there is nothing at its path")
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
        raise absent_error("its folder holds no files")
    common = _common_schema(inside, filesystem, path, reader)
    base = {"partitioning": "hive", "partition_base_dir": path}
    base |= {"filesystem": filesystem, "format": reader.format}
    named = ds.dataset(inside[:1], **base).schema  # also the columns in names of folders
    for field in named:
        if field.name not in common.names:
            common = common.append(field)
    return ds.dataset(inside, schema=common, **base)


def _schemas(
    paths: Sequence[str], files: Any, folder: str, reader: FileReader
) -> Iterator[tuple[str, pa.Schema]]:
    """Yield each file's name in the folder and its schema, read by several threads."""

    def read(path: str) -> tuple[str, pa.Schema]:
        """Return a file's name in the folder and its schema; a DataError if it has none."""
        name = path.removeprefix(folder).lstrip("/")
        try:
            return name, reader.schema(path, files)
        except (pa.ArrowException, OSError, ValueError) as error:
            is_here = isinstance(files, pafs.LocalFileSystem)
            if isinstance(error, OSError) and not is_here:
                raise  # of the storage
            raise DataError(
                f"the file {name} in the folder is not readable {reader.title}",
                todo="move what is no part of the table elsewhere, or begin its name with _ or .",
                private=str(error),
            ) from None

    with ThreadPoolExecutor(SCHEMAS_AT_ONCE) as pool:
        yield from pool.map(read, paths)


def _common_schema(paths: Sequence[str], files: Any, folder: str, reader: FileReader) -> pa.Schema:
    """Return all columns of all files, by name, each of a type that holds the values of all; a
    DataError names the file and the column that has none in common with those before.
    """
    common: pa.Schema | None = None
    for name, schema in _schemas(paths, files, folder, reader):
        if common is not None and schema.equals(common):
            continue
        check_names(schema.names)
        common = schema if common is None else _joined(common, schema, name)
    assert common is not None
    return common


def _joined(common: pa.Schema, schema: pa.Schema, file: str) -> pa.Schema:
    plain, other = _without_coding(common), _without_coding(schema)
    try:
        return pa.unify_schemas([plain, other], promote_options="permissive")
    except pa.ArrowException:
        for field in other:
            if field.name in plain.names:
                pair = [pa.schema([plain.field(field.name)]), pa.schema([field])]
                try:
                    pa.unify_schemas(pair, promote_options="permissive")
                except pa.ArrowException:
                    raise DataError(
                        f"column {field.name!r} has the type {field.type} in {file} and "
                        f"{plain.field(field.name).type} in files before it",
                        column=field.name,
                        todo="write it with one type in all files of the folder",
                        kind="a column has types in files of a folder that do not fit together",
                    ) from None
        raise


def _without_coding(schema: pa.Schema) -> pa.Schema:
    """Return the schema with texts as strings, however they are stored."""

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            return plain(kind.value_type)
        return pa.string() if pa.types.is_string_view(kind) else kind

    return pa.schema([field.with_type(plain(field.type)) for field in schema], schema.metadata)


def _is_hidden(path: str) -> bool:
    """Return whether a path belongs to a by-product of writing, such as ``_SUCCESS``."""
    return any(part[:1] in ("_", ".") for part in path.split("/"))


def file_system_and_path(source: SourceSpec) -> tuple[Any, str]:
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
    """Read and return the secrets of a storage; a DataError if one of them is missing."""
    texts = {}
    for name in StorageKeys.model_fields:
        reference = getattr(keys, name)
        if reference is not None:
            try:
                texts[name] = reference.read(f"keys.{name}")
            except ConfigError as error:
                raise refused_error("; ".join(error.lines())) from None
    return texts


def _row_condition(rows: Sequence[RowFilter], schema: pa.Schema) -> ds.Expression | None:
    """Return the condition that selects rows, row groups and folders; None for all rows."""
    chosen = None
    for condition in rows:
        if condition.column not in schema.names:
            raise DataError(
                f"the table has no column {condition.column!r} that 'rows' of the data set names",
                column=condition.column,
                todo="correct 'rows' of the data set",
                kind="the table lacks a column that 'rows' of its data set names",
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
                f"values in 'rows' of the data set do not fit cells of type {kind}",
                column=condition.column,
                todo="correct 'rows' of the data set",
                kind="values in 'rows' of a data set do not fit their column",
            ) from None
        for part in parts:
            chosen = part if chosen is None else chosen & part
    return chosen
