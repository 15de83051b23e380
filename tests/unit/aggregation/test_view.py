"""What the aggregator is sent tells it nothing but the sum, and no mask is ever used twice."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from scipy import stats

from fedboost.aggregation import contributor
from fedboost.aggregation.contributor import CHECK_WORDS
from fedboost.crypto import masking
from fedboost.ground import wire
from fedboost.ground.errors import ProtocolError
from fedboost.messages.protocol.aggregation_pb2 import Masked
from tests.support import conversations
from tests.support.aggregation import WHAT, assert_sum, circle, fresh_circle, names
from tests.support.contexts import altered
from tests.support.federated import now, with_seed

P_LEAST = 1e-4  # secrets are the same in every run, and so is every p
MODES = pytest.mark.parametrize("mode", ["wait", "continue"])
WORDS = 20_000
SUMS = 600


def words_of(masked):
    return np.frombuffer(masked.words.data, "<u8")


def p_of_bytes(words):
    """The least p of a chi-square test of each of a word's eight bytes, and of all together."""
    data = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 8)
    found = [stats.chisquare(np.bincount(data[:, i], minlength=256)).pvalue for i in range(8)]
    return min(*found, stats.chisquare(np.bincount(data.ravel(), minlength=256)).pvalue)


def ready(mode, count=3, sums=1):
    """Parties that can add up so many vectors."""
    return circle(count).meet() if mode == "wait" else fresh_circle(count, sums, colluders=0)


def add(made, vectors, fresh=0):
    """One sum in the circle's own mode; gives the masked vectors by party."""
    before = len(made.seen)
    if made.members["p00"].epoch is None:
        read = made.add(vectors)
    else:
        read, _ = made.open(vectors, fresh=fresh)
    assert_sum(read, vectors)
    return dict(zip(vectors, map(words_of, made.seen[before:]), strict=True))


SMALL = {
    "zeros": lambda draw: np.zeros(WORDS, np.int64),
    "ones": lambda draw: np.ones(WORDS, np.int64),
    "counts": lambda draw: np.sort(draw.integers(0, 7, WORDS)),
    "signed": lambda draw: draw.integers(-3, 4, WORDS),
}


@MODES
@pytest.mark.parametrize("small", SMALL)
def test_each_masked_vector_is_uniform_while_the_sum_is_exact(mode, small):
    draw = np.random.default_rng(5)
    vectors = {party: SMALL[small](draw) for party in names(3)}
    seen = add(ready(mode), vectors)
    for words in seen.values():
        assert p_of_bytes(words) > P_LEAST
    # The sum of some of them is as uniform as each: masks with the others are left.
    assert p_of_bytes(seen["p00"] + seen["p01"]) > P_LEAST


@pytest.mark.some(10, of="distributions")
@MODES
def test_first_and_last_words_are_uniform_over_many_sums(mode):
    """The first word of every stream, and the digit behind the vector that is always the same."""
    made = ready(mode, sums=SUMS)
    vectors = {party: np.arange(3) for party in made.parties}
    rows = [add(made, vectors, fresh)["p01"] for fresh in range(SUMS)]
    table = np.stack(rows)
    assert table.shape == (SUMS, 3 + CHECK_WORDS)
    for column in table.T:
        data = column.copy().view(np.uint8)
        assert stats.chisquare(np.bincount(data, minlength=256)).pvalue > P_LEAST
        assert len(set(column.tolist())) == SUMS
    assert p_of_bytes(np.diff(table, axis=0).ravel()) > P_LEAST


def test_the_same_vector_in_another_attempt_looks_unrelated():
    draw = np.random.default_rng(6)
    vectors = {party: draw.integers(0, 3, WORDS) for party in names(3)}
    first, second = (add(circle(3, attempt=n).meet(), vectors) for n in (1, 2))
    for party in vectors:
        assert p_of_bytes(first[party] - second[party]) > P_LEAST


def test_the_test_of_uniform_words_sees_what_is_not():
    draw = np.random.default_rng(7)
    even = draw.integers(0, 2**64, WORDS, dtype=np.uint64)
    assert p_of_bytes(even) > P_LEAST
    assert p_of_bytes(even & ~np.uint64(1)) < P_LEAST
    assert p_of_bytes(even % np.uint64(2**62)) < P_LEAST
    assert p_of_bytes(np.arange(WORDS, dtype=np.uint64)) < P_LEAST


# No mask twice (SECURITY.md, I3)


