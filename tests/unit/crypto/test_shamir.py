"""Shamir's sharing: enough shares give the secret, fewer tell nothing, wrong ones are named."""

import dataclasses
import functools
import itertools
import random
from fractions import Fraction

import gmpy2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedboost.crypto.masking import MaskKey, is_private_of
from fedboost.crypto.secrets import Secrets
from fedboost.crypto.shamir import (
    HOLDERS_MAX,
    SHARE_BYTES,
    SHARING_PRIME,
    SecretShare,
    combine,
    findable,
    split_secret,
    wrong_shares,
)
from fedboost.ground.errors import PeerError
from tests import tiers

SECRETS = Secrets(bytes(range(32)))
SECRET = bytes(range(100, 132))
BYTES = st.one_of(
    st.binary(min_size=32, max_size=32), st.sampled_from([bytes(32), b"\xff" * 32, SECRET])
)
SIZES = st.integers(2, 12).flatmap(lambda n: st.tuples(st.integers(2, n), st.just(n)))


def naive_value(shares, place):
    """Lagrange's formula in fractions, reduced at the end."""
    total = Fraction(0)
    for i, a in enumerate(shares):
        term = Fraction(a.y)
        for j, b in enumerate(shares):
            if i != j:
                term *= Fraction(place - b.x, a.x - b.x)
        total += term
    return total.numerator * pow(total.denominator, -1, SHARING_PRIME) % SHARING_PRIME


def moved(shares, by):
    """The shares, those at the places in `by` moved by so much."""
    return [dataclasses.replace(s, y=(s.y + by.get(s.x, 0)) % SHARING_PRIME) for s in shares]


def weight(place, indices):
    """How much of a move of the share at `place` arrives in the secret of these places' shares."""
    return naive_value([SecretShare(x, int(x == place)) for x in indices], 0)


def test_the_field_is_that_of_the_first_prime_with_room_for_32_bytes():
    assert gmpy2.next_prime(2**256) == SHARING_PRIME
    assert gmpy2.is_prime(SHARING_PRIME, 60)


@given(BYTES, SIZES, st.randoms(use_true_random=False))
def test_any_threshold_of_shares_gives_the_secret(secret, sizes, draw):
    threshold, holders = sizes
    shares = split_secret(secret, threshold, holders, SECRETS, "test")
    assert [share.x for share in shares] == list(range(1, holders + 1))
    some = draw.sample(shares, draw.randint(threshold, holders))
    assert combine(some, threshold) == secret
    assert naive_value(some, 0) == int.from_bytes(secret, "big")


@pytest.mark.parametrize(("threshold", "holders"), [(2, 5), (3, 8), (33, 64), (63, 64)])
def test_shares_lie_on_a_polynomial_of_as_many_coefficients_as_the_threshold(threshold, holders):
    differences = [share.y for share in split_secret(SECRET, threshold, holders, SECRETS, "test")]
    for _ in range(threshold - 1):
        differences = [(b - a) % SHARING_PRIME for a, b in itertools.pairwise(differences)]
    assert len(set(differences)) == 1
    assert differences[0] != 0


@given(BYTES, BYTES, st.randoms(use_true_random=False))
def test_shares_below_the_threshold_fit_every_secret(secret, other, draw):
    shares = split_secret(secret, 4, 7, SECRETS, "test")
    seen = draw.sample(shares, 3)
    unseen = next(share.x for share in shares if share not in seen)
    zero = SecretShare(0, int.from_bytes(other, "big"))
    invented = SecretShare(unseen, naive_value([zero, *seen], unseen))
    assert combine([*seen, invented], 4) == other


def test_values_of_shares_are_uniform():
    counts = [0] * 16
    for i in range(800):
        for share in split_secret(bytes(32), 2, 3, SECRETS, i):
            counts[share.y * 16 // SHARING_PRIME] += 1
    assert stats.chisquare(counts).pvalue > 1e-4


def test_the_same_purpose_gives_the_same_shares_and_another_one_others():
    shares = split_secret(SECRET, 3, 5, SECRETS, "mask", 1)
    assert split_secret(SECRET, 3, 5, SECRETS, "mask", 1) == shares
    others = [
        split_secret(SECRET, 3, 5, SECRETS, "mask", 2),
        split_secret(SECRET, 4, 5, SECRETS, "mask", 1),
        split_secret(SECRET, 3, 5, SECRETS.child("mask"), "mask", 1),
    ]
    for other in others:
        assert not set(other) & set(shares)


def test_two_secrets_under_one_purpose_do_not_tell_their_difference():
    pairs = zip(
        split_secret(SECRET, 3, 6, SECRETS, "mask"),
        split_secret(bytes(32), 3, 6, SECRETS, "mask"),
        strict=True,
    )
    assert len({(a.y - b.y) % SHARING_PRIME for a, b in pairs}) == 6


@given(st.integers(1, HOLDERS_MAX), st.integers(0, SHARING_PRIME - 1))
def test_a_share_travels_in_34_bytes(x, y):
    share = SecretShare(x, y)
    assert len(share.to_bytes()) == SHARE_BYTES == 34
    assert SecretShare.from_bytes(share.to_bytes()) == share


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "34 bytes, got 0"),
        (bytes([1] * 33), "34 bytes, got 33"),
        (bytes([1] * 35), "34 bytes, got 35"),
        (SecretShare(0, 5).to_bytes(), "place is 0"),
        (SecretShare(HOLDERS_MAX + 1, 5).to_bytes(), "place is 65"),
        (SecretShare(1, SHARING_PRIME).to_bytes(), "beyond the prime"),
        (b"\x01" + b"\xff" * 33, "beyond the prime"),
    ],
)
def test_bytes_that_are_no_share_are_refused(data, reason):
    with pytest.raises(PeerError, match=reason):
        SecretShare.from_bytes(data)


