"""Whole jobs of vertical FederBoost: what they leave and tell, used again, broken and refused."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from fedboost.core import objectives
from fedboost.data.ids import encode_ids
from fedboost.ground import wire
from fedboost.ground.errors import ConfigError, DataError, PolicyError
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial
from fedboost.model import shards
from fedboost.protocols.federboost_vertical import guest as training
from fedboost.protocols.federboost_vertical.params import FederBoostVerticalParams
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.transport import faults
from tests.equivalence.test_secureboost_pooled import assert_same_trees
from tests.equivalence.test_secureboost_whole_jobs import arrow_tables
from tests.equivalence.test_warm_start_jobs import assert_same_model
from tests.equivalence.test_warm_start_jobs import scores as scores_of
from tests.support.federated import GUEST, HOSTS, job_spec, now, run_job, run_jobs
from tests.support.federboost_jobs import again_of, open_job, pooled, room_of, spec_of
from tests.support.secureboost_jobs import CLASSES, flat, in_canonical_order
from tests.support.whole_jobs import breaking, resumed, written

PARTIES = (GUEST, *HOSTS[:2])
TELCO = HOSTS[0]
ROWS = 120
MORE = {"n_estimators": 4, "max_depth": 4, "learning_rate": 0.5}


def job_of(**params):
    return open_job({"n_estimators": 2, "max_depth": 2, **params}, (2, 2, 3), ROWS, weighted=True)


def finished(journals):
    for done in journals:
        assert done.state == "finished", done.error.lines()
    return journals


def from_hosts(done):
    """Bytes that hosts have sent in a job."""
    links = done.result["bytes"].items()
    return {link: count for link, count in links if link.partition("->")[0] != GUEST and count}


@pytest.mark.parametrize("params", [{}, CLASSES], ids=["binary", "classes"])
def test_a_whole_job_trains_and_predicts_as_one_table(tmp_path, params):
    job = job_of(**params)
    specs = [
        spec_of(job),
        lambda done: job_spec("predict", PARTIES, params={"model": done.result["model"]}),
    ]
    done, scored = finished(now(run_jobs(tmp_path / "job", arrow_tables(job), specs)))
    expected = pooled(in_canonical_order(job))
    assert_same_trees(done.shards, flat(expected.rounds), job.widths)
    ids, found = scores_of(scored)
    order = np.argsort(encode_ids([pa.chunked_array([ids])], ["id"]))
    margin = np.empty((ROWS, found.shape[1]))
    out = in_canonical_order(job).out
    margin[~out], margin[out] = expected.margin["train"], expected.margin["validation"]
    assert found[order].tobytes() == objectives.transform(job.own.objective, margin).tobytes()


@pytest.mark.parametrize(("epsilon", "moved"), [(4.0, 7 / (np.exp(4) + 7)), (None, 0.0)])
def test_the_result_says_what_hosts_disclosed(tmp_path, epsilon, moved):
    job = job_of(epsilon=epsilon, n_estimators=5)
    for values in job.columns.values():
        np.nan_to_num(values, copy=False)  # so that every column has 8 buckets
    (done,) = finished([run_job(tmp_path / "job", arrow_tables(job), spec_of(job))])
    told = done.result["privacy"]
    assert list(told) == list(HOSTS[:2])
    for host, columns in zip(HOSTS, (2, 3), strict=False):
        assert told[host]["epsilon_element"] == epsilon
        assert told[host]["epsilon_row"] == (None if epsilon is None else columns * epsilon)
        assert told[host]["moved"] == pytest.approx(moved)
    assert done.result["trees"] == 5
    assert done.result["rows"] == {"aligned": ROWS, "train": 90, "validation": 30}
    assert set(done.result["metrics"]) == {"train", "validation"}
    assert set(from_hosts(done)) >= {f"{host}->{GUEST}" for host in HOSTS[:2]}


def rounds_of(done):
    """The rounds of the training in a journal."""
    events = [e.round for e in done.journal.events if e.WhichOneof("what") == "round"]
    return [one for one in events if one.stage == "federboost-vertical"]


@pytest.mark.parametrize("cells", [1, 1 << 40])
def test_every_tree_is_a_round_of_the_journal_whatever_the_batches(tmp_path, monkeypatch, cells):
    monkeypatch.setattr(training, "STEP_CELLS", cells)
    job = job_of(n_estimators=5)
    (done,) = finished([run_job(tmp_path / "job", arrow_tables(job), spec_of(job))])
    found = rounds_of(done)
    assert [(r.progress.round, r.progress.done, r.progress.of) for r in found] == [
        ("tree", n, 5) for n in range(1, 6)
    ]
    assert all({m.split for m in r.metrics} == {"train", "validation"} for r in found)
    history = done.shards[GUEST].facts["history"]
    for own, seen in zip(found, history, strict=True):
        assert {m.split: m.value for m in own.metrics} == {
            part: measured["logloss"] for part, measured in seen.items()
        }
    assert 0 < done.result["seconds"]["per_tree"] <= done.result["seconds"]["train"]


def test_a_guest_that_keeps_its_metrics_back_still_tells_of_every_tree(place):
    def change(parties):
        node = parties[GUEST]
        policy = node.config.policy.model_copy(update={"tells": ()})
        node.config = node.config.model_copy(update={"policy": policy})

    place.run(place.again(), change=change)
    rounds = [e.round for e in place.journal.events if e.WhichOneof("what") == "round"]
    assert [one.progress.done for one in rounds] == [1, 2, 3]
    assert not any(one.metrics for one in rounds)


# A disclosure used again


@pytest.mark.parametrize("params", [{}, CLASSES], ids=["binary", "classes"])
def test_a_second_job_costs_hosts_nothing_and_is_the_job_it_would_have_been(tmp_path, params):
    job = job_of(**params)
    tables = arrow_tables(job)
    extra = tables[GUEST].slice(0, 25).set_column(0, "id", pa.array(range(ROWS, ROWS + 25)))
    tables[GUEST] = pa.concat_tables([extra, tables[GUEST]])  # rows that no host has
    specs = [spec_of(job), lambda done: again_of(job, done.result["job"], **MORE)]
    first, again = finished(now(run_jobs(tmp_path / "two", tables, specs)))
    (fresh,) = finished([run_job(tmp_path / "one", tables, spec_of(job, **MORE))])
    assert_same_model(again.shards, fresh.shards)
    assert again.result["metrics"] == fresh.result["metrics"]
    assert from_hosts(first)
    assert from_hosts(again) == {}
    for host in HOSTS[:2]:
        assert [row.direction for row in again.ledgers[host]] == ["in"]
    assert again.result["privacy"] == first.result["privacy"]
    assert "align" not in again.result["seconds"]
    assert again.result["rows"] == {
        name: count for name, count in fresh.result["rows"].items() if name != "aligned"
    }


class Place:
    """A folder with the stores of a finished training under noise; more jobs may run on them."""

    def __init__(self, folder):
        self.folder, self.job = folder, job_of(epsilon=2.0, n_estimators=3)
        self.tables = arrow_tables(self.job)
        (self.done,) = finished(now(run_jobs(folder, self.tables, [spec_of(self.job)])))
        self.told = self.done.result["job"]

    def cluster(self, wanted, tables=None):
        """A cluster on the stores, with the training's tables or others."""
        sources = written(self.folder / "now", {**self.tables, **(tables or {})})
        return open_cluster(self.folder / "cluster", wanted, sources, Serial())

    def run(self, wanted, tables=None, change=lambda parties: None):
        """The model of a job, by party; raises what ended it. `sent` is what left meanwhile."""

        async def work():
            async with self.cluster(wanted, tables) as made_of:
                change(made_of.parties)
                journal = await made_of.run(wanted)
                job = journal.status.id
                rows = [r for n in made_of.parties.values() for r in n.ledger.rows(job)]
                return journal, rows

        journal, rows = asyncio.run(work())
        self.journal = journal
        self.sent = [row for row in rows if row.direction == "out"]
        if journal.status.state != "finished":
            raise faults.error_of_fault(journal.status.reason)
        models = {p: self.folder / "cluster" / "var" / p / "models" for p in PARTIES}
        return {
            party: shards.load_shard(where / journal.status.id) for party, where in models.items()
        }

    def again(self, **params):
        """The spec of a job on the disclosure."""
        return again_of(self.job, self.told, **{"n_estimators": 3, **params})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("place") / "first")


