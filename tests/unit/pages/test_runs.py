"""The list of runs and their comparison: filtered, sorted, what differs, hostile words as text."""

import json
import math
import re

import pytest

from fedboost.pages import choosing, runs
from fedboost.pages.runs import ListedRun
from fedboost.pages.sessions import BrowserSession
from fedboost.report.html import join
from fedboost.runtime.store.outlines import encode_outline
from fedboost.runtime.store.store import JobState, StoredJob

SESSION = BrowserSession("csrf-1", "ana", b"", 0.0)
EVIL = "<img src=x onerror=alert(1)>"


def run(
    n: int, *, auc: float | None = None, tags=(), state=JobState.FINISHED, name="credit", **own
):
    """A job as the coordinator's store has it."""
    data = {
        "bank": {"dataset": "loans", "label": "y"},
        "telco": {"dataset": own.pop("set", "calls")},
    }
    rehearsal = own.pop("rehearsal", None)
    spec = {
        "name": name, "protocol": "secureboost", "parties": {"guest": "bank", "hosts": ["telco"]},
        "data": data, "params": {"objective": "binary:logistic", **own},
    }  # fmt: skip
    manifest = {
        "coordinator": "coord", "submitter": "ana", "spec": spec, "version": "1",
        "wire_version": 2,
        "members": [{"name": "bank"}, {"name": "telco"}],
    }  # fmt: skip
    result = (
        {} if auc is None else {"metrics": {"validation": {"auc": auc}, "train": {"auc": 0.99}}}
    )
    if rehearsal:
        result["rehearsal"] = rehearsal
    text = json.dumps(manifest).encode()
    job = StoredJob(
        f"{name}-{n:08d}", name, state, "", "",
        100.0 * n + 10 * n, 100.0 * n, 100.0 * n + 10 * n, 1, result or None,
        encode_outline(text), lambda: text,
    )  # fmt: skip
    found = runs.run_of(job)
    return ListedRun(**{**vars(found), "tags": tags, "is_mine": True})


RUNS = [
    run(3, auc=0.81, max_depth=3, tags=("deep",)),
    run(2, auc=0.79, max_depth=2),
    run(1, state=JobState.FAILED, name="other"),
]


def choice(**query: str) -> choosing.Choice:
    return choosing.read_choice(runs.PATH, query, runs.SELECTS)


def ids(found) -> list[int]:
    return [int(one.job.id[-8:]) for one in found]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [3, 2, 1]),
        ({"sort": "validation auc"}, [2, 3, 1]),
        ({"sort": "-validation auc"}, [3, 2, 1]),
        ({"sort": "took"}, [2, 3, 1]),
        ({"sort": "no such column"}, [3, 2, 1]),
        ({"state": "failed"}, [1]),
        ({"tag": "deep"}, [3]),
        ({"q": "params.max_depth=2 CREDIT"}, [2]),
        ({"q": "deep"}, [3]),
        ({"q": "credit nothing-like-that"}, []),
        ({"protocol": "echo"}, []),
    ],
)
def test_a_list_is_filtered_and_sorted_as_its_address_says(query, expected):
    assert ids(runs.chosen_runs(RUNS, choice(**query))) == expected


def test_a_head_sorts_by_its_column_and_again_the_other_way_around():
    text = join(*runs.list_page(RUNS, choice(sort="took", tag="deep"), SESSION))
    assert 'aria-sort="ascending"' in text
    assert 'href="/runs?tag=deep&amp;sort=-took"' in text
    assert 'href="/runs?tag=deep&amp;sort=protocol"' in text


def test_a_long_list_has_pages_that_keep_the_filter():
    many = [run(n, auc=0.5 + n / 1000) for n in range(runs.RUNS_PER_PAGE + 1)]
    text = join(*runs.list_page(many, choice(sort="job", q="credit"), SESSION))
    assert text.count('name="job"') == runs.RUNS_PER_PAGE
    assert 'href="/runs?q=credit&amp;sort=job&amp;page=2"' in text
    assert f"Compare all {len(many)}" in text


def test_the_comparison_shows_what_differs_and_folds_what_does_not():
    text = join(*runs.comparison_page(RUNS[:2], {one.job.id: {} for one in RUNS}))
    differ = text.partition('id="settings"')[2].partition("<details>")
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)', differ[0])
    assert heads == ["job", "max_depth"]
    assert "data.telco.dataset" in differ[2]
    assert "params.reg_lambda" in differ[2]  # a default
    assert "0.8100" in text or "0.81" in text


