"""The meter counts what a naive twin finds: the rank of all equations about a bin of a column."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.core.binning import Binning
from fedboost.core.gradient_bits import BITS_MAX
from fedboost.core.groups import Segments
from fedboost.core.placement import NarrowedRows
from fedboost.core.split import Candidates
from fedboost.encrypted.cells.candidates import CategoricalColumn, NodeCandidates
from fedboost.encrypted.host.meter import DRAWN_MAX, Meter
from fedboost.encrypted.scheme.capacity import NodeField
from fedboost.encrypted.tree.batch import STRIDE
from fedboost.flow import Charge, Releases, Spent, Table
from fedboost.ground.settings import parse_settings
from fedboost.protocols.hybridtree import host as hybrid_host
from fedboost.protocols.hybridtree.params import HybridTreeParams
from fedboost.protocols.hybridtree.params import releases as hybrid_releases
from fedboost.protocols.secureboost import host as secureboost_host
from fedboost.protocols.secureboost import plan
from fedboost.protocols.secureboost.params import SecureBoostParams
from fedboost.runtime.config.policy import Policy
from tests import tiers
from tests.support import hybrid_jobs
from tests.support.federated import GUEST, HOSTS, Room, now
from tests.support.secureboost_jobs import CLASSES, VECTORS, made

WIDTHS = (2, 3, 2)
# Whose g and h differ from row to row and from tree to tree; of many others h repeats itself.
AMOUNTS = {"objective": "reg:tweedie", "min_child_weight": 5.0, "precision_bits": None}
SHAPES = {
    "default": AMOUNTS,
    "deep": {**AMOUNTS, "max_depth": 4, "n_estimators": 2},
    "layered": {**AMOUNTS, "mode": "layered", "host_depth": 3, "guest_depth": 1},
    "mix": {**AMOUNTS, "mode": "mix", "n_estimators": 5},
    "columns": {**AMOUNTS, "colsample_bytree": 0.5, "n_estimators": 4},
    "layers": {**AMOUNTS, "colsample_bylevel": 0.5, "max_depth": 4, "n_estimators": 4},
    "nodes": {**AMOUNTS, "colsample_bynode": 0.4, "max_depth": 4},
    "layered nodes": {**AMOUNTS, "mode": "layered", "colsample_bynode": 0.4},
    "rows": {**AMOUNTS, "subsample": 0.6},
    "goss": {**AMOUNTS, "goss": {"top_rate": 0.2, "other_rate": 0.3}},
    "forest": {**AMOUNTS, "forest": {"n_trees": 3, "subsample": 0.7}, "n_estimators": 2},
    "classes": {**CLASSES, "n_estimators": 2},
    "vectors": {**VECTORS, "n_estimators": 2},
}
GENERIC = ("default", "layered", "columns", "rows", "goss", "forest")


class Twin:
    """Every equation on the rows in a bin, by host and column, as the sums leave the host."""

    def __init__(self, room, monkeypatch, module):
        self.room = room
        self.rows: dict[str, dict[int, list[np.ndarray]]] = {h: {} for h in room.table.hosts}
        steps = module.sum_candidates

        def noted(state, *got):
            trees = self.trees(state.context.party)  # before the guest hears enough to go on
            yield from steps(state, *got)
            self.note(state, [tree.gh.astype(np.float64) for tree in trees])

        monkeypatch.setattr(module, "sum_candidates", noted)

    def note(self, me, gradients):
        for number, offer in me.tree_batch.offered.items():
            tree, node = me.tree_batch.at(number)
            rows = tree.growth.training.rows(node)
            gh = gradients[number // STRIDE]
            equations = np.zeros((gh.shape[1], len(gh)))
            equations[:, rows] = gh[rows].T
            for column in self.columns(offer):
                self.rows[me.context.party].setdefault(column, []).append(equations)

    def trees(self, host):
        """The guest's trees, which know what each row of a host adds."""
        guest = self.room.state(GUEST)
        growing = guest.growing
        return (
            growing.tree_batches[host] if hasattr(growing, "tree_batches") else growing.tree_batch
        ).trees

    @staticmethod
    def columns(offer):
        return {*offer.listed.column.tolist(), *(one.column for one in offer.categorical)}

    def rank(self, host, column):
        """How many of the equations about a column's bins are independent."""
        whole = np.concatenate(self.rows[host].get(column, [np.zeros((1, 1))]))
        whole = whole[np.abs(whole).sum(axis=1) > 0]
        sizes = np.linalg.norm(whole, axis=1, keepdims=True)
        return int(np.linalg.matrix_rank(whole / sizes)) if len(whole) else 0


