"""Where a party's table lies, as its file declares it; `reading` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from fedboost.settings import PathText, Settings

Format = Literal["csv", "parquet", "svmlight"]
FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".svm": "svmlight",
}


class SqlSource(Settings):
    """One read-only query; `url` is ``sqlite:///relative.db`` or ``sqlite:////absolute.db``."""

    url: PathText = Field(repr=False)  # may hold a password, though no such URL is read
    query: str = Field(min_length=1, repr=False)


class SourceSpec(Settings):
    """A data set as a party's file declares it: a `path`, or `sql`."""

    path: PathText | None = None
    format: Format | None = None  # absent: by the path's ending
    sql: SqlSource | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.sql is None):
            raise ValueError("a data set has either 'path' or 'sql'")
        if self.format is not None and self.path is None:
            raise ValueError("'format' belongs to 'path', not to 'sql'")
        return self

    @property
    def name(self) -> str:
        """The file's name without its folders: what an error may tell the other parties."""
        place = self.path if self.sql is None else self.sql.url
        return Path(place or "").name
