"""Which rings there are, what fits them, and that nothing weaker can be made."""

import dataclasses
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.crypto.lattice import parameters, transforms
from fedboost.crypto.lattice.budget import MESSAGE_BITS_LEAST, Budget, rows_most
from fedboost.crypto.lattice.packing_keys import PackingShape
from fedboost.crypto.lattice.parameters import LEAK_MOST
from fedboost.crypto.lattice.polynomials import Origin, TreePolynomials
from fedboost.crypto.lattice.released import AnswerShape
from fedboost.ground.errors import ConfigError, PeerError
from tests.conftest import ROOT
from tests.support.lattices import LATTICE, LATTICE_4096, LATTICE_LARGE, ORIGIN, RINGS, unguarded

ROWS_MOST = {"lattice": 1 << 21, "lattice-4096": 1 << 21, "lattice-large": 1 << 27}


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
    assert parameters.by_name("lattice") == LATTICE
    assert (LATTICE.ring, LATTICE.modulus_bits, LATTICE.flood) == (2048, 53, 2**20)
    assert (LATTICE_4096.ring, LATTICE_4096.modulus_bits, LATTICE_4096.flood) == (4096, 64, 2**31)
    assert (LATTICE_LARGE.ring, LATTICE_LARGE.modulus_bits, LATTICE_LARGE.flood) == (
        4096,
        64,
        2**23,
    )
    with pytest.raises(ConfigError, match="frodo"):
        parameters.by_name("frodo")


def test_sums_are_wrong_once_in_thirty_billion():
    for rows in (1, 1 << 21):
        assert LATTICE.failure(rows) == pytest.approx(3e-11, rel=0.1)
        assert LATTICE_4096.failure(rows) < 1e-12
    for rows in (1, 1 << 27):
        assert LATTICE_LARGE.failure(rows) == pytest.approx(4.6e-13, rel=0.01)


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


def test_a_ring_packs_only_where_the_widest_sums_survive_it():
    assert [own.can_pack for own in RINGS] == [True, True, False]
    assert LATTICE_LARGE.packed_failure(1, 57, 32) < 1e-9 < LATTICE_LARGE.packed_failure(1, 58, 32)
    with pytest.raises(ConfigError, match="packed answers of lattice-large would be wrong"):
        PackingShape(LATTICE_LARGE, 2, 32)


def test_the_wrong_budget_is_wrong_in_13_percent():
    wrong = unguarded(scale_bits=13, drop_bits=8, flood=0.0)
    assert wrong.failure(8192) == pytest.approx(0.13, abs=0.01)
    with pytest.raises(ConfigError, match="would be wrong"):
        Budget(unguarded(scale_bits=20), 8192)


@pytest.mark.parametrize(
    ("rows", "bits"),
    [(1, 16), (8192, 16), (8193, 15), (1 << 20, 9), ((1 << 20) + 1, 8), (1 << 21, 8)],
)
def test_messages_have_the_bits_that_sums_leave(rows, bits):
    for own in (LATTICE, LATTICE_4096):
        budget = Budget(own, rows)
        assert budget.message_bits == bits
        assert budget.message_most == 2 ** (bits - 1) - 1


@pytest.mark.parametrize(
    ("rows", "bits"), [(1, 16), (1 << 21, 16), (1 << 22, 15), (10_000_000, 13), (1 << 27, 10)]
)
def test_the_ring_for_many_rows_has_ten_bits_for_the_most(rows, bits):
    assert Budget(LATTICE_LARGE, rows).message_bits == bits


@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
def test_more_rows_than_fit_are_refused_with_a_remedy(own):
    most = ROWS_MOST[own.name]
    assert rows_most(own) == most
    others = "okamoto-uchiyama or paillier"
    for rows, spare in ((most + 1, 0), (most - 4, 5), (1 << 28, 0)):
        larger = "lattice-large or " if rows <= most + 1 and own != LATTICE_LARGE else ""
        with pytest.raises(ConfigError, match=f"{own.name} does not add up {rows} rows") as refused:
            Budget(own, rows, spare=spare)
        todo = f"train on at most {most - spare} rows, or take {larger}{others}"
        assert refused.value.todo == todo
    with pytest.raises(ConfigError):
        Budget(own, 0)


@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
def test_no_answer_leaks_more_than_those_of_lattice_at_its_most_rows(own):
    """Twice as many rows have too few bits or leak too much."""
    most = rows_most(own)
    assert own.leaked_bits(most) <= LATTICE.leaked_bits(1 << 21) < LEAK_MOST
    bits = own.modulus_bits - own.scale_bits - (most - 1).bit_length()
    assert bits == MESSAGE_BITS_LEAST or own.leaked_bits(2 * most) > LEAK_MOST


@given(st.sampled_from(RINGS), st.data())
def test_a_sum_and_its_noise_fit_the_width(own, data):
    rows = data.draw(st.integers(1, rows_most(own)))
    budget = Budget(own, rows)
    node = data.draw(st.integers(1, rows))
    width, scale = budget.width(node), 2**own.scale_bits
    noise = 7 * own.sigma(node)
    assert node * budget.message_most * scale + noise < 2 ** (width - 1)
    assert width <= own.modulus_bits
    assert 2 ** (width - 1) < 4 * node * (budget.message_most + 1) * scale  # and no bit is wasted


def test_a_node_has_rows_and_no_more_than_the_job():
    budget = Budget(LATTICE, 100)
    for node in (0, -1, 101):
        with pytest.raises(ConfigError):
            budget.width(node)


def test_an_answer_leaks_less_than_two_millionths_of_a_bit_at_a_million_rows():
    assert LATTICE.leaked_bits(1 << 20) < 2e-6
    assert LATTICE_4096.leaked_bits(1 << 20) < 1e-12
    assert LATTICE_LARGE.leaked_bits(1 << 20) < 3e-8
    assert LATTICE.leaked_bits(3) == pytest.approx(
        math.log2(1 + 3 * 10.5 / 4 / 2.0**40) / 2, rel=1e-3
    )


def test_the_documents_table_is_what_the_budget_says():
    text = (ROOT / "docs" / "explanation" / "lattice-numbers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| 2\^(\d+) \| (.*) \|$", text, re.MULTILINE)
    asked = {"lattice": ("0", "20", "21"), "lattice-large": ("21", "24", "27")}
    assert [(name, power) for name, power, _ in rows] == [
        (name, power) for name, powers in asked.items() for power in powers
    ]
    for name, power, told in rows:
        own = parameters.by_name(name)
        budget = Budget(own, 2 ** int(power))
        width = budget.width(budget.rows)
        assert told.split(" | ") == [
            str(budget.message_bits),
            str(width),
            str(AnswerShape(own, 2, width).n_bytes),
            f"{own.sigma(budget.rows):.3g}",
            f"{budget.failure:.1e}",
            f"{own.leaked_bits(budget.rows):.1e}",
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
