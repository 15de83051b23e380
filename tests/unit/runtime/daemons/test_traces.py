"""What traces need, what calls carry of them; their spans see tests/e2e/test_upkeep.py."""

import sys
from contextvars import copy_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace

from fedboost import protocols
from fedboost.ground.errors import ConfigError
from fedboost.messages.fault_pb2 import Fault
from fedboost.messages.party_pb2 import BeginRequest, StepCall, StopRequest
from fedboost.runtime.config.daemons import CoordinatorConfig, TracesConfig
from fedboost.runtime.daemons import daemon
from fedboost.runtime.daemons.traces import Traces, WalkTraces, continue_trace, trace_metadata
from fedboost.runtime.transport.addresses import PinnedAddress

NOBODY = TracesConfig(endpoint="http://127.0.0.1:9")
PARENT = f"00-{7:032x}-{8:016x}-01"


@pytest.fixture
def walks():
    return WalkTraces(Traces(NOBODY, "coordinator", "coord"))


def coordinator(**more):
    return CoordinatorConfig(
        name="coord",
        listen="127.0.0.1:1",
        store=Path("var"),
        insecure_loopback=True,
        parties={"bank": PinnedAddress(address="127.0.0.1:2")},
        **more,
    )


def test_traces_without_the_extra_are_a_mistake_of_the_settings(monkeypatch):
    monkeypatch.delitem(sys.modules, "fedboost.runtime.daemons.traces")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert daemon._open_traces(coordinator(), "coordinator") is None
    with pytest.raises(ConfigError, match="needs OpenTelemetry, which is not installed") as caught:
        daemon._open_traces(coordinator(traces=NOBODY), "coordinator")
    assert "pip install -e '.[otel]'" in caught.value.todo


def test_a_call_takes_its_place_and_nothing_else_from_its_metadata():
    def take(*metadata):
        continue_trace(SimpleNamespace(invocation_metadata=lambda: metadata))
        return trace.get_current_span().get_span_context()

    def check():
        assert trace_metadata() == ()
        found = take(("traceparent", PARENT), ("tracestate", "who=me"), ("baggage", "a=b"))
        assert (found.trace_id, found.span_id, dict(found.trace_state)) == (7, 8, {})
        assert trace_metadata() == (("traceparent", PARENT),)
        for wrong in (PARENT[:-4], "", "x" * 10_000, f"00-{0:032x}-{8:016x}-01"):
            assert not take(("traceparent", wrong)).is_valid

    copy_context().run(check)


def test_calls_carry_the_innermost_span_in_which_they_stand(walks):
    def carries(call, request):
        with walks.attach_span(call, request):
            [(_, value)] = trace_metadata()
        return value.split("-")[1:3]

    at: Any = {"job": "credit-1a2b3c4d", "attempt": 1}
    begun, job = carries("begin", BeginRequest(**at))
    assert carries("begin", BeginRequest(**at)) == [begun, job]  # of the next party
    steps = [carries("run_step", StepCall(**at, stage="echo", rounds=rounds))
             for rounds in ([], [0], [0, 3], [1])]  # fmt: skip
    assert {one for one, _ in steps} == {begun}
    stage, first, inner, second = (span for _, span in steps)
    assert first == inner
    assert len({job, stage, first, second}) == 4
    assert carries("stop", StopRequest(**at, reason=Fault(code="policy"))) == [begun, second]
    with walks.attach_span("stop", StopRequest(**at)):  # of the next party: the trace is over
        assert trace_metadata() == ()
    assert carries("begin", BeginRequest(**{**at, "attempt": 2}))[0] != begun
    assert trace_metadata() == ()


def test_names_that_no_protocol_has_are_not_shown():
    assert protocols.shown_step("echo") == ("echo", "")
    assert protocols.shown_step("id p17") == ("other", "other")
    assert protocols.shown_step("echo", "id p17") == ("echo", "other")
