"""Models that every party holds whole: the trees of the training, alone at each party."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csc_array

from fedboost.core import objectives
from fedboost.core.tree import DTYPES, LEAF
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.settings import parse_settings
from fedboost.model import batches, kinds, shards, whole
from fedboost.model.xgboost_json import feature_names, xgboost_json
from fedboost.protocols import load_protocol
from tests.support.models import importance, own_shard, tree_lines
from tests.support.whole_models import (
    CITIES,
    COLUMNS,
    KINDS,
    MODEL,
    cells,
    framed,
    model_of,
    sparse_table,
    table,
    trained,
)

XGBOOST_GAP_MAX = 1e-5  # of margins: XGBoost's leaves have 32 bits


@pytest.fixture(scope="module")
def frame():
    return table(1)


@pytest.fixture(scope="module")
def found(frame):
    return trained(frame)


@pytest.fixture
def model(frame, found):
    return model_of(frame, found)


def changed(model, **more):
    """The shard with other facts or arrays, by their names."""
    facts = {name: value for name, value in more.items() if name in model.facts}
    arrays = {name: value for name, value in more.items() if name not in facts}
    return Artefact({**model.facts, **facts}, {**model.arrays, **arrays})


# What a shard is


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_shard_gives_the_trees_of_the_training_back(kind, frame, tmp_path):
    found = trained(frame, **KINDS[kind])
    shards.save_shard(tmp_path / MODEL, model_of(frame, found))
    again = shards.load_shard(tmp_path / MODEL)
    assert kinds.kind_of(again.facts).is_whole
    expected = [tree for trees in found.rounds for tree in trees]
    for tree, other in zip(expected, whole.load_trees(again), strict=True):
        for name, array in tree.to_arrays().items():
            assert array.dtype == other.to_arrays()[name].dtype
            assert array.tobytes() == other.to_arrays()[name].tobytes()


def test_the_shards_of_all_parties_differ_by_party_and_role_alone(frame, found):
    bank, telco = (model_of(frame, found, party) for party in ("bank", "telco"))
    assert {k for k, v in bank.facts.items() if telco.facts[k] != v} == {"party", "role"}
    assert xgboost_json(whole.as_joined(bank)) == xgboost_json(whole.as_joined(telco))
    for name, array in bank.arrays.items():
        assert np.array_equal(array, telco.arrays[name])


def test_rounds_behind_the_best_one_are_left_out(frame, found):
    early = replace(found, best_round=1)
    model = model_of(frame, early)
    assert (model.facts["trees"], model.facts["forest"]) == (2, [1, 1])
    assert np.array_equal(whole.margins(model, frame), early.margins(frame.values))


# What it predicts


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_predicts_the_bits_of_the_training(kind, frame):
    found = trained(frame, **KINDS[kind])
    model = model_of(frame, found)
    ours = whole.margins(model, frame)
    assert ours.shape == (frame.n_rows, found.params.n_outputs)
    assert ours.tobytes() == found.margins(frame.values).tobytes()
    predicted = kinds.kind_of(model.facts).predict_alone(model, frame)
    assert predicted.tobytes() == found.predict(frame.values).tobytes()


def test_a_sparse_table_is_scored_as_its_dense_twin(monkeypatch):
    frame = sparse_table(2)
    found = trained(frame)
    model = model_of(frame, found)
    dense = framed(cells(frame), frame.columns)
    expected = found.margins(frame.values)
    assert np.ptp(expected) > 1  # the trees split
    assert whole.margins(model, frame).tobytes() == expected.tobytes()
    assert whole.margins(model, dense).tobytes() == expected.tobytes()
    monkeypatch.setattr(batches, "BATCH_CELLS_MAX", 100)  # a few rows after the other
    assert whole.margins(model, frame).tobytes() == expected.tobytes()
    assert whole.margins(model, dense).tobytes() == expected.tobytes()


def test_trees_of_one_leaf_score_every_row_alike():
    frame = sparse_table(3)
    model = model_of(frame, trained(frame, min_child_weight=1e6))
    assert set(model.arrays["left"].tolist()) == {LEAF}
    assert np.ptp(whole.margins(model, frame)) == 0.0
    assert np.ptp(whole.margins(model, framed(cells(frame), frame.columns))) == 0.0


def test_columns_are_found_by_name_and_categories_by_their_texts(frame, model):
    expected = whole.margins(model, frame)
    texts = (*reversed(CITIES), "nowhere")
    values = cells(frame)
    values[:, 1] = len(CITIES) - 1 - values[:, 1]
    order = [2, 1, 3, 0]
    wider = np.asfortranarray(np.column_stack([values[:, order], values[:, 0] * 7]))
    names = [*(COLUMNS[place] for place in order), "more"]
    moved = framed(wider, names, {"city": texts})
    assert np.array_equal(whole.margins(model, moved), expected)


def test_a_category_that_the_model_does_not_know_counts_as_missing(frame, model):
    values = cells(frame)
    values[:, 1] = 0
    strange = framed(values, COLUMNS, {"city": ("nowhere",)})
    missing = values.copy(order="F")
    missing[:, 1] = np.nan
    expected = whole.margins(model, framed(missing, COLUMNS, {"city": CITIES}))
    assert np.array_equal(whole.margins(model, strange), expected)
    assert not np.array_equal(whole.margins(model, frame), expected)
    assert len(model.facts["categories"]["city"]) < len(CITIES)  # some are unknown from training


def test_a_table_that_does_not_fit_is_refused_with_the_name_of_its_column(frame, model):
    lacking = framed(np.asfortranarray(frame.values[:, :2]), COLUMNS[:2], {"city": CITIES})
    with pytest.raises(DataError, match="lacks 2 columns of the model") as caught:
        whole.margins(model, lacking)
    assert caught.value.where == {"column": COLUMNS[2]}
    with pytest.raises(DataError, match="knows categories in a column") as caught:
        whole.margins(model, framed(cells(frame), COLUMNS))
    assert caught.value.where == {"column": "city"}
    sparse = framed(csc_array(np.nan_to_num(frame.values)), COLUMNS)
    with pytest.raises(DataError, match="knows categories in a column"):
        whole.margins(model, sparse)


# What is damaged


def test_arrays_that_are_no_trees_are_refused(model):
    for name, array in model.arrays.items():
        rest = {one: other for one, other in model.arrays.items() if one != name}
        with pytest.raises(DataError, match="got others"):
            whole.load_trees(Artefact(model.facts, rest))
        with pytest.raises(DataError, match=r"do not have an entry|says 4 trees"):
            whole.load_trees(changed(model, **{name: array[:-1]}))
        with pytest.raises(DataError, match=f"the array {name} of"):
            whole.load_trees(changed(model, **{name: array.astype("S9")}))
        with pytest.raises(DataError, match=f"the array {name} of"):
            whole.load_trees(changed(model, **{name: array[..., None]}))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("kind", "forests", "made of forests"),
        ("kind", "networks", "has no sparse"),
        ("trees", 5, "says 5 trees, has 4"),
        ("forest", [1, 1, 1], "says 4 trees"),
        ("base_margin", [0.0, 0.0], "2 margins and leaves of 1"),
        ("columns", list(COLUMNS[:2]), "on none of the model's 2 columns"),
        ("categories", {}, "kinds of its columns"),
        ("categories", {"city": ["a"], "age": ["b"]}, "kinds of its columns"),
    ],
)
def test_facts_that_do_not_fit_the_trees_are_refused(model, name, value, says):
    damaged = changed(model, **{name: value})
    with pytest.raises(DataError, match=says):
        kinds.kind_of(damaged.facts).predict_alone(damaged, table(1))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("value", np.nan, "values that are not numbers"),
        ("threshold", np.nan, "values that are not numbers"),
        ("gain", np.inf, "values that are not numbers"),
        ("node", 7, "order of their ids"),
        ("left", 0, "order of their ids"),
        ("left", 1 << 30, "order of their ids"),
        ("feature", len(COLUMNS), "on none of the model's 4 columns"),
        ("feature", -1, "on none of the model's 4 columns"),
        ("feature", -99, "on none of the model's 4 columns"),
        ("threshold", -np.inf, "kinds of its columns"),
    ],
)
def test_a_node_that_cannot_be_is_refused(model, name, value, says):
    array = model.arrays[name].copy()
    array[0] = value
    damaged = changed(model, **{name: array})
    for use in (whole.load_trees, whole.as_guest_shard, whole.as_joined):
        with pytest.raises(DataError, match=says):
            use(damaged)


def test_a_leaf_that_names_a_column_is_refused(model):
    leaf = int(np.flatnonzero(model.arrays["left"] == LEAF)[0])
    for column in (0, -99):
        feature = model.arrays["feature"].copy()
        feature[leaf] = column
        with pytest.raises(DataError, match="on none of the model's 4 columns"):
            whole.load_trees(changed(model, feature=feature))


def test_a_tree_of_more_nodes_than_the_deepest_is_refused(model, monkeypatch):
    monkeypatch.setattr("fedboost.core.tree.NODES_MAX", 2)
    with pytest.raises(DataError, match="not 1 to 2"):
        whole.load_trees(model)
    sizes = np.array([0, int(model.arrays["sizes"].sum())], np.int32)
    with pytest.raises(DataError, match="trees without nodes"):
        whole.load_trees(changed(model, sizes=sizes))


# What people read of it


def test_importance_names_every_column_at_every_party(frame, found):
    shares = {p: importance(model_of(frame, found, p)) for p in ("bank", "telco")}
    trees = [tree for trees in found.rounds for tree in trees]
    for party, own in shares.items():
        assert {share.party for share in own} == {party}
        for share in own:
            split = [tree.feature == COLUMNS.index(share.column) for tree in trees]
            gain = sum(tree.gain[on].sum() for tree, on in zip(trees, split, strict=True))
            assert share.gain == pytest.approx(gain)
            assert share.splits == sum(int(on.sum()) for on in split)
    assert [s.column for s in shares["bank"]] == [s.column for s in shares["telco"]]
    assert {"age", "city"} <= {share.column for share in shares["bank"]}


def test_every_partys_trees_are_told_with_their_cuts(frame, found):
    told = [tree_lines(model_of(frame, found, p), 4) for p in ("bank", "shop")]
    assert told[0] == told[1]
    assert [line for line in told[0] if not line.startswith(" ")] == [f"tree {k}" for k in range(4)]
    text = "\n".join(told[0])
    assert "age < " in text
    assert "city in {'city " in text
    assert "'s split" not in text


def test_the_readable_file_has_every_node_and_no_owner(frame, found):
    raw = json.loads(own_shard(model_of(frame, found, "telco")))
    assert raw["whole"] is True
    assert len(raw["nodes"]) == sum(tree.n_nodes for trees in found.rounds for tree in trees)
    assert not any("owner" in node for node in raw["nodes"])
    assert all("column" in node or "leaf" in node for node in raw["nodes"])
    bank = json.loads(own_shard(model_of(frame, found)))
    assert bank["nodes"] == raw["nodes"]


# Who may not use it


def test_a_job_that_predicts_with_a_whole_model_is_told_to_do_it_alone(model):
    predict = load_protocol("predict")
    params = parse_settings(predict.params, {"model": MODEL})
    assert predict.model is not None
    with pytest.raises(ConfigError, match="every party holds the model whole") as caught:
        predict.model.fits(params, model.facts)
    assert caught.value.todo.startswith(f"fedboost model predict {MODEL}")


@pytest.mark.parametrize("party", ["bank", "telco"])
def test_secureboost_does_not_continue_a_whole_model(frame, found, party):
    secureboost = load_protocol("secureboost")
    params = parse_settings(secureboost.params, {"warm_start": MODEL})
    assert secureboost.model is not None
    with pytest.raises(ConfigError, match="a model of federboost-horizontal"):
        secureboost.model.fits(params, model_of(frame, found, party).facts)


# As XGBoost's


def as_booster(model, values):
    """The exported model, and the rows as XGBoost takes them: categories by the model's places."""
    xgb = pytest.importorskip("xgboost")
    found = whole.as_joined(model)
    types = ["c" if known else "float" for known in found.categories]
    names = feature_names(found)
    rows = xgb.DMatrix(values, feature_names=names, feature_types=types, enable_categorical=True)
    return xgb.Booster(model_file=bytearray(xgboost_json(found).encode())), rows


