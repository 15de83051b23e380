"""Choice of an alignment's method: the curve or an oblivious function."""

from __future__ import annotations

from typing import Literal

from fedboost.ground.errors import PeerError
from fedboost.job import Alignment

Method = Literal["oprf", "ecdh"]

# Loops of a walk. The guest ends the loop of the unused method at once, and the others in time.
OPRF: Method = "oprf"
ECDH: Method = "ecdh"
SAMPLE, PART = "sample", "part"

SAMPLE_IDS, SAMPLE_GROWTH = 4096, 8  # of the guest's set, counted first; and of each that follows
SAMPLES = 5  # the largest sample has CURVE_IDS_MAX = 4096 · 8^4 ids
OPRF_IDS_MIN = 20_000  # of the guest's set: with fewer the base transfers cost more than they save


def method_for(settings: Alignment, ids: int) -> Method:
    """Return the alignment method for a guest's set of `ids` ids, padding included."""
    if settings.method == "auto":
        return OPRF if ids >= OPRF_IDS_MIN else ECDH
    return settings.method


def check_method(settings: Alignment, ids: int, method: Method, guest: str) -> None:
    """Raise PeerError if a guest's method does not fit the job's alignment and number of ids."""
    if method_for(settings, ids) != method:
        raise PeerError(
            f"{guest} aligns {ids} ids by {method}, which the job's alignment does not say",
            party=guest,
        )
