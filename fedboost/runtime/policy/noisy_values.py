"""Values that a store's tables have told with noise: a further one of an id costs ε again.

Ids and values stand here under keys that the party's own secret gives: the file alone tells whose
values they are as little as which ones.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.noise import NO_CODE
from fedboost.flow import Charge, DisclosureInfo, NoisyValues, Spent
from fedboost.runtime.store.schema import whole

BLOCK_ROWS = 1 << 20  # of one row of the store
CODES = NO_CODE + 1


def note(sql: sqlite3.Connection, noisy: NoisyValues) -> Mapping[str, int]:
    """Note values that are about to be told, inside the transaction that charges them.

    Return by column how many more values of one id are told from now on: of the id with the most.
    """
    known_ids, known_codes = _known(sql, noisy)
    _, place = np.unique(np.concatenate([known_ids, noisy.ids]), return_inverse=True)
    known, asked = np.split(place.astype(np.int64), [len(known_ids)])
    is_new, more = np.zeros(noisy.codes.shape, np.bool_), {}
    for c, name in enumerate(noisy.columns):
        told = _pairs(known, known_codes[:, c])
        now = asked * CODES + noisy.codes[:, c]
        is_new[:, c] = ~np.isin(now, told)
        more[name] = _most(np.concatenate([told, now[is_new[:, c]]])) - _most(told)
    _keep(sql, noisy, is_new)
    return more


def _known(
    sql: sqlite3.Connection, noisy: NoisyValues
) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Return what the same noise has told: ids (n,), codes (n, columns), `NO_CODE` for none."""
    text = "SELECT noise, columns, ids, codes, hash FROM noisy_values WHERE noise = ?"
    every_id, every_code = [np.empty(0, np.uint64)], [np.empty((0, len(noisy.columns)), np.uint8)]
    for row in sql.execute(text, (noisy.noise,)):
        _, columns, ids, codes = whole(row)
        names = json.loads(columns)
        some = np.frombuffer(codes, np.uint8).reshape(-1, len(names))
        chosen = np.full((len(some), len(noisy.columns)), NO_CODE, np.uint8)
        for c, name in enumerate(noisy.columns):
            if name in names:
                chosen[:, c] = some[:, names.index(name)]
        every_id.append(np.frombuffer(ids, "<u8").astype(np.uint64))
        every_code.append(chosen)
    return np.concatenate(every_id), np.concatenate(every_code)


def _keep(sql: sqlite3.Connection, noisy: NoisyValues, is_new: NDArray[np.bool_]) -> None:
    chosen = np.flatnonzero(is_new.any(axis=1))
    names = json.dumps(noisy.columns)
    for first in range(0, len(chosen), BLOCK_ROWS):
        rows = chosen[first : first + BLOCK_ROWS]
        codes = np.where(is_new[rows], noisy.codes[rows], np.uint8(NO_CODE))
        sql.execute(
            "INSERT INTO noisy_values (noise, columns, ids, codes) VALUES (?, ?, ?, ?)",
            (noisy.noise, names, noisy.ids[rows].astype("<u8").tobytes(), codes.tobytes()),
        )


def _pairs(ids: NDArray[np.int64], codes: NDArray[np.uint8]) -> NDArray[np.int64]:
    """A number for each id and value that was told, each once."""
    told = codes != NO_CODE
    return np.unique(ids[told] * CODES + codes[told])


def _most(pairs: NDArray[np.int64]) -> int:
    """The values of the id that has the most."""
    return int(np.bincount(pairs // CODES).max()) if len(pairs) else 0


def further(sql: sqlite3.Connection, about: DisclosureInfo) -> list[Charge]:
    """Note the noisy values behind a message; return the charges of those that it tells first, in
    columns that it is not charged for anyway.
    """
    if about.noisy is None:
        return []
    paid = {charge.column for charge in about.charges if charge.kind is Spent.EPSILON}
    return [
        Charge(Spent.EPSILON, about.noisy.epsilon * count, column)
        for column, count in note(sql, about.noisy).items()
        if count and column not in paid
    ]
