"""Where a party's table lies, as its file declares it; `reading` reads it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from fedboost.settings import PathText, Settings, load

Format = Literal["csv", "parquet", "svmlight"]
# A number that stands in place of missing ones; it is compared as a 32-bit float.
MissingValue = Annotated[float | None, Field(allow_inf_nan=False)]
LabelValues = Annotated[list[bool | int | float | str], Field(min_length=2, max_length=1000)]
Part = Literal["guest", "host"]
FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".svm": "svmlight",
}


class SqlSource(Settings):
    """A read-only query; `url` is ``sqlite:///relative.db`` or ``sqlite:////absolute.db``."""

    url: PathText = Field(repr=False)  # may hold a password, though no such URL is read
    query: str = Field(min_length=1, repr=False)


class IdFormat(Settings):
    """How ids are brought to the spelling of other parties, before they are compared."""

    strip: bool = False  # leave out blanks inside, too; those around are never counted
    lower: bool = False  # write capital letters small
    zfill: int = Field(0, ge=0, le=64)  # put zeros before ids with fewer characters; 0: none


class SourceSpec(Settings):
    """A data set as a party's file declares it: a `path` or `sql`, and what jobs may use of it.

    A job chooses among what is declared; whatever else it names is refused before it is signed.
    """

    path: PathText | None = None
    format: Format | None = None  # absent: by the path's ending
    sql: SqlSource | None = None
    id: list[str] = Field(default_factory=lambda: ["id"], min_length=1)  # they name a row, together
    id_format: IdFormat = IdFormat()  # how their cells are read
    decimal: Literal[".", ","] = "."  # what text cells have before the decimals of a number
    dates: list[str] = Field(default_factory=list)  # columns read as days, month and weekday
    missing: MissingValue = None  # of features, beside empty cells and NaN
    columns: list[str] | None = None  # features; absent: all but those of id, labels and weights
    labels: list[str] = Field(default_factory=list)  # columns that jobs may learn
    label_values: LabelValues | None = None  # classes of the one label, unless a job lists them
    weights: list[str] = Field(default_factory=list)  # columns that may say how much a row counts
    roles: list[Part] = Field(default_factory=lambda: list(get_args(Part)), min_length=1)  # of ours
    peers: list[str] | None = None  # who may take part in a job on it; absent: as in the policy

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.sql is None):
            raise ValueError("a data set has either 'path' or 'sql'")
        if self.format is not None and self.path is None:
            raise ValueError("'format' belongs to 'path', not to 'sql'")
        return self

    @model_validator(mode="after")
    def _ids_are_nothing_else(self) -> Self:
        other = {*(self.columns or []), *self.labels, *self.weights}
        both = sorted({*self.id} & other)
        if both:
            raise ValueError(f"column {both[0]!r} is an id column: it can be nothing else")
        return self

    @model_validator(mode="after")
    def _values_of_one_label(self) -> Self:
        if self.label_values is not None and len(self.labels) != 1:
            raise ValueError(f"label_values needs one column in 'labels', not {len(self.labels)}")
        return self

    @property
    def kept_back(self) -> tuple[str, ...]:
        """The columns that are no features unless `columns` names them."""
        return (*self.id, *self.labels, *self.weights)

    @property
    def name(self) -> str:
        """The file's name without its folders: what an error may tell the other parties."""
        place = self.path if self.sql is None else self.sql.url
        return Path(place or "").name

    @property
    def identity(self) -> str:
        """Return the location as 32 hex digits: equal for the same file or database."""
        place = str(Path(self.path or "").resolve()) if self.sql is None else self.sql.url
        return hashlib.sha256(place.encode()).hexdigest()[:32]


def source_at(path: str) -> SourceSpec:
    """Return the data set in a file: a table, or a declaration of one where the file is YAML.

    A ConfigError where the declaration is not valid.
    """
    if Path(path).suffix.lower() in (".yaml", ".yml"):
        return load(SourceSpec, Path(path))
    return SourceSpec(path=path)
