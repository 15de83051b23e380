"""What a sweep tries, what it makes of how its jobs ended, and what it says they tell."""

import json
import math

import pytest

from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.report.page import sweep_page
from fedboost.sweep import leaks, plan
from fedboost.sweep.plan import Earlier, SweepSettings
from fedboost.sweep.record import FINISHED, SweepEntry, SweepRecord
from tests.support import small_jobs

GRID = {"params": {"max_depth": [2, 3], "learning_rate": [0.1, 0.3]}, "folds": 3}


def job(name="secureboost", held=None, **params):
    """A toy job, without rows held out unless said."""
    found = small_jobs.spec(name, **params)
    return type(found).model_validate({**found.model_dump(), "validation": held})


def sweep(raw=None, base=None):
    """A sweep of a toy job."""
    return plan.read_sweep(raw or GRID, base or job())


def measured(own, values):
    """A record in which each member has one of these values of the metric, held out."""
    entries = {}
    for member, value in zip(own.members, values, strict=True):
        parts = {"train": {own.metric: 0.5}, "validation": {own.metric: value}}
        entries[member.key] = SweepEntry(job=member.key, state=FINISHED, metrics=parts, seconds=1.0)
    return SweepRecord(own, entries)


def test_a_grid_tries_every_choice_on_every_fold():
    own = sweep()
    tried = [(m.trial.values["max_depth"], m.trial.values["learning_rate"]) for m in own.members]
    assert tried == [pair for pair in [(2, 0.1), (2, 0.3), (3, 0.1), (3, 0.3)] for _ in range(3)]
    assert [m.spec.validation.fold for m in own.members] == [0, 1, 2] * 4
    assert {m.spec.validation.folds for m in own.members} == {3}
    assert len({m.key for m in own.members}) == 12
    assert own.members[-1].spec.params["max_depth"] == 3


def test_folds_without_settings_are_a_cross_validation():
    own = sweep({"folds": 4})
    assert [trial.values for trial in own.trials] == [{}]
    assert [member.spec.params for member in own.members] == [own.base.params] * 4


def test_a_setting_inside_another_is_named_with_a_dot():
    own = sweep({"params": {"goss.top_rate": [0.1, 0.2]}, "folds": 2}, job(goss={}))
    assert own.members[0].spec.params["goss"] == {"top_rate": 0.1}


def test_a_random_search_draws_from_ranges_and_lists_and_again_the_same():
    drawn = {
        "search": "random",
        "trials": 20,
        "folds": 2,
        "params": {
            "learning_rate": {"low": 0.01, "high": 0.5, "log": True},
            "max_depth": {"low": 2, "high": 4},
            "max_bin": [8, 16],
        },
    }
    tried = [trial.values for trial in sweep(drawn).trials]
    assert tried == [trial.values for trial in sweep(drawn).trials]
    assert {one["max_depth"] for one in tried} == {2, 3, 4}
    assert all(0.01 <= one["learning_rate"] <= 0.5 for one in tried)
    assert sum(one["learning_rate"] < math.sqrt(0.005) for one in tried) >= 5
    assert {one["max_bin"] for one in tried} == {8, 16}


def test_a_random_search_of_few_choices_tries_none_twice():
    raw = {"search": "random", "trials": 9, "folds": 2, "params": {"max_bin": [8, 16]}}
    assert sorted(trial.values["max_bin"] for trial in sweep(raw).trials) == [8, 16]


@pytest.mark.parametrize(
    ("raw", "held", "words"),
    [
        ({"params": {"max_depht": [2]}, "folds": 2}, None, "unknown key 'max_depht'"),
        ({"params": {"max_depth": [99]}, "folds": 2}, None, "max_depth"),
        ({"params": {"max_depth": [2]}}, None, "no rows to compare"),
        ({"folds": 2}, {"fraction": 0.2}, "both validation and sweep.folds"),
        ({"folds": 1}, None, "folds"),
        ({"params": {"gamma": {"low": 0, "high": 1}}, "folds": 2}, None, "is a range"),
        ({"params": {"max_depth": []}, "folds": 2}, None, "max_depth"),
        ({"search": "random", "folds": 2, "params": {"gamma": [1]}}, None, "trials"),
        ({"params": {"max_depth": list(range(1, 15))}, "folds": 100}, None, "more jobs than"),
        ({"folds": 2, "metric": "rmsle"}, None, "metric"),
        ({"folds": 2, "metric": "merror"}, None, "merror"),
    ],
)
def test_what_is_no_sweep_is_refused_by_name(raw, held, words):
    with pytest.raises(ConfigError) as refused:
        plan.read_sweep(raw, job(held=held))
    assert words in "; ".join(refused.value.lines())


def test_jobs_measure_what_they_are_compared_by_and_stop_early_by_their_own():
    own = sweep({"folds": 2, "metric": "ks"}, job(eval_metric=["logloss"]))
    assert own.members[0].spec.params["eval_metric"] == ["ks", "logloss"]
    assert (own.metric, own.bigger_is_better) == ("ks", True)