def generic(job):
    """The job with labels of which no two are alike, so that no sums are multiples of others."""
    if job.params["objective"] == "reg:tweedie":
        return replace(job, y=np.random.default_rng(3).uniform(0.5, 2.0, len(job.y)))
    return job


def metered(job, monkeypatch, module=secureboost_host, least=1):
    """A job that has run under minimum groups of so many rows: its twin and each host's counts."""
    room = generic(job).room()
    limits = Policy(group_rows_min=least, gradient_bits_max=BITS_MAX)
    contexts = {party: replace(context, limits=limits) for party, context in room.contexts.items()}
    room = Room(room.protocol, contexts)
    twin = Twin(room, monkeypatch, module)
    now(room.walk())
    return twin, {host: room.state(host).meter for host in room.table.hosts}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_column_has_more_independent_equations_than_the_meter_counts(shape, monkeypatch):
    job = made({"max_bin": 4, **SHAPES[shape]}, WIDTHS, rows=200, weighted=True)
    twin, meters = metered(job, monkeypatch)
    told = 0
    for host, meter in meters.items():
        for column, counted in enumerate(meter.equations.tolist()):
            rank = twin.rank(host, column)
            assert rank <= counted
            assert rank == counted or shape not in GENERIC
            told += rank
    assert told


@pytest.mark.parametrize("shape", SHAPES)
def test_no_job_tells_more_than_the_most_that_its_settings_allow(shape, monkeypatch):
    job = made({"max_bin": 4, **SHAPES[shape]}, WIDTHS, rows=200, weighted=True)
    _, meters = metered(job, monkeypatch)
    for host, meter in meters.items():
        known = planned(job.params, job.columns[host].shape[1], host)
        unknown = planned(job.params, None, host)
        assert 0 < meter.most <= unknown.whole
        assert 0 < known.whole <= unknown.whole


@pytest.mark.parametrize("categories", [0, 3])
def test_columns_of_categories_and_with_missing_values_count_alike(categories, monkeypatch):
    job = made({**AMOUNTS, "max_bin": 4}, WIDTHS, rows=200, weighted=True, categories=categories)
    twin, meters = metered(job, monkeypatch)
    for host, meter in meters.items():
        found = [twin.rank(host, column) for column in range(len(meter.equations))]
        assert found == meter.equations.tolist()


@pytest.mark.parametrize("least", [10, 40])
def test_sums_over_groups_of_bins_are_equations_as_well(least, monkeypatch):
    job = made({**AMOUNTS, "max_bin": 8}, WIDTHS, rows=300, weighted=True, categories=3)
    twin, meters = metered(job, monkeypatch, least=least)
    for host, meter in meters.items():
        found = [twin.rank(host, column) for column in range(len(meter.equations))]
        assert found == meter.equations.tolist()


def test_a_column_with_one_value_tells_nothing(monkeypatch):
    job = made({**AMOUNTS, "max_bin": 4}, WIDTHS, rows=200, missing=0.0)
    for values in job.columns.values():
        values[:, 0] = 1.0
    twin, meters = metered(job, monkeypatch)
    for host, meter in meters.items():
        assert twin.rank(host, 0) == meter.equations[0] == 0
        assert meter.most > 0


@pytest.mark.parametrize("depths", [(2, 2), (1, 3), (3, 1)])
def test_the_lower_layers_of_a_hybrid_tree_count_from_every_bottom_node(depths, monkeypatch):
    guest_depth, host_depth = depths
    said = {**AMOUNTS, "guest_depth": guest_depth, "host_depth": host_depth, "n_estimators": 2}
    job = hybrid_jobs.made({**said, "max_bin": 4}, rows=300)
    twin, meters = metered(job, monkeypatch, hybrid_host)
    for host, meter in meters.items():
        assert meter.most > 0
        for column, counted in enumerate(meter.equations.tolist()):
            assert twin.rank(host, column) == counted
        params = parse_settings(HybridTreeParams, job.params)
        bound = hybrid_releases(params, job.room().table, host, None)
        assert meter.most <= bound.whole


