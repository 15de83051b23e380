"""Which rings there are, what fits them, and that nothing weaker can be made."""

import dataclasses
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.crypto.lattice import parameters, transforms
from fedboost.crypto.lattice.answers import AnswerShape
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.polynomials import Origin, TreePolynomials
from fedboost.errors import ConfigError, PeerError
from tests.conftest import ROOT
from tests.support.lattices import LATTICE, LATTICE_4096, ORIGIN, unguarded


@pytest.mark.parametrize(
    "weaker",
    [
        {"ring": 1024},
        {"ring": 2047},
        {"modulus_bits": 54},
        {"modulus_bits": 64},
        {"modulus_bits": 0},
        {"ring": 8192, "modulus_bits": 65},  # strong enough, but no machine word
        {"error_bits": 20},
        {"flood": 2.0**19},
        {"flood": 0.0},
    ],
)
def test_nothing_weaker_can_be_made(weaker):
    with pytest.raises(ConfigError):
        dataclasses.replace(LATTICE, **weaker)


def test_a_stronger_ring_can_be_made():
    stronger = dataclasses.replace(LATTICE, ring=4096)
    assert stronger.sigma(1) > LATTICE.sigma(1)


def test_parameters_are_known_by_name():
    assert parameters.named("lattice") == LATTICE
    assert (LATTICE.ring, LATTICE.modulus_bits, LATTICE.flood) == (2048, 53, 2**20)
    assert (LATTICE_4096.ring, LATTICE_4096.modulus_bits, LATTICE_4096.flood) == (4096, 64, 2**31)
    with pytest.raises(ConfigError, match="frodo"):
        parameters.named("frodo")


def test_sums_are_wrong_once_in_thirty_billion():
    for rows in (1, 1 << 21):
        assert LATTICE.failure(rows) == pytest.approx(3e-11, rel=0.1)
        assert LATTICE_4096.failure(rows) < 1e-12


def test_sigma_is_the_formula_of_the_design():
    rows, ring, sigma = 1 << 20, 2048, math.sqrt(10.5)
    squared = rows * sigma**2 + sigma**2 * 4 * ring / 3 + 2.0**40 + 4.0**16 * ring / 18
    assert LATTICE.sigma(rows) == pytest.approx(math.sqrt(squared), rel=1e-12)
    wrong = math.erfc(2**24 / (2 * math.sqrt(2) * math.sqrt(squared)))
    assert LATTICE.failure(rows) == wrong


def test_sigma_of_packed_answers_is_the_formula_of_the_specification():
    rows, ring, variance, modulus = 1 << 13, 2048, 10.5, math.prod(transforms.PRIMES)
    assert (LATTICE.packed_bits(53), LATTICE_4096.packed_bits(64)) == ((38, 35), (39, 36))
    assert (LATTICE.packed_bits(36), LATTICE.packed_bits(34)) == ((21, 20), (20, 20))
    for width, widest, vector, number in ((53, 53, 38, 35), (40, 53, 38, 35), (40, 40, 25, 22)):
        squared = 4.0 ** (width - 39) * ring / 18
        squared += (2.0**width / modulus) ** 2 * 4.0**39 / 12 * ring * 20 * variance
        squared += 4.0 ** (width - vector) * 4096 / 18 + 4.0 ** (width - number) / 12
        assert LATTICE.packing_variance(width, widest, 20) == pytest.approx(squared, rel=1e-12)
        squared += rows * variance + variance * 4 * ring / 3 + 2.0**40
        sigma = LATTICE.packed_sigma(rows, width, widest, 20)
        assert sigma == pytest.approx(math.sqrt(squared), rel=1e-12)
    narrow = LATTICE.packing_variance(39, 39, 20)  # of which no bit of u is cut off
    assert narrow == pytest.approx(4.0**15 * 4096 / 18 + 4.0**18 / 12, rel=1e-3)


def test_packed_sums_are_wrong_less_often_than_sums_from_vectors():
    for own, width, slots, sigma, wrong in (
        (LATTICE, 53, 32, 1.18e6, 9.6e-13),
        (LATTICE, 53, 256, 1.19e6, 1.5e-12),
        (LATTICE_4096, 64, 256, 2.32e9, 1.2e-13),
    ):
        assert own.packed_sigma(1, width, width, slots) == pytest.approx(sigma, rel=0.01)
        assert own.packed_failure(1, width, slots) == pytest.approx(wrong, rel=0.1)
        assert own.packed_failure(1, width, slots) < own.failure(1)


def test_the_wrong_budget_is_wrong_in_13_percent():
    wrong = unguarded(scale_bits=13, drop_bits=8, flood=0.0)
    assert wrong.failure(8192) == pytest.approx(0.13, abs=0.01)
    with pytest.raises(ConfigError, match="would be wrong"):
        Budget(wrong, 8192)


