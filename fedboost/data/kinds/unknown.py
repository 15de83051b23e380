"""Files of unknown format: neither the suffix nor the declaration names it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fedboost.data.kinds.kind import SourceKind
from fedboost.ground.errors import ConfigError

if TYPE_CHECKING:
    from fedboost.data.sources import SourceSpec


def _refused(source: SourceSpec) -> NoReturn:
    from fedboost.data.kinds import FORMATS

    raise ConfigError(
        f"cannot tell the format from the ending {Path(source.path or '').suffix!r}",
        todo=f"name it: format: {' | '.join([*FORMATS][:2])}",
    )


KIND = SourceKind("unknown", "unknown", _refused)