def test_unscored_cuts_are_expected_to_tell_the_order_of_each_column_alike():
    said = {"split": "unscored", "n_estimators": 10, "host_depth": 2, "max_bin": 11}
    params = parse_settings(HybridTreeParams, said)
    assert hybrid_releases(params, Table(GUEST, HOSTS[:2]), HOSTS[0], 4) == Releases(0, 0.5)


# By hand


def offer(*columns, grouped=()):
    """What a node offers, one candidate of each column."""
    own = np.array(columns, np.int32)
    listed = Candidates(own, np.zeros(len(own), np.int16), np.zeros(len(own), bool))
    two = Segments.one_per_bin(2)
    others = tuple(CategoricalColumn(column, two, missing=False) for column in grouped)
    return NodeCandidates(listed, others, np.arange(len(own) + 2 * len(others)))


BINS = np.arange(10, dtype=np.uint8)[:, None] * np.ones(3, np.uint8)  # ten rows, a bin of each
FIELD = NodeField(10, {1: 4.0})


def metering(columns=3, values=2):
    """A meter of columns whose ten rows are in ten bins."""
    cuts = Binning(10, (np.arange(1, 10, dtype=np.float32),) * columns)
    learnt = np.ones(10, np.bool_)
    return Meter("abc"[:columns], values, NarrowedRows.of(BINS[:, :columns], cuts, learnt))


def counted(*layers, values=2, columns=3):
    meter = metering(columns, values)
    meter.begin_trees()
    told = dict.fromkeys("abc"[:columns], 0.0)
    for layer in layers:
        meter.begin_layer()
        for part in layer.items():
            for one in meter.charge(dict([part]), dict.fromkeys(part[:1], FIELD)):
                told[one.column] += one.amount * (one.kind is Spent.SUMS)
    assert list(told.values()) == pytest.approx(meter.equations / 10)
    return meter.equations.tolist()


def test_of_two_siblings_one_is_the_parent_minus_the_other():
    assert counted({0: offer(0, 0, 1)}) == [2, 2, 0]
    assert counted({0: offer(0)}, {1: offer(0), 2: offer(0)}) == [4, 0, 0]
    assert counted({0: offer(0)}, {1: offer(0)}) == [4, 0, 0]
    assert counted({0: offer(0)}, {2: offer(0)}, {5: offer(0), 6: offer(0)}) == [6, 0, 0]


def test_a_column_that_the_parent_did_not_tell_counts_for_both_siblings():
    assert counted({0: offer(0)}, {1: offer(0, 1), 2: offer(0, 1)}) == [4, 4, 0]
    assert counted({0: offer()}, {1: offer(0), 2: offer()}) == [2, 0, 0]


def test_columns_of_categories_count_as_others():
    assert counted({0: offer(0, grouped=(2,))}, {1: offer(grouped=(2,))}) == [2, 0, 4]


def test_nodes_of_several_trees_are_no_siblings_and_bottom_nodes_have_no_parents():
    assert counted({0: offer(0), STRIDE: offer(0)}) == [4, 0, 0]
    both = {1: offer(0), 2: offer(0), STRIDE + 1: offer(0)}
    assert counted({0: offer(0), STRIDE: offer(0)}, both) == [8, 0, 0]
    assert counted({3: offer(0), 4: offer(0)}) == [4, 0, 0]


def test_trees_that_begin_have_no_parents_in_the_last_ones():
    meter = metering(1)
    meter.begin_layer()
    meter.charge({0: offer(0)}, {0: FIELD})
    meter.begin_trees()
    meter.begin_layer()
    meter.charge({1: offer(0), 2: offer(0)}, {1: FIELD, 2: FIELD})
    assert meter.equations.tolist() == [6]


