"""Sources of a party's tables, as its file declares them; `reading` reads them."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias, get_args
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, model_validator

from fedboost.data import kinds
from fedboost.data.addresses import (
    SECRET_PARAMETERS,
    file_of,
    has_raw_login,
    location_of,
    password_of,
    scheme_of,
)
from fedboost.data.kinds import ENGINES, FORMATS, STORAGES
from fedboost.data.kinds.kind import SourceKind, Storage
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import PathText, SecretReference, Settings, load_settings

if TYPE_CHECKING:
    Format: TypeAlias = str
else:
    Format = Literal[tuple(FORMATS)]
# A number that means missing; it is compared as a 32-bit float.
MissingValue = Annotated[float | None, Field(allow_inf_nan=False)]
GROUPS_MAX = 1 << 16  # of a column: more than any bins of a job
GroupCount = Annotated[int, Field(ge=2, le=GROUPS_MAX)]
LabelValues = Annotated[list[bool | int | float | str], Field(min_length=2, max_length=1000)]
DatasetRole = Literal["guest", "host"]
Cell: TypeAlias = bool | int | float | str
FILES_MAX = 100  # of a folder, enough to recognize a table


class IdFormat(Settings):
    """Rules that give ids the spelling of other parties before they are compared."""

    strip: bool = False  # leave out blanks inside, too; those around are never counted
    lower: bool = False  # write capital letters small
    zfill: int = Field(0, ge=0, le=64)  # put zeros before ids with fewer characters; 0: none


class StorageKeys(Settings):
    """Key to an S3 storage."""

    access_key: SecretReference
    secret_key: SecretReference
    session_token: SecretReference | None = None  # of keys that expire


class RowFilter(Settings):
    """Condition on the rows to read: a column holds one of some values, or values of a range."""

    column: str
    one_of: list[Cell] | None = None
    at_least: Cell | None = None  # a date is written 2024-01-31
    below: Cell | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if (self.one_of is None) == (self.at_least is None and self.below is None):
            raise ValueError("rows are chosen by 'one_of', or by 'at_least' and 'below'")
        return self


class Connection(Settings):
    """Address of the database that answers a query: written here, or a reference to a secret.

    The engines are SQLite (``sqlite:///FILE``), DuckDB (``duckdb:///FILE``, or ``duckdb:`` for
    files that the query names), PostgreSQL (``postgresql://…``), Flight SQL (``grpc+tls://…``).
    """

    url: PathText | None = None  # without a password
    env: str | None = None  # a variable of the daemon that holds the address
    file: PathText | None = None  # a file that holds only the address

    @model_validator(mode="after")
    def _one_and_open(self) -> Self:
        if [self.url, self.env, self.file].count(None) != 2:
            raise ValueError("a connection has one of 'url', 'env' and 'file'")
        if self.url is not None:
            check_no_password(self.url, ENGINES)
        return self

    @property
    def _secret(self) -> SecretReference:
        return SecretReference(env=self.env, file=self.file)

    def __str__(self) -> str:
        """The address without a secret, or the reference to it."""
        return self.url or str(self._secret)

    def read(self) -> str:
        """Return the address with its secret; a ConfigError if it is unreadable or invalid."""
        if self.url is not None:
            return self.url
        address = self._secret.read("connection")
        if scheme_of(address) not in ENGINES:
            raise ConfigError(
                f"connection: {self} holds no address of a database",
                todo=f"write an address that begins with: {', '.join(ENGINES)}",
            )
        if has_raw_login(address):
            raise ConfigError(
                f"connection: {self} holds a password with an @, a / or the like as it is",
                todo="write such characters as in %40, so that the database reads them as meant",
            )
        return address


class SourceSpec(Settings):
    """A data set as a party's file declares it: a `path` or `sql`, and the parts that jobs may use.

    A job chooses among the declared parts; it is refused before it is signed if it names others.
    """

    path: PathText | None = None  # a file, a folder of files, or s3://, gs://, hdfs://
    format: Format | None = None  # absent: by the path's ending; without one parquet
    rows: list[RowFilter] = Field(default_factory=list)  # of parquet, Delta, Arrow; absent: all
    version: int | None = Field(None, ge=0)  # of a Delta table; absent: the newest
    keys: StorageKeys | None = None  # of s3://; absent: those of the daemon's machine
    delimiter: Literal[",", ";", "\t", "|"] | None = None  # of csv; absent: by its ending
    encoding: str | None = None  # of csv, such as cp1252; absent: UTF-8, or UTF-16 by its mark
    sql: str | None = Field(None, min_length=1, repr=False)  # one SELECT
    connection: Connection | None = None  # the database that answers the query
    silence_s: float = Field(60.0, gt=0.0)  # longest wait for rows before a source counts as gone
    id: list[str] = Field(default_factory=lambda: ["id"], min_length=1)  # they name a row, together
    id_format: IdFormat = IdFormat()  # how their cells are read
    decimal: Literal[".", ","] = "."  # sign before the decimals of numbers in text cells
    # Sign between groups of three digits in text cells.
    thousands: Literal[",", ".", " ", "'"] | None = None
    dates: list[str] = Field(default_factory=list)  # columns read as days, month and weekday
    missing: MissingValue = None  # of features, beside empty cells and NaN
    columns: list[str] | None = None  # features; absent: all but those of id, labels and weights
    labels: list[str] = Field(default_factory=list)  # columns that jobs may learn
    label_values: LabelValues | None = None  # classes of the one label, unless a job lists them
    weights: list[str] = Field(default_factory=list)  # columns that may say how much a row counts
    roles: list[DatasetRole] = Field(
        default_factory=lambda: list(get_args(DatasetRole)), min_length=1
    )  # of ours
    peers: list[str] | None = None  # parties allowed in jobs on it; absent: as in the policy
    # Groups of values that jobs may tell apart in each column, fixed by the first job; null: all.
    bins_max: int | None = Field(32, ge=2, le=GROUPS_MAX)
    column_bins_max: dict[str, GroupCount] = Field(default_factory=dict)  # of single columns

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.sql is None):
            raise ValueError("a data set has either 'path' or 'sql'")
        if (self.sql is None) != (self.connection is None):
            raise ValueError("'sql' and 'connection' belong together")
        if self.path is None and (self.format or self.rows or self.keys):
            raise ValueError("'format', 'rows' and 'keys' belong to 'path', not to 'sql'")
        if self.version is not None and "version" not in self.kind.settings:
            names = [name for name, kind in FORMATS.items() if "version" in kind.settings]
            raise ValueError(f"'version' belongs to 'format: {' | '.join(names)}'")
        if self.rows and "rows" not in self.kind.settings:
            raise ValueError(f"'rows' belongs to {kinds.titles_with('rows')} tables")
        for key in ("delimiter", "encoding"):
            if getattr(self, key) is not None and key not in self.kind.settings:
                raise ValueError(f"{key!r} belongs to {kinds.titles_with(key)} tables")
        if self.path is not None and "://" in self.path:
            check_no_password(self.path, STORAGES)
        if self.keys is not None and (self.storage is None or "keys" not in self.storage.settings):
            schemes = [f"{s.scheme}://" for s in STORAGES.values() if "keys" in s.settings]
            raise ValueError(f"'keys' belongs to a path that begins with {' or '.join(schemes)}")
        return self

    @model_validator(mode="after")
    def _encoding_exists(self) -> Self:
        try:
            "".encode(self.encoding or "utf-8")
        except LookupError:
            raise ValueError(
                f"there is no encoding {self.encoding!r}: cp1252, latin-1 and utf-16 are some"
            ) from None
        return self

    @model_validator(mode="after")
    def _ids_are_nothing_else(self) -> Self:
        other = {*(self.columns or []), *self.labels, *self.weights}
        both = sorted({*self.id} & other)
        if both:
            raise ValueError(f"column {both[0]!r} is an id column: it can be nothing else")
        return self

    @model_validator(mode="after")
    def _signs_differ(self) -> Self:
        if self.thousands == self.decimal:
            raise ValueError("'thousands' and 'decimal' are one sign: write two")
        return self

    @model_validator(mode="after")
    def _values_of_one_label(self) -> Self:
        if self.label_values is not None and len(self.labels) != 1:
            raise ValueError(f"label_values needs one column in 'labels', not {len(self.labels)}")
        return self

    @property
    def kept_back(self) -> tuple[str, ...]:
        """Columns that are no features unless `columns` names them."""
        return (*self.id, *self.labels, *self.weights)

    @property
    def has_signs(self) -> bool:
        """Return True if numbers may be written with other signs than a decimal point."""
        return self.decimal != "." or self.thousands is not None

    @property
    def signs(self) -> tuple[str, str | None]:
        """Return the signs before decimals and between thousands; a point between these where
        decimals have a comma.
        """
        return self.decimal, "." if self.decimal == "," and not self.thousands else self.thousands

    def groups_of(self, column: str) -> int | None:
        """Return how many groups of a column's values jobs may tell apart; None: all values."""
        return self.column_bins_max.get(column, self.bins_max)

    @property
    def groups_at_most(self) -> int | None:
        """Largest number of groups that jobs may tell apart in a column; None: any number."""
        limits = [self.bins_max, *self.column_bins_max.values()]
        return None if None in limits else max(limit for limit in limits if limit is not None)

    @property
    def kind(self) -> SourceKind:
        """Kind of the table: by its format or its path's ending, or the answer to a query.

        A path without an ending is a folder, and so is a path in a storage with an unknown ending.
        """
        if self.path is None:
            return kinds.QUERY
        if self.format is not None:
            return FORMATS[self.format]
        place = Path(urlsplit(self.path).path if self.is_remote else self.path)
        ending = kinds.suffix_of(place)
        found = kinds.kind_of_suffix(ending) if ending else kinds.FOLDER_FORMAT
        return kinds.FOLDER_FORMAT if self.is_remote and found is kinds.UNKNOWN_FORMAT else found

    @property
    def storage(self) -> Storage | None:
        """Storage that the path leads to; None if it leads to this machine's disk."""
        return None if self.path is None else STORAGES.get(scheme_of(self.path) or "")

    @property
    def is_remote(self) -> bool:
        """Whether the path leads to another machine's storage."""
        return self.storage is not None

    @property
    def file(self) -> Path | None:
        """Path on this machine's disk; None if the table is elsewhere."""
        return None if self.path is None or self.is_remote else Path(self.path)

    @property
    def name(self) -> str:
        """File name without its folders, which errors may show to the other parties."""
        place = self.path if self.connection is None else self.connection.url
        if place is None:
            return "a query's answer"
        parts = urlsplit(place)
        return Path(f"{parts.netloc}{parts.path}" if self.is_remote else place).name

    @property
    def identity(self) -> str:
        """Location as 32 hex digits: equal for the same file, object or connection as declared.

        Secrets and options beside it do not count. See `identity_marks`.
        """
        if self.path is not None:
            place = location_of(self.path) if self.is_remote else _resolved_path(Path(self.path))
        else:
            assert self.connection is not None
            place = _normal_address(str(self.connection))
        return location_digest(place)

    def identity_marks(self) -> frozenset[str]:
        """Return other identities of the table, in the form of `identity`.

        They are the files that are read now and other spellings of its address. Tables that share a
        mark are one table.
        """
        if self.path is not None and not self.is_remote:
            # Keep the declared path: it may be a link that leads to another file every day.
            return frozenset(
                {location_digest(str(Path(self.path).absolute())), *_file_marks(Path(self.path))}
            )
        marks = {location_digest(str(self.path or self.connection))}  # the mark in earlier versions
        if self.connection is not None:
            with suppress(ConfigError):
                address = self.connection.read()
                file = file_of(address)
                marks |= {
                    location_digest(_normal_address(address)),
                    *(() if file is None else _file_marks(file)),
                }
        return frozenset(marks)

    def folder_identities(self) -> frozenset[str]:
        """Return the identities of tables that are folders around this one."""
        if self.path is None:
            return frozenset()
        place = location_of(self.path) if self.is_remote else _resolved_path(Path(self.path))
        ends = (at for at, letter in enumerate(place) if letter == "/")
        return frozenset(location_digest(place[:end]) for end in ends)


def location_digest(place: str) -> str:
    """Return a location as 32 hex digits."""
    return hashlib.sha256(place.encode()).hexdigest()[:32]


def _resolved_path(path: Path) -> str:
    return str(path.resolve())


def _normal_address(address: str) -> str:
    """Return an address of a database in one spelling; a reference to one unchanged."""
    if scheme_of(address) not in ENGINES:
        return address
    file = file_of(address)
    if file is not None:
        return _resolved_path(file)
    return location_of(address) if "://" in address else address


def _file_marks(path: Path) -> Iterator[str]:
    """Yield the marks of the files of a local table: path, and identity on the disk.

    Hard links share the identity on the disk; a file that replaces another has a new one.
    """
    try:
        real = path.resolve()
        inside = sorted(islice(real.rglob("*"), FILES_MAX)) if real.is_dir() else [real]
        for file in inside:
            about = file.stat()
            if stat.S_ISREG(about.st_mode):
                yield location_digest(_resolved_path(file) if file.is_symlink() else str(file))
                yield location_digest(f"file {about.st_dev} {about.st_ino} {about.st_mtime_ns}")
    except OSError:  # absent or unreadable: the job ends for that reason
        return


def check_no_password(address: str, schemes: Collection[str]) -> None:
    """Raise a ValueError for an address of another scheme, or with a password."""
    if scheme_of(address) not in schemes:
        raise ValueError(f"an address begins with one of: {', '.join(schemes)}")
    _, _, query = address.partition("?")
    names = {name.lower() for name in parse_qs(query, keep_blank_values=True)}
    if password_of(address) is not None or names & SECRET_PARAMETERS:
        raise ValueError(
            "the file would hold a password: name its location instead, as in "
            "connection: {env: NAME} or keys: {secret_key: {env: NAME}, …}"
        )


def source_at(path: str) -> SourceSpec:
    """Return the data set in a file: a table, or the declaration of one if the file is YAML.

    A ConfigError if the declaration is not valid.
    """
    if Path(path).suffix.lower() in (".yaml", ".yml"):
        return load_settings(SourceSpec, Path(path))
    return SourceSpec(path=path)
