"""Refusals as a program expects them: fedboost's own errors that are Python's ValueErrors too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fedboost.ground.errors import ConfigError, DataError


class InvalidParameterError(ConfigError, ValueError):
    """A parameter, or what came beside the rows, cannot be."""


class OtherClassError(InvalidParameterError, TypeError):
    """An estimator of another class was saved."""


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
