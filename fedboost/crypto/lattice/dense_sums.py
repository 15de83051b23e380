"""Sums of a large share of all rows, by products instead of window after window.

Window i of a block is a·x^(N − 1 − i) (`cells`), so the rows of one block add to a cell a
product of `a` and a polynomial of zeros and ones. Values of such products are added up over many
blocks and transformed back once for each cell.

The transform is that of `product`, of M = N/2 numbers, in two steps. The first adds a vector of
LANES numbers for each row; then LANES transforms of M/LANES numbers remain, side by side.

    forward   LANES sums of at most 2·LANES rows each, a twist, log2(M/LANES) levels
    back      `Multiplier.add_back`
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.lattice import product
from fedboost.crypto.lattice.product import Multiplier, multiplier_of
from fedboost.ground.arrays import Floats, Indices, Words
from fedboost.ground.kernels import kernel
from fedboost.ground.workers import Workers

DENSE_LANES = 32
DENSE_BOUND_MOST = 0.4  # proven distance to an integer; 1/2 would be wrong
BLOCKS_MOST = 128  # blocks added up before they are transformed back
DENSE_ROWS_LEAST = 36  # rows of a cell in a block, on average, that pay for a transform
BACK = 10  # transforms that take as long as transforming a cell's values back
BLOCKS_NEAR = 8  # blocks whose values stay in a cache

CellIndices = NDArray[np.int32]
IndexDigits = NDArray[np.int16]


def error_bound(ring: int, limb_bits: int, blocks: int) -> float:
    """Return the most that a coefficient of so many blocks' sum is off before it is rounded.

    As `product.error_bound`, but a sum of r ≤ 2·LANES roots is off by at most r + 2 roundoffs of r,
    (2·LANES + 2)·√(2·LANES) of its norm, other roots have one roundoff more, and blocks are added
    up.
    """
    first = (2 * DENSE_LANES + 2) * (2.0 * DENSE_LANES) ** 0.5
    return blocks * product.error_bound(ring, limb_bits, more=first + ring.bit_length() + blocks)


@dataclass(frozen=True)
class Transform:
    """Constants of a ring's transforms, and the number of blocks to add up."""

    multiplier: Multiplier
    blocks: int
    # Real and imaginary parts of a row's summand, by the upper digit of its index, of the twist,
    # and of each level's turns, as often as they are needed.
    starts: Floats  # (2·LANES, 2, LANES)
    twist: Floats  # (2, M)
    turns: Floats  # (levels, 2, M/2)
    order: Indices  # (M/LANES,) the index of each number after the last levels

    @property
    def shape(self) -> tuple[int, int]:
        """Limbs and numbers of a product's values."""
        return self.multiplier.limbs, self.multiplier.half

    def fixed(self, polynomials: Words) -> Floats:
        """Return the values of polynomials uint64 (n, N) for sums: (n, 2, limbs, M)."""
        shape = self.shape[0], len(self.order), DENSE_LANES
        values = np.stack([self.multiplier.fixed(one).reshape(shape) for one in polynomials])
        values = values[:, :, self.order]
        return np.stack([values.real, values.imag], axis=1).reshape(len(values), 2, *self.shape)

    def add_back(self, values: Floats, sums: Words) -> None:
        """Add to uint64 (n, N), modulo 2^64, the polynomials that have values (n, 2, limbs, M)."""
        whole = np.empty((len(values), *self.shape), np.complex128)
        shape = self.shape[0], len(self.order), DENSE_LANES
        placed, each = whole.reshape(-1, *shape), values.reshape(-1, 2, *shape)
        placed.real[:, :, self.order], placed.imag[:, :, self.order] = each[:, 0], each[:, 1]
        for number in range(self.shape[0]):
            self.multiplier.add_back(whole[:, number], number, sums)


