"""Records of the sources of tables: kinds of tables, storages of files, engines of queries.

Their names and settings are known without any library; opening a table loads its library.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from fedboost.ground.errors import DataError, install_advice

if TYPE_CHECKING:
    import pyarrow as pa

    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Stored

    Opened: TypeAlias = AbstractContextManager[Stored]
    Writer: TypeAlias = Callable[[BinaryIO, pa.Schema], Any]


@dataclass(frozen=True)
class Library:
    """A library that reading needs and only an extra of fedboost installs."""

    module: str
    extra: str
    what: str  # feature that needs the library

    def load(self) -> None:
        """Import the library; raise a DataError that names the extra if it is not installed."""
        try:
            importlib.import_module(self.module)
        except ImportError:
            raise DataError(
                f"{self.what} needs a library that is not installed",
                todo=f"where the party runs, {install_advice(self.extra)}",
                kind="the table needs a library that is not installed",
            ) from None


@dataclass(frozen=True)
class SourceKind:
    """A kind of tables: its declaration, and a function that opens such a table.

    `opened` gives a `Stored` table and translates its errors: DataError if the table is absent,
    unreadable or of another format, ConfigError if its declaration is wrong, UnreachableError if
    its storage or database does not answer. OSErrors about files on this machine may pass.
    """

    name: str  # value of `format`
    title: str  # its name in errors
    opened: Callable[[SourceSpec], Opened]
    suffixes: tuple[str, ...] = ()  # of files whose declarations need no `format`
    settings: frozenset[str] = frozenset()  # keys of a declaration that not every kind takes
    log: str = ""  # a folder inside the folder of each table of this kind and of no other
    is_compressible: bool = False  # whether its files may be compressed: a.csv.gz
    is_sparse: bool = False  # whether features stay sparse: a table has an `extent`
    in_folders: bool = False  # whether all files of a folder can be one table
    in_storages: bool = False  # whether it can be read from storages
    library: Library | None = None
    # By ending, what begins a table in a file: an object with `write_table` and `close`.
    writers: Mapping[str, Writer] = field(default_factory=dict, compare=False)

    @contextmanager
    def open(self, source: SourceSpec) -> Iterator[Stored]:
        """Open a table; errors are those of `opened`, and a DataError for a missing library."""
        if self.library is not None:
            self.library.load()
        with self.opened(source) as stored:
            yield stored


@dataclass(frozen=True, kw_only=True)
class AddressScheme:
    """Facts about the addresses of one scheme."""

    scheme: str
    aliases: tuple[str, ...] = ()  # other spellings of the scheme
    port: str = ""  # of addresses without one
    is_bucket: bool = False  # whether it has no port at all
    is_file: bool = False  # whether addresses lead to files on this machine, without a login
    in_options: bool = False  # whether the options host=, port=, dbname= come first


@dataclass(frozen=True, kw_only=True)
class Storage(AddressScheme):
    """A remote file system that a `path` can lead to."""

    opened: Callable[[SourceSpec, str, dict[str, str]], tuple[Any, str]]  # place, options
    options: tuple[str, ...] | None = None  # that addresses may have; None: any
    settings: frozenset[str] = frozenset()  # keys of a declaration that it takes
    # Options and keys under the names of the library of Delta tables.
    delta_options: Callable[[SourceSpec], dict[str, str]] = lambda _: {}


@dataclass(frozen=True, kw_only=True)
class Engine(AddressScheme):
    """A database that answers queries.

    `opened` gets the address with its secrets, and gives the answer to the query of a declaration.
    """

    opened: Callable[[str, SourceSpec], Opened]
    library: Library | None = None
    speaks: str = ""  # module of errors with the database's own texts, or ""

    @contextmanager
    def open(self, address: str, source: SourceSpec) -> Iterator[Stored]:
        """Open the answer; errors are those of `opened`, and a DataError for a missing library."""
        if self.library is not None:
            self.library.load()
        with self.opened(address, source) as stored:
            yield stored
