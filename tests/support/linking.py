"""Which sums belong together, told from the sums alone although every node has an order of its own.

Of one cut the sum in a node is the sum in its left child plus the sum in its right child, exactly:
integers of fifty bits and more rarely add up by chance.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Sums = NDArray[np.int64]  # (candidates, values), in any order


def matched(above: Sums, left: Sums, right: Sums) -> list[tuple[int, int, int]]:
    """Triples (place above, place on the left, place on the right) of sums that add up.

    Candidates with the same sums match one another's children too: each such triple is given.
    """
    indices: dict[bytes, list[int]] = defaultdict(list)
    for place, one in enumerate(np.ascontiguousarray(right)):
        indices[one.tobytes()].append(place)
    found = []
    for place, whole in enumerate(above):
        for first, rest in enumerate(np.ascontiguousarray(whole - left)):
            found += [(place, first, second) for second in indices.get(rest.tobytes(), ())]
    return found


def chains(layers: Sequence[dict[int, Sums]]) -> list[dict[int, int]]:
    """Follow each candidate of the root through the nodes below, as far as sums allow it.

    `layers[d]` holds the sums of the opened nodes of depth d by heap id, the root's alone at 0.
    A candidate that fits nowhere in a pair of siblings, or in two places, is not followed there.
    """
    if not layers or 0 not in layers[0]:
        return []
    found: list[dict[int, int]] = [{0: place} for place in range(len(layers[0][0]))]
    for above, below in pairwise(layers):
        for node, sums in above.items():
            left, right = 2 * node + 1, 2 * node + 2
            if left not in below or right not in below:
                continue
            fits: dict[int, list[tuple[int, int]]] = defaultdict(list)
            for place, first, second in matched(sums, below[left], below[right]):
                fits[place].append((first, second))
            for chain in found:
                ways = fits.get(chain.get(node, -1), [])
                if len(ways) == 1:
                    chain[left], chain[right] = ways[0]
    return found
