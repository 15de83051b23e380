"""Choice of validation rows, and the order of rows, both by id and alike on every party."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedboost.ground.errors import ConfigError
from fedboost.ground.hashes import sha256_each
from fedboost.ground.ids import EncodedIds

RANK_LABEL = b"fedboost.validation.1"


def validation_rows(ids: EncodedIds, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Return a mask of the rows held out, bool (n,): exactly ``round(fraction * n)`` are True.

    Rows are ranked by SHA-256 of (seed, id), so all parties with the same ids, which must all
    differ, hold out the same ones in any order of their rows. A ConfigError if `fraction` is not in
    [0, 1).
    """
    _check_fraction(fraction)
    held_out = np.zeros(len(ids), dtype=np.bool_)
    count = round(fraction * len(ids))
    if count:
        held_out[_smallest(_id_ranks(ids, seed), count)] = True
    return held_out


def validation_rows_by_id(ids: EncodedIds, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Return a mask of the rows held out, bool (n,); each row is decided by its id alone.

    A row is held out if its rank lies in the first `fraction` of all ranks. So parties with
    different ids agree about each id that they share; about ``fraction * n`` rows are held out, not
    exactly. A ConfigError if `fraction` is not in [0, 1).
    """
    _check_fraction(fraction)
    return _id_ranks(ids, seed)[:, 0] < np.uint64(int(fraction * 2.0**64))


def fold_rows(ids: EncodedIds, fold: int, folds: int, seed: int) -> NDArray[np.bool_]:
    """Return a mask of the rows of part `fold`, from 0, of `folds` parts, bool (n,).

    The rows in the order of their ranks, as in `validation_rows`, are cut into parts that differ by
    one row at most; each row lies in exactly one. All parties with the same ids have the same
    folds.
    """
    _check_fold(fold, folds)
    ranks = _id_ranks(ids, seed)
    order = np.lexsort(tuple(ranks.T[::-1]))
    inside = np.zeros(len(ids), dtype=np.bool_)
    inside[order[fold * len(ids) // folds : (fold + 1) * len(ids) // folds]] = True
    return inside


def fold_rows_by_id(ids: EncodedIds, fold: int, folds: int, seed: int) -> NDArray[np.bool_]:
    """Return a mask of the rows of one of `folds` parts, bool (n,), each decided by its id alone.

    Parties with different ids agree about each id that they share; the parts are about equal.
    """
    _check_fold(fold, folds)
    bounds = np.array([(part << 64) // folds for part in range(1, folds)], np.uint64)
    parts: NDArray[np.int64] = np.searchsorted(bounds, _id_ranks(ids, seed)[:, 0], side="right")
    return parts == fold


def canonical_order(ids: EncodedIds) -> NDArray[np.int64]:
    """Return the permutation, int64 (n,), that sorts the rows by their id bytes, ascending."""
    return ids.order()


def canonical_rows(ids: EncodedIds, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return distinct rows, int64 (m,) indices into `ids`, in ascending order of id bytes."""
    return ids.order(rows)


def _check_fraction(fraction: float) -> None:
    if not 0.0 <= fraction < 1.0:
        raise ConfigError(
            f"the validation fraction is {fraction}", todo="choose one from 0 up to, not with, 1"
        )


def _check_fold(fold: int, folds: int) -> None:
    if not 0 <= fold < folds:
        raise ConfigError(
            f"there is no fold {fold} of {folds}", todo=f"choose one from 0 up to {folds - 1}"
        )


def _id_ranks(ids: EncodedIds, seed: int) -> NDArray[np.uint64]:
    """Return SHA-256 of (seed, id) as numbers, most significant first, uint64 (n, 4)."""
    key = RANK_LABEL + b"/" + str(seed).encode() + b"/"
    return sha256_each(key, ids).view(">u8").astype(np.uint64)


def _smallest(words: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """Return the numbers of the `count` lexicographically smallest rows of uint64 (n, 4)."""
    # Only rows that reach the cut by their first word need the other three.
    cut = np.partition(words[:, 0], count - 1)[count - 1]
    reach = np.flatnonzero(words[:, 0] <= cut)
    ranked = np.lexsort(tuple(words[reach].T[::-1]))
    return reach[ranked[:count]]
