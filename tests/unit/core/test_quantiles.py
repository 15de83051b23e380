"""Quantiles by counting: what a search over split rows finds is what sorting them all finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csc_array

from fedboost.core.binning import Binning
from fedboost.core.quantiles import GROUP_MIN, SEARCH_ROUNDS_MAX, Probes, Ranked, Search
from fedboost.ground.errors import DataError, JobError
from tests import tiers

MAX = float(np.finfo(np.float32).max)
TINY = float(np.float32(1e-45))  # the least positive float32

awkward = st.one_of(
    st.integers(-3, 3),
    st.floats(-MAX, MAX, width=32),
    st.sampled_from([-0.0, TINY, -TINY, MAX, -MAX, 1e-40, np.nan]),
)
tables = hnp.arrays(np.float32, st.tuples(st.integers(0, 120), st.integers(1, 3)), elements=awkward)


def found(parts, buckets, tolerance):
    """The search over several parties' rows: itself, and each round's probes and counts."""
    parties = [Ranked.of(part) for part in parts]
    present = np.sum([party.present() for party in parties], axis=0)
    search = Search(present, buckets, tolerance)
    rounds = []
    while not search.is_over:
        probes = search.next_probes()
        below = np.sum([party.count_below(probes) for party in parties], axis=0)
        search.take(below)
        rounds.append((probes, below))
    return search, rounds


def shared_out(values, n_parties, seed=0):
    owner = np.random.default_rng(seed).integers(0, n_parties, len(values))
    return [values[owner == party] for party in range(n_parties)]


def exact_counts(column, buckets):
    """How many values each cut of the exact search has below it, from the sorted column."""
    ranked, counts = np.sort(column[~np.isnan(column)]), set()
    n = len(ranked)
    for j in range(1, buckets):
        rank = int(np.floor(j * n / buckets + 0.5))
        if 0 < rank < n:
            low = int(np.count_nonzero(ranked < ranked[rank]))
            high = int(np.count_nonzero(ranked <= ranked[rank]))
            counts.add(rank if low == rank else high if high - rank < rank - low else low)
    return sorted(counts - {0, n})


@settings(max_examples=tiers.examples(150), deadline=None)
@given(tables, st.integers(1, 12), st.integers(1, 8))
def test_the_exact_search_ends_at_the_ranks_of_the_pooled_column(values, buckets, n_parties):
    search, rounds = found(shared_out(values, n_parties), buckets, tolerance=0)
    assert len(rounds) <= SEARCH_ROUNDS_MAX
    for column, cuts in enumerate(search.cuts()):
        assert cuts.dtype == np.float32
        assert np.isfinite(cuts).all()
        assert (np.diff(cuts) > 0).all()
        own = values[:, column]
        assert [np.count_nonzero(own < cut) for cut in cuts] == exact_counts(own, buckets)


@settings(max_examples=tiers.examples(100), deadline=None)
@given(tables, st.integers(2, 12), st.one_of(st.none(), st.integers(1, 9)), st.integers(0, 9))
def test_a_tolerant_search_is_near_the_rank_or_at_a_tie_and_leaves_groups(
    values, buckets, tolerance, seed
):
    values = np.repeat(values, 4, axis=0)
    search, rounds = found(shared_out(values, 3, seed), buckets, tolerance)
    assert len(rounds) <= SEARCH_ROUNDS_MAX
    least = GROUP_MIN if tolerance is None else tolerance
    for column, cuts in enumerate(search.cuts()):
        own = values[:, column][~np.isnan(values[:, column])]
        n = len(own)
        q = min(buckets, max(1, n // (4 * least)))
        allowed = max(GROUP_MIN, n // (4 * q)) if tolerance is None else tolerance
        assert len(cuts) < q or len(cuts) == 0
        counts = np.array([np.count_nonzero(own < cut) for cut in cuts])
        assert (np.diff(np.concatenate([[0], counts, [n]])) >= least).all() or not len(cuts)
        ranks = np.array([(2 * j * n + q) // (2 * q) for j in range(1, q)])
        for cut, count in zip(cuts, counts, strict=True):
            near = np.abs(ranks - count).min() <= allowed
            assert near or cut in own or np.nextafter(cut, np.float32(-np.inf)) in own


def halved(column, rank, tolerance):
    """One target's search over one pooled column, float by float: cut and count below."""

    def as_float(key):
        bits = np.uint32(key if key >= 0 else -key + 2**31)
        return bits.view(np.float32)

    low, high = -0x7F7FFFFF, 0x7F800000
    while high - low > 1:
        middle = (low + high) // 2
        count = int(np.count_nonzero(column < as_float(middle)))
        if abs(count - rank) <= tolerance:
            return as_float(middle), count
        low, high = (middle, high) if count < rank else (low, middle)
    counts = [int(np.count_nonzero(column < as_float(key))) for key in (low, high)]
    nearer = counts[1] - rank < rank - counts[0]
    return as_float(high if nearer else low), counts[nearer]


