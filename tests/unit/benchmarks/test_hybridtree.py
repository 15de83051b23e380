"""HybridTree's benchmark: how tables are dealt, and what its systems are trained on."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import hybridtree_accuracy, hybridtree_data
from benchmarks.hybridtree_accuracy import (
    ALL_LOCAL,
    EACH,
    FALLING_BACK,
    MAIN,
    MISSING,
    OWN_ROWS,
    SAMPLED,
    SCORED,
    SOLO,
    SYSTEMS,
    Experiment,
)
from benchmarks.hybridtree_data import Dealing
from fedboost.core import local, objectives
from fedboost.core.gradient_bits import BITS_ENCRYPTED
from fedboost.core.hybrid import HybridParams
from tests.support import pooled_hybrid
from tests.support.pooled_hybrid import HostColumns

COLUMNS = ("age", "job", "hours", "town")
SMALL = Experiment(MAIN, "adult", Dealing(hosts=3), depth=4, trees=3)


def people(rows, first, seed):
    """A table of numbers and texts, some cells missing, whose label follows all columns."""
    draw = np.random.default_rng(seed)
    age, hours = draw.normal(40, 10, rows), draw.normal(40, 10, rows)
    job, town = draw.integers(0, 4, rows), draw.integers(0, 3, rows)
    y = (age + hours + 8 * job + draw.normal(0, 5, rows) > 95).astype(int)
    content = {
        "id": np.arange(first, first + rows),
        "age": pa.array(np.round(age, 1), mask=draw.random(rows) < 0.1),
        "job": pa.array([None if one == 3 else f"job{one}" for one in job]),
        "hours": np.round(hours, 1),
        "town": [f"town{one}" for one in town],
        "y": y,
    }
    return pa.table(content)


def forest(rows=700):
    """Numbers alone, seven classes."""
    draw = np.random.default_rng(9)
    values = {name: draw.normal(size=rows) for name in "abcdef"}
    return pa.table({"id": np.arange(rows), **values, "y": np.arange(rows) % 7})


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Small tables by the names of the public ones."""
    monkeypatch.setenv("FEDBOOST_DATA", str(tmp_path))
    pq.write_table(people(400, 1, 2), tmp_path / "adult_train.parquet")
    pq.write_table(people(150, 401, 3), tmp_path / "adult_test.parquet")
    pq.write_table(forest(), tmp_path / "covtype.parquet")


# Data


def test_texts_are_categories_and_the_test_file_is_for_testing(small):
    pooled = hybridtree_data.load("adult")
    assert pooled.frame.columns == COLUMNS
    assert set(pooled.frame.categories) == {"job", "town"}
    assert pooled.test.tolist() == [False] * 400 + [True] * 150
    fewer = pooled.sample(50, 20)
    assert (fewer.frame.n_rows, int(fewer.test.sum())) == (70, 20)
    assert fewer.columns["id"].to_pylist() == sorted(fewer.columns["id"].to_pylist())


def test_one_class_stands_against_the_rest(small):
    pooled = hybridtree_data.load("covtype")
    assert pooled.frame.label is not None
    assert pooled.frame.label.tolist() == [float(k % 7 == 1) for k in range(700)]
    assert int(pooled.test.sum()) == 200


def test_each_row_is_at_one_host_with_the_cells_of_the_whole_table(small):
    dealt = SMALL.dealt()
    whole = hybridtree_data.load("adult").frame
    for part, rows in ((dealt.train, range(400)), (dealt.test, range(400, 550))):
        assert list(part.guest.ids) == [whole.ids[row] for row in rows]
        indices = np.concatenate(list(part.indices.values()))
        assert sorted(indices.tolist()) == list(range(len(rows)))
        for host, frame in part.hosts.items():
            assert list(frame.ids) == [part.guest.ids[row] for row in part.indices[host]]
            assert frame.label is None
        table = part.whole()
        names = [*part.guest.columns, *next(iter(part.hosts.values())).columns]
        assert sorted(names) == sorted(COLUMNS)
        expected = np.asarray(whole.values)[list(rows)][:, [COLUMNS.index(n) for n in names]]
        assert np.array_equal(np.asarray(table.values), expected, equal_nan=True)
        kinds = {names[place] for place in table.categorical}
        assert kinds == {"job", "town"}


def test_seeds_draw_other_columns_and_shares_leave_some_out(small):
    names = [f"c{k}" for k in range(10)]
    own = hybridtree_data.guest_columns(names, Dealing(seed=1))
    assert len(own) == 5
    assert own != hybridtree_data.guest_columns(names, Dealing(seed=2))
    fewer = hybridtree_data.guest_columns(names, Dealing(seed=1, guest_columns=0.4))
    assert len(fewer) == 2
    assert set(fewer) < set(own)
    plan = hybridtree_data.plan(names, Dealing(seed=1, guest_columns=0.4))
    assert set(plan.parties[1].columns or ()) == set(names) - set(own)
    assert hybridtree_data.guest_columns(names, Dealing(guest_columns=0.01))


def test_a_smaller_guest_has_fewer_training_rows_and_as_many_to_test(small):
    dealt = Experiment(MAIN, "adult", Dealing(hosts=3, guest_rows=0.25)).dealt()
    assert (dealt.train.guest.n_rows, dealt.test.guest.n_rows) == (100, 150)
    assert sum(frame.n_rows for frame in dealt.train.hosts.values()) == 100