def test_the_same_parameters_on_the_same_noise_are_the_same_model(place):
    assert_same_model(place.run(place.again()), place.done.shards)
    other = place.run(place.again(learning_rate=0.9))
    assert other[GUEST].arrays["value"].tobytes() != place.done.shards[GUEST].arrays[
        "value"
    ].tobytes()  # fmt: skip


def test_a_result_on_earlier_noise_says_what_that_was(tmp_path):
    job = job_of(epsilon=2.0)
    specs = [
        spec_of(job),
        lambda done: again_of(job, done.result["job"]),
        lambda done: job_spec("predict", PARTIES, params={"model": done.result["model"]}),
    ]
    first, again, scored = finished(now(run_jobs(tmp_path / "job", arrow_tables(job), specs)))
    assert again.result["privacy"] == first.result["privacy"]
    assert again.result["privacy"][TELCO]["epsilon_element"] == 2.0
    assert len(scores_of(scored)[0]) == ROWS


def test_rows_are_found_again_in_another_order_and_among_others(place):
    table = place.tables[GUEST]
    more = table.slice(0, 40).set_column(0, "id", pa.array(range(5000, 5040)))
    order = np.random.default_rng(5).permutation(ROWS + 40)
    moved = pa.concat_tables([more, table]).take(pa.array(order))
    assert_same_model(place.run(place.again(), {GUEST: moved}), place.done.shards)


