"""Archives of plain arrays by name, nothing pickled."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# numpy reads the heads of arrays with `ast`, whose count of nested nodes threads share in CPython
# before 3.11.8: two of them at once, and one finds it wrong (SystemError, gh-106905).
LEVEL = 1  # of zlib; a round of trees waits for it, and higher levels save almost nothing
_one_at_a_time = threading.Lock()


def pack_arrays(arrays: Mapping[str, NDArray[Any]], *, compressed: bool = False) -> bytes:
    """Return the arrays as an archive for `read_arrays`."""
    import numpy as np

    out = io.BytesIO()
    how = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(out, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy")  # without a date: always the same
            archive.writestr(entry, content.getbuffer(), how, LEVEL)
    return out.getvalue()


def read_arrays(packed: bytes) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of an archive of `numpy.savez`; a ValueError if it is damaged."""
    import numpy as np

    try:
        with _one_at_a_time, np.load(io.BytesIO(packed), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # zipfile and numpy raise a dozen kinds of errors
        raise ValueError(f"no archive of arrays: {error}") from None
