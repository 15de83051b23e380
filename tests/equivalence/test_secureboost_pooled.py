"""Secureboost grows, bit for bit, the trees that core.local grows on the pooled table."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.core import local
from fedboost.core.gradient_bits import BITS_ENCRYPTED
from fedboost.core.params import TreeParams
from fedboost.data.holdout import canonical_order, validation_rows
from fedboost.data.ids import encode_ids
from fedboost.ground.ids import EncodedIds
from tests import tiers
from tests.support.federated import GUEST, HOSTS, PLAIN, frame_of, job_spec, now, room_for, run_job

OWN = ("encryption", "histogram_subtraction", "cipher_compressing", "mode")


@dataclass(frozen=True)
class Pooled:
    """Columns by party, ids and labels in one order, and which rows are held out."""

    columns: dict[str, np.ndarray]  # float32 (rows, columns) by party, guest first
    y: np.ndarray
    ids: list[bytes]
    held: float | None = None

    def train(self, params):
        """The pooled trees, and the margins of all rows after the last of them."""
        values = np.concatenate(list(self.columns.values()), axis=1)
        out = validation_rows(EncodedIds.of(self.ids), self.held or 0.0, 7)
        known = {k: v for k, v in params.items() if k not in OWN}
        own = TreeParams(**{"precision_bits": BITS_ENCRYPTED, **known})
        table = local.TrainingTable(np.asfortranarray(values[~out]), self.y[~out])
        check = (
            local.TrainingTable(np.asfortranarray(values[out]), self.y[out]) if out.any() else None
        )
        trained = local.train(table, own, check)
        margin = np.tile(trained.base_margin, (len(values), 1))
        for trees in trained.rounds:
            local.add_to_margin(margin, [tree.predict(values) for tree in trees])
        return trained, margin


def pooled(widths, rows, seed=0, held=None, *, label="binary", missing=0.0):
    """Random columns, so many for each party, with ties in values; labels that depend on them."""
    draw = np.random.default_rng(seed)
    parties = (GUEST, *HOSTS)[: len(widths)]
    columns = {}
    for party, width in zip(parties, widths, strict=True):
        values = np.round(draw.normal(size=(rows, width)), 1).astype(np.float32)
        values[draw.random(values.shape) < missing] = np.nan
        columns[party] = values
    pull = np.nansum(np.concatenate(list(columns.values()), axis=1), axis=1)
    noisy = pull + draw.normal(size=rows)
    y = (noisy > 0).astype(np.float64) if label == "binary" else np.round(noisy, 2)
    return Pooled(columns, y, [b"%06d" % i for i in range(rows)], held)


def grow(table, params):
    """What a room of sessions comes to: the shards, and the guest's state at the end."""
    frames = {
        party: frame_of(table.ids, values, table.y if party == GUEST else None)
        for party, values in table.columns.items()
    }
    room = room_for("secureboost", frames, params, held=table.held)
    shards = now(room.walk())
    return shards, room.state(GUEST)


def assert_same_trees(shards, trained, widths):
    """Node by node, bit by bit; `widths` are the parties' column counts by name, guest first."""
    first = dict(zip(widths, np.cumsum([0, *widths.values()])[:-1], strict=True))
    kept = trained.rounds[: trained.best_round + 1]
    guest, parties = shards[GUEST].arrays, list(widths)
    assert shards[GUEST].facts["trees"] == len(kept)
    assert set(guest["tree"].tolist()) == set(range(len(kept)))
    own = {
        name: {
            (int(t), int(n)): i
            for i, (t, n) in enumerate(zip(arrays["tree"], arrays["node"], strict=True))
        }
        for name, arrays in ((p, shards[p].arrays) for p in parties)
    }
    for number, (tree,) in enumerate(kept):
        at = np.flatnonzero(guest["tree"] == number)
        assert guest["node"][at].tolist() == tree.node.tolist()
        assert guest["cover"][at].tobytes() == tree.cover.tobytes()
        assert guest["gain"][at].tobytes() == tree.gain.tobytes()
        assert guest["value"][at].tobytes() == tree.value.tobytes()
        assert (guest["owner"][at] == -1).tolist() == tree.is_leaf.tolist()
        for place, i in enumerate(at):
            if tree.is_leaf[place]:
                continue
            owner = parties[guest["owner"][i]]
            arrays, k = shards[owner].arrays, own[owner][number, int(tree.node[place])]
            assert first[owner] + arrays["feature"][k] == tree.feature[place]
            assert arrays["threshold"][k] == tree.threshold[place]
            assert arrays["missing_left"][k] == tree.missing_left[place]
            assert arrays["left_bins"][k].tobytes() == tree.left_bins[place].tobytes()


