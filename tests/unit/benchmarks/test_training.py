"""What benchmarks train is what they say: pooled twins, splits without leaks, jobs that count."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import (
    boosting,
    encryption,
    federboost,
    federboost_horizontal,
    fedgbf,
    gbun,
    gbun_accuracy,
    part_bytes,
    privacy,
    privacy_totals,
    room,
    tables,
)
from benchmarks.alignment import Case, in_clear
from benchmarks.boosting import LATTICE, OFF, PAILLIER, PLAIN, SCHEMES, SWITCHES
from benchmarks.federboost_horizontal import EXACT
from benchmarks.fedgbf import DYNAMIC, LONE, SECUREBOOST
from benchmarks.gbun_accuracy import GBUN, Grid, Point, Split
from benchmarks.privacy import DEFAULTS, DIVISIONS, PROGRAMME, Variant
from benchmarks.privacy_totals import APART
from benchmarks.scale_model import Carries, Size
from benchmarks.secureboost_plus import ALONE, VARIANTS
from fedboost.audit.findings import CLUSTERS, SUMS
from fedboost.core import gbun as networks
from fedboost.core import local, metrics, sampling
from fedboost.core.binning import Binning
from fedboost.core.params import TreeParams
from fedboost.runtime.config.policy import Policy

POINT = Point(size=4, rate=0.3, reg_lambda=1.0)


def toy(rows=300, columns=tuple("abcd"), name="susy_30k", classes=2):
    draw = np.random.default_rng(5)
    values = np.asfortranarray(draw.normal(size=(rows, len(columns))).astype(np.float32))
    pull = values.sum(axis=1) + draw.normal(size=rows)
    y = np.digitize(pull, [-1.0, 1.0]) if classes > 2 else (pull > 0.0).astype(np.int64)
    return tables.Table(name, np.arange(rows) + 10**6, y, values, columns)


# Data


@pytest.mark.parametrize("name", ["default_credit", "give_credit"])
def test_every_column_has_one_owner(name, data_file, monkeypatch):
    monkeypatch.setenv("FEDBOOST_DATA", str(data_file(f"{name}.parquet").parent))
    table = tables.load(name)
    parts = tables.vertical(table)
    assert {party: set(own) for party, own in parts.items()} == {
        party: set(own) for party, own in boosting.parts(table).items()
    }
    assert sorted(parts["guest"] + parts["host"]) == sorted(table.columns)
    assert table.held_out(0.3, 7).sum() == round(0.3 * len(table.y))
    few = boosting.fewer_columns(table.sample(1000), 2)
    assert few.values.shape == (1000, len(parts["guest"]) + 2)
    assert len(boosting.parts(few)["host"]) == 2


def test_parties_share_columns_in_order_or_rows_by_lot():
    assert federboost.parts(toy(columns=tuple("abcdefg")), 3) == {
        "guest": tuple("abc"), "host1": ("d", "e"), "host2": ("f", "g"),
    }  # fmt: skip
    for deal in (tables.shares, gbun.in_order):
        shares = deal(toy(100), 3)
        assert list(shares) == ["guest", "host1", "host2"]
        assert sorted(len(share.y) for share in shares.values()) == [33, 33, 34]
        together = np.concatenate([share.id for share in shares.values()])
        assert sorted(together) == toy(100).id.tolist()


def test_the_second_class_stands_against_the_rest(monkeypatch):
    several = replace(toy(), name="covtype", y=np.arange(300) % 7)
    monkeypatch.setattr(tables, "load", lambda name: several)
    assert tables.binary("covtype").y.tolist() == (several.y == 1).astype(int).tolist()


def test_no_row_is_in_two_parts_and_none_is_lost(monkeypatch):
    monkeypatch.setattr(tables, "load", lambda name: toy(classes=3))
    found = gbun_accuracy.split("vehicle", None, 0)
    assert (found.classes, found.metric) == (3, "accuracy")
    seen = np.concatenate([np.asarray(p.values) for p in (found.fit, found.validation, found.test)])
    assert sorted(map(tuple, seen)) == sorted(map(tuple, toy().values))
    other = gbun_accuracy.split("vehicle", None, 1)
    assert other.test.y.tolist() != found.test.y.tolist()


def test_all_share_the_common_ids_and_no_two_any_other():
    case = Case("3_hosts", 40, (60, 50, 70), 30)
    sets = [set(case.numbers(place).tolist()) for place in range(4)]
    assert [len(one) for one in sets] == [40, 60, 50, 70]
    assert len(set.intersection(*sets)) == 30
    assert len(set.union(*sets)) == 30 + 10 + 30 + 20 + 40
    assert in_clear(case) > 0
    uneven = Case("uneven", 10**5, (10**7,), 10**5 // 2).cut(1000)
    assert (uneven.guest, uneven.hosts, uneven.common) == (10, (1000,), 5)


# Jobs


def test_variants_differ_from_the_baseline_in_their_own_switch_alone():
    for switch in SWITCHES:
        own = ALONE[switch]
        assert {name: own[name] for name in own if own[name] != OFF[name]} == {switch: True}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_and_variant_is_a_job_of_the_same_trees(scheme):
    for params in VARIANTS.values():
        spec = boosting.job(toy(), 2, scheme, params)
        assert spec.params["encryption"]["scheme"] == SCHEMES[scheme]["scheme"]
    assert boosting.job(toy(), 2, scheme, {}, held_out=False).validation is None


@pytest.mark.parametrize("system", [SECUREBOOST, DYNAMIC, LONE])
def test_every_system_has_the_papers_depth_and_learning_rate(system):
    spec = boosting.job(toy(), 20, PAILLIER, fedgbf.PARAMS.get(system) or fedgbf.lone(3))
    assert (spec.params["max_depth"], spec.params["learning_rate"]) == (3, 0.1)
    assert ("forest" in spec.params) == (system != SECUREBOOST)


def test_a_lone_tree_is_the_first_of_its_forest():
    gradients = np.zeros((500, 1))
    whole = TreeParams(n_estimators=4, forest=fedgbf.PARAMS[DYNAMIC]["forest"])
    params = fedgbf.lone(0)
    alone = TreeParams(n_estimators=4, forest=params["forest"], seed=params["seed"])
    for number in range(4):
        forest = sampling.round_sample(whole, gradients, number, number).trees
        tree = sampling.round_sample(alone, gradients, number, number).trees
        assert len(tree) == 1
        np.testing.assert_array_equal(forest[0], tree[0])


# Models


def test_the_room_trains_the_pooled_trees_and_scores_true_values():
    table, held = toy(), np.arange(300) % 3 == 0
    test, dealt = table.where(held), federboost.parts(table, 3)
    given = federboost.params("susy_30k", n_estimators=5, buckets=8, max_bin=8)
    trained = room.train(table, dealt, given, held)
    own = {name: given[name] for name in given if name in TreeParams.model_fields}
    learned = local.TrainingTable(table.values[~held], table.y[~held].astype(np.float64))
    pooled = local.train(learned, TreeParams(**own)).predict(test.values)[:, 0]
    found = room.predict(trained.shards, test, dealt)
    assert found.tolist() == pooled.tolist()
    assert room.auc(test, found) == metrics.evaluate("auc", test.y.astype(np.float64), pooled)
    assert trained.total == pytest.approx(sum(trained.seconds.values()))


def test_the_room_draws_fresh_noise():
    table = toy()
    dealt = federboost.parts(table, 2)
    given = federboost.params("susy_30k", n_estimators=2, epsilon=1.0)
    first, second = (room.train(table, dealt, given) for _ in range(2))
    scored = [room.predict(one.shards, table, dealt).tolist() for one in (first, second)]
    assert scored[0] != scored[1]
    # Four bits for each row of both host columns, and the words around them.
    assert 300 <= first.sent["host"] < 300 + 150


@pytest.mark.parametrize("aggregator", ["guest", "aggregator"])
def test_the_room_trains_the_pooled_trees_of_rows(aggregator):
    table = toy(rows=960)
    shares = tables.shares(table, 3)
    tiny = {"n_estimators": 2, "max_depth": 2, "max_bin": 8, "quantile_tolerance": EXACT}
    asked = federboost_horizontal.params("susy_30k", **tiny)
    trained = room.train_horizontal(shares, asked, aggregator)
    cuts = []
    for column in table.values.T:
        ranked = np.sort(column)
        cuts.append((ranked[119:-1:120] + ranked[120::120]) / 2)
    params = federboost_horizontal.tree_params(asked)
    learned = local.TrainingTable(
        np.concatenate([share.values for share in shares.values()]),
        np.concatenate([share.y for share in shares.values()]).astype(np.float64),
        row_groups=tuple(len(share.y) for share in shares.values()),
        own_rows_min=(Policy().own_rows_min,) * len(shares),
    )
    pooled = local.train(learned, params, cuts=Binning(8, tuple(cuts)))
    found = room.predict_whole(trained.shards, table)
    assert found == pytest.approx(pooled.predict(table.values)[:, 0], abs=1e-6)
    assert trained.ended > trained.ends["read_metrics"] > trained.ends["narrow"] > trained.began


def test_primitives_are_those_of_the_trees_and_nothing_else():
    table, tiny = toy(900), {"n_estimators": 2, "max_depth": 2, "max_bin": 8}
    given = federboost_horizontal.params("susy_30k", **tiny)
    found = federboost_horizontal.primitives(table, tables.shares(table, 3), given)
    kinds = {"bins and gradients", "histograms", "splits", "margins", "metrics", "masks"}
    assert set(found["alone"]) == {"pooled", *kinds}
    # Two layers and the metrics of each of two trees; a layer asks for one node's histograms.
    assert found["vectors"] == 2 * 3
    cells = 4 * 9 * 2  # columns, bins with that of missing values, g and h
    assert 4 * cells < found["words"] < 4 * cells + 2 * 10


def test_the_auc_of_two_classes_is_the_jobs_own():
    table = toy(400, ("a", "b", "host_a"), "toy")
    done = boosting.here(table, 2, {})
    expected = {part: found["auc"] for part, found in done.result["metrics"].items()}
    assert encryption.aucs(table, done.shards) == pytest.approx(expected, abs=1e-12)


def test_the_predictions_of_many_classes_are_those_of_the_jobs_metric(monkeypatch):
    monkeypatch.setattr(boosting, "MULTI", ("toy",))
    table = toy(300, ("a", "b", "host_a"), "toy", classes=3)
    done = boosting.here(table, 2, {})
    found = encryption.predictions(table, done.shards)
    held = table.held_out(**boosting.VALIDATION)
    right = found.argmax(axis=1) == table.y
    assert right[held].mean() == pytest.approx(done.result["metrics"]["validation"]["accuracy"])
    perfect = np.eye(3)[table.y]
    assert encryption.auc_of(table.y, perfect) == 1.0
    assert encryption.auc_of(table.y, perfect[:, [1, 0, 2]]) < 0.7


@pytest.mark.some(3, of="benchmarks that train")
def test_lattice_models_are_trained_with_the_lattice(monkeypatch):
    monkeypatch.setattr(tables, "load", lambda _: toy(200, ("a", "b", "host_a"), "toy"))
    plan = replace(encryption.QUICK, auc_rows=None, repeats={"toy": 2})
    found = list(encryption.auc("toy", plan))
    assert [row["scheme"] for row in found] == [PLAIN, LATTICE, LATTICE]
    assert [row["number"] for row in found] == [0, 0, 1]
    assert (
        encryption.figures([{"what": "auc", **row} for row in found])["auc_gap.lattice.toy"] < 0.05
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_the_last_stage_of_every_system_is_the_model_itself(monkeypatch, classes):
    monkeypatch.setattr(tables, "load", lambda name: toy(classes=classes))
    given = gbun_accuracy.split("vehicle", None, 0)
    held = np.asarray(given.test.values)
    staged = gbun_accuracy.STAGED[GBUN](given, held, POINT, 3)
    params = gbun_accuracy.gbun_params(given.classes, POINT, 3)
    expected = networks.train(given.fit, params).predict(held)
    assert len(staged) == 3
    assert np.allclose(staged[-1], expected.squeeze(), atol=1e-6)


@pytest.mark.parametrize("system", ["XGBoost", "LightGBM"])
@pytest.mark.parametrize("classes", [2, 3])
def test_others_predict_probabilities_after_every_round(monkeypatch, system, classes):
    pytest.importorskip(system.lower())
    monkeypatch.setattr(tables, "load", lambda name: toy(classes=classes))
    given = gbun_accuracy.split("vehicle", None, 0)
    held = np.asarray(given.test.values)
    staged = gbun_accuracy.STAGED[system](given, held, POINT, 3)
    shape = (len(held), 3) if classes == 3 else (len(held),)
    assert [one.shape for one in staged] == [shape] * 3
    assert all((one >= 0.0).all() and (one <= 1.0).all() for one in staged)
    assert not np.allclose(staged[0], staged[-1], atol=1e-3)


def test_rounds_are_chosen_by_validation_and_finalists_trained_for_all(monkeypatch):
    monkeypatch.setattr(tables, "load", lambda name: toy())
    given = gbun_accuracy.split("epsilon_5k", None, 0)
    points = tuple(Point(size, 0.3, 0.1) for size in (4, 8))
    row = gbun_accuracy.found(GBUN, given, Grid({}, points, tried=2, finalists=1), 5)
    assert [run["rounds"] for run in row["runs"]] == [2, 2, 5]
    best_short = max(row["runs"][:2], key=lambda run: run["validation"])
    assert row["runs"][2]["size"] == best_short["size"]
    assert row["best"]["score"] == max(run["best"] for run in row["runs"])
    longest = max(row["runs"], key=lambda run: run["validation"])
    assert row["chosen"]["score"] == longest["chosen"] <= row["best"]["score"]


def test_a_point_without_a_solution_is_no_run():
    part = local.TrainingTable(np.zeros((20, 2), np.float32), np.arange(20.0) % 2)
    given = Split("toy", part, part, part, 2)
    assert gbun_accuracy.trained(GBUN, given, Point(4, 0.3, 0.0), 2) is None
    assert gbun_accuracy.trained(GBUN, given, Point(4, 0.3, 0.5), 2) is not None


def test_mean_average_precision_is_1_for_a_perfect_ranking():
    y = np.array([0.0, 1.0, 2.0, 1.0])
    perfect = np.eye(3, dtype=np.float32)[y.astype(int)]
    assert gbun_accuracy.mean_average_precision(y, perfect) == 1.0
    # The rows of class 1 come first and third in the order of its column: (1 + 2/3) / 2.
    worse = perfect.copy()
    worse[:, 1] = [0.5, 0.9, 0.1, 0.3]
    assert gbun_accuracy.mean_average_precision(y, worse) == pytest.approx((2 + 5 / 6) / 3)


# What leaks


PLAN = privacy.Plan(1500, 3, (DEFAULTS, "noise 1"), (DEFAULTS,), 2, 2, ("neighbours", "all"))


def test_every_variant_is_trained_and_attacked():
    first, noisy = privacy.sums("default_credit", PLAN)
    assert [one["linking"] for one in first["attacks"]] == [
        *("neighbours", "all", PROGRAMME, DIVISIONS),
    ]  # fmt: skip
    assert [one["linking"] for one in noisy["attacks"]] == ["neighbours", "all"]
    for row in (first, noisy):
        assert row["what"] == SUMS
        assert all(0 <= one["value"] <= 1 and 0 < one["chance"] < 1 for one in row["attacks"])
        assert 0 < row["ratio"] <= 2 * 3 * 16 / row["rows"]
        assert 0.6 < row["auc"]["train"] <= 1
    (labels,) = privacy.labels("default_credit", PLAN)
    assert labels["what"] == CLUSTERS
    assert 0.4 < labels["attacks"][0]["value"] < 1


def test_sums_under_masks_tell_of_single_rows_unless_each_party_has_a_minimum():
    rows = list(privacy.totals("default_credit", PLAN))
    assert [row["least"] for row in rows] == [1, 5, 20]
    free, *limited = (row["told"] for row in rows)
    assert free["sums of one row"] > free["sums"] / 10
    assert free[APART] == 0  # all columns see the same rows
    assert all(told["sums of few rows"] == 0 for told in limited)


def test_two_columns_that_differ_by_one_row_alone_are_found(monkeypatch):
    def layers(tree, done, values, gradients, least):
        seen = np.zeros((3, 2, 1, 2), np.int64)  # nodes, columns, cells, values
        seen[:, 0] = seen[:, 1] = gradients[:20].sum(axis=0)
        seen[1, 1] += gradients[30]  # one row more
        seen[2, 1] += gradients[30] + gradients[31] - gradients[0]  # and one exchanged
        yield seen

    monkeypatch.setattr(privacy_totals, "layers", layers)
    none: object = None  # of what `layers` would read
    told = privacy_totals.of_few(none, none, np.zeros((40, 2), np.float32), 5)  # type: ignore[arg-type]
    assert (told["nodes"], told[APART]) == (3, 1)


def test_the_attack_has_the_gradients_that_each_tree_was_grown_from():
    table = PLAN.table("default_credit")
    done = privacy.trained(table, Variant(least=1), 3)
    assert len(done.room.gradients) == 3
    first = done.room.gradients[0]
    assert first.shape == (int((~table.held_out(0.3, 7)).sum()), 2)
    # Before the first tree all margins are one, so a label has one gradient, rounded either way.
    assert len(np.unique(first[:, 0])) == 4
    assert np.abs(first).max() <= 1.0


def test_the_model_weighs_few_shards_for_many(monkeypatch):
    """What three sizes are weighed for is what a fourth comes to."""
    monkeypatch.setattr(part_bytes, "ROWS", 1 << 12)
    for scheme in ("lattice", "paillier"):
        expected = vars(part_bytes.carried(scheme, 9, 3))
        found = vars(Carries.weighed(scheme).of(Size(columns=9, workers=3)))
        for name in set(expected) - {"scheme"}:
            assert found[name] == pytest.approx(expected[name], rel=0.05)  # bits fill whole bytes
