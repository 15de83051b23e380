"""Whole jobs under a host's limits: warned of, refused with words that help, counted once."""

import asyncio
import logging
import math
import re
from pathlib import Path

import numpy as np
import pytest

from fedboost.ground.errors import PolicyError
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobId, ListRequest
from fedboost.protocols.secureboost import guest
from fedboost.runtime.cluster.cluster import WIDE_OPEN
from fedboost.runtime.cluster.local import LocalCluster, open_cluster, permissive_policy
from fedboost.runtime.config.policy import Policy
from tests.support import small_jobs
from tests.support.federated import Finished, _left
from tests.support.whole_jobs import breaking, resumed, written

TELCO, SHOP = small_jobs.PARTIES[1:]
TRAINING = 240  # of 300 rows
EQUATIONS = 3 * (4 * 2 + 7)  # of three trees, three layers, at most
SHARE = 2 / (1 + small_jobs.COLUMNS)  # of nodes, that one column is expected to divide
PLANNED = 3 * 4 * 2 + math.ceil(3 * 7 * SHARE)


class Place:
    """The stores of one cluster, on which jobs run one after the other."""

    def __init__(self, folder: Path, name: str = "secureboost"):
        self.folder, self.name = folder, name
        self.sources = written(folder, small_jobs.tables(name))
        self.listed: dict[str, str] = {}

    def run(self, spec, resumes=False, **rules):
        """A job under policies of telco with these rules, resumed when it has paused."""

        async def work():
            async with open_cluster(
                self.folder / "cluster", spec, self.sources, Serial()
            ) as made_of:
                node = made_of.parties[TELCO]
                policy = node.config.policy.model_copy(update=rules)
                node.config = node.judge.config = node.config.model_copy(update={"policy": policy})
                journal = await (resumed if resumes else LocalCluster.run)(made_of, spec)
                self.entries = node.spending.account.entries()
                found = await node.jobs(made_of.user, ListRequest())
                self.listed = {job.id: job.tells for job in found.jobs}
                return _left(made_of, journal)

        self.done: Finished = asyncio.run(work())
        return self.done

    def refused(self, spec, **rules):
        """What a job was refused with; nothing of its sums has left."""
        done = self.run(spec, **rules)
        assert done.state == "failed"
        assert not [row for row in done.ledgers[TELCO] if row.kind.endswith("CandidateSums")]
        assert isinstance(done.error, PolicyError)
        return done.error


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def spec(**params):
    return small_jobs.spec("secureboost", **params)


def remedies(error):
    """The settings that a refusal names, each to be tried alone."""
    said = error.todo.removeprefix("set ").split("; or ask")[0]
    ways = [one.split(" and ") for one in said.split(", or ")]
    read = [dict(part.split(": ") for part in way) for way in ways]
    number = re.compile(r"\d+").fullmatch
    return [{k: int(v) if number(v) else float(v) for k, v in one.items()} for one in read]


def test_a_job_is_planned_counted_and_shown(place):
    done = place.run(spec())
    found = done.result["released"][TELCO]
    assert found["planned"] == pytest.approx(PLANNED / TRAINING)
    assert 0 < found["counted"] <= EQUATIONS / TRAINING
    assert (found["before"], found["warn"], found["max"]) == (0.0, 0.06, None)
    (entry,) = place.entries
    assert (entry.job, entry.dataset, entry.guest, entry.rows) == (
        done.result["job"],
        "data",
        small_jobs.GUEST,
        TRAINING,
    )
    assert (entry.state, entry.sums) == ("finished", found["counted"])
    assert f"released {entry.counted:.2g} sums per bin and row" in place.listed[entry.job]


def test_an_owner_is_warned_in_the_log_the_journal_and_at_approval(place, caplog):
    with caplog.at_level(logging.WARNING, logger="fedboost.runtime.policy.spending"):
        done = place.run(spec())
    warned = [e.warned for e in done.journal.events if e.WhichOneof("what") == "warned"]
    assert {one.party for one in warned} == {TELCO, SHOP}
    assert all("Above 0.06, values of" in one.warning for one in warned)
    assert list(done.journal.status.warnings) == [one.warning for one in warned]
    assert any("Above 0.06, values of" in record.message for record in caplog.records)