def test_another_data_set_is_a_difference():
    text = join(*runs.comparison_page([run(1), run(2, set="calls-2")], {
        one: {} for one in ("credit-00000001", "credit-00000002")
    }, 0))  # fmt: skip
    assert 'data-label="data.telco.dataset"' in text


def test_every_run_is_a_line_of_the_metrics_chart():
    curves = {
        one.job.id: {
            ("auc", "validation"): [(1.0, 0.6), (2.0, 0.7)],
            ("auc", "train"): [(1.0, 0.9)],
        }
        for one in RUNS[:2]
    }
    text = join(*runs.comparison_page(RUNS[:2], curves))
    assert text.count("<polyline") == 2  # validation, where there is any
    assert "credit-00000003 #deep: 0.7 at 2" in text
    assert "higher is better" in text


def test_more_runs_than_a_chart_holds_are_compared_page_by_page():
    every = [run(n, auc=0.5 + n / 1000) for n in range(250)]
    asked = choosing.read_choice(
        runs.COMPARED_PATH, {"sort": "-validation auc", "q": "credit"}, runs.SELECTS, 3
    )
    found = runs.chosen_runs(every, asked)
    shown, further = choosing.rows_of_page(asked, found, runs.COMPARED_PER_PAGE)
    text = join(
        *runs.comparison_page(shown, {one.job.id: {} for one in shown}, len(found), further)
    )
    assert "250 runs compared" in text
    assert shown[0].metrics["validation auc"] == 0.549
    assert len(shown) == 50
    assert "/runs/compare?q=credit&amp;sort=-validation+auc&amp;page=2" in text


def test_curves_are_read_from_the_rounds_of_the_jobs_own_stage_alone():
    def done(n, value, stage="secureboost"):
        metrics = [{"split": "train", "name": "auc", **({} if value is None else {"value": value})}]
        return {"stage": stage, "progress": {"done": n}, "metrics": metrics}

    rounds = [
        done(1, 0.5), done(2, 0.7), done(2, 0.8), done(1, 9.0, "align"), done(3, math.nan),
        done(4, None),
    ]  # fmt: skip
    found = runs.curves_of(RUNS[0], rounds)
    assert found == {("auc", "train"): [(1.0, 0.5), (2.0, 0.8), (4.0, 0.0)]}


def test_the_four_lines_of_a_rehearsal_stand_where_a_job_has_them():
    told = {
        "metric": "auc", "guest_alone": 0.71, "federated": 0.8, "accepted": False,
        "refused_by": "policy.disclosure_max", "jobs_left": 0, "change": "max_depth: 2",
        "cost": "0.01 auc",
    }  # fmt: skip
    with_it, accepted = run(1, rehearsal=told), run(2, rehearsal={"accepted": True, "jobs_left": 7})
    text = join(
        *runs.comparison_page([with_it, accepted], {one.job.id: {} for one in (with_it, accepted)})
    )
    for words in ("0.7100", "refused by policy.disclosure_max", "max_depth: 2; 0.01 auc"):
        assert words in text
    assert "accepted, 7 more like it" in text
    by_party = {"metric": None, "alone": {"a": 0.5, "b": 0.7}, "accepted": True, "jobs_left": None}
    several = run(3, rehearsal=by_party)
    text = join(
        *runs.comparison_page([several, accepted], {o.job.id: {} for o in (several, accepted)})
    )
    assert "0.6000" in text
    assert "accepted, any number of more like it" in text
    assert "None" not in text
    assert "between organisations" in join(*runs.list_page([with_it, RUNS[0]], choice(), SESSION))
    assert "rehearsal" not in join(*runs.comparison_page(RUNS, {o.job.id: {} for o in RUNS}))


def test_words_of_others_are_text_in_list_and_comparison():
    evil = run(4, name="credit", set=EVIL, tags=(EVIL,), auc=0.5, note=EVIL)
    text = join(
        *runs.list_page([evil], choice(q=EVIL, sort=EVIL), SESSION),
        *runs.comparison_page([evil, RUNS[0]], {evil.job.id: {(EVIL, "train"): [(1.0, 1.0)]},
                                         RUNS[0].job.id: {}}),
    )  # fmt: skip
    assert "<img" not in text
    assert "&lt;img" in text


def test_data_sets_are_known_from_the_users_own_jobs_alone():
    other = ListedRun(**{**vars(run(9, set="secret")), "is_mine": False})
    found = runs.datasets_of_runs([other, run(2, set="calls-2"), run(1)])
    assert found == {"bank": {"loans": "y"}, "telco": {"calls-2": "", "calls": ""}}
