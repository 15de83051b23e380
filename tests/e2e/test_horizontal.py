"""Real daemons add up what none of them shows: one model for all, whoever dies on the way."""

import json
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from fedboost.model import shards
from fedboost.runtime.ledger.ledger import Ledger
from tests.e2e import world

pytestmark = pytest.mark.e2e
EIGHT = [f"clinic{number}" for number in range(8)]
FOUR = ["bank", "telco", "shop", "mill"]
SUM = "sum"
ROWS = 569
OWN = ("party", "role", "job", "created")  # what tells the shards of two parties, or jobs, apart


def job(parties, aggregator=SUM, **params):
    """A horizontal job of these parties."""
    return {
        "name": "clinics",
        "protocol": "federboost-horizontal",
        "parties": {"guest": parties[0], "hosts": parties[1:], "aggregator": aggregator},
        "data": {party: {"dataset": "data", "label": "y"} for party in parties},
        "validation": {"fraction": 0.25, "seed": 7},
        "params": {
            "n_estimators": 4,
            "max_depth": 3,
            "max_bin": 4,
            "eval_metric": ["logloss", "auc"],
            **params,
        },
    }


def dealt(pooled, folder, parties):
    """A pooled table dealt by rows, unevenly; a file for each party."""
    table = pq.read_table(pooled)
    weights = np.arange(1, len(parties) + 1) + 6
    ends = [0, *(np.cumsum(weights) * len(table) // weights.sum()).tolist()]
    return {
        party: world.write(folder / f"{party}.parquet", table.slice(start, end - start))
        for party, start, end in zip(parties, ends, ends[1:], strict=False)
    }


def shard(folder, party, id_):
    """A party's model without what is its own."""
    found = shards.load_shard(folder / "var" / party / "models" / id_)
    return {k: v for k, v in found.facts.items() if k not in OWN}, dict(found.arrays)


def assert_equal(one, other):
    assert one[0] == other[0]
    assert one[1].keys() == other[1].keys()
    for name, array in one[1].items():
        np.testing.assert_array_equal(array, other[1][name], strict=True)


def assert_one_model(folder, parties, id_):
    """All parties hold the same; gives it."""
    first = shard(folder, parties[0], id_)
    for party in parties[1:]:
        assert_equal(first, shard(folder, party, id_))
    return first


def rows_of(cluster, party, id_):
    """A party's ledger of a job; it proves itself whole."""
    ledger = Ledger(cluster.store(party) / "store.sqlite", read_only=True)
    try:
        ledger.verify()
        return ledger.rows(id_)
    finally:
        ledger.close()


def links(cluster, id_, direction):
    """(sender, receiver, kind, hash) of all that left or came, sorted."""
    found = []
    for party in cluster.names:
        for row in rows_of(cluster, party, id_):
            ends = (party, row.peer) if row.direction == "out" else (row.peer, party)
            if row.direction == direction:
                found.append((*ends, row.kind, row.sha256, row.bytes))
    return sorted(found)


def simulated(folder, raw, sources):
    """The same job in one process: its result and the guest's shard."""
    file = world.job_file(folder, raw)
    data = [w for party, source in sources.items() for w in ("--data", f"{party}={source.path}")]
    said = world.fedboost("simulate", file, *data, "--dir", folder / "alone", "--json")
    assert said.code == 0, said.err
    return said.last, assert_one_model(folder / "alone", list(sources), said.last["model"])


# Whole jobs


@world.JOBS
@pytest.mark.parametrize(
    ("parties", "aggregator", "mode"),
    [(FOUR[:3], SUM, "wait"), (FOUR[:3], "bank", "continue"), (EIGHT, SUM, "wait")],
    ids=["apart", "guest", "eight"],
)
def test_daemons_come_to_the_model_of_one_process(tmp_path, data_file, parties, aggregator, mode):
    sources = dealt(data_file("breast.parquet"), tmp_path, parties)
    raw = job(parties, aggregator, dropout=mode)
    alone, model = simulated(tmp_path, raw, sources)
    with world.WarmCluster(tmp_path / "c", world.spec(raw), sources, workers=1) as cluster:
        result = world.result(world.run(cluster, raw))
        id_ = result["job"]
        assert_equal(assert_one_model(tmp_path / "c", parties, id_), model)
        for key in ("rows", "metrics", "trees"):  # exchanges depend on how many trees a call takes
            assert result[key] == alone[key]
        assert sum(result["rows"].values()) == ROWS
        assert set(result["cpu_seconds"]) == {*parties, aggregator}
        out, came = links(cluster, id_, "out"), links(cluster, id_, "in")
        assert out == came
        sent: dict[str, int] = {}
        for one, other, _, _, size in out:
            sent[f"{one}->{other}"] = sent.get(f"{one}->{other}", 0) + size
        assert sent == result["bytes"]
        kinds = {kind for *_, kind, _, _ in out}
        assert ("DealtShares" in str(kinds)) == (mode == "continue")
        kept = json.loads((cluster.store(parties[0]) / "jobs" / id_ / "result.json").read_text())
        assert kept == {**result, "report": kept["report"]}
        assert "lost" not in kept
        assert world.tracebacks(cluster) == []


# Kills

together = pytest.mark.xdist_group("clinics")  # one cluster for all
QUIET_S = 8.0  # what the rest of a job may take, but for the time that a lost host gets
WAITS = job(FOUR, n_estimators=40, quantile_tolerance=0)
GOES_ON = job(FOUR, n_estimators=40, dropout="continue")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, data_file):
    """Four parties that boost, and one that adds up."""
    folder = tmp_path_factory.mktemp("clinics")
    sources = dealt(data_file("breast.parquet"), folder, FOUR)
    made = world.WarmCluster(
        folder / "c", world.spec(WAITS), sources, timers=world.TIMERS, workers=1
    )
    with made:
        yield made
        assert world.tracebacks(made) == []


@pytest.fixture(scope="module")
def undisturbed(cluster):
    """The model of the job that nobody disturbed."""
    id_ = world.result(world.run(cluster, WAITS))["job"]
    return assert_one_model(cluster.folder, FOUR, id_)


def killed(cluster, raw, party, until):
    """Submits a job and kills `party` at an event; gives the job, the event's number and when."""
    id_ = world.submit(cluster, raw)
    events = world.watch(cluster, id_, until)
    assert until(events[-1]), "the job ended before anybody was killed"
    cluster.kill(party)
    return id_, events[-1].number, time.monotonic()


def did(step, times=1):
    """True from the time on that a step has been done so often."""
    seen = 0

    def check(event):
        nonlocal seen
        seen += event.WhichOneof("what") == "step" and event.step.step == step
        return seen >= times

    return check


def back(cluster, party):
    cluster.start(party)
    cluster.wait(party)


@together
@world.KILLS
@pytest.mark.parametrize(
    ("party", "until"),
    [
        ("shop", did("count_below")),
        ("shop", did("sum_histograms", 3)),
        (SUM, did("sum_histograms", 3)),
    ],
    ids=["host-quantiles", "host-trees", "aggregator"],
)
def test_a_killed_party_is_waited_for_and_the_model_is_the_same(cluster, undisturbed, party, until):
    id_, after, when = killed(cluster, WAITS, party, until)
    assert world.watch(cluster, id_, after=after)[-1].state.state == "paused"
    assert time.monotonic() - when < world.SHOWN_S
    status = world.call(cluster, "status", id_)
    assert party in status.reason.what
    assert [waiting.party for waiting in status.waiting] == [party]
    back(cluster, party)
    result = world.result(world.gone_on(cluster, id_))
    assert "lost" not in result
    assert_equal(assert_one_model(cluster.folder, FOUR, id_), undisturbed)


@world.JOBS
@together
def test_an_aggregator_without_tables_passes_the_doctor(cluster, undisturbed):
    said = world.fedboost("doctor", "--config", cluster.config(SUM), "--json")
    assert said.code == 0, said.out
    assert yaml.safe_load(cluster.config(SUM).read_text())["datasets"] == {}


@together
@world.KILLS
@pytest.mark.parametrize(("step", "times"), [("sum_histograms", 3), ("deal_shares", 1)])
def test_a_job_goes_on_without_a_host_that_was_killed(cluster, step, times):
    """All wait for it once, not at every step; it is back for the next job."""
    id_, after, when = killed(cluster, GOES_ON, "shop", did(step, times))
    try:
        assert world.watch(cluster, id_, after=after)[-1].state.state == "finished"
        assert time.monotonic() - when < world.LOST_S + QUIET_S
        result = world.result(world.call(cluster, "journal", id_))
        assert result["lost"] == ["shop"]
        assert result["trees"] == 40
        left = [party for party in FOUR if party != "shop"]
        assert_one_model(cluster.folder, left, id_)
        assert result["metrics"]["train"]["auc"] > 0.98
    finally:
        back(cluster, "shop")

    def forgotten():
        mine = world.owner(cluster, "shop", "jobs", "--json").last["jobs"]
        return next(j for j in mine if j["id"] == id_)["state"] == "cancelled"

    assert world.wait_for(forgotten, QUIET_S, "whoever was lost hears that the job is over")
    assert "lost" not in world.result(world.run(cluster, job(FOUR, n_estimators=1)))
