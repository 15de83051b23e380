"""The records of what a table is read from: kinds of tables, storages of files, engines of queries.

Names and settings are known without a library; what opens a table loads its libraries then.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from fedboost.ground.errors import DataError

if TYPE_CHECKING:
    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Stored

    Opened: TypeAlias = AbstractContextManager[Stored]


@dataclass(frozen=True)
class Library:
    """A library that reading needs and only an extra of fedboost installs."""

    module: str
    extra: str
    what: str  # needs it

    def load(self) -> None:
        """Import it; a DataError that names the extra where it is not installed."""
        try:
            importlib.import_module(self.module)
        except ImportError:
            raise DataError(
                f"{self.what} needs a library that is not installed",
                todo=f"pip install 'fedboost[{self.extra}]' where the party runs",
                kind="the table needs a library that is not installed",
            ) from None


@dataclass(frozen=True)
class SourceKind:
    """A kind of tables: how it is declared, and how a table of it is opened.

    `opened` gives a `Stored` table, whose errors it translates: DataError where it is absent, no
    table or may not be read, ConfigError where its declaration is wrong, UnreachableError where
    nothing answers. An OSError may pass: it is one about a file on this machine.
    """

    name: str  # as `format` has it
    title: str  # as errors have it
    opened: Callable[[SourceSpec], Opened]
    suffixes: tuple[str, ...] = ()  # of files whose declarations need no `format`
    settings: frozenset[str] = frozenset()  # keys of a declaration that not every kind takes
    log: str = ""  # a folder inside the folder of every table of this kind alone
    is_sparse: bool = False  # whether features stay sparse: a table has an `extent`
    in_folders: bool = False  # whether all files of a folder can be one table
    in_storages: bool = False  # whether it is read from storages, too
    library: Library | None = None

    @contextmanager
    def open(self, source: SourceSpec) -> Iterator[Stored]:
        """The open table; errors are those of `opened`, and a DataError for a missing library."""
        if self.library is not None:
            self.library.load()
        with self.opened(source) as stored:
            yield stored


@dataclass(frozen=True, kw_only=True)
class Place:
    """What addresses of one scheme say of where they lead."""

    scheme: str
    aliases: tuple[str, ...] = ()  # other spellings of the scheme
    port: str = ""  # of addresses without one
    is_bucket: bool = False  # whether it has no port at all
    is_file: bool = False  # whether addresses lead to files on this machine, without a login
    in_options: bool = False  # whether host=, port= and dbname= of an address count more


@dataclass(frozen=True, kw_only=True)
class Storage(Place):
    """A file system elsewhere, which a `path` leads to."""

    opened: Callable[[SourceSpec, str, dict[str, str]], tuple[Any, str]]  # place, options
    options: tuple[str, ...] | None = None  # that addresses may have; None: any
    settings: frozenset[str] = frozenset()  # keys of a declaration that it takes
    # What the library of Delta tables calls options and keys.
    delta_options: Callable[[SourceSpec], dict[str, str]] = lambda _: {}


@dataclass(frozen=True, kw_only=True)
class Engine(Place):
    """A database that answers queries.

    `opened` gets the address with its secrets, and gives the answer to the query of a declaration.
    """

    opened: Callable[[str, SourceSpec], Opened]
    library: Library | None = None
    speaks: str = ""  # the module of errors that are the database's words; empty: none are

    @contextmanager
    def open(self, address: str, source: SourceSpec) -> Iterator[Stored]:
        """The answer; a DataError for a missing library, else the errors of `opened`."""
        if self.library is not None:
            self.library.load()
        with self.opened(address, source) as stored:
            yield stored
