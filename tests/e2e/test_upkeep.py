"""Upkeep beside jobs: figures for Prometheus, logs as JSON, deletion by users and by owners."""

import json
import urllib.request
from functools import partial

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fedboost.runtime.cluster.cluster import _free_ports
from fedboost.runtime.cluster.local import COORDINATOR
from tests.e2e import world

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("upkeep")]
PARTIES = ("bank", "telco")
JOB = world.job(hosts=("telco",))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("upkeep")
    sources = {
        name: world.write(folder / f"{name}.parquet", world.toy(label=name == "bank"))
        for name in PARTIES
    }
    made = world.WarmCluster(folder / "c", world.spec(JOB), sources, timers=world.TIMERS, workers=1)
    for name, port in zip((COORDINATOR, *PARTIES), _free_ports(3), strict=True):
        more = {"metrics": {"listen": f"127.0.0.1:{port}"}, "logs": "json"}
        world.edit(made, name, partial(dict.update, **more))
    with made:
        yield made
        assert world.tracebacks(made) == []


def figures(cluster, name):
    """Every number that a daemon shows, by name and labels in their alphabetical order."""
    listen = yaml.safe_load(cluster.config(name).read_text())["metrics"]["listen"]
    url = f"http://{listen}/metrics"
    text = urllib.request.urlopen(url, timeout=10).read().decode()
    found = text_string_to_metric_families(text)
    return {(s.name, *s.labels.values()): s.value for one in found for s in one.samples}


def lines(cluster, name):
    """What a daemon has logged, line by line; each has to be an object."""
    return [json.loads(line) for line in cluster.log(name).read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(cluster):
    journal = world.run(cluster, JOB)
    return world.result(journal)


def test_what_daemons_count_is_what_the_job_says_it_cost(cluster, finished):
    leading = figures(cluster, COORDINATOR)
    assert leading["fedboost_jobs", "finished"] == 1
    assert leading["fedboost_job_ends_total", "finished"] == 1
    assert leading["fedboost_rounds_total", "secureboost"] == finished["trees"]
    assert leading["fedboost_step_seconds_count", "secureboost", "choose_splits"] >= 2
    for sender, receiver in (PARTIES, PARTIES[::-1]):
        count = finished["bytes"][f"{sender}->{receiver}"]
        assert leading["fedboost_link_bytes_total", receiver, sender] == count
        own, peer = figures(cluster, sender), figures(cluster, receiver)
        assert own["fedboost_payload_bytes_total", "out", receiver] == count
        assert peer["fedboost_payload_bytes_total", "in", sender] == count
    telco = figures(cluster, "telco")
    passed = sum(v for k, v in telco.items() if k[0] == "fedboost_payloads_total")
    assert telco["fedboost_ledger_rows",] == passed
    assert telco["fedboost_own_step_seconds_count", "secureboost", "sum_candidates"] >= 2
    assert telco["fedboost_checkpoints_total", "secureboost"] >= 1
    assert telco["fedboost_disclosed_sums", "data", "bank"] > 0
    assert telco["process_resident_memory_bytes",] > 1e7


def test_refusals_and_failures_are_counted(cluster, finished):
    before = figures(cluster, "telco")["fedboost_calls_refused_total", "job"]
    said = world.owner(cluster, "telco", "forget", "nothing", "--yes")
    assert said.code == 1
    assert figures(cluster, "telco")["fedboost_calls_refused_total", "job"] == before + 1


def test_every_line_of_a_log_is_an_object_that_says_its_job_and_step(cluster, finished):
    for name in (COORDINATOR, *PARTIES):
        found = lines(cluster, name)
        role = "coordinator" if name == COORDINATOR else "party"
        assert {one["daemon"] for one in found} == {f"{role} {name}"}
        assert all({"time", "level", "logger", "message"} <= one.keys() for one in found)
    warned = [one for one in lines(cluster, "telco") if one["level"] == "warning"]
    assert any(
        (one.get("job"), one.get("stage"), one.get("attempt"), one.get("party"))
        == (finished["job"], "secureboost", 1, "telco")
        for one in warned
    )


def test_a_job_and_what_parties_keep_of_it_are_deleted_while_daemons_run(cluster, finished):
    running = world.submit(
        cluster, world.echo(hosts=("telco",), rounds=1000, parts=8, numbers=5000)
    )
    world.watch(cluster, running, lambda event: event.WhichOneof("what") == "round")
    for refused in (
        world.ask(cluster, "job", "delete", running, "--yes"),
        world.owner(cluster, "telco", "forget", running, "--yes"),
    ):
        assert refused.code == 1, refused.err
        assert "the job is running; only jobs that are over can be deleted" in refused.err
    world.call(cluster, "cancel", running)
    id_ = finished["job"]
    said = world.owner(cluster, "telco", "forget", id_, "--yes", "--json")
    assert (said.code, said.last) == (0, {"deleted": id_, "keeps_model": False})
    assert [p for p in cluster.store("telco").rglob(f"*{id_}*")] == []
    assert (cluster.store("bank") / "models" / id_).exists()
    verified = world.fedboost("ledger", "verify", "--config", cluster.config("telco"))
    assert verified.code == 0, verified.err
    assert world.ask(cluster, "job", "delete", id_, "--yes").out == f"{id_} is deleted\n"
    listed = world.ask(cluster, "job", "list", "--json").last["jobs"]
    assert id_ not in [job["id"] for job in listed]
    assert figures(cluster, "telco")["fedboost_disclosed_sums", "data", "bank"] > 0