def test_a_share_prints_its_place_alone():
    assert repr(SecretShare(3, 987654321)) == str(SecretShare(3, 987654321)) == "SecretShare(x=3)"


def test_too_few_shares_and_two_of_one_place_are_refused():
    shares = split_secret(SECRET, 3, 5, SECRETS, "test")
    for ask in (combine, lambda some, threshold: wrong_shares(some, threshold, SECRET.__eq__)):
        with pytest.raises(PeerError, match="needs 3 shares, got 2"):
            ask(shares[:2], 3)
        with pytest.raises(PeerError, match="same place"):
            ask([*shares[:3], shares[0]], 3)


def test_shares_of_a_number_beyond_32_bytes_are_refused():
    for value in (2**256, SHARING_PRIME - 1):
        with pytest.raises(PeerError, match="no secret of 32 bytes"):
            combine([SecretShare(x, value) for x in (1, 2, 3)], 3)
    assert combine([SecretShare(x, 2**256 - 1) for x in (1, 2, 3)], 3) == b"\xff" * 32


@pytest.mark.parametrize(
    ("secret", "threshold", "holders"),
    [
        (SECRET[1:], 2, 3),
        (SECRET + b"\0", 2, 3),
        (SECRET, 1, 3),
        (SECRET, 4, 3),
        (SECRET, 2, HOLDERS_MAX + 1),
    ],
)
def test_what_cannot_be_shared_is_refused(secret, threshold, holders):
    with pytest.raises(ValueError, match=r"expected 2 <= threshold|has 32 bytes"):
        split_secret(secret, threshold, holders, SECRETS)


@given(SIZES, st.integers(1, SHARING_PRIME - 1), st.data())
def test_a_wrong_share_never_gives_the_secret(sizes, by, data):
    threshold, holders = sizes
    shares = split_secret(SECRET, threshold, holders, SECRETS, "test")
    place = data.draw(st.integers(1, threshold))
    spoilt = moved(shares, {place: by})
    try:
        assert combine(spoilt, threshold) != SECRET
    except PeerError:
        assert naive_value(spoilt[:threshold], 0) >= 2**256


@settings(max_examples=tiers.examples(60))
@given(SIZES, st.randoms(use_true_random=False))
def test_as_many_wrong_shares_as_findable_are_named(sizes, draw):
    threshold, holders = sizes
    shares = split_secret(SECRET, threshold, holders, SECRETS, "test")
    count = draw.randint(0, findable(holders, threshold))
    wrong = draw.sample(range(1, holders + 1), count)
    spoilt = moved(shares, {x: draw.randrange(1, SHARING_PRIME) for x in wrong})
    draw.shuffle(spoilt)
    assert wrong_shares(spoilt, threshold, SECRET.__eq__) == sorted(wrong)
    true = [share for share in spoilt if share.x not in wrong]
    assert combine(true, threshold) == SECRET


@pytest.mark.some(1)
@pytest.mark.parametrize("threshold", [33, 48, 61])
def test_two_wrong_shares_of_the_most_holders_are_named(threshold):
    shares = split_secret(SECRET, threshold, HOLDERS_MAX, SECRETS, "test")
    spoilt = moved(shares, {1: 1, threshold + 1: 2**200})
    assert wrong_shares(spoilt, threshold, SECRET.__eq__) == [1, threshold + 1]


def test_wrong_shares_that_cancel_in_the_secret_are_named_and_not_the_true_ones():
    shares = split_secret(SECRET, 3, 6, SECRETS, "test")
    first = pow(weight(1, [1, 2, 3]), -1, SHARING_PRIME)
    second = -pow(weight(2, [1, 2, 3]), -1, SHARING_PRIME)
    spoilt = moved(shares, {1: first, 2: second})
    assert combine(spoilt, 3) == SECRET
    assert wrong_shares(spoilt, 3, SECRET.__eq__) == [1, 2]


def test_a_share_moved_by_a_bit_that_the_curve_ignores_is_named():
    key = MaskKey(SECRET)
    shares = split_secret(key.seal(), 3, 5, SECRETS, "test")
    spoilt = moved(shares, {1: (1 << 248) * pow(weight(1, [1, 2, 3]), -1, SHARING_PRIME)})
    assert MaskKey(combine(spoilt, 3)).public == key.public
    fits = functools.partial(is_private_of, public=key.public)
    assert not fits(combine(spoilt, 3))
    assert wrong_shares(spoilt, 3, fits) == [1]


def test_more_wrong_shares_than_can_be_told_apart_end_the_search():
    draw = random.Random(5)
    for threshold, holders, count in ((3, 3, 1), (3, 4, 2), (3, 6, 3), (6, 10, 3)):
        shares = split_secret(SECRET, threshold, holders, SECRETS, "test")
        spoilt = moved(shares, {x: draw.randrange(1, SHARING_PRIME) for x in range(1, count + 1)})
        with pytest.raises(PeerError, match=f"more than {count - 1} of {holders} shares"):
            wrong_shares(spoilt, threshold, SECRET.__eq__)


def test_two_wrong_shares_are_findable_wherever_three_shares_are_to_spare():
    for threshold in range(2, HOLDERS_MAX + 1):
        for holders in range(threshold, HOLDERS_MAX + 1):
            surely = min(2, (holders - threshold + 1) // 2)
            assert surely <= findable(holders, threshold) <= (holders - threshold + 1) // 2