def assert_equivalent(table, params):
    """The federated model is the pooled one: trees, margins of all rows, metrics of all rounds."""
    params = {**PLAIN, "n_estimators": 3, "max_depth": 3, **params}
    trained, margin = table.train(params)
    shards, guest = grow(table, params)
    assert_same_trees(shards, trained, {p: v.shape[1] for p, v in table.columns.items()})
    assert guest.margin.tobytes() == margin.tobytes()
    assert repr(guest.history) == repr(trained.history)  # NaN equals NaN
    return trained


def owners(trained, widths):
    """Which party owns each split, as numbers, of all trees."""
    ends = np.cumsum(widths)
    return {
        int(np.searchsorted(ends, f, side="right"))
        for trees in trained.rounds
        for f in trees[0].feature[~trees[0].is_leaf]
    }


@pytest.mark.parametrize("label", ["binary", "number"])
@pytest.mark.parametrize("widths", [(3, 4), (2, 3, 2), (2, 2, 3, 2), (1, 2, 1, 2, 2)])
def test_secureboost_grows_the_pooled_trees(widths, label):
    objective = "binary:logistic" if label == "binary" else "reg:squarederror"
    table = pooled(widths, 160, seed=len(widths), held=0.25, label=label, missing=0.1)
    trained = assert_equivalent(table, {"objective": objective, "max_depth": 4, "max_bin": 8})
    assert owners(trained, widths) == set(range(len(widths)))  # every party took part


@pytest.mark.parametrize("compressing", [True, False])
@pytest.mark.parametrize("subtraction", [True, False])
def test_switches_of_the_cipher_side_change_nothing(subtraction, compressing):
    table = pooled((2, 3, 2), 120, seed=11, held=0.2, missing=0.15)
    switches = {"histogram_subtraction": subtraction, "cipher_compressing": compressing}
    assert_equivalent(table, {**switches, "max_depth": 4})


@pytest.mark.parametrize(
    "params",
    [
        {"gamma": 2.0},
        {"min_child_weight": 4.0},
        {"min_child_weight": 0.0, "reg_lambda": 0.0},
        {"reg_alpha": 1.5},
        {"max_delta_step": 0.2},
        {"base_score": 0.3},
        {"reg_lambda": 0.0},
        {"learning_rate": 1.0, "n_estimators": 6},
        {"precision_bits": 12},
        {"scale_pos_weight": 3.0},
        {"max_bin": 255},
        {"max_bin": 2},
        {"max_depth": 1},
        {"max_depth": 7, "n_estimators": 2, "min_child_weight": 0.1},
        {"eval_metric": ["auc", "ks", "error", "logloss"]},
    ],
    ids=repr,
)
def test_every_setting_means_what_it_means_on_one_table(params):
    assert_equivalent(pooled((2, 2, 2), 110, seed=5, held=0.2, missing=0.1), params)


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_xgboosts_256_bins_are_256(missing):
    table = pooled((2, 2), 700, seed=5, held=0.2, missing=missing)
    for values in table.columns.values():
        values[:] += np.linspace(0, 0.01, len(values), dtype=np.float32)[:, None]  # hardly a tie
    trained = assert_equivalent(table, {"max_bin": 256, "n_estimators": 2})
    assert set(trained.binning.n_bins.tolist()) == {256}


@pytest.mark.parametrize("params", [{"min_child_weight": 1e6}, {"gamma": 1e9}], ids=repr)
@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
def test_a_root_that_does_not_divide_is_a_leaf(params, objective):
    trained = assert_equivalent(pooled((2, 2), 60, seed=1), {**params, "objective": objective})
    assert all(tree.n_nodes == 1 for (tree,) in trained.rounds)


def test_boosting_carries_on_when_nothing_is_left_to_learn():
    table = pooled((1, 1), 40, seed=2, label="number")
    flat = Pooled(table.columns, np.full(40, 3.5), table.ids)
    trained = assert_equivalent(flat, {"objective": "reg:squarederror"})
    assert all(tree.n_nodes == 1 for (tree,) in trained.rounds)