@pytest.mark.parametrize("kind", KINDS)
def test_xgboost_reads_the_model_and_predicts_its_numbers(kind, frame):
    found = trained(frame, **KINDS[kind])
    model = model_of(frame, found, "shop")
    fresh = table(9, rows=500)
    unknown = [place for place, text in enumerate(CITIES) if text not in _known(model)]
    values = cells(fresh)
    codes = {text: place for place, text in enumerate(_known(model))}
    values[:, 1] = [
        np.nan if np.isnan(x) or int(x) in unknown else codes[CITIES[int(x)]] for x in values[:, 1]
    ]
    booster, rows = as_booster(model, values)
    ours = whole.margins(model, fresh)
    theirs = booster.predict(rows, output_margin=True).reshape(ours.shape)
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=XGBOOST_GAP_MAX)
    expected = objectives.transform(found.params.objective, ours)
    predicted = booster.predict(rows).reshape(ours.shape)
    np.testing.assert_allclose(predicted, expected, rtol=XGBOOST_GAP_MAX, atol=XGBOOST_GAP_MAX)
    assert booster.num_boosted_rounds() == len(model.facts["forest"])


def _known(model):
    return model.facts["categories"]["city"]


def test_xgboost_predicts_a_sparse_table_with_its_zeros_the_same():
    frame = sparse_table(4)
    model = model_of(frame, trained(frame))
    booster, rows = as_booster(model, cells(frame))
    ours = whole.margins(model, frame)
    theirs = booster.predict(rows, output_margin=True)
    np.testing.assert_allclose(theirs, ours[:, 0], rtol=0, atol=XGBOOST_GAP_MAX)
    assert np.ptp(theirs) > 1


def test_the_files_columns_have_no_party_and_names_that_xgboost_takes(model):
    assert feature_names(whole.as_joined(model)) == ["age", "city", "odd _a_b_", "sum"]


def test_the_arrays_are_those_of_a_tree_and_the_sizes(model):
    assert set(model.arrays) == {*DTYPES, "sizes"}
    assert {name: model.arrays[name].dtype for name in DTYPES} == DTYPES