def test_a_job_below_the_limits_warns_of_nothing(place):
    done = place.run(spec(n_estimators=1, max_depth=1))
    assert not [e for e in done.journal.events if e.WhichOneof("what") == "warned"]


def test_a_refusal_names_party_key_and_remedies_and_each_remedy_works(tmp_path):
    error = Place(tmp_path / "first").refused(spec(), disclosure_max=0.13)
    assert error.where == {"party": TELCO, "key": "policy.disclosure_max"}
    assert "allows 0.13 released sums per bin and row" in error.what
    assert "up to 0.1" in error.what
    assert "telco's owner to raise disclosure_max" in error.todo
    found = remedies(error)
    assert {"n_estimators": 2} in found
    assert {"max_depth": 2} in found
    for number, change in enumerate(found):
        other = Place(tmp_path / str(number))
        assert other.run(spec(**change), disclosure_max=0.13).state == "finished"


def test_the_owner_raising_the_limit_is_a_remedy_too(place):
    assert place.run(spec(), disclosure_max=0.19).state == "finished"


def test_earlier_jobs_count_and_an_account_that_is_empty_refuses_any_job(place):
    first = place.run(spec(n_estimators=2), disclosure_max=0.15)
    told = first.result["released"][TELCO]["counted"]
    error = place.refused(spec(n_estimators=2), disclosure_max=0.15)
    assert f"earlier jobs with the guest have released {told:.2g}" in error.what
    for change in remedies(error):
        assert place.run(spec(**change), disclosure_max=0.15).result["released"][TELCO][
            "before"
        ] == pytest.approx(told)
        break
    empty = place.refused(spec(n_estimators=1), disclosure_max=told)
    assert "no smaller job fits" in empty.todo


def test_a_refused_job_costs_nothing(place):
    place.refused(spec(), disclosure_max=0.07)
    assert place.entries == []
    assert place.run(spec(n_estimators=1), disclosure_max=0.07).state == "finished"


def test_a_resumed_job_pays_for_what_it_tells_again_and_for_nothing_else(place, monkeypatch):
    whole = place.run(spec()).result["released"][TELCO]
    breaking(monkeypatch, guest, "close_round", 2)
    again = place.run(spec(), resumes=True, disclosure_max=0.5).result["released"][TELCO]
    rounds = EQUATIONS / 3 / TRAINING
    assert whole["counted"] <= again["counted"] <= whole["counted"] + rounds  # grown again
    assert again["before"] == whole["counted"]
    first, second = place.entries
    assert (first.sums, second.sums) == (whole["counted"], again["counted"])
    warned = [e for e in place.done.journal.events if e.WhichOneof("what") == "warned"]
    assert len(warned) == 2  # of two hosts, once each


def test_a_job_that_fails_half_way_counts_with_what_it_told(place, monkeypatch):
    error = PolicyError("the guest has had enough")
    breaking(monkeypatch, guest, "close_round", 2, error=error)
    assert place.run(spec()).state == "failed"
    (entry,) = place.entries
    assert 0 < entry.sums == entry.counted <= 2 * EQUATIONS / 3 / TRAINING


def test_a_host_of_a_hybrid_job_has_fewer_rows_and_so_more_is_told_of_each(tmp_path):
    place = Place(tmp_path, "hybridtree")
    found = place.run(small_jobs.spec("hybridtree")).result["released"][TELCO]
    (entry,) = place.entries
    assert entry.rows < TRAINING
    assert found["planned"] == pytest.approx(
        (3 * 4 * 4 + math.ceil(3 * 4 * 3 * SHARE)) / entry.rows
    )
    assert 0 < found["counted"] <= 3 * 4 * (2 * 2 + 3) / entry.rows


