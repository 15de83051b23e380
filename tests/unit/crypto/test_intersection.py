"""Set intersection: blinding commutes, and bad points are refused."""

import pickle

import numpy as np
import pytest
from gmpy2 import mpz
from nacl.bindings import crypto_core_ed25519_is_valid_point

from fedboost.crypto import intersection
from fedboost.crypto.intersection import (
    CURVE_PRIME,
    SMALL_ORDER,
    Exponent,
    as_keys,
    check_points,
    hash_to_points,
    multiply,
    read_points,
)
from fedboost.ground.errors import PeerError
from fedboost.ground.workers import Serial
from fedboost.runtime.process.workers import ProcessWorkers

ORDER = mpz(2) ** 252 + 27742317777372353535851937790883648493  # of the prime-order subgroup
IDS = [b"customer %d" % i for i in range(60)]
SERIAL = Serial()


def point(u):
    return np.frombuffer(int(u).to_bytes(32, "little"), dtype=np.uint8).reshape(1, 32)


def u_of(row):
    return mpz(int.from_bytes(row.tobytes(), "little"))


def naive_multiple(u, scalar):
    """The ladder of RFC 7748, section 5, without any clamping."""
    x1, x2, z2, x3, z3 = u, mpz(1), mpz(0), u, mpz(1)
    for bit in reversed(range(scalar.bit_length())):
        if scalar >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % CURVE_PRIME, x1 * (da - cb) ** 2 % CURVE_PRIME
        x2, z2 = aa * bb % CURVE_PRIME, e * (aa + 121665 * e) % CURVE_PRIME
        if scalar >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return x2 * pow(z2, CURVE_PRIME - 2, CURVE_PRIME) % CURVE_PRIME


def taken_off(points, exponent):
    """Points without an exponent, for whoever knows it: uint8 (n, 32)."""
    inverse = pow(int.from_bytes(exponent.seal(), "little"), -1, int(ORDER))
    return np.concatenate([point(naive_multiple(u_of(row), inverse)) for row in points])


def test_equal_double_blinded_values_are_the_intersection():
    bank, telco = IDS[:40], IDS[25:][::-1]
    a, b = Exponent.random(), Exponent.random()
    points = [hash_to_points(ids, b"job 1", SERIAL) for ids in (bank, telco)]
    by_bank = multiply(multiply(points[0], a, SERIAL), b, SERIAL)
    by_telco = multiply(multiply(points[1], b, SERIAL), a, SERIAL)
    there = {bytes(row) for row in by_telco}
    found = [name for name, row in zip(bank, by_bank, strict=True) if bytes(row) in there]
    assert found == IDS[25:40]


def test_multiplication_is_the_naive_ladders():
    exponent = Exponent.from_seed(bytes(32))
    scalar = int.from_bytes(exponent.seal(), "little")
    points = hash_to_points(IDS[:3], b"", SERIAL)
    for row, product in zip(points, multiply(points, exponent, SERIAL), strict=True):
        assert naive_multiple(u_of(row), scalar) == u_of(product)


def test_hashed_points_are_in_the_prime_order_subgroup():
    """As Edwards points libsodium itself finds them valid: y = (u − 1)/(u + 1)."""
    for row in hash_to_points(IDS, b"x", SERIAL):
        u = u_of(row)
        y = (u - 1) * pow(u + 1, CURVE_PRIME - 2, CURVE_PRIME) % CURVE_PRIME
        assert crypto_core_ed25519_is_valid_point(int(y).to_bytes(32, "little"))


def test_hashing_depends_on_the_id_and_the_domain_alone():
    first = hash_to_points(IDS, b"x", SERIAL)
    assert first.tobytes() == hash_to_points(IDS[::-1], b"x", SERIAL)[::-1].tobytes()
    other = hash_to_points(IDS, b"y", SERIAL)
    assert len({bytes(row) for row in np.concatenate([first, other])}) == 2 * len(IDS)
    shifted = hash_to_points([b"bc"], b"a", SERIAL), hash_to_points([b"c"], b"ab", SERIAL)
    assert shifted[0].tobytes() != shifted[1].tobytes()
    assert hash_to_points([], b"x", SERIAL).shape == (0, 32)


