"""How exact gradients are under each scheme: bits, bounds and rounding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.core import fixed_point, hybrid, objectives
from fedboost.core.gradient_bits import BITS_ENCRYPTED
from fedboost.core.objectives import Summary
from fedboost.crypto.lattice import parameters
from fedboost.crypto.lattice.budget import MESSAGE_BITS_MOST
from fedboost.crypto.schemes import KEYED_SCHEMES
from fedboost.encrypted.lattice.guest import tree_scheme
from fedboost.encrypted.scheme import loading
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.protocols.hybridtree.params import HybridTreeParams
from fedboost.protocols.secureboost.params import SecureBoostParams

LATTICES = sorted(set(parameters.BY_NAME) - {"lattice-large"})
NUMBERS = sorted(set(KEYED_SCHEMES) - {"iterative-affine"})
BITS = {1: 15, 8192: 15, 8193: 14, 1 << 14: 14, 1 << 16: 12, (1 << 20) - 1: 8, 1 << 21: 7}


def params_of(scheme, **more):
    """Of a job that asks for as many bits as fit, unless it says how many."""
    said = {"encryption": {"scheme": scheme}, "precision_bits": None, **more}
    return parse_settings(SecureBoostParams, said)


def bits_of(params, rows):
    return loading.tree_scheme(params).bits_of(params, rows)


def encoding(params, rows, fixed):
    """The integers of a job whose objective's own are `fixed`, and what those were made from."""
    asked = []

    def made(own):
        asked.append(own)
        return fixed

    return loading.tree_scheme(params).encoding(params, rows, made), asked


def fractions(rows, seed):
    draw = np.random.default_rng(seed)
    return lambda width: draw.random((rows, width))


def budget(params, rows, *bits):
    return tree_scheme(params.encryption.scheme).budget(params, rows, *bits)


@pytest.mark.parametrize(("rows", "bits"), BITS.items())
@pytest.mark.parametrize("scheme", LATTICES)
def test_a_lattice_has_as_many_bits_as_its_table_says(scheme, rows, bits):
    own = params_of(scheme)
    assert bits_of(own, rows) == bits
    assert budget(own, rows).message_most == (1 << bits) - 1
    assert budget(own, rows, bits).message_bits == bits + 1


def test_the_lattice_for_many_rows_has_eight_bits_more():
    large = params_of("lattice-large")
    for rows, bits in BITS.items():
        assert bits_of(large, rows) == min(15, bits + 8)
    assert (bits_of(large, 10_000_000), bits_of(large, 1 << 27)) == (12, 9)
    with pytest.raises(ConfigError, match="lattice-large does not add up 134217729 rows"):
        bits_of(large, (1 << 27) + 1)
    with pytest.raises(ConfigError, match="lattice-large adds up 10000000 rows of at most 12 bits"):
        bits_of(params_of("lattice-large", precision_bits=13), 10_000_000)


def test_a_job_that_says_nothing_has_the_same_bits_under_every_scheme():
    for scheme in [*LATTICES, *NUMBERS, "lattice-large"]:
        own = parse_settings(SecureBoostParams, {"encryption": {"scheme": scheme}})
        assert {bits_of(own, rows) for rows in BITS} == {BITS_ENCRYPTED}


@pytest.mark.parametrize("scheme", NUMBERS)
def test_other_schemes_have_as_many_as_sums_leave(scheme):
    for rows in BITS:
        assert bits_of(params_of(scheme), rows) == fixed_point.bits_for_rows(rows)
        assert bits_of(params_of(scheme, precision_bits=21), rows) == 21


@pytest.mark.parametrize("scheme", LATTICES)
def test_fewer_bits_may_be_asked_for_and_more_may_not(scheme):
    assert bits_of(params_of(scheme, precision_bits=8), 1 << 16) == 8
    assert bits_of(params_of(scheme, precision_bits=12), 1 << 16) == 12
    with pytest.raises(ConfigError, match="precision_bits is 13") as refused:
        bits_of(params_of(scheme, precision_bits=13), 1 << 16)
    assert f"{scheme} adds up 65536 rows of at most 12 bits" in refused.value.what
    assert refused.value.todo == "set precision_bits to at most 12, or leave it out"


