"""A job of boosted networks that breaks off comes to the same model, from before its rounds on."""

import pytest

from fedboost.flow import LOOP
from tests.support.gbun_jobs import made
from tests.support.halfway import assert_same, calls, carried_on, keeping


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("form", ["standard", "rank", "bins", "auto"])
def test_a_job_that_carries_on_is_the_one_that_was_never_stopped(form, sparse):
    said = {"n_estimators": 3, "columns": form}
    job = made(said, weighted=True, held=0.3, sparse=sparse)
    whole, expected = keeping(job.room())
    assert list(whole.kept) == [LOOP, (1,), (2,), (3,)]
    for done, (place, kept) in enumerate(whole.kept.items()):
        room, found = carried_on(job.room, place, kept)
        assert_same(found, expected)
        assert calls(room, "count_rows") == calls(room, "sum_columns") == 0
        assert calls(room, "count_below") == 0
        assert calls(room, "sum_outputs") == 3 - done
