"""A job that is broken off between two layers of a tree comes to the same model."""

from typing import Any

import numpy as np
import pytest

from fedboost.ground import wire
from fedboost.ground.errors import PeerError
from fedboost.protocols.secureboost import host as secureboost_host
from tests.support.federated import GUEST, changing
from tests.support.halfway import assert_same, calls, carried_on, for_an_audit, keeping
from tests.support.secureboost_jobs import CLASSES, SAMPLES, VECTORS, made

NOISY = {"host_noise": 0.05}
HIDING = {"label_protection": {"hide_divisions": True, "purity_max": 0.9}}
JOBS: dict[str, dict[str, Any]] = {
    "binary": {},
    "classes": {**CLASSES, **SAMPLES["columns"]},
    "classes in turns": {**CLASSES, "mode": "mix", "n_estimators": 3, "max_depth": 2},
    "layered vectors": {**VECTORS, "mode": "layered", "host_depth": 2, "guest_depth": 2},
    "a forest": {"forest": {"n_trees": 2}},
    "goss": {**CLASSES, **SAMPLES["goss"]},
    "medians": {"objective": "reg:absoluteerror", **SAMPLES["both"]},
    "few monotone leaves": {"monotone_constraints": {"c0": 1}, **SAMPLES["leaves"]},
    "columns of nodes": SAMPLES["nodes"],
    "noise": NOISY,
    "hidden divisions": HIDING,
    "lattice": {"encryption": {"scheme": "lattice"}, "max_depth": 2},
    "no subtraction": {"histogram_subtraction": False},
}


def inside(kept, number):
    """The places inside a round that were kept."""
    return [place for place in kept if place[0] == number]


@pytest.mark.some(2)
@pytest.mark.parametrize("params", JOBS.values(), ids=JOBS)
def test_a_job_that_carries_on_between_layers_is_the_one_that_was_never_stopped(params):
    said = {"n_estimators": 2, "max_depth": 3, **params}
    said = {k: v for k, v in said.items() if k != "max_depth" or said.get("mode") != "layered"}
    least = 1 if "host_noise" in params else 5
    job = made(said, (2, 2, 2), 80, weighted=True, held=0.3, categories=4, least=least)
    whole, expected = keeping(job.room())
    indices = inside(whole.kept, 1)
    noted = for_an_audit(secureboost_host, whole)
    assert indices, "nothing was kept inside the second round"
    for place in indices:
        room, found = carried_on(job.room, place, whole.kept[place])
        assert_same(found, expected)
        assert room.state(GUEST).margin.tobytes() == whole.state(GUEST).margin.tobytes()
        before = {one: whole.kept[one] for one in whole.kept if one <= place}
        assert for_an_audit(secureboost_host, room, before) == noted
        later = [one for one in whole.kept if one > place]
        assert list(room.kept) == later, "layers were grown again, or left out"
        assert calls(room, "open_layer") == len(later)


def other_rows(part):
    """One row takes part instead of another."""
    count = 8 * len(part.taking_part.data)
    bits = wire.unpack_bits(part.taking_part, count, "rows").copy()
    bits[[np.flatnonzero(bits)[0], np.flatnonzero(~bits)[0]]] = False, True
    part.taking_part.CopyFrom(wire.pack_bits(bits))


def earlier_tree(part):
    """One that has grown whole."""
    part.tree -= 1


LIES = [(other_rows, "goes on with other rows"), (earlier_tree, "began tree")]


@pytest.mark.parametrize(("lie", "says"), LIES, ids=["rows", "tree"])
def test_a_guest_cannot_go_on_with_another_tree(lie, says):
    job = made({"n_estimators": 2, "max_depth": 3, **SAMPLES["rows"]}, (2, 2))
    whole, _ = keeping(job.room())
    alter = changing("EncryptedGradients", lie)
    with pytest.raises(PeerError, match=says):
        carried_on(job.room, (1, 0, 1), whole.kept[1, 0, 1], alter=alter)