@pytest.mark.parametrize("scheme", LATTICES)
@pytest.mark.parametrize("rows", [0, (1 << 21) + 1])
def test_rows_that_no_budget_is_for_are_refused(rows, scheme):
    with pytest.raises(ConfigError):
        bits_of(params_of(scheme), rows)


def test_encodings_of_other_schemes_are_the_objectives_own():
    fixed = fixed_point.encoding_for_rows(1000, None, 1.0, 0.25)
    for scheme in NUMBERS:
        own = params_of(scheme, precision_bits=20)
        assert encoding(own, 1000, fixed) == (fixed, [own])


@pytest.mark.parametrize("bits", [None, 8, 13])
def test_the_greatest_gradient_is_the_greatest_message(bits):
    own = params_of("lattice", precision_bits=bits)
    fixed = fixed_point.encoding_for_rows(1000, None, 1.0, 0.25)
    made, asked = encoding(own, 1000, fixed)
    assert [one.precision_bits for one in asked] == [None]
    assert made.bits == (bits or 15)
    most = budget(own, 1000, made.bits).message_most
    ends = np.array([[1.0], [-1.0], [0.0]]), np.array([[0.25], [0.0], [0.25]])
    for seed in range(20):
        found = made.encode(*ends, fractions(3, seed))
        assert found.tolist() == [[most, most], [-most, 0], [0, most]]
    back = made.decode_g(np.array([most]))
    assert back[0] == pytest.approx(1.0, rel=1e-12)


@given(
    st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=50),
    st.integers(8, 15),
    st.integers(0, 1000),
)
def test_a_rounded_value_is_off_by_less_than_a_unit(values, bits, seed):
    own = params_of("lattice", precision_bits=bits)
    plain = fixed_point.encoding_for_rows(1000, None, 1.0, 1.0)
    fixed, _ = encoding(own, 1000, plain)
    g, h = np.array(values)[:, None], np.abs(np.array(values))[:, None]
    found = fixed.encode(g, h, fractions(len(values), seed))
    scaled = np.column_stack([g / fixed.g_unit, h / fixed.h_unit])
    assert (np.abs(found - scaled) < 1.0).all()
    assert (np.abs(found) < 1 << bits).all()
    assert (found[scaled == np.rint(scaled)] == scaled[scaled == np.rint(scaled)]).all()


def test_every_precision_of_a_lattice_is_few_bits():
    """So one job has the same integers under every scheme."""
    assert MESSAGE_BITS_MOST - 1 <= fixed_point.FEW_BITS


@pytest.mark.parametrize("scheme", LATTICES)
@pytest.mark.parametrize("bits", [None, 8, 11])
def test_what_a_host_of_hybridtree_gets_fits_whatever_the_bottom_nodes_value(scheme, bits):
    """Gradients at their bounds, rounded either way, and moved by the greatest values."""
    raw = {"encryption": {"scheme": scheme}, "objective": "reg:squarederror"}
    own = parse_settings(HybridTreeParams, {**raw, "precision_bits": bits})
    y = np.linspace(-7.0, 9.0, 41)
    summary = Summary.of(own, y, np.ones(41))
    objective = objectives.start_objective(own, summary)
    fixed = loading.tree_scheme(own).encoding(
        own, 41, lambda p: hybrid.encoding(p, objective, summary)
    )
    most = budget(own, 41, fixed.bits).message_most
    g_bound, h_bound = objective.bounds(summary)
    g = np.array([[g_bound], [-g_bound], [0.3 * g_bound], [0.0]])
    h = np.full((4, 1), h_bound)
    greatest = hybrid.VALUE_MAX * g_bound / h_bound
    for seed in range(10):
        gh = fixed.encode(g, h, fractions(4, seed))
        for value in (greatest, -greatest):
            moved = hybrid.residual_gradients(gh, np.full((4, 1), value), fixed)
            assert np.abs(moved).max() <= most
