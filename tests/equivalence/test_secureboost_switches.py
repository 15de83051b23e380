"""Do switches, schemes and mixtures of all settings leave secureboost's trees as they are?"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.crypto import sparse
from fedboost.encrypted.cells import tree_part
from tests import tiers
from tests.support.federated import (
    GUEST,
    HOSTS,
    PLAIN,
)
from tests.support.secureboost_jobs import (
    CLASSES,
    SAMPLES,
    SWITCHES,
    VECTORS,
    Job,
    assert_naive,
    assert_pooled,
    made,
    named,
)

pytestmark = pytest.mark.usefixtures("eager")

# Switches and schemes


COMBINATIONS = tiers.pairs_of(itertools.product([True, False], repeat=len(SWITCHES)))
NAMES = ["".join("01"[on] for on in one) for one in COMBINATIONS]


@pytest.mark.parametrize("switches", COMBINATIONS, ids=NAMES)
def test_every_combination_of_switches_grows_the_same_trees(switches, monkeypatch):
    filled = []

    def noted(*given):
        filled.append(1)
        return sparse.fill_skipped(*given)

    monkeypatch.setattr(tree_part, "fill_skipped", noted)
    chosen = dict(zip(SWITCHES, switches, strict=True))
    for more in ({}, VECTORS):
        job = made({**chosen, **more, "n_estimators": 2, "max_depth": 4}, zero=0.6, missing=0.15)
        filled.clear()
        assert_pooled(job)
        assert bool(filled) == chosen["sparse_histograms"]


SCHEMES = {
    "paillier": {"scheme": "paillier", "key_bits": 2048},
    "okamoto-uchiyama": {"scheme": "okamoto-uchiyama", "key_bits": 2048},
    "iterative-affine": {"scheme": "iterative-affine", "key_bits": 1024},
}
ALL, NONE = (True,) * 4, (False,) * 4


@pytest.mark.some(2, of="trees under real keys")
@pytest.mark.parametrize(
    ("scheme", "switches", "more"),
    [
        ("paillier", ALL, {}),
        ("paillier", ALL, VECTORS),
        ("paillier", NONE, {}),
        ("paillier", (True, False, True, False), {"mode": "layered", "host_depth": 1}),
        ("okamoto-uchiyama", ALL, VECTORS),
        ("okamoto-uchiyama", NONE, {}),
        ("okamoto-uchiyama", (False, True, False, True), {}),
        ("iterative-affine", ALL, CLASSES),
        ("iterative-affine", NONE, VECTORS),
        ("iterative-affine", (True, False, False, True), {}),
    ],
    ids=repr,
)
def test_ciphertexts_grow_the_same_trees(scheme, switches, more):
    params = {
        **dict(zip(SWITCHES, switches, strict=True)),
        "encryption": SCHEMES[scheme],
        "allow_insecure": scheme == "iterative-affine",
        "n_estimators": 1,
        "max_bin": 4,
        **more,
    }
    if "mode" not in more:
        params["max_depth"] = 2
    job = made(params, (2, 2), 60, zero=0.5)
    if "mode" in more:
        assert_naive(job)
    else:
        assert_pooled(job)


# Small jobs of every kind


@st.composite
def small_jobs(draw):
    """A few rows, few distinct values, missing ones, any mode, sample, objective and switches."""
    rows, widths = (
        draw(st.integers(6, 24)),
        draw(st.lists(st.integers(1, 3), min_size=2, max_size=4)),
    )
    cells = st.sampled_from([np.nan, -1.0, 0.0, 0.0, 0.5, 2.0])
    columns = {}
    for party, width in zip((GUEST, *HOSTS), widths, strict=False):
        given_cells = draw(st.lists(cells, min_size=rows * width, max_size=rows * width))
        columns[party] = np.array(given_cells, np.float32).reshape(rows, width)
    mode = draw(st.sampled_from(["default", "mix", "layered"]))
    params = {
        **PLAIN,
        "n_estimators": 3,
        "max_bin": 4,
        "mode": mode,
        "min_child_weight": draw(st.sampled_from([0.0, 0.3, 1.0])),
        **draw(st.sampled_from([{}, *SAMPLES.values()])),
        **draw(st.sampled_from([CLASSES, VECTORS, *({"objective": o} for o in SIMPLE)])),
        **{name: draw(st.booleans()) for name in SWITCHES},
    }
    if mode == "layered":
        params.pop("max_depth", None)
        params |= {"host_depth": draw(st.integers(1, 2)), "guest_depth": draw(st.integers(1, 2))}
    else:
        params["max_depth"] = draw(st.integers(1, 3))
    y = np.array(draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=rows, max_size=rows)))
    weights = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=rows, max_size=rows)
    weight = draw(st.none() | weights.map(np.array))
    job = Job(columns, y, weight, draw(st.sampled_from([None, 0.25])), params, named(rows))
    known = np.flatnonzero(~job.out)[:2]
    y[known] = [0.0, 1.0]
    if weight is not None:
        weight[known] = 1.0
        weight[np.flatnonzero(job.out)[:1]] = 1.0
    return job


SIMPLE = ("binary:logistic", "reg:absoluteerror", "count:poisson", "reg:tweedie")
MEASURED = {"binary:logistic": "rmse", "multi:softprob": "merror"}  # of rows of one class, too


@pytest.mark.some(1, of="any small job")
@settings(max_examples=tiers.examples(60), deadline=None)
@given(small_jobs())
def test_any_small_job_grows_the_naive_trees(job):
    measured = MEASURED.get(job.params["objective"], "mae")
    assert_naive(replace(job, params={**job.params, "eval_metric": [measured]}))
