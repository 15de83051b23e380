"""The lattice scheme at full size: a million cells, many samples for the attacks, the memory.

`pytest --long tests/unit/crypto/test_lattice_long.py` runs it, in about five minutes on one core.
"""

import subprocess
import sys

import numpy as np
import pytest

from fedboost.crypto.lattice.decryption import decrypt, open_vectors
from fedboost.crypto.lattice.released import AnswerShape
from tests.conftest import ROOT
from tests.support.lattices import (
    HOST,
    LATTICE,
    drawn_cells,
    drawn_messages,
    grown,
    integer_sums,
    segment_sums,
)
from tests.support.releases import release
from tests.unit.crypto.test_lattice_attacks import correlation

pytestmark = pytest.mark.long

EACH = 85_000
CELLS_BY_ROWS = {
    1: EACH,
    2: EACH,
    3: EACH,
    10: EACH,
    31: EACH,
    100: EACH,
    500: EACH,
    1000: EACH,
    2048: EACH,
    2049: EACH,
    5000: EACH,
    20_000: EACH,
    1 << 17: 8_000,
    1 << 20: 2_000,
}
MEMORY_MOST = 2 << 30


def cells_in_all(by_rows):
    return sum(by_rows.values())


def test_the_plan_has_a_million_cells_from_one_row_to_two_to_20():
    assert cells_in_all(CELLS_BY_ROWS) >= 10**6
    assert (min(CELLS_BY_ROWS), max(CELLS_BY_ROWS)) == (1, 1 << 20)


@pytest.mark.parametrize(("rows", "wanted"), CELLS_BY_ROWS.items())
def test_every_cell_decrypts_to_the_integer_sum_and_sigma_is_the_formulas(rows, wanted):
    of = grown(drawn_messages(rows, seed=rows))
    n_cells = min(255, max(2, rows // 3))
    columns = -(-wanted // n_cells)
    cells = drawn_cells(rows, columns, n_cells, seed=rows)
    width = of.budget.width(rows)
    shape = AnswerShape(LATTICE, 2, width)
    squared = seen = 0.0
    for column, sums in enumerate(segment_sums(of.rows, np.arange(rows), cells, n_cells)):
        data = release(of.key, sums, width, HOST.child(column)).to_bytes()
        expected = integer_sums(of.messages, cells[:, column : column + 1], n_cells)
        assert (decrypt(of.secret, data, n_cells, rows) == expected).all()
        noise = open_vectors(of.secret, data, n_cells, shape) - (expected << 24)
        squared += float((noise.astype(float) ** 2).sum())
        seen += noise.size
    assert np.sqrt(squared / seen) == pytest.approx(LATTICE.sigma(rows // (n_cells + 1)), rel=0.03)


def test_many_samples_do_not_correlate_with_the_rows_errors():
    samples = 20_000
    assert max(map(abs, correlation(LATTICE, samples))) < 4 / np.sqrt(samples)


SCRIPT = """
import resource
import numpy as np
from fedboost.crypto.lattice.decryption import decrypt
from tests.support.lattices import HOST, drawn_messages, grown
rows, columns, bins = 1_000_000, 20, 32
of = grown(drawn_messages(rows))
cells = np.random.default_rng(0).integers(0, bins, (rows, columns), dtype=np.int32)
width = of.budget.width(rows)
for column, sums in enumerate(segment_sums(of.rows, np.arange(rows), cells, bins)):
    running = sums.prefix_sums(np.array([0, bins]))
    bytes = release(of.key, running, width, HOST.child(column)).to_bytes()
    found = decrypt(of.secret, bytes, bins, rows)
    assert (found[-1] == of.messages.sum(axis=0)).all()
print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_a_million_rows_by_20_columns_by_32_bins_stay_within_two_gigabytes():
    """Both sides of a tree's root in one process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert int(done.stdout) < MEMORY_MOST
