"""A refused job is told what would do, and that does."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost import protocols
from fedboost.flow import Table
from fedboost.ground.settings import parse_settings
from fedboost.protocols.hybridtree import params as hybrid
from fedboost.protocols.secureboost import plan
from fedboost.runtime.policy.forecast import change_in_words, sufficient_changes
from tests import tiers

TABLE = Table("bank", ("telco", "shop"))
COLUMNS = 12
RELEASES: dict[str, Any] = {"secureboost": plan.releases, "hybridtree": hybrid.releases}


def told(protocol, params, columns=COLUMNS):
    """What telco's sums are expected to tell; without `columns`, the most that they may."""
    return RELEASES[protocol](params, TABLE, "telco", columns).whole


def fitting(protocol, raw, most, columns=COLUMNS):
    kind = protocols.load_protocol(protocol).params
    return sufficient_changes(kind, raw, lambda params: told(protocol, params, columns) <= most)


def changed(protocol, raw, change):
    return parse_settings(protocols.load_protocol(protocol).params, {**raw, **change})


TREES = st.fixed_dictionaries(
    {"n_estimators": st.integers(1, 120)},
    optional={
        "learning_rate": st.floats(0.01, 1.0),
        "max_bin": st.integers(2, 64),
        "seed": st.integers(0, 5),
    },
)
CLASSES = st.sampled_from(
    [
        {},
        {"objective": "reg:squarederror"},
        {"objective": "multi:softprob", "num_class": 3},
        {"objective": "multi:softprob", "num_class": 4, "multi_output": True},
    ]
)
SAMPLES = st.sampled_from(
    [
        {},
        {"colsample_bytree": 0.7},
        {"subsample": 0.5},
        {"goss": {}},
        {"forest": {}},
        {"forest": {"n_trees": 3, "colsample_bytree": 0.5}},
        {"forest": {"dynamic": {"n_trees": [4, 1]}}},
    ]
)
MODES = st.one_of(
    st.fixed_dictionaries({"max_depth": st.integers(1, 9)}),
    st.fixed_dictionaries({"mode": st.just("mix"), "max_depth": st.integers(1, 9)}),
    st.fixed_dictionaries(
        {
            "mode": st.just("layered"),
            "host_depth": st.integers(1, 6),
            "guest_depth": st.integers(1, 3),
        }
    ),
)
SECUREBOOST = st.builds(lambda *parts: {k: v for p in parts for k, v in p.items()},
                        TREES, CLASSES, SAMPLES, MODES)  # fmt: skip
HYBRID = st.builds(
    lambda *parts: {k: v for p in parts for k, v in p.items()},
    TREES,
    CLASSES,
    st.fixed_dictionaries({"guest_depth": st.integers(1, 5), "host_depth": st.integers(1, 5)}),
)


@settings(max_examples=tiers.examples(60), deadline=None)
@given(raw=SECUREBOOST, share=st.floats(0.001, 0.99))
def test_every_remedy_of_a_refused_job_does(raw, share):
    most = share * told("secureboost", changed("secureboost", raw, {}))
    found = fitting("secureboost", raw, most)
    for change in found:
        assert told("secureboost", changed("secureboost", raw, change)) <= most
        assert change_in_words(change, raw)
    depth = "host_depth" if raw.get("mode") == "layered" else "max_depth"
    least = changed("secureboost", raw, {"n_estimators": 1, depth: 1})
    assert found or told("secureboost", least) > most


@settings(max_examples=tiers.examples(40), deadline=None)
@given(raw=HYBRID, share=st.floats(0.001, 0.99))
def test_every_remedy_of_a_refused_hybrid_job_does(raw, share):
    most = share * told("hybridtree", changed("hybridtree", raw, {}))
    for change in fitting("hybridtree", raw, most):
        assert told("hybridtree", changed("hybridtree", raw, change)) <= most


@pytest.mark.parametrize(
    ("raw", "most", "words"),
    [
        ({"n_estimators": 25, "max_depth": 5}, 770, ["n_estimators: 12", "max_depth: 3"]),
        ({"n_estimators": 25, "max_depth": 5}, 1574, ["n_estimators: 24", "max_depth: 4"]),
        (
            {"n_estimators": 9, "mode": "layered", "host_depth": 4, "guest_depth": 1},
            200,
            ["n_estimators: 6", "host_depth: 3"],
        ),
        (
            {"n_estimators": 10, "max_depth": 3, "forest": {"n_trees": 4}},
            390,
            ["n_estimators: 6", "max_depth: 2", "forest.n_trees: 2"],
        ),
        ({"n_estimators": 1, "max_depth": 3}, 7, ["max_depth: 2"]),
    ],
)
def test_the_words_say_what_to_write_into_the_job(raw, most, words):
    found = [change_in_words(change, raw) for change in fitting("secureboost", raw, most, None)]
    assert [one for one in found if "colsample" not in one] == words[: len(found)]
    assert found


def test_where_no_setting_suffices_alone_two_do():
    raw = {"n_estimators": 200, "max_depth": 8}
    assert [change_in_words(change, raw) for change in fitting("secureboost", raw, 300, None)] == [
        "max_depth: 7 and n_estimators: 1"
    ]


def test_columns_are_drawn_as_the_job_will_draw_them():
    raw = {"n_estimators": 50, "max_depth": 3}
    (rate,) = [c for c in fitting("secureboost", raw, 300) if "colsample_bytree" in c]
    assert told("secureboost", changed("secureboost", raw, rate)) <= 300 < 50 * 8


def test_where_the_account_is_empty_nothing_is_named():
    assert fitting("secureboost", {"n_estimators": 25}, 1) == []
