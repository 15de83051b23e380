"""A ledger that knows nothing of a job agrees with nobody about it."""

from contextlib import closing

import pytest

from fedboost.ground.errors import DataError
from fedboost.runtime.ledger import comparison
from fedboost.runtime.ledger.ledger import Ledger


def test_a_job_that_a_ledger_does_not_know_is_not_reviewed(tmp_path):
    with (
        closing(Ledger(tmp_path / "store.sqlite")) as ledger,
        pytest.raises(DataError, match="knows no job no-such-job"),
    ):
        comparison.contradicted_rows(ledger, "bank", "no-such-job")