def test_hosts_need_no_row_of_their_tables_any_more(place):
    short = {host: place.tables[host].slice(0, 3) for host in HOSTS[:2]}
    assert_same_model(place.run(place.again(), short), place.done.shards)


def test_a_table_that_lacks_rows_is_refused(place):
    with pytest.raises(DataError, match=f"lacks 7 of the {ROWS} rows") as refused:
        place.run(place.again(), {GUEST: place.tables[GUEST].slice(7)})
    assert refused.value.where["party"] == GUEST
    assert place.sent == []


def test_a_job_that_disclosed_nothing_cannot_be_used_again(place):
    for absent in ("never-was", "x"):
        with pytest.raises(ConfigError, match=f"no disclosure of the job {absent}"):
            place.run(again_of(place.job, absent))
        assert place.sent == []


def test_a_job_that_used_a_disclosure_again_leaves_none_itself(place):
    model = place.run(place.again())
    with pytest.raises(ConfigError, match="no disclosure of"):
        place.run(again_of(place.job, model[GUEST].facts["job"]))


@pytest.mark.parametrize("parties", [(GUEST, HOSTS[1], HOSTS[0]), (GUEST, HOSTS[0])], ids=str)
def test_other_parties_cannot_use_it_again(place, parties):
    job = replace(place.job, columns={party: place.job.columns[party] for party in parties})
    with pytest.raises(ConfigError, match="was federboost-vertical of") as refused:
        place.run(again_of(job, place.told))
    assert "hosts in the same order" in (refused.value.todo or "")
    assert place.sent == []


def test_a_disclosure_of_another_protocol_is_refused(tmp_path):
    own = Place(tmp_path / "own")
    for party in PARTIES:
        file = own.folder / "cluster" / "var" / party / "disclosures" / own.told / shards.FACTS
        facts = json.loads(file.read_text().replace("federboost-vertical", "federboost-horizontal"))
        del facts["sha256"]
        file.write_text(json.dumps({**facts, "sha256": shards.digest(facts)}))
    with pytest.raises(ConfigError, match="was federboost-horizontal of bank"):
        own.run(own.again())
    assert own.sent == []


@pytest.mark.parametrize(
    "said", [{"buckets": 16}, {"epsilon": 4.0}, {"epsilon": None}, {"public_cuts": {}}], ids=str
)
def test_what_the_earlier_job_settled_cannot_be_said_again(said):
    parse_settings(FederBoostVerticalParams, {"reuse": "job-1", "max_bin": 16})
    with pytest.raises(ConfigError, match="was settled by the job in reuse"):
        parse_settings(FederBoostVerticalParams, {"reuse": "job-1", **said})


# Breaks