def test_a_division_is_an_equation_about_its_column():
    meter = metering()
    won = {1: (0, 3, False, b""), 2: (0, 4, True, b""), STRIDE: (2, 0, False, b"")}
    rows = dict.fromkeys(won, np.arange(10, dtype=np.int32))
    rights = {number: BINS[:, 0] > named[1] for number, named in won.items()}
    sums = [one for one in meter.divided(won, rows, rights) if one.kind is Spent.SUMS]
    assert sums == [Charge(Spent.SUMS, 0.2, "a"), Charge(Spent.SUMS, 0.1, "c")]
    assert meter.divided({}, {}, {}) == ()


def placed(charges):
    """The share of rows that messages could place, by column."""
    return {one.column: one.amount for one in charges if one.kind is Spent.PLACED}


def test_sums_place_as_many_rows_as_their_bits_could_and_no_more_than_they_are_about():
    shape, whole = math.log2(22), 10 * math.log2(10)
    meter = metering()
    meter.begin_layer()
    told = placed(meter.charge({0: offer(0)}, {0: FIELD}))
    assert told == {"a": pytest.approx((4.0 + shape) / whole)}
    two = offer(0, 0)
    two.listed.bin[1] = 1
    assert placed(meter.charge({0: two}, {0: FIELD}))["a"] == pytest.approx((8 + shape) / whole)
    assert placed(meter.charge({0: offer(0)}, {0: NodeField(4, {1: 99.0})}))["a"] == pytest.approx(
        0.4
    )


def test_of_two_siblings_one_places_rows_where_sums_are_exact_and_apart():
    def of_pair(field):
        meter = metering()
        meter.begin_layer()
        meter.charge({0: offer(0)}, {0: field})
        meter.begin_layer()
        return placed(meter.charge({1: offer(0), 2: offer(0)}, {1: field, 2: field}))["a"]

    one = of_pair(FIELD)
    assert of_pair(NodeField(10, {1: 4.0}, is_exact=False)) == pytest.approx(2 * one)
    assert of_pair(NodeField(10, {2: 4.0})) == pytest.approx(2 * one)


def test_two_siblings_place_as_many_rows_as_the_one_whose_sums_hold_more_in_any_order():
    """The smaller node's answers leave modulo less: what they lack of the other's is told by it."""
    shape, whole = math.log2(22), 10 * math.log2(10)

    def of_pair(left, right, *batches):
        meter = metering()
        meter.begin_layer()
        meter.charge({0: offer(0)}, {0: FIELD})
        meter.begin_layer()
        offered, fields = {1: offer(*left[0]), 2: offer(*right[0])}, {1: left[1], 2: right[1]}
        for node in offered.values():
            node.listed.bin[:] = np.arange(len(node.listed.bin))
        every = [placed(meter.charge({n: offered[n] for n in batch}, fields)) for batch in batches]
        return sum(told.get("a", 0.0) for told in every) * whole - shape

    one, two = ((0,), NodeField(10, {1: 4.0})), ((0,), NodeField(10, {1: 7.0}))
    more = (0, 0), NodeField(10, {1: 5.0})
    for batches in ([(1, 2)], [(2, 1)], [(1,), (2,)], [(2,), (1,)]):
        assert of_pair(one, one, *batches) == pytest.approx(4.0)
        assert of_pair(one, two, *batches) == pytest.approx(7.0)
        assert of_pair(one, more, *batches) == pytest.approx(10.0)
        assert of_pair(more, two, *batches) == pytest.approx(12.0)  # 2 of 5 bits, and 2 bits of one


def test_a_division_places_rows_by_what_it_adds():
    meter, rows = metering(1), {0: np.arange(10, dtype=np.int32)}
    half = {0: (0, 4, False, b"")}
    first = placed(meter.divided(half, rows, {0: BINS[:, 0] > 4}))
    assert first == {"a": pytest.approx(1 / math.log2(10), rel=1e-4)}
    assert placed(meter.divided(half, rows, {0: BINS[:, 0] > 4})) == {}


# Planned


def planned(params, columns, host=HOSTS[0]):
    own = parse_settings(SecureBoostParams, {"encryption": {"scheme": "plain"}, **params})
    return plan.releases(own, Table(GUEST, HOSTS[:2]), host, columns)


def told(sums, nodes):
    """A forecast of so many equations of sums; by one of four columns 2 of 5 `nodes` divide."""
    return Releases(sums + math.ceil(nodes * 2 / 5))


