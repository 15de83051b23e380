"""Labels and weights of a program, and classes of any names as the numbers that jobs learn."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from fedboost.core import objectives
from fedboost.core.weight_checks import check_weight
from fedboost.ground.arrays import Floats
from fedboost.sdk.caller_warnings import warn_caller
from fedboost.sdk.refusals import InvalidTableError
from fedboost.sdk.tables import index_of


def label_column(y: ArrayLike | None, n_rows: int, whose: str) -> NDArray[Any]:
    """Return labels (n,), one for each row; raise InvalidTableError for anything else.

    `whose` is the estimator, for errors.
    """
    if y is None:
        raise InvalidTableError(
            f"{whose} requires y to be passed, but the target y is None",
            todo="give a label for each row",
        )
    values = np.asarray(y)
    missing = _missing(values)
    if missing:
        raise InvalidTableError(
            f"Input y contains NaN, None or NA: {missing} of {len(values)} labels are missing, and "
            "every row needs one",
            todo="leave these rows out",
        )
    if values.ndim == 2 and values.shape[1] == 1:
        warn_caller(
            "A column-vector y was passed when a 1d array was expected: y.ravel() is one",
            _conversion_warning(),
        )
        values = values.ravel()
    if values.ndim != 1:
        raise InvalidTableError(
            f"y has {values.ndim} dimensions, expected one label a row",
            todo="give one column of labels; scikit-learn's MultiOutputClassifier and "
            "MultiOutputRegressor fit a model for each of several",
        )
    if values.dtype.kind == "c":
        raise InvalidTableError(
            "y: Complex data not supported", todo="give real numbers or classes"
        )
    if len(values) != n_rows:
        raise InvalidTableError(
            f"X has {n_rows} rows and y {len(values)} labels", todo="give one label for each row"
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InvalidTableError(
            "Input y contains NaN or infinity: every row needs a label", todo="leave these rows out"
        )
    return values


def check_order(given: Any, index: Mapping[str, pa.ChunkedArray], what: str) -> None:
    """Refuse labels or weights, called `what`, whose pandas index is that of the rows in another
    order.

    `index` is that of the rows, as `RowTable` has it. Other indexes say nothing: rows and labels
    belong together by their places, as in XGBoost.
    """
    ours, theirs = list(index.values()), list(index_of(given).values())
    if len(ours) != 1 or len(theirs) != 1 or ours[0].equals(theirs[0]):
        return
    if ours[0].type == theirs[0].type and _sorted(ours[0]).equals(_sorted(theirs[0])):
        raise InvalidTableError(
            f"{what} has the index of X in another order",
            todo=f"give {what}.loc[X.index], or {what}.to_numpy() if the order is right as it is",
        )


def _sorted(cells: pa.ChunkedArray) -> pa.Array:
    return cells.take(pc.sort_indices(cells)).combine_chunks()


def _missing(values: NDArray[Any]) -> int:
    """Return how many cells of an array of objects are None, NaN, NaT or pandas' NA."""
    if values.dtype.kind != "O":
        return 0
    return sum(map(_is_missing, values.flat))


def _is_missing(cell: object) -> bool:
    if isinstance(cell, float | np.floating):
        return bool(np.isnan(cell))
    return cell is None or type(cell).__name__ in ("NAType", "NaTType")


def finite_numbers(y: NDArray[Any], what: str = "labels") -> Floats:
    """Return finite numbers, float64 (n,)."""
    try:
        values: Floats = y.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidTableError(
            f"{what} are numbers, and something else came", todo="give numbers"
        ) from None
    if not np.isfinite(values).all():
        raise InvalidTableError(f"{what} contain NaN or infinity", todo="leave these rows out")
    return values


def checked_weights(given: ArrayLike | None, n_rows: int) -> Floats | None:
    """Return weights of at least 0, float64 (n,); None if none were given."""
    if given is None:
        return None
    values = np.asarray(given)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values.ravel()
    if values.ndim != 1 or len(values) != n_rows:
        raise InvalidTableError(
            f"sample_weight has shape {values.shape}, expected ({n_rows},)",
            todo="give one weight for each row",
        )
    checked = finite_numbers(values, "weights")
    check_weight(checked, checked)
    if not checked.any():
        raise InvalidTableError(
            "sample_weight is zero for all rows, so no row counts",
            todo="give some rows a weight above 0",
        )
    return checked


@dataclass(frozen=True)
class Classes:
    """Sorted classes of labels; jobs use their positions as labels."""

    values: NDArray[Any]

    @classmethod
    def of(cls, y: NDArray[Any]) -> Self:
        """Return the classes in `y`; raise InvalidTableError for fractional numbers, or for a
        single class.

        Texts, whole numbers and booleans are classes.
        """
        if y.dtype.kind == "f" and (y != np.floor(y)).any():
            raise InvalidTableError(
                "Unknown label type: continuous numbers are no classes",
                todo="use a regressor for them",
            )
        try:
            classes = np.unique(y)
        except TypeError:
            raise InvalidTableError(
                "labels are texts and numbers, which have no order", todo="give one or the other"
            ) from None
        if len(classes) < 2:
            raise InvalidTableError(
                f"all {len(y)} labels are the same class: one class leaves nothing to learn",
                todo="give rows of two classes or more",
            )
        return cls(classes)

    def check_weight(self, y: NDArray[Any], weight: Floats | None) -> None:
        """Refuse weights that leave a single class."""
        if weight is not None and len(np.unique(y[weight > 0.0])) < 2:
            raise InvalidTableError(
                "all rows with a weight above 0 are of one class",
                todo="give rows of two classes a weight above 0",
            )

    @property
    def settings(self) -> dict[str, Any]:
        """Return a job's settings for the labels: two are binary:logistic, more multi:softprob."""
        count = len(self.values)
        several = {"num_class": count} if count > 2 else {}
        return {"objective": objectives.class_objective(count), **several}

    def indices(self, y: NDArray[Any]) -> Floats:
        """Return the positions of the classes, float64 (n,); raise InvalidTableError for unknown
        labels.
        """
        unknown = int(np.count_nonzero(~np.isin(y, self.values)))
        if unknown:
            raise InvalidTableError(
                f"{unknown} of {len(y)} labels of eval_set are of no class of y",
                todo="leave these rows out of eval_set",
            )
        return np.searchsorted(self.values, y).astype(np.float64)


def _conversion_warning() -> type[Warning]:
    """Return scikit-learn's own warning class if scikit-learn is loaded."""
    if "sklearn" in sys.modules:
        from sklearn.exceptions import DataConversionWarning

        return DataConversionWarning
    return UserWarning
