"""Upkeep beside jobs: figures for Prometheus, traces, logs as JSON, deletion by users, owners."""

import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import pytest
import yaml
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from prometheus_client.parser import text_string_to_metric_families

from fedboost.runtime.cluster.cluster import _free_ports
from fedboost.runtime.cluster.local import COORDINATOR
from tests.e2e import world

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("upkeep")]
PARTIES = ("bank", "telco")
JOB = world.job(hosts=("telco",))


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """What an owner's collector has taken."""

    def __init__(self):
        self.taken = []
        self.server = grpc.server(ThreadPoolExecutor(1))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def Export(self, request, context):  # noqa: N802  gRPC's own name
        self.taken.append(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    @property
    def spans(self):
        """Every span so far."""
        scopes = (scope for one in self.taken for of in one.resource_spans
                  for scope in of.scope_spans)  # fmt: skip
        return [span for scope in scopes for span in scope.spans]

    @property
    def names(self):
        """Whose spans they are."""
        of = (of.resource for one in self.taken for of in one.resource_spans)
        return {
            a.value.string_value for one in of for a in one.attributes if a.key == "service.name"
        }


@pytest.fixture(scope="module")
def collectors():
    made = {name: Collector() for name in (COORDINATOR, *PARTIES)}
    yield made
    for one in made.values():
        one.server.stop(None)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, collectors):
    folder = tmp_path_factory.mktemp("upkeep")
    sources = {
        name: world.write(folder / f"{name}.parquet", world.toy(label=name == "bank"))
        for name in PARTIES
    }
    made = world.WarmCluster(folder / "c", world.spec(JOB), sources, timers=world.TIMERS, workers=1)
    for name, port in zip((COORDINATOR, *PARTIES), _free_ports(3), strict=True):
        more = {"metrics": {"listen": f"127.0.0.1:{port}"}, "logs": "json"}
        more["traces"] = {"endpoint": f"http://127.0.0.1:{collectors[name].port}"}
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


def of_job(collectors, name, said=lambda span: True):
    """The spans of the first trace whose job is over, once there is one that `said` accepts."""
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        jobs = [span for span in collectors[COORDINATOR].spans if span.name == "job"]
        found = [s for s in collectors[name].spans if jobs and s.trace_id == jobs[0].trace_id]
        if any(map(said, found)):
            return found
        time.sleep(0.1)
    raise AssertionError(f"{name}: {[span.name for span in collectors[name].spans]}")


def attributes(span):
    """A span's attributes as Python's values."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def test_a_job_is_a_trace_and_a_party_s_step_a_span_below_it(cluster, finished, collectors):
    leading = of_job(collectors, COORDINATOR)
    by_id = {span.span_id: span for span in leading}
    [job] = [span for span in leading if not span.parent_span_id]
    assert attributes(job) == {"fedboost.attempt": 1}
    assert {span.name for span in leading} >= {"stage align", "stage secureboost", "round 1"}
    logged = {one["message"] for one in lines(cluster, COORDINATOR)}
    assert f"the attempt's trace is {job.trace_id.hex()}" in logged
    for name, role in zip(PARTIES, ("guest", "host"), strict=True):
        spans = of_job(collectors, name, lambda span: span.name == "finish")
        steps = [span for span in spans if "fedboost.step" in attributes(span)]
        named = "sum_candidates" if role == "host" else "choose_splits"
        assert sum(span.name == named for span in steps) >= 2
        numbers = [(attributes(s)["fedboost.stage"], attributes(s)["fedboost.step.number"])
                   for s in steps]  # fmt: skip
        assert len(set(numbers)) == len(numbers)
        for span in steps:
            path = [by_id[span.parent_span_id]]
            while path[-1].parent_span_id:
                path.append(by_id[path[-1].parent_span_id])
            assert path[-1] == job
            said = attributes(span)
            assert f"stage {said['fedboost.stage']}" in {one.name for one in path}
            assert said["fedboost.party.role"] == role
            assert span.end_time_unix_nano >= span.start_time_unix_nano
        sent = sum(attributes(span)["fedboost.bytes_sent"] for span in steps)
        [peer] = {*PARTIES} - {name}
        assert sent == finished["bytes"][f"{name}->{peer}"]


def test_a_span_names_its_owner_s_daemon_and_nothing_of_job_or_table(cluster, finished, collectors):
    may = {"fedboost.attempt", "fedboost.stage", "fedboost.step", "fedboost.step.number",
           "fedboost.party.role", "fedboost.cpu_seconds", "fedboost.bytes_sent",
           "error.type"}  # fmt: skip
    for name, collector in collectors.items():
        of_job(collectors, name)
        assert collector.names == {name}
        assert {key for span in collector.spans for key in attributes(span)} <= may
        assert not any(span.events or span.links or span.status.message for span in collector.spans)
        text = b"".join(one.SerializeToString() for one in collector.taken)
        for private in (finished["job"], str(cluster.folder)):
            assert private.encode() not in text
        # Names as short as these may stand in numbers of spans, which are drawn at random.
        words = {str(word) for s in collector.spans for word in (s.name, *attributes(s).values())}
        for private in ("e2e", "p17", "x0"):
            assert not any(private in word for word in words)


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


def test_a_job_and_what_parties_keep_of_it_are_deleted_while_daemons_run(
    cluster, finished, collectors
):
    running = world.submit(
        cluster, world.echo(hosts=("telco",), rounds=1000, parts=8, numbers=5000)
    )
    world.watch(cluster, running, lambda event: event.WhichOneof("what") == "round")
    for refused in (
        world.ask(cluster, "job", "delete", running, "--yes"),
        world.owner(cluster, "telco", "forget", running, "--yes"),
    ):
        assert refused.code == 1, refused.err
        assert "the job is running; only ended jobs can be deleted" in refused.err
    world.call(cluster, "cancel", running)
    ends = time.monotonic() + 10
    while not (marked := [s for s in collectors[COORDINATOR].spans if s.status.code]):
        assert time.monotonic() < ends
        time.sleep(0.1)
    assert marked[0].status == Status(code=Status.STATUS_CODE_ERROR)
    assert attributes(marked[0]) == {"fedboost.attempt": 1, "error.type": "job"}
    id_ = finished["job"]
    said = world.owner(cluster, "telco", "forget", id_, "--yes", "--json")
    assert (said.code, said.last) == (0, {"deleted": id_, "keeps_model": False})
    assert [p for p in cluster.store("telco").rglob(f"*{id_}*")] == []
    assert (cluster.store("bank") / "models" / id_).exists()
    verified = world.fedboost("ledger", "verify", "--config", cluster.config("telco"))
    assert verified.code == 0, verified.err
    assert world.ask(cluster, "job", "delete", id_, "--yes").out == f"deleted {id_}\n"
    listed = world.ask(cluster, "job", "list", "--json").last["jobs"]
    assert id_ not in [job["id"] for job in listed]
    assert figures(cluster, "telco")["fedboost_disclosed_sums", "data", "bank"] > 0
