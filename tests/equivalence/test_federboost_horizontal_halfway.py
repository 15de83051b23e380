"""A horizontal job that is broken off between two layers of a tree comes to the same model."""

from typing import Any

import pytest

from fedboost.flow import LOOP
from tests.support.contexts import altered
from tests.support.federated import GUEST, with_seed
from tests.support.halfway import assert_same, calls, carried_on, keeping
from tests.support.horizontal_jobs import made
from tests.support.secureboost_jobs import CLASSES, SAMPLES, VECTORS

MODES = {"wait": {}, "continue": {"dropout": "continue"}}
JOBS: dict[str, dict[str, Any]] = {
    "binary": {"max_depth": 3},
    "classes": {**CLASSES, **SAMPLES["both"]},
    "vectors": VECTORS,
    "a forest": {"forest": {"n_trees": 2}},
    "few monotone leaves": {"monotone_constraints": {"c0": 1}, **SAMPLES["leaves"]},
    "trees that end early": {
        "max_depth": 6,
        "min_child_weight": 12.0,
        "subsample": 0.8,
    },
}


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("least", [1, 5], ids=["", "own rows"])
@pytest.mark.parametrize("params", JOBS.values(), ids=JOBS)
def test_a_job_that_carries_on_between_layers_is_the_one_that_was_never_stopped(
    params, least, mode
):
    shape = {"weighted": True, "held": 0.3, "categories": 4, "own_rows_min": least}
    job = made({"n_estimators": 2, **params, **mode}, **shape)
    whole, expected = keeping(job.room())
    indices = [place for place in whole.kept if place < (0, 3) or place[0] == 1]
    assert indices[0] == LOOP, "the search is not kept"
    assert len(indices) >= 5, "hardly anything was kept inside the rounds"
    for place in indices:

        def seeded(room, seed, place=place):
            own = with_seed(room, seed)
            contexts = {
                name: altered(
                    context,
                    attempt={"digest": seed.ljust(32)},
                    services={"notebook": whole.contexts[name].services.notebook},
                )
                for name, context in own.contexts.items()
            }
            return type(own)(own.protocol, contexts, own.wait_s)

        room, found = carried_on(job.room, place, whole.kept[place], seeded)
        assert_same(found, expected)
        for party in job.parties:
            grown, seen = (one.state(party).training for one in (room, whole))
            assert repr(grown.measures.history) == repr(seen.measures.history)
            for part, rows in seen.watched.items():
                assert grown.watched[part].margin.tobytes() == rows.margin.tobytes()
        later = [one for one in whole.kept if one > place]
        assert list(room.kept) == later, "layers were grown again, or left out"
        assert calls(room, "count_below") == 0
        assert calls(room, "sum_histograms") == sum(len(one) > 1 for one in later)
        sizes = {
            p.envelope.payload_bytes for p in whole.posted if p.envelope.step == "sum_histograms"
        }
        mine = {
            p.envelope.payload_bytes for p in room.posted if p.envelope.step == "sum_histograms"
        }
        assert mine <= sizes, "other sums were told than would have been"
    assert whole.state(GUEST).training.layer == 0
