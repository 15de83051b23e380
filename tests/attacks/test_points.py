"""What points of the peer's choice would tell of a secret exponent in set intersection."""

import secrets

import numpy as np
import pytest
from gmpy2 import mpz

from fedboost.crypto import intersection
from fedboost.crypto.intersection import CURVE_PRIME, Exponent, check_points, multiply
from fedboost.ground.errors import PeerError
from fedboost.ground.workers import Serial
from tests.unit.crypto.test_intersection import ORDER, naive_multiple, point

ON_THE_CURVE, ON_THE_TWIST = mpz(1), CURVE_PRIME - 1  # of order 4 each
TRIALS = 40


def parity_read(u, scalar):
    """A point of order 4 times an odd number is of order 4; times an even one it is not."""
    return naive_multiple(u, scalar) in (ON_THE_CURVE, ON_THE_TWIST)


def parities(u, drawn):
    """What is read of exponents' lowest bits, and what they are."""
    found = [drawn() for _ in range(TRIALS)]
    return [parity_read(u, one) for one in found], [bool(one & 1) for one in found]


def of_the_ladder():
    """An exponent as fedboost draws it."""
    return int.from_bytes(Exponent.random().seal(), "little")


def of_any_form():
    """An exponent below the order, as a naive protocol draws it."""
    return 1 + secrets.randbelow(int(ORDER) - 1)


def nothing_is_read(u):
    """Neither is the point taken, nor would the product tell anything."""
    bad = point(u)
    with pytest.raises(PeerError, match="not a point of the curve"):
        check_points(bad, Serial())
    with pytest.raises(PeerError, match="small order"):
        multiply(bad, Exponent.random(), Serial())
    read, _ = parities(u, of_the_ladder)
    return not any(read)


def everything_is_read(u):
    read, true = parities(u, of_any_form)
    return read == true and 0 < sum(true) < TRIALS


def test_bits_of_an_exponent_are_not_read_from_a_point_of_low_order():
    assert nothing_is_read(ON_THE_CURVE)


def test_bits_of_an_exponent_are_read_from_a_point_of_low_order_without_its_form():
    assert everything_is_read(ON_THE_CURVE)


def test_bits_of_an_exponent_are_not_read_from_a_point_of_the_twist():
    assert nothing_is_read(ON_THE_TWIST)


def test_bits_of_an_exponent_are_read_from_a_point_of_the_twist_without_its_form():
    assert everything_is_read(ON_THE_TWIST)


# Points hashed for everybody alike


def linked(domains):
    """How many ids a guest links between two hosts that blind each other's sets."""
    ids = [b"customer %d" % i for i in range(30)]
    own = [Exponent.random() for _ in domains]
    sets = [intersection.hash_to_points(ids, domain, Serial()) for domain in domains]
    sent = [multiply(points, one, Serial()) for points, one in zip(sets, own, strict=True)]
    crossed = [multiply(points, one, Serial()) for points, one in zip(sent, own[::-1], strict=True)]
    keys = [{bytes(row) for row in np.asarray(points)} for points in crossed]
    return len(keys[0] & keys[1])


def test_sets_of_two_hosts_are_not_linked_where_every_pair_has_points_of_its_own():
    assert linked([b"job 1 telco", b"job 1 shop"]) == 0


def test_sets_of_two_hosts_are_linked_where_all_have_the_same_points():
    assert linked([b"job 1", b"job 1"]) == 30
