"""Google's storage."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fedboost.data.kinds.kind import Storage

if TYPE_CHECKING:
    from fedboost.data.sources import SourceSpec


def _file_system(source: SourceSpec, place: str, options: dict[str, str]) -> tuple[Any, str]:
    import pyarrow.fs as pafs

    retried = timedelta(seconds=source.silence_s / 2)
    return pafs.GcsFileSystem(retry_time_limit=retried, **options), place


GS_STORAGE = Storage(
    scheme="gs", is_bucket=True, opened=_file_system, options=("scheme", "endpoint_override")
)