@pytest.mark.parametrize(
    ("rows", "bits"),
    [(1, 16), (8192, 16), (8193, 15), (1 << 20, 9), ((1 << 20) + 1, 8), (1 << 21, 8)],
)
def test_messages_have_the_bits_that_sums_leave(rows, bits):
    for own in (LATTICE, LATTICE_4096):
        budget = Budget(own, rows)
        assert budget.message_bits == bits
        assert budget.message_most == 2 ** (bits - 1) - 1


def test_more_rows_than_fit_are_refused_with_a_remedy():
    with pytest.raises(ConfigError) as refused:
        Budget(LATTICE, (1 << 21) + 1)
    assert str(1 << 21) in refused.value.todo
    with pytest.raises(ConfigError):
        Budget(LATTICE, 0)


@given(st.integers(1, 1 << 21), st.data())
def test_a_sum_and_its_noise_fit_the_width(rows, data):
    budget = Budget(LATTICE, rows)
    node = data.draw(st.integers(1, rows))
    width = budget.width(node)
    noise = 8 * LATTICE.sigma(node)
    assert node * budget.message_most * 2**24 + noise < 2 ** (width - 1)
    assert width <= LATTICE.modulus_bits
    assert 2 ** (width - 1) < 4 * node * (budget.message_most + 1) * 2**24  # and no bit is wasted


def test_a_node_has_rows_and_no_more_than_the_job():
    budget = Budget(LATTICE, 100)
    for node in (0, -1, 101):
        with pytest.raises(ConfigError):
            budget.width(node)


def leak_bits(parameters, rows):
    """The most that one number of an answer tells of which of so many rows it adds up, in bits,
    beyond the sum itself.

    The guest knows the rows' errors; the sum of those that were taken is a signal of variance
    n·σ²/4 at most (each row in or out with even chances), in Gaussian noise of variance σ_f².
    """
    signal = rows * parameters.error_variance / 4
    return math.log1p(signal / parameters.flood**2) / (2 * math.log(2))


def test_an_answer_leaks_less_than_two_millionths_of_a_bit_at_a_million_rows():
    assert leak_bits(LATTICE, 1 << 20) < 2e-6
    assert leak_bits(LATTICE_4096, 1 << 20) < 1e-12


def test_the_documents_table_is_what_the_budget_says():
    text = (ROOT / "docs" / "explanation" / "lattice-numbers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| 2\^(\d+) \| (.*) \|$", text, re.MULTILINE)
    assert [power for power, _ in rows] == ["0", "13", "20", "21"]
    for power, told in rows:
        budget = Budget(LATTICE, 2 ** int(power))
        width = budget.width(budget.rows)
        own = math.sqrt(budget.rows * LATTICE.error_variance)
        assert told.split(" | ") == [
            str(budget.message_bits),
            str(width),
            str(AnswerShape(LATTICE, 2, width).n_bytes),
            f"{own:.0f}",
            f"{LATTICE.sigma(budget.rows):.3g}",
            f"{budget.failure:.1e}",
            f"{leak_bits(LATTICE, budget.rows):.1e}",
        ]


# Public polynomials

OTHERS = [
    TreePolynomials(LATTICE_4096, ORIGIN, 3),
    TreePolynomials(LATTICE, ORIGIN, 4),
    TreePolynomials(LATTICE, dataclasses.replace(ORIGIN, manifest=bytes(32)), 3),
    TreePolynomials(LATTICE, dataclasses.replace(ORIGIN, guest_nonce=bytes(32)), 3),
    TreePolynomials(LATTICE, dataclasses.replace(ORIGIN, host_nonces=ORIGIN.host_nonces[:1]), 3),
    TreePolynomials(LATTICE, dataclasses.replace(ORIGIN, host_nonces=ORIGIN.host_nonces[::-1]), 3),
]


@pytest.mark.parametrize("other", OTHERS)
def test_a_change_of_anything_changes_every_polynomial(other):
    own = TreePolynomials(LATTICE, ORIGIN, 3)
    for mine, theirs in (
        (own.of_rows(0), other.of_rows(0)),
        (own.of_answers(0), other.of_answers(0)),
    ):
        assert not (mine == theirs[: len(mine)]).any()


def test_blocks_hosts_and_uses_have_polynomials_of_their_own():
    tree = TreePolynomials(LATTICE, ORIGIN, 3)
    made = [tree.of_rows(0), tree.of_rows(1), tree.of_answers(0), tree.of_answers(1)]
    assert len({polynomial.tobytes() for polynomial in made}) == 4
    for polynomial in made:
        assert polynomial.shape == (2048,)
        assert polynomial.max() < 2**53
        assert abs(polynomial.mean() / 2**53 - 0.5) < 6 / math.sqrt(12 * 2048)


def test_nonces_of_another_size_are_refused():
    for wrong in (b"", bytes(31), bytes(33)):
        with pytest.raises(PeerError):
            dataclasses.replace(ORIGIN, guest_nonce=wrong)
        with pytest.raises(PeerError):
            dataclasses.replace(ORIGIN, host_nonces=(bytes(32), wrong))
        with pytest.raises(PeerError):
            Origin(wrong, bytes(32), ())
