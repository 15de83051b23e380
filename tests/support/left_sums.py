"""What goes left at each candidate split of a histogram, listed one by one."""

import numpy as np


def left_sums(cells, listed):
    """int64 (candidates, 2·outputs) of cells (columns, n_cells, 2·outputs), the last one of a
    column being that of its missing rows.
    """
    up_to = np.cumsum(cells[:, :-1], axis=1)
    sums = up_to[listed.column, listed.bin]
    (lost,) = np.nonzero(listed.missing_left)
    sums[lost] += cells[listed.column[lost], -1]
    return sums
