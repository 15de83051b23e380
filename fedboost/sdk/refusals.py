"""Refusals as a program expects them: fedboost's own errors that are Python's ValueErrors too."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from fedboost.ground.errors import ConfigError, DataError
from fedboost.model.unknown_categories import UnknownCategories


class InvalidParameterError(ConfigError, ValueError):
    """A parameter, or what came beside the rows, cannot be."""


class InvalidTableError(DataError, ValueError, TypeError):
    """Rows, labels or weights lack needed content, or have an unsupported type."""


@contextmanager
def as_value_errors(**where: str) -> Iterator[None]:
    """Turn a ConfigError or DataError from inside into one that is a ValueError as well.

    `where` is added to the error.
    """
    try:
        yield
    except (InvalidParameterError, InvalidTableError) as error:
        raise error.at(**where) from None
    except ConfigError as error:
        refused = InvalidParameterError(error.what, todo=error.todo)
        raise refused.at(**error.where, **where) from None
    except DataError as error:
        raise InvalidTableError(error.what, todo=error.todo).at(**error.where, **where) from None


def warn_of(unknown: UnknownCategories, party: str = "") -> None:
    """Warn of categories that the model does not know, where the caller of the SDK called it."""
    depth = 1
    while str(sys._getframe(depth).f_globals["__name__"]).startswith("fedboost.sdk"):
        depth += 1
    if unknown.shares:
        warnings.warn(unknown.warning(party), stacklevel=depth + 1)


def unfitted_error(name: str) -> DataError:
    """Return the error of an unfitted estimator; scikit-learn's NotFittedError if it is loaded."""
    kinds: tuple[type[Exception], ...] = (DataError, ValueError, AttributeError)
    if "sklearn" in sys.modules:
        from sklearn.exceptions import NotFittedError

        kinds = (DataError, NotFittedError)
    error: DataError = type("UnfittedError", kinds, {})(
        f"this {name} is not fitted", todo="call fit first"
    )
    return error
