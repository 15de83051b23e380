"""Sampling and early stopping: draws are a function of the seed, and of nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.core import sampling
from fedboost.core.early_stopping import EarlyStopping
from fedboost.core.params import Goss, TreeParams
from fedboost.core.sampling import TreeColumns
from fedboost.ground.errors import PolicyError


def test_draws_never_change_between_releases():
    words = sampling.random_words(7, sampling.Purpose.ROWS, 3, n=2).tolist()
    assert words == [16242344006293646974, 17067495578922004301]


def test_draws_differ_by_seed_purpose_and_round():
    base = sampling.random_words(1, sampling.Purpose.ROWS, 0, n=4).tolist()
    others = [
        sampling.random_words(2, sampling.Purpose.ROWS, 0, n=4).tolist(),
        sampling.random_words(1, sampling.Purpose.GOSS, 0, n=4).tolist(),
        sampling.random_words(1, sampling.Purpose.ROWS, 1, n=4).tolist(),
    ]
    assert all(other != base for other in others)


def test_rows_are_drawn_at_the_rate_and_ascend():
    rows = sampling.round_rows(5, 2, 20_000, 0.3)
    assert rows.dtype == np.int32
    assert np.all(np.diff(rows) > 0)
    assert abs(len(rows) - 6000) < 300
    assert np.array_equal(rows, sampling.round_rows(5, 2, 20_000, 0.3))
    assert not np.array_equal(rows, sampling.round_rows(5, 3, 20_000, 0.3))
    assert np.array_equal(sampling.round_rows(5, 2, 4, 1.0), np.arange(4))
    assert len(sampling.round_rows(5, 2, 3, 1e-9)) == 1


def columns(rate, counts):
    return TreeColumns.draw_columns(TreeParams(seed=1, colsample_bytree=rate), 0, counts).all


def test_each_party_draws_its_own_columns():
    both = columns(0.5, (10, 20))
    assert len(both) == 15
    assert np.array_equal(both[both < 10], columns(0.5, (10,)))
    # The guest's draw does not depend on what the host has.
    assert np.array_equal(both[both < 10], columns(0.5, (10, 7))[:5])
    assert np.all(np.diff(both) > 0)
    assert len(columns(0.01, (3, 0, 2))) == 2
    assert np.array_equal(columns(1.0, (2, 3)), np.arange(5))


RATES = st.sampled_from([0.1, 0.3, 0.5, 0.8, 1.0])


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), RATES, RATES, RATES, st.integers(0, 9))
def test_nodes_draw_of_their_layers_columns_and_these_of_their_trees(
    counts, bytree, bylevel, bynode, tree
):
    shares = {"colsample_bytree": bytree, "colsample_bylevel": bylevel, "colsample_bynode": bynode}
    params = TreeParams(seed=tree, **shares)
    drawn = TreeColumns.draw_columns(params, tree, counts)
    of_layers = TreeColumns.draw_columns(
        params.model_copy(update={"colsample_bynode": 1.0}), tree, counts
    )
    usable, above = drawn.usable_masks(range(31)), of_layers.usable_masks(range(31))
    if usable is None:
        assert bylevel == bynode == 1.0
        return
    above = np.ones_like(usable) if above is None else above
    assert not (usable & ~above).any()
    starts = np.cumsum([0, *counts])
    for layer in range(5):
        assert (above[2**layer - 1 : 2 ** (layer + 1) - 1] == above[2**layer - 1]).all()
    for party, count in enumerate(counts):  # each draws as it would by itself
        own = TreeColumns.draw_columns(params, tree, (count,), first=party).usable_masks(range(31))
        assert own is not None
        inside = (drawn.all >= starts[party]) & (drawn.all < starts[party + 1])
        assert np.array_equal(own, usable[:, inside])
        expected = count
        for rate in (bytree, bylevel, bynode):
            expected = min(expected, max(1, int(rate * expected)))
        assert (usable[:, inside].sum(axis=1) == expected).all()


def test_nodes_and_layers_draw_apart():
    params = TreeParams(colsample_bylevel=0.5, colsample_bynode=0.5, seed=3)
    drawn = TreeColumns.draw_columns(params, 0, (40,)).usable_masks(range(127))
    assert drawn is not None
    assert len(np.unique(drawn, axis=0)) == 127
    assert abs(drawn.mean() - 0.25) < 0.01
    other = TreeColumns.draw_columns(params, 1, (40,)).usable_masks(range(127))
    assert other is not None
    assert not np.array_equal(drawn, other)


def test_goss_keeps_the_largest_and_amplifies_a_sample_of_the_others():
    gradients = np.random.default_rng(1).normal(0, 1, (1000, 2))
    rows, factor = sampling.goss(gradients, 9, 0, top_rate=0.2, other_rate=0.1)
    size = np.abs(gradients).sum(axis=1)
    assert len(rows) == len(factor) == 300
    assert np.all(np.diff(rows) > 0)
    assert set(rows[factor == 1.0]) == set(np.argsort(-size)[:200])
    assert set(factor) == {1.0, 0.8 / 0.1}
    assert Goss(top_rate=0.2, other_rate=0.1).factor == pytest.approx(8.0)


def test_goss_sums_are_unbiased():
    gradients = np.random.default_rng(2).normal(0.3, 1, (400, 1))
    sums = []
    for seed in range(400):
        rows, factor = sampling.goss(gradients, seed, 0, 0.2, 0.2)
        sums.append((gradients[rows, 0] * factor).sum())
    assert np.mean(sums) == pytest.approx(gradients.sum(), abs=4 * np.std(sums) / 20)


@pytest.mark.parametrize(
    "how", [{"subsample": 0.5}, {"goss": {}}, {"forest": {"n_trees": 3}}, {}], ids=str
)
def test_each_party_draws_among_its_own_rows(how):
    params, groups = TreeParams(seed=3, **how), (40, 1, 60, 40)
    gradients = np.random.default_rng(3).normal(0, 1, (141, 2))
    gradients[101:] = gradients[:40]  # the same rows with another party
    drawn = sampling.sample_of_parties(params, gradients, 2, groups)
    starts = [0, 40, 41, 101]
    for party, (start, count) in enumerate(zip(starts, groups, strict=True)):
        own = sampling.round_sample(params, gradients[start : start + count], 2, 2, party)
        inside = (drawn.rows >= start) & (drawn.rows < start + count)
        assert np.array_equal(drawn.rows[inside], own.rows + start)
        assert np.array_equal(drawn.factor[inside], own.factor)
        for whole, part in zip(drawn.trees, own.trees, strict=True):
            mine = whole[(whole >= start) & (whole < start + count)]
            assert np.array_equal(mine, part + start)
    first, last = (drawn.rows[(drawn.rows >= a) & (drawn.rows < a + 40)] - a for a in (0, 101))
    assert np.array_equal(first, last) == (not how)
    assert all(rows.dtype == np.int32 for rows in (drawn.rows, *drawn.trees))


@pytest.mark.parametrize(
    "params",
    [TreeParams(), TreeParams(subsample=0.5), TreeParams(goss=Goss())],
    ids=["", "rows", "goss"],
)
def test_a_party_without_rows_draws_none_and_changes_no_others_draw(params):
    gradients = np.linspace(-1, 1, 60)[:, None]
    found = sampling.sample_of_parties(params, gradients, 3, (25, 0, 35))
    none = sampling.round_sample(params, gradients[:0], 3, 3, party=1)
    assert (len(none.rows), len(none.factor), *map(len, none.trees)) == (0, 0, 0)
    last = sampling.round_sample(params, gradients[25:], 3, 3, party=2)
    assert found.rows[found.rows >= 25].tolist() == (25 + last.rows).tolist()


def test_a_lone_party_draws_what_a_table_draws():
    params = TreeParams(seed=2**40, subsample=0.5)
    alone = sampling.sample_of_parties(params, np.zeros((100, 1)), 5, (100,))
    assert np.array_equal(alone.rows, sampling.round_rows(2**40, 5, 100, 0.5))
    assert np.array_equal(sampling.round_sample(params, np.zeros((100, 1)), 5, 5).rows, alone.rows)


def test_all_rows_may_be_top_rows():
    rows, factor = sampling.goss(np.ones((5, 1)), 0, 0, 1.0, 0.1)
    assert rows.tolist() == [0, 1, 2, 3, 4]
    assert set(factor) == {1.0}


def run(values, patience, bigger):
    state = EarlyStopping(patience, bigger)
    for i, value in enumerate(values):
        state = state.after(value)
        if state.stop:
            return i, state.best_round
    return None, state.best_round


def test_it_stops_after_as_many_rounds_without_a_better_one():
    assert run([0.5, 0.6, 0.6, 0.55, 0.9], 2, bigger=True) == (3, 1)
    assert run([0.5, 0.4, 0.45, 0.39, 0.5, 0.5], 2, bigger=False) == (5, 3)
    assert run([0.5, 0.6, 0.7], 1, bigger=True) == (None, 2)
    assert run([0.5] * 50, None, bigger=True) == (None, 0)


def test_not_a_number_is_never_better():
    assert run([float("nan"), 0.5, float("nan"), float("nan")], 2, bigger=True) == (3, 1)
    assert run([float("nan")] * 3, 2, bigger=True) == (1, -1)


def test_a_rows_fractions_are_the_same_whichever_rows_are_drawn():
    g = np.random.default_rng(1).normal(0, 1, (1000, 2))
    whole = sampling.round_sample(TreeParams(seed=3), g, 4, 4).fractions(2)
    some = sampling.round_sample(TreeParams(seed=3, subsample=0.3), g, 4, 4)
    assert (some.fractions(2) == whole[some.rows]).all()
    assert whole.min() >= 0.0
    assert whole.max() < 1.0
    for other in (TreeParams(seed=4), TreeParams(seed=3)):
        number = 4 if other.seed == 4 else 5
        assert (sampling.round_sample(other, g, number, number).fractions(2) != whole).all()


def test_fractions_are_those_of_all_words_at_once(monkeypatch):
    draws = sampling.RowDraws(seed=3, round_number=4, n_rows=50, party=0)
    whole = draws.fractions(3)
    monkeypatch.setattr(sampling, "WORDS_AT_ONCE", 16)
    assert (draws.fractions(3) == whole).all()
    words = sampling.random_words(3, sampling.Purpose.ROUNDING, 4, n=150)
    assert (whole.ravel() == (words >> np.uint64(11)) / 2.0**53).all()


def test_fractions_of_a_table_are_those_of_its_parties():
    g, params = np.ones((30, 1)), TreeParams(seed=3)
    whole = sampling.sample_of_parties(params, g, 0, (10, 20)).fractions(2)
    parties = [
        sampling.round_sample(params, g[:n], 0, 0, party) for party, n in enumerate((10, 20))
    ]
    assert (whole == np.concatenate([one.fractions(2) for one in parties])).all()


def all_alike(rows):
    return np.ones((1, rows), np.bool_)


def test_rows_apart_are_counted_of_each_tree_of_each_two_and_of_each_class():
    everything, one_less = np.arange(100, dtype=np.int32), np.arange(99, dtype=np.int32)
    half, shifted = np.arange(50, dtype=np.int32), np.arange(3, 53, dtype=np.int32)
    assert sampling.fewest_apart([everything], all_alike(100)) == 0
    assert sampling.fewest_apart([everything, everything], all_alike(100)) == 0
    assert sampling.fewest_apart([one_less], all_alike(100)) == 1
    assert sampling.fewest_apart([half], all_alike(100)) == 50
    assert sampling.fewest_apart([half, shifted], all_alike(100)) == 6
    rare = np.arange(100) >= 97
    assert sampling.fewest_apart([half], np.stack([rare, ~rare])) == 3
    assert sampling.fewest_apart([], all_alike(0)) == 0


@pytest.mark.parametrize("says", [{}, {"subsample": 0.5}, {"forest": {"n_trees": 2}}])
def test_draws_that_leave_many_rows_out_or_none_are_allowed(says):
    params = TreeParams(n_estimators=3, **says)
    sampling.check_draws(params, all_alike(200), 20, "policy.group_rows_min")


def test_draws_are_counted_in_every_round_and_of_the_party_that_asks():
    params = TreeParams(n_estimators=30, subsample=0.9)
    few = [
        (before, party)
        for before in range(40)
        for party in range(2)
        if 200 - len(sampling.round_rows(params.seed, before, 200, 0.9, party)) < 18
    ]
    assert few
    for before, party in few:
        one = params.model_copy(update={"n_estimators": 1})
        with pytest.raises(PolicyError, match="at least 18"):
            sampling.check_draws(one, all_alike(200), 18, "k", before=before, party=party)
        sampling.check_draws(one, all_alike(200), 1, "k", before=before, party=party)
    [last, *_] = [before for before, party in few if party == 0 and before]
    whole = params.model_copy(update={"n_estimators": last + 1})
    with pytest.raises(PolicyError):
        sampling.check_draws(whole, all_alike(200), 18, "k")


def test_rows_of_two_rates_are_drawn_apart():
    """Drawn from the same words, two jobs of nearly one rate would differ by one row."""
    many, fewer = (sampling.round_rows(5, 0, 600, rate) for rate in (0.9, 0.899))
    assert len(np.setdiff1d(many, fewer)) > 20
    assert len(np.setdiff1d(fewer, many)) > 20
    gradients = np.linspace(1, 2, 600)[:, None]
    (kept, _), (other, _) = (sampling.goss(gradients, 5, 0, 0.2, rate) for rate in (0.5, 0.501))
    assert len(np.setxor1d(kept, other)) > 100