def test_early_stopping_keeps_the_pooled_rounds():
    table = pooled((1, 2, 1), 90, seed=3, held=0.4)
    params = {"n_estimators": 30, "early_stopping_rounds": 2, "learning_rate": 1.0}
    trained = assert_equivalent(table, params)
    assert trained.best_round + 1 < len(trained.rounds) < 30


def test_a_guest_without_columns_grows_the_hosts_trees():
    assert_equivalent(pooled((0, 2), 80, seed=4, held=0.2), {})
    assert_equivalent(pooled((0, 2, 1), 80, seed=4, missing=0.2), {"max_depth": 4})


# Missing values


def with_missing(rows=100):
    """Whole columns missing, missing in validation only, in training only, and here and there."""
    table = pooled((3, 4), rows, seed=6, held=0.3, missing=0.1)
    out = validation_rows(EncodedIds.of(table.ids), 0.3, 7)
    for values in table.columns.values():
        values[:, 0] = np.nan
        values[:, 1] = np.where(out, np.nan, np.nan_to_num(values[:, 1]))
        values[:, 2] = np.where(out, np.nan_to_num(values[:, 2]), values[:, 2])
    return table


@pytest.mark.parametrize("subtraction", [True, False])
def test_missing_values_go_where_they_go_on_one_table(subtraction):
    assert_equivalent(with_missing(), {"max_depth": 5, "histogram_subtraction": subtraction})


def test_a_split_between_present_and_missing_is_found_at_a_host():
    table = pooled((1, 1), 60, seed=7)
    absent = np.arange(60) % 3 == 0
    table.columns[HOSTS[0]][:, 0] = np.where(absent, np.nan, 1.0)
    told = Pooled(table.columns, absent.astype(np.float64), table.ids)
    trained = assert_equivalent(told, {"max_depth": 2})
    assert np.isinf(trained.rounds[0][0].threshold[0])


# Ties


def test_of_equal_columns_the_first_partys_is_taken():
    draw = np.random.default_rng(8)
    one = np.round(draw.normal(size=(90, 1)), 1).astype(np.float32)
    y = (one[:, 0] + 0.5 * draw.normal(size=90) > 0).astype(np.float64)
    ids = [b"%03d" % i for i in range(90)]
    others = np.concatenate([one, one], axis=1)
    everywhere = Pooled({GUEST: one, HOSTS[0]: others, HOSTS[1]: one}, y, ids)
    assert owners(assert_equivalent(everywhere, {"max_depth": 4}), (1, 2, 1)) == {0}
    away = Pooled({GUEST: np.zeros_like(one), HOSTS[0]: others, HOSTS[1]: one}, y, ids)
    trained = assert_equivalent(away, {"max_depth": 4})
    assert {int(f) for (t,) in trained.rounds for f in t.feature if f >= 0} == {1}


@pytest.mark.parametrize("seed", range(6))
def test_mirrored_columns_tie_and_the_lowest_is_taken(seed):
    draw = np.random.default_rng(seed)
    one = draw.integers(0, 4, size=(60, 1)).astype(np.float32)
    y = (one[:, 0] + draw.normal(size=60) > 1.5).astype(np.float64)
    ids = [b"%03d" % i for i in range(60)]
    mirrored = np.concatenate([-one, one, -one], axis=1)
    none = np.zeros((60, 0), np.float32)
    table = Pooled({GUEST: none, HOSTS[0]: mirrored, HOSTS[1]: mirrored}, y, ids)
    assert_equivalent(table, {"max_depth": 3})


def test_constant_columns_never_divide():
    table = pooled((1, 3, 1), 70, seed=9, held=0.2)
    table.columns[GUEST][:] = 4.0
    table.columns[HOSTS[0]][:, 1] = np.float32(-0.0)
    table.columns[HOSTS[1]][:] = np.nan
    trained = assert_equivalent(table, {"max_depth": 4})
    assert owners(trained, (1, 3, 1)) == {1}


def test_hosts_whose_columns_are_all_constant_offer_nothing():
    table = pooled((2, 1, 2), 70, seed=10)
    table.columns[HOSTS[0]][:] = 1.0
    table.columns[HOSTS[1]][:] = np.nan
    assert owners(assert_equivalent(table, {}), (2, 1, 2)) == {0}


# Small tables of every kind


