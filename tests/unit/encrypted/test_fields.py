"""How wide the field of a sum is: what a guest could fill it with, whatever it declared."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.core.gradient_bits import BITS_ENCRYPTED, BITS_MIN
from fedboost.crypto.lattice import parameters
from fedboost.encrypted.lattice.guest import tree_scheme
from fedboost.encrypted.scheme import keys
from fedboost.encrypted.scheme.host_noise import NoiseScale, spare_rows
from fedboost.ground.settings import parse_settings
from fedboost.protocols.secureboost.params import SecureBoostParams

PLAINTEXT_BITS = 2047
SIGN = 1


def params_of(scheme, bits, **more):
    said = {"encryption": {"scheme": scheme}, "precision_bits": bits, **more}
    return parse_settings(SecureBoostParams, said)


def needed(most):
    """Bits of the numbers 0 to `most`."""
    return math.ceil(math.log2(most + 1))


rows = st.integers(1, 1 << 20)
bits = st.integers(BITS_MIN, 20)


@given(rows, bits)
def test_a_packed_field_holds_the_sum_of_all_rows_and_no_more(rows, bits):
    layout = keys.gh_layout(params_of("paillier", bits), bits, rows, PLAINTEXT_BITS)
    (h, g) = layout.lanes[0].digits
    assert h.bits == needed(rows << bits)
    assert g.bits == needed(rows << bits) + SIGN


@given(rows, bits, st.floats(0.01, 8.0))
def test_noise_widens_a_packed_field_by_what_it_is_at_most(rows, bits, sigma):
    params = params_of("paillier", bits, host_noise=sigma)
    layout = keys.gh_layout(params, bits, rows, PLAINTEXT_BITS)
    (h, g) = layout.lanes[0].digits
    most = (rows << bits) + layout.g_noise
    assert g.bits <= needed(most) + SIGN
    assert h.bits <= needed((rows << bits) + 2 * layout.h_noise)
    assert layout.g_noise >= NoiseScale.of(params, bits).most[0]


@pytest.mark.parametrize("scheme", sorted(parameters.BY_NAME))
@given(st.data())
def test_a_lattice_field_holds_the_sum_of_a_nodes_rows_and_its_sign(scheme, data):
    bits = data.draw(st.integers(BITS_MIN, BITS_ENCRYPTED))
    rows = data.draw(rows_of := st.integers(1, 1 << 20))
    node = data.draw(rows_of.filter(lambda n: n <= rows))
    sigma = data.draw(st.sampled_from([0.0, 0.5, 4.0]))
    scheme_of_trees, params = tree_scheme(scheme), params_of(scheme, bits, host_noise=sigma)
    budget = scheme_of_trees.budget(params, rows, bits)
    field = budget.width(node) - budget.parameters.scale_bits
    assert field == bits + SIGN + math.ceil(math.log2(node + spare_rows(params)))


def test_fewer_bits_put_more_sums_into_a_ciphertext():
    """So answers are shorter: 16 sums of 21,000 rows share a package of 2,048 bits at 53 bits."""
    each = {
        bits: keys.gh_layout(params_of("paillier", bits), bits, 21_000, PLAINTEXT_BITS)
        .lanes[0]
        .capacity
        for bits in (47, BITS_ENCRYPTED)
    }
    assert each == {47: 16, BITS_ENCRYPTED: 44}