def test_hosts_may_share_rows_and_lack_columns(small):
    dealing = Dealing(hosts=3, overlap=0.5, drop_columns=0.5)
    dealt = Experiment(MAIN, "adult", dealing).dealt()
    held = [frame.n_rows for frame in (*dealt.train.hosts.values(), *dealt.test.hosts.values())]
    assert sum(held) == 550 + 275
    assert {len(frame.columns) for frame in dealt.train.hosts.values()} == {1}


def test_test_rows_are_skewed_as_training_rows_or_not_at_all(small):
    def shares(skewed):
        dealing = Dealing(hosts=3, skew=0.5, skewed_test=skewed)
        part = Experiment(MAIN, "adult", dealing).dealt().test
        return [part.y[rows].mean() for rows in part.indices.values()]

    assert np.ptp(shares(True)) > 0.4 > 2 * np.ptp(shares(False))


# Systems


def test_the_protocol_scores_rows_as_the_pooled_twin_does(small):
    dealt = SMALL.dealt()
    model = hybridtree_data.train(dealt.train, SMALL.hybrid(SCORED)).left
    done = hybridtree_data.predict(model, dealt.train)
    guest = dealt.train.alone()
    hosts = [
        HostColumns(frame.values, dealt.train.indices[host].astype(np.int32), frame.categorical)
        for host, frame in dealt.train.hosts.items()
    ]
    own = HybridParams(
        guest_depth=2,
        host_depth=2,
        n_estimators=3,
        learning_rate=0.1,
        precision_bits=BITS_ENCRYPTED,
    )
    twin = pooled_hybrid.train(guest, hosts, own)
    expected = objectives.transform("binary:logistic", twin.margin)[:, 0]
    assert np.allclose(hybridtree_data.probabilities(done), expected, atol=1e-6)
    assert done.sent > 0
    assert done.seconds > 0.0


def test_a_single_host_learns_from_shared_rows_alone(small):
    dealt = SMALL.dealt()
    found = hybridtree_accuracy.with_one_host(SMALL, dealt, "host2")
    assert found is not None
    rows = dealt.train.indices["host2"]
    own = np.asarray(dealt.train.hosts["host2"].values)
    joined = np.asfortranarray(np.hstack([np.asarray(dealt.train.guest.values)[rows], own]))
    kinds = dealt.train.with_host("host2").categorical
    trained = local.train(
        local.TrainingTable(joined, dealt.train.y[rows], categorical=kinds), SMALL.params
    )
    test = dealt.test.with_host("host2")
    assert np.array_equal(found, trained.predict(test.values)[:, 0])
    lacks = np.setdiff1d(np.arange(150), dealt.test.indices["host2"])
    width = dealt.test.guest.values.shape[1]
    assert np.isnan(np.asarray(test.values)[lacks][:, width:]).all()


def test_a_host_of_one_class_has_no_model(small):
    dealt = SMALL.dealt()
    assert dealt.train.guest.label is not None
    one_class = dealt.train.take(np.flatnonzero(dealt.train.y == 1.0))
    same = hybridtree_data.Dealt(one_class, dealt.test)
    assert hybridtree_accuracy.with_one_host(SMALL, same, "host1") is None


def test_where_a_host_has_no_row_another_model_decides():
    rows, alone = np.array([1, 2]), np.array([0.1, 0.2, 0.3])
    single = np.array([0.7, 0.8, 0.9])
    kept = hybridtree_accuracy._only(single, rows, alone)
    assert kept is not None
    assert kept.tolist() == [0.1, 0.8, 0.9]
    assert hybridtree_accuracy._only(None, rows, alone) is None
    other = np.array([0.0, 0.0, 0.5])
    mean = hybridtree_accuracy._averaged([single, None, other], [rows, rows, rows[1:]], alone)
    assert np.allclose(mean, [0.1, 0.8, 0.7])


def test_tree_level_training_begins_with_the_guest_and_adds_where_a_party_has_rows(small):
    dealt = SMALL.dealt()
    one = Experiment(MAIN, "adult", SMALL.dealing, depth=4, trees=1)
    first = hybridtree_accuracy.tree_level(one, dealt)
    assert np.array_equal(first, hybridtree_accuracy.alone(one, dealt))
    two = Experiment(MAIN, "adult", SMALL.dealing, depth=4, trees=2)
    changed = np.flatnonzero(hybridtree_accuracy.tree_level(two, dealt) != first)
    assert len(changed) > 0
    assert set(changed.tolist()) <= set(dealt.test.indices["host1"].tolist())


@pytest.mark.some(3, of="benchmarks that train")
def test_every_system_is_judged_by_all_test_rows(small):
    row = hybridtree_accuracy.measured(replace(SMALL, sampled=True))
    scores = row["scores"]
    assert set(scores) == {*SYSTEMS, SAMPLED, MISSING, FALLING_BACK, OWN_ROWS, EACH}
    assert [len(scores[one]) for one in (MISSING, FALLING_BACK, OWN_ROWS)] == [3, 3, 3]
    assert scores[ALL_LOCAL]["accuracy"] > row["majority"]
    assert scores[ALL_LOCAL]["auc"] > scores[SOLO]["auc"]
    assert scores[SCORED]["auc"] > scores[SOLO]["auc"]
    assert row["rows"] == {"train": 400, "test": 150}
    assert sum(row["host_rows"].values()) == 400
