"""Arrays by name, read from the archive in which they lie: plain ones, nothing pickled."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# numpy reads the heads of arrays with `ast`, whose count of nested nodes threads share in CPython
# before 3.11.8: two of them at once, and one finds it wrong (SystemError, gh-106905).
_one_at_a_time = threading.Lock()


def read(packed: bytes) -> dict[str, NDArray[np.generic]]:
    """Return what `numpy.savez` wrote; a ValueError where it is damaged."""
    import numpy as np

    try:
        with _one_at_a_time, np.load(io.BytesIO(packed), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # zipfile and numpy raise a dozen kinds, some for none of their own
        raise ValueError(f"no archive of arrays: {error}") from None
