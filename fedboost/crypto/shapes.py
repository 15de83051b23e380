"""Checks of every scheme before it computes, that arrays fit one another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import Ciphertexts, Held
from fedboost.crypto.layout import Layout, Packages
from fedboost.crypto.masking import Masks
from fedboost.ground.errors import PeerError, ProtocolError


def check_cells(rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int) -> None:
    """Raise a ProtocolError unless the rows go into the cells; see `api.Adder.segment_sum`."""
    if cells.ndim != 2 or len(rows) != len(cells) or (cells.size and cells.max() >= n_cells):
        raise ProtocolError(f"{len(rows)} rows do not go into {n_cells} cells by {cells.shape}")


def check_segments(cells: Held, offsets: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the segments' lengths, int64; a ProtocolError unless they span all cells."""
    lengths = np.diff(offsets).astype(np.int64)
    whole = len(offsets) and offsets[0] == 0 and offsets[-1] == len(cells)
    if not whole or (lengths < 0).any():
        raise ProtocolError(f"the segments do not span the {len(cells)} cells")
    return lengths


def check_pairs(a: Ciphertexts, b: Ciphertexts) -> None:
    """Raise a ProtocolError unless there are as many of both."""
    if a.data.shape != b.data.shape:
        raise ProtocolError(f"{len(a)} and {len(b)} ciphertexts are no pairs")


def check_factors(ciphertexts: Ciphertexts, factors: NDArray[np.int64]) -> None:
    """Raise a ProtocolError unless each row, cell or sum has a positive factor."""
    fits = factors.shape == (len(ciphertexts),) and factors.dtype == np.int64
    if not fits or (factors < 1).any():
        raise ProtocolError(
            f"{len(ciphertexts)} ciphertexts need as many positive factors, "
            f"got {factors.dtype} {factors.shape}"
        )


def check_released(
    ciphertexts: Ciphertexts,
    layout: Layout,
    plaintext_bits: int,
    counts: Sequence[int] | None,
    masks: Masks | None,
) -> Packages:
    """Return the packages of the sums; a ProtocolError unless these fill them and key and masks
    fit.
    """
    groups = [len(ciphertexts)] if counts is None else counts
    fits = ciphertexts.lanes == len(layout.lanes) and layout.plaintext_bits <= plaintext_bits
    if sum(groups) != len(ciphertexts) or not fits:
        raise ProtocolError(f"{len(ciphertexts)} sums do not fill the declared packages")
    masked = masks is None or masks.limbs.shape[:2] == (len(ciphertexts), layout.columns)
    if not masked or not layout.takes(masks):
        raise ProtocolError(f"{len(ciphertexts)} sums do not have the masks that they leave under")
    return layout.packages(groups)


def check_packages(
    packages: Ciphertexts, layout: Layout, counts: Sequence[int], width: int
) -> None:
    """Raise a PeerError unless there are as many packages of this width as the counts need."""
    needed = layout.package_count(counts)
    if packages.data.shape != (needed, 1, width):
        raise PeerError(
            f"expected {needed} packages of {width} bytes, got {len(packages)} of {packages.width}"
        )