def test_a_tree_tells_one_equation_and_one_for_every_pair_of_siblings():
    assert planned({"n_estimators": 1, "max_depth": 1}, 4) == told(2, 1)
    deep = {"n_estimators": 25, "max_depth": 5}
    assert planned(deep, 4) == told(25 * 16 * 2, 25 * 31)
    assert planned(deep, None) == planned(deep, 1) == Releases(25 * (16 * 2 + 31))
    layered = {"mode": "layered", "host_depth": 2, "guest_depth": 4, "n_estimators": 10}
    assert planned(layered, 4) == told(10 * 2 * 2, 10 * 3)


def test_a_forecast_of_stumps_counts_the_columns_that_their_nodes_draw():
    stumps = {"n_estimators": 20, "max_depth": 1, "colsample_bynode": 0.5}
    whole = {**stumps, "colsample_bynode": 1.0}
    assert 0 < planned(stumps, 4).whole < planned(whole, 4).whole


def test_in_mix_a_host_tells_in_its_own_turns_alone():
    turns = {"mode": "mix", "max_depth": 3, "n_estimators": 9, "trees_per_party": 2}
    assert planned(turns, 4) == told(3 * 4 * 2, 3 * 7)  # rounds 2, 3 and 8
    assert planned(turns, 4, HOSTS[1]) == told(2 * 4 * 2, 2 * 7)  # rounds 4 and 5
    assert planned({**turns, "n_estimators": 2}, 4) == Releases(0)


def test_a_class_has_a_tree_or_a_value_of_its_own():
    rounds = {"n_estimators": 2, "max_depth": 1}
    assert planned({**CLASSES, **rounds}, 4) == told(2 * 3 * 2, 2 * 3)
    assert planned({**VECTORS, **rounds}, 4) == told(2 * 2 * 3, 2)


def test_sampled_columns_are_counted_as_they_will_be_drawn():
    params = {"n_estimators": 40, "max_depth": 1}
    whole = planned(params, 8).whole
    some = planned({**params, "colsample_bytree": 0.25}, 8)
    assert 2 * 40 * 2 / 8 <= some.whole < whole
    unknown = planned(params, None)
    assert planned({**params, "colsample_bytree": 0.25}, None) == unknown
    many = {"n_estimators": DRAWN_MAX + 1, "max_depth": 1, "colsample_bytree": 0.25}
    each = {**many, "colsample_bytree": 1.0}
    assert planned(many, 8) == planned(each, 8)


def test_columns_of_nodes_are_counted_as_they_will_be_drawn_or_as_the_most_that_there_can_be():
    params = {"n_estimators": 10, "max_depth": 4}
    divided, sums = math.ceil(10 * 15 * 2 / 9), 10 * 8 * 2
    assert planned(params, 8).whole == divided + sums
    drawn = planned({**params, "colsample_bynode": 0.25}, 8).whole - divided
    assert sums / 8 < drawn < sums * 0.6
    unknown = (
        planned({**params, "colsample_bylevel": 0.5}, None).whole - planned(params, None).whole
    )
    assert sums / 3 <= unknown <= sums / 3 + 2
    many = {"n_estimators": DRAWN_MAX // 15 + 1, "max_depth": 4}
    most = planned(many, 8).whole + 8 * 2 * many["n_estimators"] / 3
    assert most <= planned({**many, "colsample_bynode": 0.25}, 8).whole <= most + 2


@settings(max_examples=tiers.examples(40), deadline=None)
@given(
    rounds=st.integers(1, 60),
    depth=st.integers(1, 8),
    rate=st.floats(0.1, 1.0),
    columns=st.integers(1, 30),
)
def test_less_of_anything_never_tells_more(rounds, depth, rate, columns):
    params = {"n_estimators": rounds, "max_depth": depth, "colsample_bytree": rate}
    whole = planned(params, columns).whole
    assert planned({**params, "n_estimators": rounds + 1}, columns).whole >= whole
    assert planned({**params, "max_depth": depth + 1}, columns).whole >= 2 * whole - 1
    assert planned({**params, "colsample_bytree": 1.0}, columns).whole >= whole