def test_later_jobs_use_what_the_first_one_has_aligned():
    own = sweep()
    later = own.spec(own.members[3], Earlier(alignment="cancer-1"))
    assert later.alignment == "cancer-1"
    assert own.spec(own.members[3], Earlier()).alignment is None


def test_later_jobs_use_what_hosts_have_disclosed_once():
    base = job("federboost-vertical")
    later = sweep(GRID, base).spec(sweep(GRID, base).members[3], Earlier("f-1", "f-1"))
    assert later.params["reuse"] == "f-1"
    assert later.alignment is None
    assert not {"buckets", "epsilon"} & later.params.keys()


@pytest.mark.parametrize("raw", [{**GRID, "reuse": False}, {"params": {"buckets": [4, 8]}}])
def test_hosts_disclose_anew_where_the_disclosure_itself_is_tried(raw):
    own = sweep({"folds": 3, **raw}, job("federboost-vertical"))
    later = own.spec(own.members[3], Earlier("f-1", "f-1"))
    assert "reuse" not in later.params
    assert later.alignment == "f-1"


def test_the_best_settings_train_on_all_rows():
    own = sweep()
    best = own.best_job({"max_depth": 3}, Earlier(alignment="cancer-1"))
    assert (best.validation, best.alignment, best.params["max_depth"]) == (None, "cancer-1", 3)


def test_trials_are_ranked_by_their_mean_over_folds():
    own = sweep({**GRID, "metric": "auc"})
    record = measured(own, [0.7, 0.8, 0.9, 0.6, 0.6, 0.6, 0.9, 0.9, 0.9, 0.5, 0.9, 0.7])
    standings = record.standings()
    assert [one.number for one in standings] == [3, 1, 4, 2]
    assert [one.rank for one in standings] == [1, 2, 3, 4]
    assert standings[1].mean == pytest.approx(0.8)
    assert standings[1].std == pytest.approx(math.sqrt(0.02 / 3))
    assert record.code == 0
    assert record.said()["best"]["params"] == {"max_depth": 3, "learning_rate": 0.1}


def test_less_is_better_where_the_metric_is_a_loss():
    own = sweep({**GRID, "metric": "logloss"})
    assert measured(own, [*[0.4] * 3, *[0.2] * 3, *[0.3] * 6]).standings()[0].number == 2


def test_a_trial_without_all_of_its_jobs_has_no_rank_and_the_sweep_its_exit_code():
    record = measured(sweep(), [0.7] * 12)
    key = record.sweep.members[0].key
    failed = {"code": "policy", "what": "no", "where": {}, "todo": ""}
    record.entries[key] = SweepEntry(job="j", state="failed", error=failed, code=4)
    last = record.standings()[-1]
    assert (last.number, last.rank) == (1, None)
    assert (record.code, record.state) == (4, "failed")
    said = record.said()
    assert said["trials"][-1]["errors"] == [failed]
    assert said["trials"][-1]["mean"] is None
    json.dumps(said, allow_nan=False)


def test_a_record_is_read_again_and_not_for_another_sweep():
    record = measured(sweep(), [0.5 + n / 100 for n in range(12)])
    record.earlier = Earlier("cancer-1", None)
    again = SweepRecord.read(record.sweep, record.text())
    assert again.said() == record.said()
    with pytest.raises(ConfigError, match="another sweep"):
        SweepRecord.read(sweep({"folds": 3}), record.text())


def test_before_it_begins_a_sweep_says_what_hosts_will_release_in_all():
    (ids, telco, shop) = leaks.sentences(sweep(), 300, 0.15)
    assert "found once" in ids
    # 3 trees of 2 or 4 nodes in the last layer, a g and an h for each; 3 or 7 nodes divide.
    assert "up to 396 sums for each bin" in telco
    assert "21 to 45 in a job: 2 for each row" in telco
    assert "so 1 of the 12 jobs" in telco
    assert shop.startswith("shop may release")
    assert "for each row in common" in leaks.sentences(sweep(), None, 0.15)[1]


def test_before_it_begins_a_sweep_says_how_often_hosts_disclose_buckets():
    base = job("federboost-vertical", epsilon=4.0)
    assert "once, with the first job" in leaks.sentences(sweep(GRID, base), None, 0.15)[-1]
    anew = leaks.sentences(sweep({**GRID, "reuse": False}, base), None, 0.15)[-1]
    assert "anew with each of 12 jobs" in anew


def test_the_report_shows_every_trial_and_job_and_what_was_told():
    record = measured(sweep(), [0.6 + n / 100 for n in range(12)])
    record.earlier = Earlier(alignment="secureboost-t1-f1")
    page = sweep_page(record)
    assert all(member.key in page for member in record.sweep.members)
    assert "max_depth 2, learning_rate 0.1" in page
    assert "found once, by" in page
    assert "http" not in page.replace("http-equiv", "")


def test_the_report_of_a_sweep_that_has_only_begun_says_so():
    assert "No trial has finished yet" in sweep_page(SweepRecord(sweep()))


def test_settings_of_a_sweep_are_strict():
    with pytest.raises(ConfigError, match="unknown key 'fold'") as refused:
        parse_settings(SweepSettings, {"fold": 3})
    assert "folds" in refused.value.todo
