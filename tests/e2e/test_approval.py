"""A party whose owner wants to be asked: the job waits, says for whom, and obeys the owner."""

import html

import pytest

from fedboost.report.page import render_page
from tests.e2e import world
from tests.e2e.conftest import MALLORY, OWNER

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("town")]
JOB = world.job("bank", ("telco", "manual"))


def waiting(town):
    """A job that waits for the owner of `manual`."""
    id_ = world.submit(town, JOB)
    until_manual_is_asked(town, id_)
    return id_


def until_manual_is_asked(town, id_):
    """Return once a job waits for the owner of `manual`, and for nobody's program any more."""

    def waits():
        return [one.party for one in world.call(town, "status", id_).waiting] == ["manual"]

    world.wait_for(waits, 10, "the job waits for manual")


def seen_by_manual(town, id_, user=OWNER):
    jobs = world.owner(town, "manual", "jobs", "--json", user=user).last["jobs"]
    return next(job for job in jobs if job["id"] == id_)


@world.JOBS
def test_a_job_waits_for_a_person_and_runs_once_that_person_agrees(town):
    id_ = waiting(town)
    said = world.ask(town, "job", "status", id_)
    assert "is waiting for approval" in said.out
    assert "waiting for manual, the owner’s approval" in said.out
    assert [w.party for w in world.call(town, "status", id_).waiting] == ["manual"]
    assert seen_by_manual(town, id_)["state"] == "waiting for approval"
    asked = world.owner(town, "manual", "approve", id_, user=OWNER)
    assert (asked.code, asked.out) == (130, "")  # nobody answers
    assert "id columns: id\ncolumns: all but id\nlabel: none\n" in asked.err
    approved = world.owner(town, "manual", "approve", id_, "--yes", user=OWNER)
    assert (approved.code, approved.out) == (0, f"approved {id_}\n")
    world.watch(town, id_)
    seconds = world.result(world.call(town, "journal", id_))["seconds"]
    assert seconds["waited"] > 0.0
    assert seconds["total"] >= seconds["train"]
    assert seen_by_manual(town, id_)["state"] == "finished"


def test_a_party_that_denies_the_lattice_gets_paillier_and_all_read_why(town):
    small = {"encryption": {}, "n_estimators": 1, "max_depth": 1}
    id_ = world.submit(town, world.job("bank", ("telco", "manual"), params=small))
    why = "manual's policy does not allow lattice"
    until_manual_is_asked(town, id_)
    assert f"encryption: paillier: {why}\n" in world.ask(town, "job", "status", id_).out
    approved = world.owner(town, "manual", "approve", id_, "--yes", user=OWNER)
    assert f"encryption: paillier: {why}\n" in approved.err
    world.watch(town, id_)
    journal = world.call(town, "journal", id_)
    assert world.result(journal)["encryption"] == {"scheme": "paillier", "because": why}
    assert f"paillier: {why}." in html.unescape(render_page(journal))
    steps = {e.step.step for e in journal.events if e.WhichOneof("what") == "step"}
    assert "share_key" in steps
    assert "offer_nonce" not in steps  # which a lattice begins with


@world.JOBS
def test_a_denied_job_fails_as_refused_by_that_party_everywhere(town):
    id_ = waiting(town)
    assert world.owner(town, "manual", "deny", id_, user=OWNER).code == 0
    said = world.ask(town, "job", "watch", id_, "--json")
    assert said.code == 4, said.err
    assert said.last["error"]["what"] == "manual's owner denied the job"
    assert said.last["error"]["where"]["party"] == "manual"
    assert world.call(town, "status", id_).reason.what == "manual's owner denied the job"
    jobs = world.owner(town, "bank", "jobs", "--json").last["jobs"]
    mine = next(job for job in jobs if job["id"] == id_)
    assert (mine["state"], mine["reason"]) == ("failed", "manual's owner denied the job")
    assert seen_by_manual(town, id_)["state"] == "cancelled"
    again = world.ask(town, "job", "resume", id_, "--watch", "--json")
    assert again.code == 4, again.err


@world.JOBS
def test_only_an_approver_of_that_party_may_look_approve_and_deny(town):
    id_ = waiting(town)
    for command in (("jobs",), ("approve", id_, "--yes"), ("deny", id_)):
        said = world.owner(town, "manual", *command, user=MALLORY)
        assert said.code == 4, said.err
        assert f"approvals by the user {MALLORY}" in said.err
        assert "key policy.approvers" in said.err
    assert world.call(town, "status", id_).state == "waiting for approval"
    said = world.ask(town, "job", "cancel", id_)
    assert (said.code, said.out) == (0, f"{id_} was cancelled\n")
    assert seen_by_manual(town, id_)["state"] == "cancelled"
    late = world.owner(town, "manual", "approve", id_, "--yes", user=OWNER)
    assert late.code == 1
    assert "the job is cancelled" in late.err
