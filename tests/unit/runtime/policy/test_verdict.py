"""The verdict on a job that waits: like earlier jobs or not, how much of the budget, how risky."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from fedboost.ground.workers import Serial
from fedboost.pages.approval import budget_of_job, list_of_uses, technical_tables
from fedboost.pages.asking import read_request
from fedboost.report.html import join
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.jobs import manifest
from fedboost.runtime.store.store import JobState
from tests.support import small_jobs
from tests.support.whole_jobs import written

TELCO = small_jobs.PARTIES[1]


@dataclass
class Owner:
    """telco's daemon behind one finished job, and jobs that ask it for approval."""

    node: Any
    ran: str  # the finished job

    def asked(self, id_="next", rules=None, submitter=None, purpose=None, **params):
        """Return what the owner reads of a job like the finished one but for this."""
        node, terms = self.node, manifest.decode_manifest(self.node.store.job(self.ran).manifest)
        said = {"params": {**terms.spec.params, **params}, "purpose": purpose}
        spec = terms.spec.model_copy(update=said)
        changed = {"job": id_, "spec": spec, "submitter": submitter or terms.submitter}
        text = terms.model_copy(update=changed).encode()
        node.store.add_job(id_, "next", text, JobState.WAITING)
        policy = node.config.policy.model_copy(update=rules or {})
        node.config = node.config.model_copy(update={"policy": policy})
        return node.owned(node.store.job(id_))


@pytest.fixture
def owner(tmp_path):
    """A function that hands the owner of one finished job to a test."""

    def hand(test):
        async def work():
            spec = small_jobs.spec("secureboost", encryption={"scheme": "lattice"})
            sources = written(tmp_path, small_jobs.tables("secureboost"))
            async with open_cluster(tmp_path / "c", spec, sources, Serial()) as made_of:
                journal = await made_of.run(spec)
                assert journal.status.state == "finished"
                test(Owner(made_of.parties[TELCO], journal.status.id))

        asyncio.run(work())

    return hand


ROOM = {"disclosure_warn": 5.0, "disclosure_max": 10.0}


def test_the_same_job_again_is_like_it_and_takes_a_small_share_of_a_wide_budget(owner):
    def test(own):
        said = own.asked(rules=ROOM)
        assert said.risk == "low"
        assert said.forecast.startswith("1 similar job ran here; bank would get 0.")
        assert " sums per bin and row (" in said.forecast
        assert "% of the budget), with fewer shared rows up to " in said.forecast
        assert said.forecast.endswith("could place all of the 240 rows, each in one of 16 groups")
        assert any(f"as in {own.ran}" in reason for reason in said.because)
        assert not any(reason.startswith("new:") for reason in said.because)

    owner(test)


def test_at_most_is_said_for_the_fewest_rows_that_the_policy_lets_pass(owner):
    def test(own):
        entry = own.node.spending.account.entries()[0]
        room = {"disclosure_max": 2 * (entry.planned + entry.counted), "intersection_min": 5}
        said = own.asked(rules={**ROOM, **room})
        stated = float(said.forecast.split("shared rows up to ")[1].split(" ")[0])
        assert stated == pytest.approx(room["disclosure_max"] - entry.counted, rel=0.05)
        few = own.asked("few", rules={**ROOM, "intersection_min": 200})
        planned = own.node.spending.planned(own.node.store.job("few")).releases.ratio(200)
        assert f"up to {planned:.2g} sums" in few.forecast

    owner(test)


def test_an_owner_reads_how_many_rows_an_attack_may_place(owner):
    def test(own):
        said = own.asked(rules={**ROOM, "placed_max": 0.25})
        assert "could place 25% of the 240 rows" in said.forecast

    owner(test)


def test_another_user_or_less_protection_is_new(owner):
    def test(own):
        said = own.asked(rules=ROOM, submitter="eve")
        assert (said.risk, "new: user eve" in said.because) == ("medium", True)
        assert said.forecast.startswith("no similar job ran here;")
        open_ = own.asked("open", encryption={"scheme": "plain"})
        assert open_.risk == "high"
        assert "its scheme hides nothing" in open_.forecast

    owner(test)


