"""The categories that a model knows: of each categorical column, by name, in the order of its bins.

A table's codes depend on what else is in the table; a model's places do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from fedboost.core.binning import Binning
from fedboost.data.frame import Frame, Values

Vocabulary = dict[str, list[str]]


def of(frame: Frame, cuts: Binning) -> Vocabulary:
    """What a model trained on this table with these bins has to remember; JSON."""
    return {
        frame.columns[c]: [frame.categories[frame.columns[c]][code] for code in codes.tolist()]
        for c, codes in cuts.categories.items()
    }


def places(
    codes: NDArray[np.float32], texts: Sequence[str], known: Sequence[str]
) -> NDArray[np.float32]:
    """A table's codes, float32 (n,), as places in a model's list; NaN where it has none.

    `texts` are the table's categories by code, `known` the model's by place.
    """
    place = {text: number for number, text in enumerate(known)}
    table = np.array([*(place.get(text, np.nan) for text in texts), np.nan], np.float32)
    return table[np.where(np.isnan(codes), len(texts), codes).astype(np.int64)]


def model_values(
    frame: Frame, columns: Sequence[str], vocabulary: Mapping[str, Sequence[str]]
) -> Values:
    """float32 (rows, columns): the named columns as a model's trees read them, dense or sparse."""
    place = {name: i for i, name in enumerate(frame.columns)}
    chosen = frame.values[:, [place[name] for name in columns]]
    if isinstance(chosen, csc_array):
        chosen.sort_indices()
        return chosen
    values = np.asfortranarray(chosen)
    for i, name in enumerate(columns):
        if name in vocabulary:
            values[:, i] = places(values[:, i], frame.categories[name], vocabulary[name])
    return values