def test_horizontal_jobs_tell_values_of_sums_and_no_sums_of_a_column(tmp_path):
    place = Place(tmp_path, "federboost-horizontal")
    assert "released" not in place.run(small_jobs.spec("federboost-horizontal")).result
    (entry,) = place.entries
    assert (entry.sums, entry.noise, set(entry.charged)) == (0.0, 0.0, {"totals"})
    assert entry.totals > 1.0


def test_random_cuts_tell_the_order_of_columns_and_count(tmp_path):
    place = Place(tmp_path, "hybridtree-unscored")
    found = place.run(small_jobs.spec("hybridtree-unscored")).result["released"][TELCO]
    layers, cuts = 3 * 2, small_jobs.TOYS["hybridtree-unscored"].params["max_bin"] - 1
    assert found["planned"] == pytest.approx(layers / small_jobs.COLUMNS / cuts)
    (entry,) = place.entries
    assert len(entry.told) == small_jobs.COLUMNS
    assert sum(entry.told.values()) == pytest.approx(layers / cuts, rel=0.1)  # most rows, each time


def test_noisy_values_are_counted_when_told_and_not_when_used_again(tmp_path):
    place = Place(tmp_path, "federboost-vertical")

    def job(**params):
        return small_jobs.spec("federboost-vertical", **params)

    limits = {"epsilon_element_max": 1.0, "epsilon_row_max": 8.0}
    first = place.run(job(epsilon=1.0), **limits)
    (entry,) = place.entries
    assert (entry.epsilon, entry.noise, entry.planned) == (small_jobs.COLUMNS, 4.0, 0.0)
    raw = small_jobs.raw("federboost-vertical", reuse=first.result["job"])
    for key in ("buckets", "epsilon"):
        raw["params"].pop(key)
    again = parse_settings(JobSpec, raw)
    assert place.run(again, **limits).state == "finished"
    assert len(place.entries) == 1
    assert place.run(job(epsilon=1.0), **limits).state == "finished"
    third = place.run(job(epsilon=0.5), **limits)
    assert third.error.where == {"party": TELCO, "key": "policy.epsilon_row_max"}
    assert "earlier jobs have disclosed epsilon 8" in third.error.what
    assert [entry.noise for entry in place.entries] == [4.0, 4.0]


async def test_a_job_that_waits_says_what_it_could_tell(place):
    asked = spec()
    async with open_cluster(place.folder / "cluster", asked, place.sources, Serial()) as made_of:
        node = made_of.parties[TELCO]
        policy = node.config.policy.model_copy(update={"approve": "always", "disclosure_max": 0.15})
        node.config = node.judge.config = node.config.model_copy(update={"policy": policy})
        running = asyncio.create_task(made_of.run(asked))
        while not (found := (await node.jobs(made_of.user, ListRequest())).jobs):
            await asyncio.sleep(0)
        await node.approve(made_of.user, JobId(id=found[0].id))
        await running
        said = found[0].tells
    assert f"up to {EQUATIONS} sums for each bin of a column to {small_jobs.GUEST}" in said
    refused, warned = math.ceil(EQUATIONS / 0.15), math.ceil(EQUATIONS / 0.06)
    limits = f"refused below {refused}, with a warning below {warned} rows in common"
    assert limits in said


# Trials


def test_a_trial_on_one_machine_is_wide_open_in_words_and_only_there():
    assert permissive_policy(TELCO, spec()).disclosure_max == math.inf
    assert (Policy().disclosure_warn, Policy().disclosure_max) == (0.06, 0.15)
    assert "wide open (.inf)" in WIDE_OPEN
    assert all(line.startswith("# ") for line in WIDE_OPEN.splitlines())


def test_the_credit_jobs_of_the_benchmarks_stay_below_the_limit():
    equations = 25 * (16 * 2 + 31)  # 25 trees of depth 5
    assert Policy().judge_sums(equations / 105_000, 0.0) is False  # give_credit, 30 % held out
    assert Policy().judge_sums(equations / 21_000, 0.0) is True  # default_credit: 0.075
    assert np.ceil(equations / Policy().disclosure_max) == 10_500