def test_over_a_tenth_of_the_budget_is_medium_and_over_the_warning_high(owner):
    def test(own):
        entry = own.node.spending.account.entries()[0]
        told = entry.planned + entry.counted
        medium = own.asked("m", rules={"disclosure_warn": 2 * told, "disclosure_max": 4 * told})
        assert medium.risk == "medium"
        high = own.asked("h", rules={"disclosure_warn": told / 2, "disclosure_max": 4 * told})
        assert high.risk == "high"

    owner(test)


def test_an_owner_reads_before_approving_that_the_job_will_be_refused_as_it_runs(owner):
    """A page said that the policy allows a job which then failed within a second."""

    def test(own):
        entry = own.node.spending.account.entries()[0]
        told = entry.planned + entry.counted
        own.asked("wide", rules={**ROOM, "disclosure_max": 3 * told})
        wide = read_request(own.node, own.node.store.job("wide")).budget
        assert wide is not None
        assert not wide.is_over
        own.asked("tight", rules={**ROOM, "disclosure_max": 0.9 * told})
        asking = read_request(own.node, own.node.store.job("tight"))
        assert asking.refusal is None
        assert asking.budget is not None
        said = asking.budget.excess_in_words()
        assert said.startswith(f"With 240 rows in common, as in {own.ran}, it needs 1")
        shown = join(*technical_tables(asking))
        assert "Your policy will probably refuse this job once it runs, even if you" in shown
        assert "Your policy allows this job" not in shown

    owner(test)


def test_a_page_draws_one_meter_with_earlier_jobs_this_job_and_the_limit(owner):
    def test(own):
        entry = own.node.spending.account.entries()[0]
        own.asked(rules=ROOM)
        budget = read_request(own.node, own.node.store.job("next")).budget
        assert budget is not None
        assert budget.before == pytest.approx(entry.counted, rel=0.05)
        drawn = budget_of_job(budget)
        assert drawn.count("<svg") == 1
        for words in (f"earlier jobs: {budget.before:.2g}", f"this job: {budget.ratio:.2g}"):
            assert words in drawn
        assert "limit: 10" in drawn
        assert budget_of_job(None) == ""

    owner(test)


def test_an_owner_reads_the_purpose_of_a_job_that_says_one(owner):
    def test(own):
        assert all(use.about != "purpose" for use in own.asked("silent", rules=ROOM).uses)
        said = own.asked("said", purpose="Risk of new customers")
        assert (said.uses[0].about, said.uses[0].says) == ("purpose", "Risk of new customers")
        asking = read_request(own.node, own.node.store.job("silent"))
        assert asking.refusal is None
        own.asked("again", rules={**ROOM, "purpose_required": True})
        asking = read_request(own.node, own.node.store.job("silent"))
        assert asking.refusal is not None
        assert asking.refusal.where["key"] == "policy.purpose_required"
        assert read_request(own.node, own.node.store.job("said")).refusal is None

    owner(test)


def test_a_page_names_the_columns_that_a_job_uses(owner):
    def test(own):
        said = own.asked("named", rules=ROOM)
        known = ["id", "age", "income"]
        stored = own.node.store.job("named")
        assert read_request(own.node, stored).columns == ()
        columns = read_request(own.node, stored, known).columns
        assert columns == ("age", "income")
        assert "age, income (2 in all)" in list_of_uses(said, columns)
        assert "all but id" in list_of_uses(said)

    owner(test)


def test_what_the_policy_refuses_is_high_whatever_it_would_take(owner):
    def test(own):
        said = own.asked(rules={**ROOM, "protocols": ("echo",)})
        assert said.risk == "high"
        assert said.because[0].startswith("your policy refuses it: ")

    owner(test)


def test_only_a_job_that_waits_has_a_forecast(owner):
    def test(own):
        ran = own.node.owned(own.node.store.job(own.ran))
        assert (ran.risk, ran.forecast, list(ran.because)) == ("", "", [])

    owner(test)