@cache
def transform_of(ring: int, modulus_bits: int) -> Transform:
    """Return the transform of rings with so many coefficients modulo 2^modulus_bits."""
    multiplier = multiplier_of(ring, modulus_bits)
    bits, half = multiplier.limb_bits, ring // 2
    fit = (n for n in range(BLOCKS_MOST, 0, -1) if error_bound(ring, bits, n) <= DENSE_BOUND_MOST)
    width = half // DENSE_LANES
    upper, lane, lower = (
        np.arange(2 * DENSE_LANES)[:, None],
        np.arange(DENSE_LANES),
        np.arange(width)[:, None],
    )
    # e^(iπt/N) twists place t = upper·width + lower; above M it counts as i times the one below.
    starts = _unit_roots(upper * width - 4 * (upper % DENSE_LANES) * lane * width, ring)
    twist = _unit_roots(lower - 4 * lower * lane, ring).ravel()
    turns, order = np.empty((width.bit_length() - 1, half // 2), np.complex128), np.zeros(1, int)
    for level, turn in enumerate(turns):
        reach = width >> level
        each = _unit_roots(-2 * ring // reach * np.arange(reach // 2), ring).repeat(DENSE_LANES)
        turn[:] = np.tile(each, len(turn) // len(each))
        order = np.concatenate([2 * order, 2 * order + 1])
    return Transform(
        multiplier,
        next(fit),
        _real_and_imaginary(starts),
        _real_and_imaginary(twist),
        _real_and_imaginary(turns),
        order,
    )


def _unit_roots(exponents: Indices, ring: int) -> NDArray[np.complex128]:
    """Return powers of e^(iπ/N), within two roundoffs: of angles up to π/4, turned by quarters."""
    quarters = np.rint(exponents * 2 / ring).astype(np.int64)
    angles = (exponents - quarters * (ring // 2)) * (np.pi / ring)
    turned: NDArray[np.complex128] = np.exp(1j * angles) * np.array([1, 1j, -1, -1j])[quarters % 4]
    return turned


def _real_and_imaginary(numbers: NDArray[np.complex128]) -> Floats:
    """Return real and imaginary parts, (…, 2, n)."""
    return np.stack([numbers.real, numbers.imag], axis=-2)


def add_dense(
    windows: Words,
    modulus_bits: int,
    rows: Indices,
    cells: CellIndices,
    sums: Words,
    workers: Workers,
) -> list[slice]:
    """Add to sums uint64 (n, N), modulo 2^64, those rows int64 (m,) that are many for their cells,
    int32 (m, columns); windows uint64 (blocks, 2·N). Return the parts that are left to be added.

    A part has rising rows, and its columns have their own cells. Bits of sums above the modulus are
    overflow.
    """
    left, ring = list[slice](), sums.shape[1]
    for part in _rising_parts(rows):
        n_rows, blocks = (
            part.stop - part.start,
            rows[part.stop - 1] // ring - rows[part.start] // ring,
        )
        spans = _cells_of_columns(cells[part]) if n_rows >= DENSE_ROWS_LEAST else []
        least = (
            DENSE_ROWS_LEAST * (blocks + 1 + BACK) * sum(span.stop - span.start for span in spans)
        )
        if spans and n_rows * len(spans) >= least:
            _add_part(windows, modulus_bits, rows[part], (cells[part], spans), sums, workers)
        elif left and left[-1].stop == part.start:
            left[-1] = slice(left[-1].start, part.stop)
        else:
            left.append(part)
    return left


def _rising_parts(rows: Indices) -> list[slice]:
    """Return the parts of consecutive rows that rise."""
    ends = [0, *(np.flatnonzero(rows[1:] <= rows[:-1]) + 1).tolist(), len(rows)]
    return [slice(start, stop) for start, stop in itertools.pairwise(ends) if start < stop]


def _cells_of_columns(cells: CellIndices) -> list[slice]:
    """Return each column's cells; none if a row adds to no cell, or columns share cells."""
    lowest, most = _cell_bounds(cells)
    spans = [slice(low, high + 1) for low, high in zip(lowest.tolist(), most.tolist(), strict=True)]
    ranked = sorted(spans, key=lambda span: span.start)
    apart = all(one.stop <= other.start for one, other in itertools.pairwise(ranked))
    return spans if apart and ranked and ranked[0].start >= 0 else []


def _add_part(
    windows: Words,
    modulus_bits: int,
    rows: Indices,
    columns: tuple[CellIndices, Sequence[slice]],
    sums: Words,
    workers: Workers,
) -> None:
    """Add all of some rows, with the cells of each column; in groups of blocks."""
    ring, (cells, spans) = sums.shape[1], columns
    of = transform_of(ring, modulus_bits)
    shares = -(-workers.count // len(spans))  # of a column's cells
    firsts = np.arange(rows[0] // ring, rows[-1] // ring + 1, of.blocks)
    ends = [*np.searchsorted(rows, firsts * ring).tolist(), len(rows)]
    for first, (start, stop) in zip(firsts.tolist(), itertools.pairwise(ends), strict=True):
        polynomials = windows[first : first + of.blocks, ring:]
        each = np.array_split(polynomials, min(workers.count, len(polynomials)))
        fixed = np.concatenate(workers.map(of.fixed, [(some,) for some in each]))
        tasks = []
        for column, span in enumerate(spans):
            inside = first, rows[start:stop], cells[start:stop, column]
            cuts = np.linspace(span.start, span.stop, shares + 1).astype(int).tolist()
            for low, end in itertools.pairwise(cuts):
                tasks.append((of, fixed, inside, low, sums[low:end]))
        workers.map(_add_column, tasks)


def _add_column(
    of: Transform,
    fixed: Floats,
    inside: tuple[int, Indices, CellIndices],
    low: int,
    sums: Words,
) -> None:
    """Add the rows of some blocks to sums uint64 (n, N), modulo 2^64, those from cell `low` on.

    fixed: `Transform.fixed` of these blocks; inside: the first block, int64 rows and int32 cells.
    """
    first, rows, cells = inside
    values = np.zeros((len(sums), 2, *of.shape))
    tables = of.starts, of.twist, of.turns
    _add_values(fixed, first, rows, cells - np.int32(low), tables, values)
    of.add_back(values, sums)


@kernel
def _cell_bounds(cells: CellIndices) -> tuple[CellIndices, CellIndices]:
    """Return the least and the greatest cell of each column; of one row at least."""
    lowest, most = cells[0].copy(), cells[0].copy()
    for i in range(len(cells)):
        for column in range(cells.shape[1]):
            lowest[column] = min(lowest[column], cells[i, column])
            most[column] = max(most[column], cells[i, column])
    return lowest, most


@kernel
def _add_values(
    fixed: Floats,
    first: int,
    rows: Indices,
    cells: CellIndices,
    tables: tuple[Floats, Floats, Floats],
    values: Floats,
) -> None:
    """Add the values (cells, 2, limbs, M) of each cell's rows."""
    starts, twist, turns = tables
    blocks, half = fixed.shape[0], fixed.shape[3]
    begins, uppers, lowers = _by_cell_and_block(rows, cells, first, fixed.shape, values.shape[0])
    sums, two = np.zeros((2, half)), np.zeros((2, 2, half))
    for near in range(0, blocks, BLOCKS_NEAR):
        for cell in range(values.shape[0]):
            held, before = 0, near
            for block in range(near, min(blocks, near + BLOCKS_NEAR)):
                begin, end = begins[cell * blocks + block], begins[cell * blocks + block + 1]
                if begin < end:
                    _add_starts(sums, starts, lowers[begin:end], uppers[begin:end])
                    _twist_sums(sums, twist, turns, two[held])
                    _turn_levels(two[held], turns)
                    held += 1
                if held == 2:
                    _add_products(two, fixed[before], fixed[block], values[cell])
                    held = 0
                if begin < end:
                    before = block
            if held:
                two[1] = 0.0
                _add_products(two, fixed[before], fixed[before], values[cell])


@kernel
def _by_cell_and_block(
    rows: Indices, cells: CellIndices, first: int, shape: tuple[int, int, int, int], n_cells: int
) -> tuple[Indices, IndexDigits, IndexDigits]:
    """Return the start of the rows of each cell and block, and the digits of their indices N − 1 −
    i.
    """
    blocks, ring, width = shape[0], 2 * shape[3], shape[3] // DENSE_LANES
    begins = np.zeros(n_cells * blocks + 2, np.int64)
    uppers, lowers = np.empty(len(rows), np.int16), np.empty(len(rows), np.int16)
    for i in range(len(rows)):
        if 0 <= cells[i] < n_cells:
            begins[cells[i] * blocks + rows[i] // ring - first + 2] += 1
    for key in range(2, len(begins)):
        begins[key] += begins[key - 1]
    for i in range(len(rows)):
        if 0 <= cells[i] < n_cells:
            block = rows[i] // ring
            key, place = cells[i] * blocks + block - first + 1, (block + 1) * ring - 1 - rows[i]
            uppers[begins[key]], lowers[begins[key]] = place // width, place % width
            begins[key] += 1
    return begins[:-1], uppers, lowers


@kernel
def _add_starts(sums: Floats, starts: Floats, lowers: IndexDigits, uppers: IndexDigits) -> None:
    """Add each row's summand to the first sums (2, M)."""
    re, im = sums[0], sums[1]
    for i in range(len(lowers)):
        at, upper = np.int64(lowers[i]) * DENSE_LANES, np.int64(uppers[i])
        a, b, c, d = (
            re[at : at + DENSE_LANES],
            im[at : at + DENSE_LANES],
            starts[upper, 0],
            starts[upper, 1],
        )
        for k in range(DENSE_LANES):
            a[k] += c[k]
            b[k] += d[k]


@kernel
def _twist_sums(sums: Floats, twist: Floats, turns: Floats, values: Floats) -> None:
    """Write the sums times the twist behind their first level, (2, M), and clear them."""
    far = sums.shape[1] // 2
    a, b, c, d = sums[0, :far], sums[1, :far], twist[0, :far], twist[1, :far]
    e, f, g, h = sums[0, far:], sums[1, far:], twist[0, far:], twist[1, far:]
    re, im, far_re, far_im = values[0, :far], values[1, :far], values[0, far:], values[1, far:]
    turn_re, turn_im = turns[0, 0], turns[0, 1]
    for k in range(far):
        x, y = a[k] * c[k] - b[k] * d[k], a[k] * d[k] + b[k] * c[k]
        v, w = e[k] * g[k] - f[k] * h[k], e[k] * h[k] + f[k] * g[k]
        re[k], im[k] = x + v, y + w
        far_re[k] = (x - v) * turn_re[k] - (y - w) * turn_im[k]
        far_im[k] = (x - v) * turn_im[k] + (y - w) * turn_re[k]
    sums[:] = 0.0


@kernel
def _turn_levels(values: Floats, turns: Floats) -> None:
    """Apply the other levels: each adds near and far numbers, and turns their difference."""
    re, im = values[0], values[1]
    for level in range(1, len(turns) - 2):
        reach = len(re) >> level
        half, c, d = reach // 2, turns[level, 0], turns[level, 1]
        for at in range(0, len(re), reach):
            a, b = re[at : at + half], im[at : at + half]
            far_a, far_b = re[at + half : at + reach], im[at + half : at + reach]
            for k in range(half):
                x, y = a[k] - far_a[k], b[k] - far_b[k]
                a[k] += far_a[k]
                b[k] += far_b[k]
                far_a[k] = x * c[k] - y * d[k]
                far_b[k] = x * d[k] + y * c[k]
    for at in range(0, len(re), 4 * DENSE_LANES):  # the last two, whose turns are 1 and −i
        a, b = re[at : at + 4 * DENSE_LANES], im[at : at + 4 * DENSE_LANES]
        for k in range(DENSE_LANES):
            near, middle = (
                a[k] + a[k + 2 * DENSE_LANES],
                a[k + DENSE_LANES] + a[k + 3 * DENSE_LANES],
            )
            near_i, middle_i = (
                b[k] + b[k + 2 * DENSE_LANES],
                b[k + DENSE_LANES] + b[k + 3 * DENSE_LANES],
            )
            x, y = a[k] - a[k + 2 * DENSE_LANES], b[k + DENSE_LANES] - b[k + 3 * DENSE_LANES]
            x_i, y_i = b[k] - b[k + 2 * DENSE_LANES], a[k + 3 * DENSE_LANES] - a[k + DENSE_LANES]
            a[k], a[k + DENSE_LANES], b[k], b[k + DENSE_LANES] = (
                near + middle,
                near - middle,
                near_i + middle_i,
                near_i - middle_i,
            )
            a[k + 2 * DENSE_LANES], a[k + 3 * DENSE_LANES] = x + y, x - y
            b[k + 2 * DENSE_LANES], b[k + 3 * DENSE_LANES] = x_i + y_i, x_i - y_i


@kernel
def _add_products(two: Floats, fixed: Floats, other: Floats, total: Floats) -> None:
    """Add the products of two values (2, M) with those of two blocks, (2, limbs, M) each."""
    a, b, e, f = two[0, 0], two[0, 1], two[1, 0], two[1, 1]
    for limb in range(total.shape[1]):
        c, d, g, h = fixed[0, limb], fixed[1, limb], other[0, limb], other[1, limb]
        re, im = total[0, limb], total[1, limb]
        for k in range(len(re)):
            re[k] += (a[k] * c[k] - b[k] * d[k]) + (e[k] * g[k] - f[k] * h[k])
            im[k] += (a[k] * d[k] + b[k] * c[k]) + (e[k] * h[k] + f[k] * g[k])
