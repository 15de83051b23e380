"""Shards and nodes as arrays, and the whole model that they make up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.core import categories
from fedboost.core.categories import NO_THRESHOLD
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError, DataError
from fedboost.model import vertical
from fedboost.model.vertical import TreeShape
from tests.support.models import COLUMNS, MODEL, PARTIES, random_model, whole


@given(st.integers(0, 200), st.sampled_from([1, 3]))
def test_nodes_and_splits_survive_their_arrays(seed, outputs):
    made = random_model(seed, outputs=outputs)
    bank, telco = made["bank"].arrays, made["telco"].arrays
    again = vertical.nodes_to_arrays(vertical.arrays_to_nodes(bank), outputs)
    for before, after in ((bank, again), (telco, _again(telco))):
        assert set(before) == set(after)
        for name, array in before.items():
            assert array.dtype == after[name].dtype
            assert np.array_equal(array, after[name])


def _again(arrays):
    return vertical.splits_to_arrays(vertical.arrays_to_splits(arrays))


@given(st.integers(0, 200))
def test_children_are_where_their_heap_ids_say(seed):
    arrays = random_model(seed)["bank"].arrays
    shape = TreeShape.of(arrays)
    inner = np.flatnonzero(arrays["owner"] != vertical.LEAF)
    leaf = np.flatnonzero(arrays["owner"] == vertical.LEAF)
    assert (arrays["node"][shape.roots] == 0).all()
    assert (arrays["node"][shape.left[inner]] == 2 * arrays["node"][inner] + 1).all()
    assert (arrays["node"][shape.right[inner]] == 2 * arrays["node"][inner] + 2).all()
    assert (arrays["tree"][shape.left[inner]] == arrays["tree"][inner]).all()
    assert (shape.left[leaf] == -1).all()
    assert (shape.right[leaf] == -1).all()


def test_a_tree_without_one_of_its_nodes_is_refused():
    arrays = random_model(2)["bank"].arrays
    for gone in range(len(arrays["node"])):
        rest = {name: np.delete(array, gone, axis=0) for name, array in arrays.items()}
        with pytest.raises(DataError, match="not whole"):
            TreeShape.of(rest)


def test_a_missing_value_goes_where_the_split_says_and_a_threshold_goes_right():
    values = np.array([1, 2, 3, np.nan, np.nan], np.float32)
    splits = [vertical.OwnSplit(0, n, 0, np.float32(2), missing_left=n == 1) for n in range(2)]
    arrays = vertical.splits_to_arrays(splits)
    found = vertical.goes_right(values, arrays, np.array([0, 0, 0, 0, 1]))
    assert found.tolist() == [False, True, True, True, False]


def test_a_category_goes_left_where_the_split_has_it_and_right_where_not():
    held = categories.as_set(np.array([0, 9, 254]))
    splits = [
        vertical.OwnSplit(0, 0, 0, NO_THRESHOLD, missing_left=False, left_bins=held),
        vertical.OwnSplit(0, 1, 0, NO_THRESHOLD, missing_left=True, left_bins=held),
        vertical.OwnSplit(0, 2, 0, np.float32(5), missing_left=True),
    ]
    arrays = vertical.splits_to_arrays(splits)
    assert vertical.arrays_to_splits(arrays)[0].left_bins == held
    assert vertical.arrays_to_splits(arrays)[2].left_bins == b""
    values = np.array([0, 9, 254, 1, 253, np.nan, np.nan, 4], np.float32)
    found = vertical.goes_right(values, arrays, np.array([0, 1, 0, 0, 1, 0, 1, 2]))
    assert found.tolist() == [False, False, False, True, True, True, False, False]


@given(st.integers(0, 200))
def test_the_whole_model_has_every_owners_splits(seed):
    made = random_model(seed)
    model = whole(made)
    assert model.columns == [(p, c) for p in PARTIES for c in COLUMNS[p]]
    first = {p: model.columns.index((p, COLUMNS[p][0])) for p in PARTIES}
    own = {
        (number, s.tree, s.node): s
        for number, party in enumerate(PARTIES[1:], start=1)
        for s in vertical.arrays_to_splits(made[party].arrays)
    }
    a = model.arrays
    for i, owner in enumerate(a["owner"].tolist()):
        split = own.get((owner, int(a["tree"][i]), int(a["node"][i])))
        if split is not None:
            assert a["feature"][i] == first[PARTIES[owner]] + split.feature
            assert a["threshold"][i] == split.threshold
            assert a["missing_left"][i] == split.missing_left
    guests = a["owner"].astype(np.int64) <= 0
    for name in a:
        assert np.array_equal(a[name][guests], made["bank"].arrays[name][guests])


def test_splits_of_rounds_that_the_guest_left_out_do_no_harm():
    made = random_model(3)
    extra = vertical.arrays_to_splits(made["telco"].arrays)
    late = vertical.OwnSplit(99, 0, 0, np.float32(1), True)
    longer = Artefact(made["telco"].facts, vertical.splits_to_arrays([*extra, late]))
    both = [whole(made), whole({**made, "telco": longer})]
    for name, array in both[0].arrays.items():
        assert np.array_equal(array, both[1].arrays[name])


def test_absent_shards_are_named_with_what_their_owners_should_do():
    made = random_model(3)
    with pytest.raises(ConfigError, match="the splits of telco, shop are missing") as caught:
        vertical.join_shards(made["bank"], {})
    assert f"release {MODEL} --config telco.yaml --to bank --out telco.json" in caught.value.todo
    with pytest.raises(ConfigError, match="the splits of shop are missing"):
        vertical.join_shards(made["bank"], {"telco": made["telco"]})


def test_a_host_without_a_split_in_the_model_need_not_export():
    made = random_model(3)
    bank = made["bank"]
    more = Artefact({**bank.facts, "hosts": [*bank.facts["hosts"], "idle"]}, bank.arrays)
    assert whole({**made, "bank": more}).columns == whole(made).columns


@pytest.mark.parametrize("key", ["job", "party", "guest"])
def test_the_shard_of_another_model_is_refused(key):
    made = random_model(3)
    telco = made["telco"]
    made["telco"] = Artefact({**telco.facts, key: "other"}, telco.arrays)
    with pytest.raises(ConfigError, match="the shard given for telco is"):
        whole(made)


def test_a_shard_of_a_stranger_is_refused():
    made = random_model(3)
    hosts = {"telco": made["telco"], "shop": made["shop"], "mill": made["shop"]}
    with pytest.raises(ConfigError, match="mill has no part"):
        vertical.join_shards(made["bank"], hosts)


def test_a_shard_that_lacks_a_split_is_refused():
    made = random_model(3)
    arrays = {name: array[1:] for name, array in made["telco"].arrays.items()}
    made["telco"] = Artefact(made["telco"].facts, arrays)
    with pytest.raises(DataError, match="the shard of telco lacks"):
        whole(made)
