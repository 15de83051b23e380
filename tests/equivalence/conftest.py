"""What tests of equivalence share."""

import pytest

from fedboost.encrypted import cells


@pytest.fixture(scope="module")
def eager():
    """Frequent bins are left out wherever there are any, whether or not it pays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "SKIPPED_SHARE_MIN", 0.25)
        patch.setattr(cells, "SKIPPED_SHARES_MIN", 0.5)
        yield
