"""Jobs whose hosts check gradients: they become the models of those that do not."""

import numpy as np
import pytest

from fedboost.encrypted.checks.gradient_check import SignedRows
from tests.support import hybrid_jobs
from tests.support.federated import now
from tests.support.secureboost_jobs import CLASSES, VECTORS, made

ROWS = 300
SCHEMES = {
    "plain": {},
    "lattice": {"encryption": {"scheme": "lattice", "answers": "vectors"}},
    "lattice, packed": {"encryption": {"scheme": "lattice", "answers": "packed"}},
    "lattice, one key": {"encryption": {"scheme": "lattice", "key_trees": 3}},
    "okamoto-uchiyama": {"encryption": {"scheme": "okamoto-uchiyama"}, "n_estimators": 1},
}
TREES = {
    "classes": {**CLASSES, "n_estimators": 1},
    "vectors": {**VECTORS, "n_estimators": 1},
    "forest": {"forest": {"n_trees": 2, "subsample": 0.6}, "n_estimators": 2},
    "rows": {"subsample": 0.9, "n_estimators": 2},
    "mix": {"mode": "mix", "trees_per_party": 1},
    "noise": {"host_noise": 0.5, "n_estimators": 2, "encryption": {"scheme": "lattice"}},
    "numbers with noise": {
        "host_noise": 0.5,
        "n_estimators": 1,
        "encryption": {"scheme": "okamoto-uchiyama"},
    },
}


def models(params, of=made, **how):
    """What parties are left with, with and without the check; how many messages went for it."""
    left, counts = [], []
    for checks in (True, False):
        room = of({**params, "gradient_check": checks}, **how).room()
        left.append(now(room.walk()))
        counts.append(sum("OpenedSums" in line for line in room.lines()))
    return left, counts


@pytest.mark.parametrize("params", [*SCHEMES.values(), *TREES.values()], ids=[*SCHEMES, *TREES])
def test_a_checked_job_becomes_the_model_of_one_that_is_not(params):
    (checked, plain), counts = models({"max_depth": 2, **params}, rows=ROWS, held=0.0)
    assert SignedRows(bytes(32), ROWS, 2, 7).sets
    assert counts[0] > 0
    assert counts[1] == 0
    if params.get("host_noise"):  # another one for other ciphertexts
        return
    for party, shard in checked.items():
        assert shard.arrays.keys() == plain[party].arrays.keys()
        for name, array in shard.arrays.items():
            np.testing.assert_array_equal(array, plain[party].arrays[name], err_msg=name)


def test_hosts_of_hybridtree_check_the_gradients_of_their_own_rows():
    params = {"n_estimators": 2, "guest_depth": 1, "host_depth": 1}
    (checked, plain), counts = models(params, hybrid_jobs.made, rows=900)
    assert counts[0] > 0
    assert counts[1] == 0
    for party, shard in checked.items():
        for name, array in shard.arrays.items():
            np.testing.assert_array_equal(array, plain[party].arrays[name], err_msg=name)


def test_too_few_rows_are_not_checked():
    """Their signed sums would tell of each row; the steps are walked all the same."""
    assert not SignedRows(bytes(32), 200, 2, 7).sets
    (checked, plain), counts = models({"max_depth": 2}, rows=120, held=0.0)
    assert counts[0] > 0
    assert checked.keys() == plain.keys()
