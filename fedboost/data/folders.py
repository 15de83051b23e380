"""Parquet and Delta tables: a file or a folder, here or in a storage (S3, Google, Hadoop)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from fedboost.data.frame import BATCH_ROWS
from fedboost.data.sources import RowFilter, SourceSpec, StorageKeys
from fedboost.data.stored import Stored, absent, gone, missing_extra, refused
from fedboost.ground.errors import ConfigError, DataError, FedboostError

LOG = "_delta_log"
# Of what a storage says, in any case: a key is refused, a table is not there.
REFUSED = re.compile(
    r"access.?denied|forbidden|invalid_access|signature_does|expired|unauthori[sz]ed|"
    r"unrecognized_client|token|permission|credential|status 40[013]",
    re.IGNORECASE,
)
ABSENT = re.compile(r"no_such|not.?found|does not exist|no such file", re.IGNORECASE)
CONNECT_S = 10.0
BUFFER_BYTES = 1 << 20  # of each column that is read
OPTIONS = {"s3": ("region", "scheme", "endpoint_override"), "gs": ("scheme", "endpoint_override")}


@contextmanager
def opened(source: SourceSpec) -> Iterator[Stored]:
    """The table of a `path`, whose rows have the order of its files' names.

    DataError where it is absent, no table, or may not be read; UnreachableError where its storage
    does not answer.
    """
    try:
        dataset = _dataset(source)
        chosen = _expression(source.rows, dataset.schema)

        def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
            """Yield the chosen rows of these columns."""
            if source.is_remote or chosen is not None:
                # Fetched ahead, a whole file would be in memory; only from afar it is.
                how = ds.ParquetFragmentScanOptions(pre_buffer=source.is_remote)
                rows = dataset.to_batches(
                    columns=list(names), filter=chosen, fragment_scan_options=how
                )
            else:
                rows = _streamed(dataset, list(names))
            for batch in rows:
                batch.validate(full=True)  # for instance that text is UTF-8
                yield batch

        yield Stored(dataset.schema, batches, lambda: int(dataset.count_rows(filter=chosen)))
    except FedboostError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:  # also of names that are no text
        raise _said(error, is_remote=source.is_remote) from None


def _streamed(dataset: ds.Dataset, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files on this machine; a scanner would hold whole row groups, and several
    ahead of the one that is wanted.
    """
    for part in dataset.get_fragments():
        if not part.physical_schema.equals(dataset.schema):  # the rest is in its folder's name
            yield from part.to_batches(schema=dataset.schema, columns=names)
            continue
        with pq.ParquetFile(part.open(), pre_buffer=False, buffer_size=BUFFER_BYTES) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=names):
                yield batch.select(names)  # a name with a point leads to other columns, too


def _said(error: Exception, *, is_remote: bool) -> FedboostError:
    private = str(error)
    if is_remote and not isinstance(error, ValueError | NotImplementedError):  # no faults of files
        if isinstance(error, FileNotFoundError) or ABSENT.search(private):
            return absent(private)
        return refused(private) if REFUSED.search(private) else gone(private)
    return DataError(
        "the file is not readable parquet",
        todo="write it again; check its ending and who may read it",
        private=private,
    )


def _dataset(source: SourceSpec) -> ds.Dataset:
    filesystem, path = storage(source)
    if source.kind == "delta":
        return _delta(source, pafs.SubTreeFileSystem(path, filesystem))
    about = filesystem.get_file_info(path)
    if about.type is pafs.FileType.NotFound:
        raise absent("there is nothing at its path")
    if about.type is pafs.FileType.File:
        schema = pq.read_schema(path, filesystem=filesystem)  # also one with names that are twice
        return ds.dataset([path], schema=schema, filesystem=filesystem, format="parquet")
    entries = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
    inside = [entry.path for entry in entries if entry.type is pafs.FileType.File]
    inside = [file for file in sorted(inside) if not _is_hidden(file.removeprefix(path))]
    if any(f"/{LOG}/" in entry.path for entry in entries):
        raise ConfigError("the folder is a Delta table", todo="write: format: delta")
    if not inside:
        raise absent("its folder holds no files")
    base = {"partitioning": "hive", "partition_base_dir": path}
    return ds.dataset(inside, filesystem=filesystem, format="parquet", **base)


