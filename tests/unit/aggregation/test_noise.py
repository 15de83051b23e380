"""An owner's noise in sums that go on without lost parties: its size, its place, and what it keeps
closed."""

from dataclasses import replace

import numpy as np
import pytest

from fedboost.aggregation import aggregator
from fedboost.aggregation.contributor import Contributor
from fedboost.aggregation.statistic import Statistic
from fedboost.runtime.config.policy import Policy
from tests.support import gbun_jobs, horizontal_jobs
from tests.support.aggregation import Circle, draws, fresh_circle
from tests.support.federated import now

WORDS, UNIT = 4000, 1 << 40


def noisy(noise=2.0):
    """Contributors whose owners want noise, with keys for a few sums."""
    made = fresh_circle(4, sums=4, colluders=0)
    limits = Policy(aggregation_parties_min=2, aggregation_noise=noise)
    members = {
        p: Contributor(replace(one._context, limits=limits)) for p, one in made.members.items()
    }
    other = Circle(members, made.adder).meet()
    other.deal(4)
    return other


def noise_of(place=(0, 0), name="a sum", party="p01", unit=UNIT, made=None):
    made = made or noisy()
    return made.members[party]._noise_of(
        np.zeros(WORDS, np.int64), Statistic(name, place, unit=unit)
    )


def test_noise_is_gaussian_with_the_owners_deviation():
    found = noise_of() / UNIT
    assert abs(found.std() - 2.0) < 0.1
    assert abs(found.mean()) < 0.15


def test_noise_is_the_same_in_every_round_and_another_at_every_other_place():
    first = noise_of((0, 0))
    assert first.tolist() == noise_of((7, 0)).tolist()
    for other in (
        noise_of((0, 1)),
        noise_of((0, 0), name="another"),
        noise_of((0, 0), party="p02"),
    ):
        assert (first != other).mean() > 0.99


def test_words_that_no_row_adds_to_have_no_noise():
    units = np.zeros(WORDS, np.int64)
    units[::2] = UNIT
    found = noise_of(unit=units)
    assert not found[1::2].any()
    assert found[::2].any()


def test_without_an_owners_wish_nothing_is_added():
    assert np.all(noise_of(made=noisy(0.0)) == 0)
    assert np.all(noise_of(unit=None) == 0)


@pytest.mark.parametrize("unit", [UNIT, None], ids=["noisy", "exact"])
def test_what_bears_no_noise_stays_closed_once_somebody_is_lost(unit):
    made = noisy()
    vectors = draws(made.parties, words=WORDS)
    what = Statistic("a sum", (0, 0), fresh=0, unit=unit)

    def opened(left, number):
        given = {}
        for party in left:
            own = replace(what, fresh=number, place=(number, 0))
            [given[party]] = made.members[party].masked_parts(vectors[party], own)
        aggregator.keep_masked(made.adder, given)
        signed = {p: made.members[p].sign(left) for p in left}
        shown = {p: made.members[p].reveal_shares(made.to_all(p, signed)) for p in left}
        totals = [out.send for out in aggregator.open_total(made.adder, shown)]
        return made.told(totals, 1 << 62, left)["p00"]

    whole = opened(made.parties, 0)
    assert whole is not None
    off = whole - np.sum(list(vectors.values()), axis=0)
    assert off.any() == (unit is not None)
    fewer = opened(made.parties[:3], 1)
    assert (fewer is None) == (unit is None)


@pytest.mark.parametrize("jobs", [horizontal_jobs, gbun_jobs], ids=["trees", "networks"])
def test_no_row_adds_more_to_a_word_than_its_unit(jobs, monkeypatch):
    seen, real = [], Contributor._noise_of

    def noting(state, vector, what):
        if what.unit is not None and state.rows:
            seen.append((vector, what.unit, state.rows))
        return real(state, vector, what)

    monkeypatch.setattr(Contributor, "_noise_of", noting)
    now(jobs.made({"dropout": "continue", "colluders": 0}).room().walk())
    assert len(seen) > 10
    for vector, unit, rows in seen:
        bounded = np.broadcast_to(unit, vector.shape)
        told = bounded > 0
        assert (np.abs(vector[told]) <= rows * bounded[told].astype(float)).all()
        assert told.sum() >= len(vector) - 1


@pytest.mark.parametrize("jobs", [horizontal_jobs, gbun_jobs], ids=["trees", "networks"])
def test_jobs_with_noise_end_with_one_model_for_all(jobs):
    limits = Policy(group_rows_min=1, intersection_min=1, aggregation_parties_min=2,
                    own_rows_min=1, aggregation_noise=0.5)  # fmt: skip
    said = {"dropout": "continue", "colluders": 0, "reg_lambda": 1.0}
    job = jobs.made(said, sizes=(300, 300, 300))
    found = now(job.room(limits=limits).walk())
    whole = {party: found[party] for party in job.parties}
    jobs.assert_same_shards(whole)
