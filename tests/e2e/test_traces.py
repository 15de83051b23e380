"""A job is one trace over all daemons at a collector, a step a span, and nothing else is told."""

from __future__ import annotations

import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from fedboost.data.sources import SourceSpec
from fedboost.errors import ConfigError
from fedboost.runtime.cluster.local import COORDINATOR
from fedboost.runtime.config.daemons import Traces
from fedboost.runtime.process import tracing
from fedboost.settings import parse
from tests.e2e import world

pytestmark = pytest.mark.e2e
otlp: Any = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
services: Any = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc")
JOB = world.job(hosts=("telco",), params={"n_estimators": 2})


class Collector:
    """A receiver of OTLP that keeps what comes, by service."""

    def __init__(self):
        self.spans, self.address = [], ""

    def take_in(self, request, _):
        """See `Export` of OTLP."""
        for one in request.resource_spans:
            about = {own.key: own.value.string_value for own in one.resource.attributes}
            assert set(about) == {"service.name"}
            for scope in one.scope_spans:
                self.spans += [(about["service.name"], span) for span in scope.spans]
        return otlp.ExportTraceServiceResponse()

    Export = take_in


@pytest.fixture
def collector():
    server = grpc.server(ThreadPoolExecutor(2))
    found = Collector()
    services.add_TraceServiceServicer_to_server(found, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    found.address = f"http://127.0.0.1:{port}"
    yield found
    server.stop(None).wait()


def test_a_job_is_one_trace_across_daemons_and_tells_no_names(collector, tmp_path):
    tables = {}
    for name in ("bank", "telco"):
        path = tmp_path / f"{name}.parquet"
        world.write(path, world.toy(rows=100, label=name == "bank"))
        tables[name] = SourceSpec(path=str(path))
    made = world.WarmCluster(
        tmp_path / "c", world.spec(JOB), tables, timers=world.TIMERS, workers=1
    )
    for name in (COORDINATOR, "bank", "telco"):
        world.edit(made, name, lambda raw: raw.update(traces={"endpoint": collector.address}))
    with made as cluster:
        id_ = world.submit(cluster, JOB)
        world.watch(cluster, id_)
        for name in (COORDINATOR, "bank", "telco"):  # the last spans leave where a daemon ends
            cluster.processes[name].send_signal(signal.SIGTERM)
            cluster.processes[name].wait(20)
    spans = collector.spans
    [job] = [span for _, span in spans if span.name == "job secureboost"]
    stages = [span for _, span in spans if span.name.startswith("stage ")]
    assert {span.name for span in stages} == {"stage align", "stage secureboost"}
    assert {span.parent_span_id for span in stages} == {job.span_id}
    assert {span.trace_id for _, span in spans} == {job.trace_id}
    steps = {span.name: span for own, span in spans if own == "fedboost-party"}
    assert {"align blind_ids", "secureboost open_layer"} <= set(steps)
    by_name = {span.name: span.span_id for span in stages}
    assert all(
        span.parent_span_id == by_name[f"stage {name.split()[0]}"] for name, span in steps.items()
    )
    told = b"".join(span.SerializeToString() for _, span in spans)
    assert not any(span.attributes or span.events or span.status.message for _, span in spans)
    for secret in (id_, "bank", "telco", COORDINATOR):
        assert secret.encode() not in told


def test_without_the_setting_no_trace_goes_along(monkeypatch):
    assert tracing.carried() == ()
    tracing.take_up({tracing.KEY: "x"})
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match="not installed"):
        tracing.set_up("http://127.0.0.1:1", "x")


@pytest.mark.parametrize("address", ["http://collector.example:4317", "127.0.0.1:4317"])
def test_spans_go_to_this_machine_or_by_tls(address):
    with pytest.raises(ConfigError, match="neither an https address"):
        parse(Traces, {"endpoint": address})
