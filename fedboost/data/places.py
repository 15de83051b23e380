"""Puts into an error the places that only the caller knows: party, then file, then the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedboost.errors import ConfigError, DataError


@contextmanager
def placed(**where: str) -> Iterator[None]:
    """Within it, a ConfigError or DataError is raised with `where` before its own places."""
    try:
        yield
    except (ConfigError, DataError) as error:
        outer = {key: place for key, place in where.items() if place}
        error.where = outer | error.where
        raise
