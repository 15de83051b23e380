"""What the fields of sums could tell: widths, floods, noise, and neighbours in a package."""

import math

import numpy as np
import pytest

from fedboost.core.groups import Segments
from fedboost.core.split import Candidates
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.parameters import BY_NAME
from fedboost.crypto.packing import GhLayout
from fedboost.encrypted.cells.candidates import CategoricalColumn, NodeCandidates
from fedboost.encrypted.scheme import capacity
from fedboost.encrypted.scheme.capacity import NodeField, under_noise
from fedboost.ground.settings import parse_settings
from fedboost.protocols.secureboost.params import SecureBoostParams
from tests.support.federated import HOSTS, now
from tests.support.secureboost_jobs import made

N_BINS = np.array([4, 4])
SHAPE = math.log2(10)  # of how many candidates there are


def offer(columns, bins, left, grouped=(), order=None):
    """Candidates at thresholds, and columns of three categories."""
    listed = Candidates(np.array(columns, np.int32), np.array(bins, np.int16), np.array(left, bool))
    others = tuple(CategoricalColumn(c, Segments.one_per_bin(3), missing=False) for c in grouped)
    n_sums = len(columns) + 3 * len(others)
    return NodeCandidates(listed, others, np.arange(n_sums) if order is None else np.array(order))


def field_of(candidates):
    """The bits of a node whose sums have ten each."""
    return NodeField(100, {1: 10.0}).bits_by_column(candidates, N_BINS)


def test_cuts_are_independent_and_missing_rows_one_sum_more():
    field = NodeField(100, {1: 10.0})
    cuts = offer([0, 0, 0, 0, 1], [0, 0, 1, 1, 0], [False, True, False, True, False])
    every = offer([0] * 7, [0, 1, 2, 3, 0, 1, 2], [False] * 4 + [True] * 3)
    assert field_of(every)[0] == pytest.approx(40 + SHAPE)  # five groups, whose total is known
    assert field.bits_by_column(cuts, N_BINS) == pytest.approx([30 + SHAPE, 10 + SHAPE])
    noisy = NodeField(100, {1: 10.0}, is_exact=False)
    assert noisy.bits_by_column(cuts, N_BINS) == pytest.approx([40 + SHAPE, 10 + SHAPE])


def test_of_categories_one_follows_from_the_total():
    grouped = offer([0], [0], [False], grouped=(1,))
    assert NodeField(9, {1: 10.0}).bits_by_column(grouped, N_BINS)[1] == pytest.approx(20 + SHAPE)
    noisy = NodeField(9, {1: 10.0}, is_exact=False)
    assert noisy.bits_by_column(grouped, N_BINS)[1] == pytest.approx(30 + SHAPE)


def test_a_package_counts_for_every_column_that_has_a_sum_in_it():
    four = ([0, 0, 1, 1], [0, 1, 0, 1], [False] * 4)
    apart = offer(*four, order=[0, 1, 2, 3])
    mixed = offer(*four, order=[0, 2, 1, 3])
    field = NodeField(100, {2: 10.0})
    assert field.bits_by_column(apart, N_BINS) == pytest.approx([20 + SHAPE, 20 + SHAPE])
    assert field.bits_by_column(mixed, N_BINS) == pytest.approx([40 + SHAPE, 40 + SHAPE])


def test_noise_lowers_a_number_by_its_entropy():
    [bits] = under_noise(np.array([30.0]), np.array([1024.0]))
    assert bits == pytest.approx(30 - 10 - math.log2(math.sqrt(2 * math.pi * math.e)), abs=1e-3)
    assert under_noise(np.array([5.0]), np.array([1e6]))[0] < 1e-4


@pytest.mark.parametrize("name", BY_NAME)
def test_a_lattices_number_tells_what_its_flood_leaves(name):
    budget = Budget(BY_NAME[name], 10_000)
    messages = budget.width(500) - BY_NAME[name].scale_bits
    assert messages < budget.readable_bits(500) < messages + 3
    assert budget.readable_bits(500) < budget.readable_bits(10_000)


def test_a_packages_number_has_the_width_of_its_field():
    layout = GhLayout(20, 1000, 2048, outputs=2)
    assert layout.field_widths.tolist() == [layout.g_bits, layout.h_bits] * 2
    assert set(layout.sums_together.tolist()) == {layout.lanes[0].capacity}
    alone = GhLayout(20, 1000, 2048, compress=False)
    assert alone.sums_together.tolist() == [1, 1]


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("scheme", ["plain", "lattice"])
def test_a_forecast_is_no_less_than_what_sums_are_charged(scheme, noise, monkeypatch):
    told, stock = [], NodeField.bits_by_column

    def noted(field, candidates, n_bins):
        told.append(stock(field, candidates, n_bins))
        return told[-1]

    monkeypatch.setattr(NodeField, "bits_by_column", noted)
    params = {"max_depth": 2, "n_estimators": 2, "max_bin": 6, "host_noise": noise}
    params["encryption"] = {"scheme": scheme}
    room = made(params, (2, 2), 200).room()
    now(room.walk())
    settings = parse_settings(SecureBoostParams, params)
    rows, bins = len(room.contexts[HOSTS[0]].parts["train"]), 6
    most = capacity.forecast(settings, nodes=len(told), independent=len(told), columns=2)
    assert 0.0 < np.sum(told, axis=0).max() <= most(bins, rows)


def test_a_forecast_knows_no_bound_without_a_scheme_or_the_columns_that_share_a_package():
    for scheme, columns, known in (
        ("auto", 3, False),
        ("paillier", None, False),
        ("paillier", 3, True),
        ("lattice", None, True),
    ):
        settings = parse_settings(SecureBoostParams, {"encryption": {"scheme": scheme}})
        most = capacity.forecast(settings, nodes=3, independent=2, columns=columns)(8, 1000)
        assert (most < math.inf) is known