@pytest.mark.parametrize("tolerance", [None, 0, 25])
def test_all_targets_at_once_find_what_each_finds_alone(tolerance):
    rng = np.random.default_rng(3)
    column = np.exp(rng.normal(0, 3, 3000)).astype(np.float32) * rng.choice([-1, 1, 1], 3000)
    column = np.where(rng.random(3000) < 0.2, 7.5, column).astype(np.float32)
    search, _ = found(shared_out(column[:, None], 4), 20, tolerance)
    allowed = 3000 // 80 if tolerance is None else tolerance
    alone = [halved(column, 150 * j, allowed) for j in range(1, 20)]
    expected, last = [], 0
    for cut, count in alone:
        if count - last >= max(1, tolerance if tolerance is not None else GROUP_MIN):
            expected.append(cut)
            last = count
    assert search.cuts()[0].tolist() == expected


@settings(max_examples=tiers.examples(60), deadline=None)
@given(tables, st.integers(2, 9), st.integers(0, 5))
def test_a_sparse_table_is_counted_as_the_dense_one(values, buckets, seed):
    kept = np.random.default_rng(seed).random(values.shape) < 0.5
    dense = np.where(kept, values, np.float32(0))
    stored = [np.flatnonzero(kept[:, column]) for column in range(values.shape[1])]
    starts = np.cumsum([0, *(len(rows) for rows in stored)])
    entries = np.concatenate([values[rows, c] for c, rows in enumerate(stored)])
    sparse = csc_array((entries, np.concatenate(stored), starts), shape=values.shape)
    assert Ranked.of(sparse).present().tolist() == Ranked.of(dense).present().tolist()
    from_dense, _ = found([dense], buckets, 0)
    from_sparse, _ = found([sparse], buckets, 0)
    for ours, theirs in zip(from_sparse.cuts(), from_dense.cuts(), strict=True):
        assert ours.tolist() == theirs.tolist()


def test_a_value_of_every_bits_length_is_told_from_its_neighbour_in_32_rounds():
    below_max = float(np.nextafter(np.float32(MAX), np.float32(0)))
    for edge in (-MAX, -1.0, -TINY, 0.0, TINY, 1e-40, 1.0, 3.0, below_max):
        low = np.float32(edge)
        high = np.nextafter(low, np.float32(np.inf))
        values = np.repeat(np.array([low, high], np.float32), [30, 10])[:, None]
        search, rounds = found([values], 8, tolerance=0)
        assert len(rounds) <= SEARCH_ROUNDS_MAX == 32
        assert search.cuts()[0].tolist() == [high]


def test_a_search_that_meets_only_ties_goes_through_all_32_rounds_and_ends():
    # The least and the greatest float: the search must narrow down to the ends of its range.
    for value in (-MAX, MAX, 1.1):
        search, rounds = found([np.full((40, 1), value, np.float32)], 4, tolerance=0)
        assert len(rounds) in (31, 32)
        assert [cuts.tolist() for cuts in search.cuts()] == [[]]


def test_both_zeros_are_one_value():
    values = np.repeat(np.array([-1.0, -0.0, 0.0, 1.0], np.float32), 25)[:, None]
    search, _ = found([values], 4, tolerance=0)
    cuts = search.cuts()[0]
    assert [np.count_nonzero(values < cut) for cut in cuts] == [25, 75]
    assert not np.signbit(cuts).any()


def test_values_with_a_buckets_share_of_rows_get_a_bucket_each():
    values = np.repeat(np.arange(5, dtype=np.float32), [300, 100, 250, 150, 200])[:, None]
    search, _ = found(shared_out(values, 3), 10, None)
    bins = Binning(10, search.cuts()).transform(values)[:, 0]
    assert [len(np.unique(bins[values[:, 0] == value])) for value in range(5)] == [1] * 5
    assert np.bincount(bins).tolist() == [300, 100, 250, 150, 200]


