"""A hybrid job that is broken off inside a round comes to the same model."""

from typing import Any

import numpy as np
import pytest

from fedboost.ground import wire
from fedboost.ground.errors import PeerError
from fedboost.protocols.hybridtree import host as hybridtree_host
from tests.support import hybrid_unscored
from tests.support.federated import GUEST, changing
from tests.support.halfway import assert_same, calls, carried_on, for_an_audit, keeping
from tests.support.hybrid_jobs import made
from tests.support.secureboost_jobs import CLASSES, SAMPLES

SEALED = ("key", "leaf_value")  # arrays of an unscored model that hold what is encrypted
JOBS: dict[str, dict[str, Any]] = {
    "binary": {"host_depth": 3},
    "classes": {**CLASSES, **SAMPLES["both"]},
    "noise": {"host_noise": 0.05},
    "pure nodes closed": {"label_protection": {"hide_divisions": False, "purity_max": 0.75}},
    "lattice": {"encryption": {"scheme": "lattice"}, "n_estimators": 2},
}


@pytest.mark.parametrize("params", JOBS.values(), ids=JOBS)
def test_a_job_that_carries_on_between_layers_is_the_one_that_was_never_stopped(params):
    least = 1 if "host_noise" in params else 3
    said = {"n_estimators": 2, **params}
    job = made(said, weighted=True, categories=5, least=least, rows=150)
    whole, expected = keeping(job.room())
    noted = for_an_audit(hybridtree_host, whole)
    indices = [place for place in whole.kept if place[0] == 1]
    assert len(indices) >= 2, "hardly anything was kept inside the second round"
    for place in indices:
        room, found = carried_on(job.room, place, whole.kept[place])
        assert_same(found, expected)
        assert room.state(GUEST).margin.tobytes() == whole.state(GUEST).margin.tobytes()
        before = {one: whole.kept[one] for one in whole.kept if one <= place}
        assert for_an_audit(hybridtree_host, room, before) == noted
        later = [one for one in whole.kept if one > place]
        assert list(room.kept) == later, "layers were grown again, or left out"
        assert calls(room, "choose_splits") == len(later)


def test_unscored_classes_are_grown_once_each():
    job = hybrid_unscored.made({**CLASSES, "n_estimators": 2}, held=0.25)
    whole, expected = keeping(job.room())
    assert list(whole.kept) == [(number, tree) for number in (0, 1) for tree in (1, 2, 3)]

    def seeded(room, seed):
        return hybrid_unscored.reseeded(room, attempt=seed)

    for place in [(0, 2), (1, 1), (1, 3)]:
        room, found = carried_on(job.room, place, whole.kept[place], seeded)
        for party, shard in expected.items():
            assert repr(found[party].facts) == repr(shard.facts)
            for name, array in shard.arrays.items():
                if name not in SEALED:
                    assert found[party].arrays[name].tobytes() == array.tobytes()
        assert room.state(GUEST).margin.tobytes() == whole.state(GUEST).margin.tobytes()
        later = [one for one in whole.kept if one > place]
        assert calls(room, "answer_rows") == len(later)


def other_node(part):
    """A row stands below another bottom node than before."""
    at = wire.unpack(part.at, "i4", (None,), "nodes").astype(np.int32)
    open_ones = np.unique(at[at >= 0])
    row = np.flatnonzero(at == open_ones[0])[0]
    at[row] = open_ones[1]
    part.at.CopyFrom(wire.pack(at))


def earlier_tree(part):
    """One that has grown whole."""
    part.gradients.tree -= 1


LIES = [(other_node, "goes on with other rows"), (earlier_tree, "began tree")]


@pytest.mark.parametrize(("lie", "says"), LIES, ids=["rows", "tree"])
def test_a_guest_cannot_go_on_with_another_tree(lie, says):
    job = made({"n_estimators": 3, "host_depth": 3}, (2, 2))
    whole, _ = keeping(job.room())
    alter = changing("BottomRows", lie)
    with pytest.raises(PeerError, match=says):
        carried_on(job.room, (1, 0, 1), whole.kept[1, 0, 1], alter=alter)
