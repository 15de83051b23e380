"""Values of a store's tables that were released with noise: a further value of an id costs ε again.

Ids and values are stored under keys derived from the party's own secret: the file alone reveals
neither the ids nor the values.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.noise import NO_CODE
from fedboost.flow import Charge, DisclosureInfo, NoisyValues, Spent
from fedboost.runtime.store.schema import checked_values

BLOCK_ROWS = 1 << 20  # of one row of the store
CODE_COUNT = NO_CODE + 1


def record_values(sql: sqlite3.Connection, noisy: NoisyValues) -> Mapping[str, int]:
    """Record values that are about to be released, inside the transaction that charges them.

    Return, by column, the increase in the number of released values of the id with most values.
    """
    known_ids, known_codes = _read_values(sql, noisy)
    _, place = np.unique(np.concatenate([known_ids, noisy.ids]), return_inverse=True)
    known, asked = np.split(place.astype(np.int64), [len(known_ids)])
    is_new, more = np.zeros(noisy.codes.shape, np.bool_), {}
    for c, name in enumerate(noisy.columns):
        told = _pair_numbers(known, known_codes[:, c])
        now = asked * CODE_COUNT + noisy.codes[:, c]
        is_new[:, c] = ~np.isin(now, told)
        more[name] = _most_values_of_id(
            np.concatenate([told, now[is_new[:, c]]])
        ) - _most_values_of_id(told)
    _insert_values(sql, noisy, is_new)
    return more


def _read_values(
    sql: sqlite3.Connection, noisy: NoisyValues
) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Return values with the same noise: ids (n,), codes (n, columns), `NO_CODE` for none."""
    text = "SELECT noise, columns, ids, codes, hash FROM noisy_values WHERE noise = ?"
    every_id, every_code = [np.empty(0, np.uint64)], [np.empty((0, len(noisy.columns)), np.uint8)]
    for row in sql.execute(text, (noisy.noise,)):
        _, columns, ids, codes = checked_values(row)
        names = json.loads(columns)
        some = np.frombuffer(codes, np.uint8).reshape(-1, len(names))
        chosen = np.full((len(some), len(noisy.columns)), NO_CODE, np.uint8)
        for c, name in enumerate(noisy.columns):
            if name in names:
                chosen[:, c] = some[:, names.index(name)]
        every_id.append(np.frombuffer(ids, "<u8").astype(np.uint64))
        every_code.append(chosen)
    return np.concatenate(every_id), np.concatenate(every_code)


def _insert_values(sql: sqlite3.Connection, noisy: NoisyValues, is_new: NDArray[np.bool_]) -> None:
    chosen = np.flatnonzero(is_new.any(axis=1))
    names = json.dumps(noisy.columns)
    for first in range(0, len(chosen), BLOCK_ROWS):
        rows = chosen[first : first + BLOCK_ROWS]
        codes = np.where(is_new[rows], noisy.codes[rows], np.uint8(NO_CODE))
        sql.execute(
            "INSERT INTO noisy_values (noise, columns, ids, codes) VALUES (?, ?, ?, ?)",
            (noisy.noise, names, noisy.ids[rows].astype("<u8").tobytes(), codes.tobytes()),
        )


def _pair_numbers(ids: NDArray[np.int64], codes: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return a number for each released pair of id and value, each once."""
    told = codes != NO_CODE
    return np.unique(ids[told] * CODE_COUNT + codes[told])


def _most_values_of_id(pairs: NDArray[np.int64]) -> int:
    """Return the number of values of the id with most values."""
    return int(np.bincount(pairs // CODE_COUNT).max()) if len(pairs) else 0


def charges_of_new_values(sql: sqlite3.Connection, about: DisclosureInfo) -> list[Charge]:
    """Record the noisy values behind a message; return charges for new values, in columns that the
    message is not charged for already.
    """
    if about.noisy is None:
        return []
    paid = {charge.column for charge in about.charges if charge.kind is Spent.EPSILON}
    return [
        Charge(Spent.EPSILON, about.noisy.epsilon * count, column)
        for column, count in record_values(sql, about.noisy).items()
        if count and column not in paid
    ]