def test_missing_values_and_empty_columns_need_no_rounds_of_their_own():
    values = np.full((500, 2), np.nan, np.float32)
    values[:100, 1] = np.arange(100)
    search, _ = found(shared_out(values, 2), 4, tolerance=5)
    assert Ranked.of(values).present().tolist() == [0, 100]
    assert len(search.cuts()[0]) == 0
    assert len(search.cuts()[1]) == 3
    empty = Search(np.zeros(3, np.int64), 32, None)
    assert empty.is_over
    assert len(empty.next_probes()) == 0


def gaps(counts, total):
    """How many rows lie between neighbouring values whose counts are known."""
    return np.diff(np.unique(np.concatenate([*counts, [0, total]])))


def test_default_cuts_leave_nobody_alone_and_probes_nobody_but_outliers():
    # 1,000 rows, 255 bins, as in SECURITY 2.5: the exact search tells hundreds of rows apart.
    rng = np.random.default_rng(0)
    values = np.column_stack(
        [rng.permutation(1000), rng.uniform(20, 90, 1000), rng.uniform(20, 90, 1000)]
    ).astype(np.float32)
    values[7, 2] = 1e12
    alone = {}
    for tolerance in (None, 0):
        search, rounds = found(shared_out(values, 3), 255, tolerance)
        for column, cuts in enumerate(search.cuts()):
            between_cuts = gaps([[np.count_nonzero(values[:, column] < c) for c in cuts]], 1000)
            assert between_cuts.min() >= (GROUP_MIN if tolerance is None else 1)
            counts = [below[probes.column == column] for probes, below in rounds]
            alone[tolerance, column] = np.count_nonzero(gaps(counts, 1000) == 1)
    assert [alone[None, column] for column in range(3)] == [0, 0, 1]
    assert min(alone[0, column] for column in range(3)) > 200


@pytest.mark.parametrize("bad", ["negative", "too many", "falling", "too few", "not enough sums"])
def test_sums_that_cannot_be_counts_are_refused(bad):
    values = np.random.default_rng(1).normal(0, 1, (400, 2)).astype(np.float32)
    party = Ranked.of(values)
    search = Search(party.present(), 4, tolerance=5)
    for _ in range(6):  # until a column's targets have probes of their own
        search.take(party.count_below(search.next_probes()))
    probes = search.next_probes()
    below = party.count_below(probes)
    if bad == "negative":
        below[0] = -1
    elif bad == "too many":
        below[-1] = 401
    elif bad == "falling":
        below[:2] = below[0] + 100, below[0]
    elif bad == "too few":
        below[-1] = 0  # fewer than are known to be below a lesser value
    else:
        below = below[1:]
    with pytest.raises(JobError, match="impossible"):
        search.take(below)


def test_a_negative_number_of_values_is_refused():
    with pytest.raises(JobError, match="1 of 2 are negative"):
        Search(np.array([5, -1]), 4, None)


def test_an_error_names_no_count():
    search = Search(np.array([731]), 4, tolerance=0)
    with pytest.raises(JobError) as caught:
        search.take(np.array([977]))
    assert "731" not in str(caught.value.lines())
    assert "977" not in str(caught.value.lines())


def test_infinite_values_are_refused_with_their_column():
    with pytest.raises(DataError, match="1 of 2 values are infinite") as caught:
        Ranked.of(np.array([[1.0, 2.0], [1.0, np.inf]], np.float32))
    assert caught.value.where == {"column": "1"}


def test_equal_probes_of_one_column_are_sent_once_and_of_two_columns_twice():
    search = Search(np.array([100, 100]), 8, tolerance=0)
    probes = search.next_probes()
    assert probes.column.tolist() == [0, 1]
    assert probes.value.tolist() == [0.0, 0.0]
    assert Ranked.of(np.array([[-1.0, 5.0]], np.float32)).count_below(probes).tolist() == [1, 0]


def test_a_party_does_not_show_its_values_when_printed():
    assert "41.5" not in repr(Ranked.of(np.full((3, 1), 41.5, np.float32)))
    assert len(Probes(np.zeros(2, np.int32), np.zeros(2, np.float32))) == 2