@pytest.fixture
def used(monkeypatch):
    """Every use of a stream by a contributor: (sign, first word, words) by its key."""
    found = defaultdict(list)

    def noting(vector, key, sign, start=0):
        found[key].append((sign, start, len(vector)))
        add_stream(vector, key, sign, start)

    add_stream = masking.add_stream
    monkeypatch.setattr(contributor, "add_stream", noting)
    return found


def once(uses):
    """Whether no word of a stream was used twice by one side, and both took the same words."""
    sides = {sign: sorted(own[1:] for own in uses if own[0] == sign) for sign in (1, -1)}
    for own in sides.values():
        for (start, length), (following, _) in itertools.pairwise(own):
            if start + length > following:
                return False
    return not sides[-1] or sides[1] == sides[-1]


@pytest.mark.parametrize("make", [conversations.federboost_horizontal, conversations.dropout])
def test_no_stream_masks_two_vectors_in_a_whole_job_or_in_two_attempts_of_it(make, used):
    """An attempt has fresh secrets and another context; either alone would be enough."""

    def others(room, **changes):
        contexts = {p: altered(context, **changes) for p, context in room.contexts.items()}
        return type(room)(room.protocol, contexts)

    now(make().walk())
    streams = len(used)
    assert streams >= 18
    for room in (with_seed(make(), b"attempt 2"), others(make(), attempt={"digest": bytes(32)})):
        now(room.walk())
    assert len(used) == 3 * streams
    assert all(once(uses) for uses in used.values())


@pytest.mark.parametrize("parts", [2, 4, 1 << 19])
def test_parts_of_a_vector_use_a_stream_from_end_to_end(parts, used, monkeypatch):
    monkeypatch.setattr(contributor, "PART_WORDS", parts)
    monkeypatch.setattr("fedboost.aggregation.aggregator.PART_WORDS", parts)
    made = circle(4).meet()
    for words in (7, 7, 0):
        made.add({party: np.zeros(words, np.int64) for party in made.parties})
    assert len(used) == 3 * 6
    for uses in used.values():
        assert once(uses)
        assert sum(length for sign, _, length in uses if sign == 1) in (
            7 + CHECK_WORDS,
            CHECK_WORDS,
        )


def test_the_count_of_uses_sees_a_stream_that_is_used_twice():
    assert once([(1, 0, 4), (1, 4, 2), (-1, 0, 4), (-1, 4, 2)])
    assert not once([(1, 0, 4), (1, 2, 2)])
    assert not once([(1, 0, 4), (1, 0, 4), (-1, 0, 4), (-1, 0, 4)])
    assert not once([(1, 0, 4), (-1, 0, 2)])


def test_a_sum_that_lacks_a_party_does_not_spend_the_masks_of_the_next(used):
    made = fresh_circle(5, 3, colluders=0)
    vectors = {party: np.zeros(3, np.int64) for party in made.parties}
    left = made.parties
    for number, lost in enumerate([{}, {"p02": "give"}, {"p03": "sign"}]):
        _, left = made.open(vectors, fresh=number, left=left, lost=lost)
    assert all(len([u for u in uses if u[0] == 1]) <= 1 for uses in used.values())
    assert all(len([u for u in uses if u[0] == -1]) <= 1 for uses in used.values())


def test_a_party_that_is_asked_for_a_vector_again_masks_none():
    made = circle(3).meet()
    guest = made.members["p00"]
    [first] = guest.masked_parts(np.zeros(4, np.int64), WHAT)
    for vector in (np.zeros(4, np.int64), np.ones(4, np.int64)):
        with pytest.raises(ProtocolError):
            list(guest.masked_parts(vector, WHAT))
    assert isinstance(first, Masked)
    assert guest.number == 1


def test_what_was_heard_before_changes_every_mask_that_follows():
    """Two parties that were told different things share no stream any more."""
    keys = []
    for heard in (b"one", b"another", b""):
        made = circle(3).meet()
        guest = made.members["p00"]
        if heard:
            guest.add_to_history(heard)
        list(guest.masked_parts(np.zeros(4, np.int64), WHAT))
        keys += [key for key, _ in guest._streams()]
    assert len(set(keys)) == 6


def test_masked_words_travel_as_what_they_are():
    [masked] = circle(3).meet().members["p00"].masked_parts(np.zeros(4, np.int64), WHAT)
    assert wire.describe(masked) == "Masked(number, words=i8[8])"
    assert str(masked) == wire.describe(masked)
