"""What parties forecast, put together: the first refusal counts, and one change must suit all."""

import pytest

from fedboost.runtime.config.policy import Policy
from fedboost.runtime.policy.forecast import WHO, Forecast, joint_verdict, with_default_limits

SUMS = "policy.disclosure_max"
JOB = {"n_estimators": 10, "max_depth": 6}


def host(party, *changes, left=0, place=3):
    refused = SUMS if changes else None
    return Forecast(
        party=party, place=place, refused_by=refused, jobs_left=left, changes=tuple(changes)
    )


def by_trees(change):
    """Fewer layers cost little, fewer trees much."""
    return (1.0 if "n_estimators" in change else 0.1), "so much"


def test_all_accept_as_often_as_the_strictest():
    found = joint_verdict([host("telco", left=7), host("shop", left=4)], JOB, by_trees)
    assert found == {
        "accepted": True, "refused_by": None, "jobs_left": 4, "change": None, "cost": None
    }  # fmt: skip


def test_limits_that_bind_nobody_leave_any_number():
    assert joint_verdict([Forecast(party="bank")], JOB, by_trees)["jobs_left"] is None


def test_the_cheapest_change_that_suits_every_party_is_named():
    telco = host("telco", {"n_estimators": 4}, {"max_depth": 3})
    shop = host("shop", {"n_estimators": 6}, {"max_depth": 2})
    found = joint_verdict([telco, shop], JOB, by_trees)
    assert (found["accepted"], found["refused_by"]) == (False, "telco: disclosure_max")
    assert (found["change"], found["cost"], found["jobs_left"]) == ("max_depth: 2", "so much", 0)


def test_the_refusal_that_comes_first_in_a_job_is_named():
    early = Forecast(party="bank", place=1, refused_by="policy.allow_insecure", jobs_left=0)
    found = joint_verdict([host("telco", {"max_depth": 3}), early], JOB, by_trees)
    assert found["refused_by"] == "bank: allow_insecure"


def test_nothing_is_named_where_no_change_suits_a_party():
    lost = Forecast(party="shop", place=3, refused_by=SUMS, jobs_left=0)
    found = joint_verdict([host("telco", {"max_depth": 3}), lost], JOB, by_trees)
    assert (found["change"], found["cost"]) == (None, None)


@pytest.mark.parametrize("key", sorted(set(Policy.model_fields) - set(WHO) - {"approve"}))
def test_limits_are_the_defaults_whatever_a_trial_allows(key):
    wide = Policy(
        peers=("telco",), disclosure_max=float("inf"), group_rows_min=1, metrics_max=10**9
    )
    found = with_default_limits(wide)
    assert getattr(found, key) == getattr(Policy(), key)
    assert found.peers == ("telco",)
