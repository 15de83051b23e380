"""Kinds of tables, storages and engines, with one record and one file for each.

A new one is a module beside these and an entry in `FORMATS`, `STORAGES` or `ENGINES`. No module
outside this package compares their names.

Modules:
    arrow       Arrow's own files and Feather: a file or a folder
    csv         text with commas, whose cells are text
    delta       tables of Delta Lake, by their log
    duckdb      DuckDB: a file, or files that a query names
    flight_sql  databases that speak Flight SQL
    gs          Google's storage
    hdfs        Hadoop's storage
    kind        the records
    parquet     parquet: a file or a folder
    postgresql  PostgreSQL
    query       answers to queries
    s3          S3 and storages that speak it
    sqlite      a file of SQLite
    svmlight    sparse tables as text
    unknown     files of unknown format
"""

from __future__ import annotations

from pathlib import Path

from fedboost.data.kinds import (
    arrow,
    csv,
    delta,
    duckdb,
    flight_sql,
    gs,
    hdfs,
    parquet,
    postgresql,
    query,
    s3,
    sqlite,
    svmlight,
    unknown,
)
from fedboost.data.kinds.kind import AddressScheme, Engine, SourceKind, Storage

FORMATS: dict[str, SourceKind] = {
    kind.name: kind
    for kind in (
        csv.CSV_KIND,
        parquet.PARQUET_KIND,
        svmlight.SVMLIGHT_KIND,
        delta.DELTA_KIND,
        arrow.ARROW_KIND,
    )
}
STORAGES: dict[str, Storage] = {
    storage.scheme: storage for storage in (s3.S3_STORAGE, gs.GS_STORAGE, hdfs.HDFS_STORAGE)
}
ENGINES: dict[str, Engine] = {
    engine.scheme: engine
    for engine in (
        *(sqlite.SQLITE_ENGINE, duckdb.DUCKDB_ENGINE, postgresql.POSTGRESQL_ENGINE),
        *(flight_sql.OPEN_ENGINE, flight_sql.TLS_ENGINE),
    )
}
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".zst")
FOLDER_FORMAT = parquet.PARQUET_KIND  # of a path without an ending
QUERY = query.QUERY_KIND
UNKNOWN_FORMAT = unknown.UNKNOWN_KIND


def kind_of_suffix(suffix: str) -> SourceKind:
    """Return the kind of files with a suffix, in any case; `UNKNOWN_FORMAT` if no kind has it."""
    ending = suffix.lower()
    return next((kind for kind in FORMATS.values() if ending in kind.suffixes), UNKNOWN_FORMAT)


def suffix_of(path: Path) -> str:
    """Return a path's suffix in lower case, without one of a compression that its kind reads."""
    inner = path.with_suffix("").suffix.lower()
    is_compressed = (
        path.suffix.lower() in COMPRESSED_SUFFIXES and kind_of_suffix(inner).is_compressible
    )
    return inner if is_compressed else path.suffix.lower()


def address_scheme(scheme: str | None) -> AddressScheme:
    """Return the record of addresses with a scheme or alias; an empty one for an unknown scheme."""
    every = (*STORAGES.values(), *ENGINES.values())
    known = (place for place in every if scheme in (place.scheme, *place.aliases))
    return next(known, AddressScheme(scheme=scheme or ""))


def titles_with(setting: str) -> str:
    """Return the titles of the formats that take a setting, joined as in a sentence."""
    *some, last = [kind.title for kind in FORMATS.values() if setting in kind.settings]
    return f"{', '.join(some)} and {last}" if some else last