def _is_hidden(path: str) -> bool:
    """Return True for what writers leave beside tables, such as ``_SUCCESS``."""
    return any(part[:1] in ("_", ".") for part in path.split("/"))


def storage(source: SourceSpec) -> tuple[Any, str]:
    """Return the file system of a source's path, and the path in it."""
    if not source.is_remote:
        return pafs.LocalFileSystem(), str(Path(source.path or "").absolute())
    parts = urlsplit(source.path or "")
    path = f"{parts.hostname}{parts.path}".rstrip("/")
    options = dict(parse_qsl(parts.query))
    wrong = sorted({*options} - {*OPTIONS.get(parts.scheme, options)})
    if wrong:
        raise ConfigError(
            f"path: {parts.scheme}:// knows no option {wrong[0]!r}",
            todo=f"write: {', '.join(OPTIONS[parts.scheme])}",
        )
    if parts.scheme == "s3":
        keys = {} if source.keys is None else key_texts(source.keys)
        return pafs.S3FileSystem(connect_timeout=CONNECT_S, **options, **keys), path
    if parts.scheme == "gs":
        retried = timedelta(seconds=source.silence_s / 2)
        return pafs.GcsFileSystem(retry_time_limit=retried, **options), path
    try:
        return pafs.FileSystem.from_uri(source.path)
    except OSError as error:
        if "libjvm" in str(error) or "libhdfs" in str(error):
            raise ConfigError(
                "hdfs:// needs Hadoop's own library (libhdfs) and Java on the party's machine",
                todo="install them, and set HADOOP_HOME and CLASSPATH",
                private=str(error),
            ) from None
        raise


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


def _delta(source: SourceSpec, inside: Any) -> ds.Dataset:
    """The files that a Delta table's log names; the log is read by `deltalake`."""
    try:
        import deltalake
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise missing_extra("delta", "a Delta table") from None
    parts = urlsplit(source.path or "")
    place = f"{parts.scheme}://{parts.netloc}{parts.path}" if source.is_remote else source.path
    try:
        table = deltalake.DeltaTable(
            str(place), version=source.version, storage_options=_delta_options(source)
        )
        return table.to_pyarrow_dataset(filesystem=inside)
    except (DeltaError, OSError) as error:
        if source.is_remote and isinstance(error, OSError):
            raise  # of the storage
        if type(error).__name__ == "TableNotFoundError" or source.version is not None:
            raise absent(str(error)) from None
        raise DataError(
            "the Delta table cannot be read",
            todo="see the log; a feature it uses may be unknown: write it out as parquet",
            kind="the table cannot be read",
            private=str(error),
        ) from None


def _delta_options(source: SourceSpec) -> dict[str, str]:
    """Return what `deltalake` calls the options and keys of an S3 path."""
    parts = urlsplit(source.path or "")
    options = dict(parse_qsl(parts.query))
    if parts.scheme != "s3":
        return {}
    named = {"aws_region": options.get("region")}
    if "endpoint_override" in options:
        scheme = options.get("scheme", "https")
        named["aws_endpoint"] = f"{scheme}://{options['endpoint_override']}"
        named["aws_allow_http"] = str(scheme == "http").lower()
    keys = {} if source.keys is None else key_texts(source.keys)
    named |= {
        "aws_access_key_id": keys.get("access_key"),
        "aws_secret_access_key": keys.get("secret_key"),
        "aws_session_token": keys.get("session_token"),
    }
    return {"max_retries": "3"} | {name: text for name, text in named.items() if text is not None}


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
