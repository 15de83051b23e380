"""Trials in one process: what they say of themselves, what they use up, and who may rehearse."""

import asyncio
import json

import pytest

from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial
from fedboost.job import JobSpec
from fedboost.report.benefit import rehearsal_lines
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.coordinator.walker import NO_VERDICT
from fedboost.runtime.party.owner import rehearsing
from tests.support import small_jobs
from tests.support.whole_jobs import written

LATTICE = {"encryption": {"scheme": "lattice"}}


def tried(folder, *jobs, name="secureboost", rows=300):
    """The rehearsals of jobs, one after the other on the same tables."""
    sources = written(folder, small_jobs.tables(name, rows))

    async def work():
        async with open_cluster(folder / "c", small_jobs.spec(name), sources, Serial()) as made:
            made.rehearse()
            journals = [await made.run(small_jobs.spec(name, **params)) for params in jobs]
            return [result(one)["rehearsal"] for one in journals]

    return asyncio.run(work())


def result(journal):
    done = [e for e in journal.events if e.WhichOneof("what") == "finished"]
    return json.loads(done[-1].finished.result)


def test_a_refused_trial_names_a_change_that_is_accepted(tmp_path):
    (first,) = tried(tmp_path / "1", {**LATTICE, "n_estimators": 5})
    assert first["refused_by"].endswith(": disclosure_max")
    assert first["jobs_left"] == 0
    key, value = first["change"].split(": ")
    (other,) = tried(tmp_path / "2", {**LATTICE, "n_estimators": 5, key: int(value)})
    assert (other["accepted"], other["change"]) == (True, None)


def test_fewer_trees_cost_what_the_trial_has_measured(tmp_path):
    few = {**LATTICE, "max_depth": 1}
    (whole,) = tried(tmp_path / "1", {**few, "n_estimators": 24})
    assert whole["change"].startswith("n_estimators: ")
    assert "as measured" in whole["cost"]
    trees = int(whole["change"].split(": ")[1])
    (less,) = tried(tmp_path / "2", {**few, "n_estimators": trees})
    assert less["accepted"]
    assert whole["cost"].startswith(f"auc {less['federated']:.4f}")


def test_accepted_trials_use_the_budget_and_refused_ones_none(tmp_path):
    small, large = {**LATTICE, "n_estimators": 1}, {**LATTICE, "max_depth": 6}
    found = tried(tmp_path, small, large, small, small, small, small)
    left = found[0]["jobs_left"]
    assert 0 < left < 4
    assert not found[1]["accepted"]
    assert all(0.0 < share <= 1.0 for share in found[0]["placed"].values())
    assert sorted(found[0]["placed"]) == sorted(small_jobs.PARTIES[1:])
    later = [one["accepted"] for one in found[2:]]
    assert later == [True] * left + [False] * (4 - left)


def test_every_party_of_a_horizontal_job_is_measured_alone(tmp_path):
    (found,) = tried(tmp_path, {}, name="gbun")
    assert found["accepted"]
    assert set(found["alone"]) == set(small_jobs.PARTIES)
    assert found["guest_alone"] == found["alone"][small_jobs.GUEST]
    mean = sum(found["alone"].values()) / 3
    assert rehearsal_lines(found)[0] == f"each party alone, on average: auc {mean:.4f}"


def test_a_trial_ends_with_its_verdict(tmp_path):
    (found,) = tried(tmp_path, {**LATTICE, "n_estimators": 1})
    alone, federated, verdict = rehearsal_lines(found)
    assert alone.startswith("guest alone: auc ")
    assert federated.endswith(
        "(measured without the default group_rows_min of 20, which may change it)"
    )
    left = found["jobs_left"]
    assert verdict == f"With default policies this job is accepted, and {left} more like it."
    (found,) = tried(tmp_path / "large", {**LATTICE, "n_estimators": 5})
    *_, verdict, change = rehearsal_lines(found)
    assert verdict == "With default policies telco would refuse this job (disclosure_max)."
    assert change.startswith("Smallest change that helps: ")


def test_no_smaller_job_is_proposed_where_rows_decide(tmp_path):
    """Rounds were proposed one by one, each of which the same limit refused again."""
    sources = written(tmp_path, small_jobs.tables("secureboost", 300))
    raw = small_jobs.raw("secureboost", **LATTICE, n_estimators=2, max_depth=2)
    few = parse_settings(JobSpec, {**raw, "validation": {"fraction": 0.1, "seed": 7}})

    async def work():
        async with open_cluster(tmp_path / "c", few, sources, Serial()) as made:
            return result(await made.rehearse().run(few))["rehearsal"]

    found = asyncio.run(work())
    assert (found["refused_by"], found["change"]) == ("bank: holdout_rows_min", None)
    assert rehearsal_lines(found)[-1] == "A smaller job does not help: the owner must allow it."


def test_another_table_has_an_account_of_its_own(tmp_path):
    """Each trial's table is called `data`, whichever file it is."""
    spec = small_jobs.spec("secureboost", **LATTICE, n_estimators=2)

    def ran(sources):
        async def work():
            async with open_cluster(tmp_path / "c", spec, sources, Serial()) as made:
                return result(await made.rehearse().run(spec))

        return asyncio.run(work())

    first = written(tmp_path / "a", small_jobs.tables("secureboost", 300))
    other = written(tmp_path / "b", small_jobs.tables("secureboost", 300, seed=2))
    assert not [w for w in ran(first)["warnings"] if "earlier jobs" in w]
    assert not [w for w in ran(other)["warnings"] if "earlier jobs" in w]
    assert [w for w in ran(first)["warnings"] if "earlier jobs" in w]


@pytest.mark.parametrize("method", ["forecast", "cost_function"])
def test_a_rehearsal_that_fails_leaves_the_job_its_model(tmp_path, monkeypatch, caplog, method):
    def failing(*_):
        raise ConfigError("max_depth is 5, guest_depth and host_depth make 4: leave max_depth out")

    monkeypatch.setattr(rehearsing._Trial, method, failing)
    sources = written(tmp_path, small_jobs.tables("hybridtree", 300))
    spec = small_jobs.spec("hybridtree", n_estimators=1)

    async def work():
        async with open_cluster(tmp_path / "c", spec, sources, Serial()) as made:
            return await made.rehearse().run(spec)

    journal = asyncio.run(work())
    assert journal.status.state == "finished"
    assert "rehearsal" not in result(journal)
    assert NO_VERDICT in result(journal)["warnings"]
    assert "the rehearsal failed" in caplog.text


def test_only_a_party_on_one_machine_rehearses(tmp_path):
    raw = {
        "name": "bank", "listen": "127.0.0.1:7001", "store": "var", "rehearses": True,
        "coordinator": {"name": "c", "address": "127.0.0.1:7000"},
        "tls": {"ca": "ca.pem", "cert": "bank.pem", "key": "bank.key"},
    }  # fmt: skip
    assert parse_settings(PartyConfig, raw).rehearses
    raw["peers"] = {"telco": "10.0.0.2:7002"}
    with pytest.raises(ConfigError, match="rehearses is for trials on one machine"):
        parse_settings(PartyConfig, raw)
