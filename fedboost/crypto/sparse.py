"""Histograms that leave out the most frequent bin of a column (SecureBoost+, section 6.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import Adder, H
from fedboost.ground.errors import ProtocolError

AnyIndices = NDArray[np.integer]


def fill_skipped(key: Adder[H], cells: H, offsets: AnyIndices, skipped: AnyIndices, totals: H) -> H:
    """Return the cells with each skipped one set to its node's total minus the segment's other
    cells.

    Segment s, cells offsets[s] to offsets[s + 1], is one column of one node, all of a node's
    columns after one another, as many for every node; segments span all cells. skipped[s] is the
    cell without additions (a cell of −1 in `segment_sum`), or −1 if none was left out. `totals` has
    the sum of all rows of each node, once: `segment_sum` with one column.

    It costs one addition a cell and a share of one inverse for all.
    """
    nodes, segments = len(totals), len(skipped)
    if len(offsets) != segments + 1 or (nodes and segments % nodes) or (segments and not nodes):
        raise ProtocolError(f"{segments} columns do not fit {nodes} nodes and their cells")
    (chosen,) = np.nonzero(np.asarray(skipped) >= 0)
    place = np.asarray(skipped)[chosen]
    if (place < np.asarray(offsets)[chosen]).any() or (
        place >= np.asarray(offsets)[chosen + 1]
    ).any():
        raise ProtocolError("a skipped cell lies outside its column")
    if not len(chosen):
        return cells
    number = np.full(segments, -1, dtype=np.int32)
    number[chosen] = np.arange(len(chosen))
    into = np.repeat(number, np.diff(offsets))
    into[place] = -1
    (rest,) = np.nonzero(into >= 0)
    others = key.segment_sum(cells, rest, into[rest, None], len(chosen))
    return cells.replaced(place, key.subtract(totals[chosen // (segments // nodes)], others))
