"""Do switches, schemes and mixtures of all settings leave hybridtree's trees as they are?"""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.crypto import sparse
from fedboost.encrypted.cells import tree_part
from tests import tiers
from tests.support.federated import GUEST, HOSTS, PLAIN
from tests.support.hybrid_jobs import RATE, Job, assert_pooled, made, n_splits
from tests.support.secureboost_jobs import CLASSES, SAMPLES, SWITCHES, VECTORS, named

pytestmark = pytest.mark.usefixtures("eager")

COMBINATIONS = tiers.pairs_of(itertools.product([True, False], repeat=len(SWITCHES)))
NAMES = ["".join("01"[on] for on in one) for one in COMBINATIONS]
ALL, NONE = (True,) * 4, (False,) * 4


@pytest.mark.parametrize("switches", COMBINATIONS, ids=NAMES)
def test_every_combination_of_switches_grows_the_same_trees(switches, monkeypatch):
    filled = []

    def noted(*given):
        filled.append(1)
        return sparse.fill_skipped(*given)

    monkeypatch.setattr(tree_part, "fill_skipped", noted)
    chosen = dict(zip(SWITCHES, switches, strict=True))
    for more in ({}, VECTORS):
        job = made({**chosen, **more, "n_estimators": 2, "host_depth": 3}, zero=0.6, missing=0.15)
        filled.clear()
        assert all(n_splits(assert_pooled(job).twin))
        assert bool(filled) == chosen["sparse_histograms"]


SCHEMES: dict[str, dict[str, Any]] = {
    "paillier": {"encryption": {"scheme": "paillier"}},
    "okamoto-uchiyama": {"encryption": {"scheme": "okamoto-uchiyama"}},
    "iterative-affine": {
        "encryption": {"scheme": "iterative-affine", "key_bits": 1024},
        "allow_insecure": True,
    },
}


@pytest.mark.some(2, of="trees under real keys")
@pytest.mark.parametrize(
    ("scheme", "switches", "more"),
    [
        ("paillier", ALL, {}),
        ("paillier", ALL, CLASSES),
        ("paillier", NONE, {}),
        ("okamoto-uchiyama", ALL, VECTORS),
        ("okamoto-uchiyama", NONE, {}),
        ("iterative-affine", ALL, CLASSES),
        ("iterative-affine", NONE, VECTORS),
        ("iterative-affine", (True, False, False, True), SAMPLES["goss"]),
    ],
    ids=repr,
)
def test_ciphertexts_grow_the_same_trees(scheme, switches, more):
    small = {"n_estimators": 1, "max_bin": 4, "guest_depth": 1, "host_depth": 2}
    said = {**dict(zip(SWITCHES, switches, strict=True)), **SCHEMES[scheme], **small, **more}
    job = made(said, (2, 2, 1), rows=60, zero=0.4, shares=[range(40), range(30, 50)])
    assert any(n_splits(assert_pooled(job).twin)[1:])


# Small jobs of every kind


SIMPLE = ("binary:logistic", "reg:squarederror", "count:poisson", "reg:tweedie")
DRAWN = ("goss", "rows", "columns", "both")  # what else there is, hybridtree refuses
MEASURED = {"binary:logistic": "rmse", "multi:softprob": "merror"}  # of rows of one class, too


@st.composite
def small_jobs(draw):
    """A few rows, some of them some hosts', few distinct values, any sample and switches."""
    rows = draw(st.integers(6, 24))
    ids = named(rows)
    widths = [
        draw(st.integers(0, 2)),
        *draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)),
    ]
    cells = st.sampled_from([np.nan, -1.0, 0.0, 0.0, 0.5, 2.0])
    params = {
        **PLAIN,
        "n_estimators": 3,
        "max_bin": 4,
        "learning_rate": RATE,
        "guest_depth": draw(st.integers(1, 3)),
        "host_depth": draw(st.integers(1, 3)),
        "min_child_weight": draw(st.sampled_from([0.0, 0.3, 1.0])),
        "reg_lambda": draw(st.sampled_from([0.0, 1.0])),
        **draw(st.sampled_from([{}, {"colsample_bylevel": 0.5}, *map(SAMPLES.get, DRAWN)])),
        **draw(st.sampled_from([CLASSES, VECTORS, *({"objective": o} for o in SIMPLE)])),
        **{name: draw(st.booleans()) for name in SWITCHES},
    }
    params["eval_metric"] = MEASURED.get(params["objective"], "mae")
    y = np.array(draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=rows, max_size=rows)))
    weights = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=rows, max_size=rows)
    weight = draw(st.none() | weights.map(np.array))
    held = draw(st.sampled_from([None, 0.25]))
    job = Job({}, {}, y, weight, held, params, ids)
    known, checked = np.flatnonzero(~job.out), np.flatnonzero(job.out)
    y[known[:2]] = [0.0, 1.0]
    if weight is not None:
        weight[known[:2]] = 1.0
        weight[checked[:1]] = 1.0
    for party, width in zip((GUEST, *HOSTS), widths, strict=False):
        own = np.arange(rows)
        if party != GUEST:
            has = np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
            has[draw(st.sampled_from(known.tolist()))] = True
            own = np.flatnonzero(has)
            job.rows[party] = own.astype(np.int32)
        given_cells = draw(st.lists(cells, min_size=len(own) * width, max_size=len(own) * width))
        job.columns[party] = np.array(given_cells, np.float32).reshape(len(own), width)
    return job


@pytest.mark.some(1, of="any small job")
@settings(max_examples=tiers.examples(100), deadline=None)
@given(small_jobs())
def test_any_small_job_grows_the_pooled_trees(job):
    assert_pooled(job)
