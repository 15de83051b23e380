"""A shard as readable JSON: complete, strict JSON, and a host's file comes back as it was."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.core.categories import set_members
from fedboost.core.params import MAX_BIN, ROUNDS_MAX
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError, DataError
from fedboost.model.export import shortest_float
from fedboost.model.vertical import LEAF
from tests.support.models import (
    CATEGORIES,
    COLUMNS,
    PARTIES,
    own_shard,
    random_model,
    read_host_shard,
)


def strict(text):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


@given(st.integers(0, 200))
def test_a_hosts_file_comes_back_as_its_shard(seed):
    telco = random_model(seed)["telco"]
    found = read_host_shard(own_shard(telco).encode())
    for name, array in telco.arrays.items():
        assert array.dtype == found.arrays[name].dtype
        assert np.array_equal(array, found.arrays[name])
    at_home = ("format", "trees_per_round", "forest")  # how rounds are made up, the guest says
    assert found.facts == {k: v for k, v in telco.facts.items() if k not in at_home}


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_short_text_of_a_float_reads_back_as_the_same_float(value):
    single = np.float32(value)
    assert np.float32(json.loads(json.dumps(shortest_float(single)))) == single
    assert len(repr(shortest_float(np.float32(0.1)))) == 3


def test_a_guests_file_has_every_node_and_only_its_own_splits():
    bank = random_model(4)["bank"]
    found = strict(own_shard(bank))
    arrays = bank.arrays
    assert (found["format"], found["version"]) == ("fedboost-shard", 1)
    assert found["base_margin"] == bank.facts["base_margin"]
    assert len(found["nodes"]) == len(arrays["node"])
    for i, node in enumerate(found["nodes"]):
        owner = arrays["owner"][i]
        assert (node["tree"], node["node"]) == (arrays["tree"][i], arrays["node"][i])
        assert node["cover"] == arrays["cover"][i]
        if owner == LEAF:
            assert node["leaf"] == arrays["value"][i].tolist()
            assert "owner" not in node
            continue
        assert node["owner"] == PARTIES[owner]
        assert node["gain"] == arrays["gain"][i]
        assert ("threshold" in node or "categories" in node) == (owner == 0)
        if owner == 0:
            held = node.get("categories", [])
            indices = [CATEGORIES["branch"].index(text) for text in held]
            assert indices == set_members(arrays["left_bins"][i].tobytes())
            if not held:
                threshold = np.float32(np.inf if node["threshold"] is None else node["threshold"])
                assert threshold == arrays["threshold"][i]
            assert node["column"] == COLUMNS["bank"][arrays["feature"][i]]
            assert (node["missing"] == "left") == arrays["missing_left"][i]


def test_a_metric_that_could_not_be_measured_is_null():
    bank = random_model(4)["bank"]
    odd = Artefact({**bank.facts, "history": [{"train": {"auc": float("nan")}}]}, bank.arrays)
    assert strict(own_shard(odd))["history"] == [{"train": {"auc": None}}]


def test_a_host_exports_nothing_but_its_splits_and_who_it_is():
    telco = random_model(4)["telco"]
    more = Artefact({**telco.facts, "secret": 7}, telco.arrays)
    found = strict(own_shard(more))
    assert "secret" not in found
    assert set(found["splits"][0]) == {"tree", "node", "column", "threshold", "missing"}


def changed(**keys):
    raw = strict(own_shard(random_model(4)["telco"]))
    return json.dumps({**raw, **keys}).encode()


SPLIT = {"tree": 0, "node": 0, "column": "calls", "threshold": 1.5, "missing": "left"}
CITY = {"tree": 0, "node": 0, "column": "city", "categories": ["city 7"], "missing": "left"}
MANY = [f"town {i}" for i in range(MAX_BIN + 1)]


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (b"[]", ConfigError, "expected keys and values"),
        (changed(extra=1), ConfigError, "unknown key 'extra'"),
        (changed(version=2), ConfigError, "version"),
        (changed(format="other"), ConfigError, "format"),
        (changed(role="guest"), ConfigError, "role"),
        (changed(splits=[{**SPLIT, "threshold": "1"}]), ConfigError, "threshold"),
        (changed(splits=[{**SPLIT, "node": -1}]), ConfigError, "node"),
        (changed(splits=[{**SPLIT, "node": 1 << 15}]), ConfigError, "node"),
        (changed(splits=[{**SPLIT, "column": "none"}]), DataError, "does not list once each"),
        (changed(columns=["calls", "calls"]), DataError, "does not list once each"),
        (changed(splits=[SPLIT, SPLIT]), DataError, "splits one node twice"),
        (changed(splits=[{**SPLIT, "threshold": 1e39}]), DataError, "32-bit"),
        (changed(splits=[{**SPLIT, "tree": 1 << 31}]), ConfigError, "tree"),
        (changed(splits=[{**CITY, "categories": ["Ulm"]}]), DataError, "does not list once"),
        (changed(splits=[{**CITY, "categories": ["city 7"] * 2}]), DataError, "not list once"),
        (
            changed(splits=[{**CITY, "categories": []}]),
            DataError,
            "does not fit its column.s categories",
        ),
        (changed(splits=[{**CITY, "categories": [7]}]), ConfigError, "categories"),
        (changed(splits=[{**CITY, "categories": "city 7"}]), ConfigError, "categories"),
        (changed(splits=[{**CITY, "categories": MANY}]), ConfigError, "categories"),
        (
            changed(splits=[{**CITY, "threshold": 1.5}]),
            DataError,
            "does not fit its column.s categories",
        ),
        (
            changed(splits=[{**SPLIT, "column": "city"}]),
            DataError,
            "does not fit its column.s categories",
        ),
        (
            changed(splits=[{**CITY, "column": "calls"}]),
            DataError,
            "does not fit its column.s categories",
        ),
        (changed(categories={"city": ["a", "a"]}, splits=[]), DataError, "not once each"),
        (changed(categories={"town": ["a"]}, splits=[]), DataError, "not of its columns"),
        (changed(categories={"city": MANY}, splits=[]), DataError, "categories are not"),
        (changed(categories={}), DataError, "does not fit its column.s categories"),
        (changed(categories=["city"], splits=[]), ConfigError, "categories"),
    ],
)
def test_a_file_that_is_no_hosts_shard_is_refused(text, kind, said):
    with pytest.raises(kind, match=said) as caught:
        read_host_shard(text, party="telco", file="telco.json")
    assert caught.value.where["file"] == "telco.json"


def test_a_column_with_as_many_categories_as_bins_is_read():
    held = [MANY[254], MANY[3]]  # in whatever order
    text = changed(categories={"city": MANY[:-1]}, splits=[{**CITY, "categories": held}])
    read = read_host_shard(text)
    assert set_members(read.arrays["left_bins"][0].tobytes()) == [3, 254]
    assert read.arrays["threshold"].tolist() == [-np.inf]
    assert read.facts["categories"] == {"city": MANY[:-1]}


def test_an_error_shows_no_category():
    for splits in ([{**CITY, "categories": ["Ulm"]}], [{**CITY, "threshold": 1.5}]):
        with pytest.raises(DataError) as caught:
            read_host_shard(changed(splits=splits), party="telco")
        assert "Ulm" not in "".join(caught.value.lines())
        assert "city 7" not in "".join(caught.value.lines())


def test_an_infinite_threshold_is_not_json():
    text = changed(splits=[SPLIT]).replace(b"1.5", b"Infinity")
    with pytest.raises(ConfigError, match="threshold"):
        read_host_shard(text)


def test_a_model_with_classes_has_more_trees_than_a_job_may_have_rounds():
    telco = random_model(0)["telco"]
    late = {**telco.arrays, "tree": telco.arrays["tree"].astype(np.int32) + 3 * ROUNDS_MAX}
    read = read_host_shard(own_shard(Artefact(telco.facts, late)).encode())
    assert read.arrays["tree"].tolist() == late["tree"].tolist()
