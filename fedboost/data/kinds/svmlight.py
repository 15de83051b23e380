"""Sparse tables as text, with ordered rows and no ids; `fedboost.data.svmlight` reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedboost.data.kinds.kind import SourceKind

if TYPE_CHECKING:
    from fedboost.data.sheet import Sheet
    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Needs, Stored
    from fedboost.data.svmlight import Extent

IDS_ROWS = 1 << 16  # in a batch of ids without cells


@contextmanager
def _open_table(source: SourceSpec) -> Iterator[Stored]:
    from fedboost.data import svmlight
    from fedboost.data.stored import Stored, line_count

    path = Path(source.path or "")

    def count() -> int:
        with path.open("rb") as file:
            return line_count(file)

    yield Stored(
        names=list,  # unknown until the whole file is read
        sheets=lambda needs, extent: _read_parts(path, needs, extent),
        count=count,
        whole=lambda _: svmlight.read_sheet(path),  # reads the file only once
        extent=lambda: svmlight.read_extent(path),
    )


SVMLIGHT_KIND = SourceKind(
    "svmlight", "svmlight", _open_table, (".svmlight", ".libsvm", ".svm"), is_sparse=True
)


def _read_parts(path: Path, needs: Needs, extent: Extent | None) -> Iterator[Sheet]:
    from fedboost.data import svmlight

    assert extent is not None
    features = (f"f{extent.first + place}" for place in range(extent.width))
    if {*needs(["id", "y", *features])} == {"id"}:
        return svmlight.read_ids(extent, IDS_ROWS)
    return svmlight.read_parts(path, extent)