def test_workers_give_the_same_points():
    ids = [b"%d" % i for i in range(700)]
    exponent = Exponent.from_seed(bytes(32))
    with ProcessWorkers(2) as workers:
        points = hash_to_points(ids, b"x", workers)
        assert points.tobytes() == hash_to_points(ids, b"x", SERIAL).tobytes()
        check_points(points, workers)
        product = multiply(points, exponent, workers)
        assert product.tobytes() == multiply(points, exponent, SERIAL).tobytes()
        with pytest.raises(PeerError):
            multiply(np.concatenate([product, point(0)]), exponent, workers)


def twist_point():
    return next(
        mpz(u)
        for u in range(2, 99)
        if pow(intersection._right_side(mpz(u)), CURVE_PRIME // 2, CURVE_PRIME) != 1
    )


BAD = {
    **{f"small order {i}": u for i, u in enumerate(sorted(SMALL_ORDER))},
    "beyond the field": CURVE_PRIME + 2,
    "the field": CURVE_PRIME,
    "top bit set": mpz(9) + 2**255,
    "on the twist": twist_point(),
    "small order on the twist": CURVE_PRIME - 1,
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_points_are_refused(bad):
    good = hash_to_points(IDS[:5], b"", SERIAL)
    check_points(good, SERIAL)
    with pytest.raises(PeerError, match="not a point of the curve"):
        check_points(np.concatenate([good, point(BAD[bad])]), SERIAL)


@pytest.mark.parametrize("u", sorted(SMALL_ORDER))
def test_points_of_small_order_are_of_small_order_and_no_product_leaves(u):
    assert intersection._times_eight(u)[1] == 0
    with pytest.raises(PeerError, match="small order"):
        multiply(point(u), Exponent.random(), SERIAL)


def test_a_part_of_small_order_tells_nothing_about_the_exponent():
    """P and P + T, with T of order 2: the same product, whatever the exponent is modulo 8."""
    for row in hash_to_points(IDS[:4], b"", SERIAL):
        u = u_of(row)
        moved = pow(u, CURVE_PRIME - 2, CURVE_PRIME)  # adding the point of order 2 turns u into 1/u
        check_points(point(moved), SERIAL)
        assert naive_multiple(moved, int(ORDER)) == 0  # it is not in the prime-order subgroup
        exponent = Exponent.random()
        product = multiply(point(moved), exponent, SERIAL)
        assert product.tobytes() == multiply(point(u), exponent, SERIAL).tobytes()


def test_points_of_another_width_are_refused():
    with pytest.raises(PeerError, match="32 bytes"):
        check_points(np.zeros((2, 31), dtype=np.uint8), SERIAL)


def test_exponents_have_the_ladders_form():
    seen = set()
    for i in range(50):
        exponent = Exponent.from_seed(i.to_bytes(32, "big"))
        scalar = int.from_bytes(exponent.seal(), "little")
        assert scalar % 8 == 0
        assert 1 << 254 <= scalar < 1 << 255
        assert scalar % ORDER
        seen.add(scalar)
    assert len(seen) == 50


def test_exponents_print_nothing():
    exponent = Exponent.random()
    assert repr(exponent) == "Exponent(hidden)"
    with pytest.raises(TypeError):
        pickle.dumps(exponent)
    with pytest.raises(ValueError, match="32 bytes"):
        Exponent.from_seed(b"short")


def test_points_of_a_message_are_read_as_they_came():
    sent = hash_to_points(IDS[:5], b"job 1", SERIAL)
    got = read_points(5, sent.tobytes(), "the set")
    assert as_keys(got) == as_keys(sent)
    assert read_points(0, b"", "the set").shape == (0, 32)


@pytest.mark.parametrize("count", [0, 4, 6, 1 << 60])
def test_points_of_another_number_than_announced_are_refused(count):
    sent = hash_to_points(IDS[:5], b"job 1", SERIAL).tobytes()
    with pytest.raises(PeerError, match=f"the set has 160 bytes for {count} points"):
        read_points(count, sent, "the set")


def test_the_same_point_twice_in_a_message_is_refused():
    sent = hash_to_points([*IDS[:2], IDS[0]], b"job 1", SERIAL).tobytes()
    with pytest.raises(PeerError, match="the set holds the same point twice"):
        read_points(3, sent, "the set")