@st.composite
def tables(draw):
    """A few rows, one to three hosts, few distinct values, missing ones, perhaps held-out rows."""
    rows = draw(st.integers(4, 24))
    widths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    cells = st.sampled_from([np.nan, -1.0, 0.0, 0.5, 2.0])
    columns = {}
    for party, width in zip((GUEST, *HOSTS), (draw(st.integers(0, 2)), *widths), strict=False):
        flat = draw(st.lists(cells, min_size=rows * width, max_size=rows * width))
        columns[party] = np.array(flat, np.float32).reshape(rows, width)
    y = draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=rows, max_size=rows))
    held = draw(st.sampled_from([None, 0.25]))
    ids = [b"%02d" % i for i in range(rows)]
    out = validation_rows(EncodedIds.of(ids), held or 0.0, 7)
    y = np.array(y)
    y[np.flatnonzero(~out)[:2]] = [0.0, 1.0]
    return Pooled(columns, y, ids, held)


@settings(max_examples=tiers.examples(50), deadline=None)
@given(
    tables(),
    st.sampled_from(["binary:logistic", "reg:squarederror"]),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.booleans(),
)
def test_any_small_table_grows_the_pooled_trees(table, objective, weight, subtraction):
    assert_equivalent(
        table,
        {
            "objective": objective,
            "min_child_weight": weight,
            "histogram_subtraction": subtraction,
            "n_estimators": 2,
            "max_depth": 4,
            "max_bin": 4,
            "eval_metric": ["rmse"],  # held-out rows may all be of one class
        },
    )


# Whole jobs: alignment first


def scattered(table, seed):
    """Arrow tables by party, with rows of their own, each in its own order; ids are numbers."""
    draw = np.random.default_rng(seed)
    shared = len(table.ids)
    given = {}
    for k, (party, values) in enumerate(table.columns.items()):
        extra = 5 + 3 * k
        names = np.concatenate([np.arange(shared), 10_000 * (k + 1) + np.arange(extra)])
        more = draw.normal(size=(extra, values.shape[1])).astype(np.float32)
        whole = np.concatenate([values, more])
        order = draw.permutation(len(names))
        content = {"id": names[order]}
        if party == GUEST:
            content["y"] = np.concatenate([table.y, np.arange(extra) % 2])[order]
        content |= {f"c{i}": whole[order, i] for i in range(values.shape[1])}
        given[party] = pa.table(content)
    return given


def in_canonical_order(table):
    """The same rows as all parties keep them after the alignment."""
    ids = encode_ids([pa.chunked_array([np.arange(len(table.ids))])], ["id"])
    order = canonical_order(ids)
    columns = {p: np.asfortranarray(v[order]) for p, v in table.columns.items()}
    return Pooled(columns, table.y[order], [ids[i] for i in order], table.held)


PAILLIER = {"encryption": {"scheme": "paillier"}}


@pytest.mark.parametrize(
    ("widths", "rows", "params", "large"),
    [
        ((2, 3), 130, PLAIN, 1 << 18),
        ((2, 3), 130, PLAIN, 1),
        ((1, 2, 2, 1), 130, {**PLAIN, "objective": "reg:squarederror"}, 1 << 18),
        ((2, 2), 90, {**PAILLIER, "n_estimators": 1, "max_depth": 2, "max_bin": 4}, 1 << 18),
    ],
    ids=["one host", "one host, large", "three hosts", "paillier"],
)
def test_a_whole_job_on_unsorted_overlapping_tables_is_the_pooled_one(
    tmp_path, monkeypatch, widths, rows, params, large
):
    """Also of tables so large that cells, bins and ciphertexts lie in files."""
    if large == 1:
        monkeypatch.setattr("fedboost.ground.mapped.FILE_BYTES_MIN", 1)
    monkeypatch.setattr("fedboost.runtime.party.job.table.LARGE_ROWS", large)
    monkeypatch.setattr("fedboost.data.mapped_rows.BATCH_ROWS", 50)
    table = pooled(widths, rows, seed=12, held=0.3, missing=0.1)
    params = {"n_estimators": 2, "max_depth": 3, **params}
    trained, _ = in_canonical_order(table).train(params)
    spec = job_spec(
        "secureboost",
        tuple(table.columns),
        validation={"fraction": 0.3, "seed": 7},
        params=params,
    )
    done = run_job(tmp_path / "job", scattered(table, 13), spec)
    assert done.state == "finished", done.error.lines()
    assert_same_trees(done.shards, trained, {p: v.shape[1] for p, v in table.columns.items()})
    best = trained.history[trained.best_round]
    assert done.result["metrics"] == best
    assert done.result["rows"]["aligned"] == rows
