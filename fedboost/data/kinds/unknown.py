"""Files of unknown format: neither the suffix nor the declaration names it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fedboost.data.kinds.kind import SourceKind
from fedboost.ground.errors import ConfigError

if TYPE_CHECKING:
    from fedboost.data.sources import SourceSpec

ADVICE = {
    (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods"): "save the sheet as csv in UTF-8",
    (".gz", ".bz2", ".zst", ".zip", ".xz", ".7z", ".tar", ".lz4", ".br", ".z", ".lzma", ".tgz"): (
        "unpack it; of csv, .csv.gz is read"
    ),
    (".json", ".jsonl", ".ndjson", ".orc", ".avro", ".dta", ".sav", ".sas7bdat", ".rds", ".pkl"): (
        "write it as parquet or csv"
    ),
}


def _refuse_source(source: SourceSpec) -> NoReturn:
    from fedboost.data.kinds import FORMATS

    suffix = Path(source.path or "").suffix
    advice = next((todo for endings, todo in ADVICE.items() if suffix.lower() in endings), "")
    raise ConfigError(
        f"cannot tell the format from the ending {suffix!r}",
        todo=advice or f"name it: format: {' | '.join(FORMATS)}",
    )


UNKNOWN_KIND = SourceKind("unknown", "unknown", _refuse_source)
