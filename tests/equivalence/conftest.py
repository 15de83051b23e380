"""What tests of equivalence share."""

import pytest

from fedboost.encrypted.cells import row_cells


@pytest.fixture(scope="module")
def eager():
    """Frequent bins are left out wherever there are any, whether or not it pays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_cells, "SKIPPED_SHARE_MIN", 0.25)
        patch.setattr(row_cells, "SKIPPED_SHARES_MIN", 0.5)
        yield
