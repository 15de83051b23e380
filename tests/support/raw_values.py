"""Values of a table as trees read them."""

import numpy as np


def model_values(binning, values):
    """The same values: of a category its bin, NaN where it has none."""
    read = values.copy(order="F")
    bins = binning.transform(values)
    for column in binning.categories:
        missing = bins[:, column] == binning.missing
        read[:, column] = np.where(missing, np.float32(np.nan), bins[:, column])
    return read