@pytest.mark.parametrize("step", ["receive_buckets", "grow_trees", "close_model"])
async def test_a_break_loses_nothing_and_hosts_tell_the_same_again(tmp_path, monkeypatch, step):
    monkeypatch.setattr(training, "STEP_CELLS", 1)
    job = job_of(epsilon=1.0, n_estimators=4)
    breaking(monkeypatch, training, step, 3 if step == "grow_trees" else 1)
    spec = spec_of(job)
    sources = written(tmp_path, arrow_tables(job))
    async with open_cluster(tmp_path / "cluster", spec, sources, Serial()) as made_of:
        journal = await resumed(made_of, spec)
        again = await made_of.run(again_of(job, journal.status.id))
        rows = {p: made_of.parties[p].ledger.rows(journal.status.id) for p in PARTIES}
    assert journal.status.state == again.status.state == "finished"
    for host in HOSTS[:2]:
        told = [row.sha256 for row in rows[host] if row.step == "send_buckets"]
        assert len(told) == 2
        assert len(set(told)) == 1  # the noise was not drawn again
        models = tmp_path / "cluster" / "var" / host / "models"
        found, other = (shards.load_shard(models / j.status.id) for j in (journal, again))
        for name, array in other.arrays.items():
            assert found.arrays[name].tobytes() == array.tobytes()


def test_another_job_draws_other_noise(tmp_path):
    job = job_of(epsilon=1.0)
    jobs = finished(now(run_jobs(tmp_path / "job", arrow_tables(job), [spec_of(job)] * 2)))
    told = {
        row.sha256 for done in jobs for row in done.ledgers[TELCO] if row.step == "send_buckets"
    }
    assert len(told) == 2


# What a host's policy bounds


def limits(**rules):
    """Gives telco, which has two columns, other rules on disclosure."""

    def change(parties):
        node = parties[TELCO]
        policy = node.config.policy.model_copy(update=rules)
        node.config = node.config.model_copy(update={"policy": policy})
        node.judge.config = node.config

    return change


ELEMENT, ROW = "policy.epsilon_element_max", "policy.epsilon_row_max"
DENIED = {
    "no word on values": ({"epsilon_element_max": None}, 0.1, ELEMENT),
    "no word on rows": ({"epsilon_row_max": None}, 0.1, ROW),
    "a value": ({"epsilon_element_max": 1.9}, 2.0, ELEMENT),
    "a row": ({"epsilon_element_max": 2.0, "epsilon_row_max": 3.9}, 2.0, ROW),
    "no noise": ({"epsilon_element_max": 100.0}, None, ELEMENT),
    "no noise in rows": ({"epsilon_row_max": 100.0}, None, ROW),
}


@pytest.mark.parametrize(("rules", "epsilon", "key"), DENIED.values(), ids=DENIED)
def test_a_host_refuses_to_disclose_more_than_its_policy_allows(place, rules, epsilon, key):
    with pytest.raises(PolicyError) as refused:
        place.run(spec_of(place.job, epsilon=epsilon), change=limits(**rules))
    assert refused.value.where == {"key": key, "party": TELCO}
    assert refused.value.exit_code == 4
    assert place.sent == []


def test_a_host_discloses_what_its_policy_allows_and_no_more_is_asked_of_a_reuse(place):
    # Two columns, and the place's own training has told as much before.
    with pytest.raises(PolicyError, match="earlier jobs have disclosed epsilon 4") as refused:
        place.run(spec_of(place.job), change=limits(epsilon_row_max=7.9))
    assert refused.value.where == {"key": ROW, "party": TELCO}
    assert place.sent == []
    place.run(spec_of(place.job), change=limits(epsilon_element_max=2.0, epsilon_row_max=8.0))
    place.run(place.again(), change=limits(epsilon_element_max=None, epsilon_row_max=None))
    assert {row.peer for row in place.sent} == set(HOSTS[:2])


def test_the_guests_own_policy_bounds_nothing_that_others_disclose(place):
    def change(parties):
        node = parties[GUEST]
        rules = {"epsilon_element_max": None, "epsilon_row_max": None}
        policy = node.config.policy.model_copy(update=rules)
        node.config = node.config.model_copy(update={"policy": policy})
        node.judge.config = node.config

    place.run(spec_of(place.job), change=change)


def test_more_buckets_than_a_message_holds_are_refused_by_the_host(monkeypatch):
    monkeypatch.setattr(wire, "MESSAGE_BYTES_MAX", 100)
    room = room_of(job_of())
    with pytest.raises(DataError, match="exceed a message"):
        now(room.walk())
    assert room.posted == []
