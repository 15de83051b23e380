"""A daemon's spans for OpenTelemetry: an attempt at a job is a trace, a party's step a span in it.

A coordinator's calls carry their position (W3C ``traceparent``); a party adds its spans below it.
Each daemon sends its own spans to its own owner's collector. The module is loaded only if a
settings file has `traces`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fedboost import protocols
from fedboost.ground.errors import FedboostError
from fedboost.messages.party_pb2 import StepCall, StepReply
from fedboost.runtime.config.daemons import TracesConfig
from fedboost.runtime.transport.identity import CertificateRole, Peer

if TYPE_CHECKING:
    from fedboost.runtime.party.node.node import PartyNode

log = logging.getLogger(__name__)

SEND_S = 5.0  # time limit of the collector; unsent spans are then lost
EVERY_MS = 1000.0  # between two sendings
WORKS = ("begin", "open_stage", "commit", "close_stage", "finish")  # spans of a party, with steps
CALLS = (*WORKS, "run_step", "end_loop", "stop")  # calls of a coordinator that carry their span
PARENT_KEY = "traceparent"
W3C = TraceContextTextMapPropagator()


def trace_metadata() -> tuple[tuple[str, str], ...]:
    """Return the metadata that says where a call stands; empty outside of any span."""
    carrier: dict[str, str] = {}
    W3C.inject(carrier)
    return tuple((key, value) for key, value in carrier.items() if key == PARENT_KEY)


def continue_trace(call: Any) -> None:
    """Take the parent span from a gRPC call's metadata, and nothing else."""
    parent = dict(call.invocation_metadata() or ()).get(PARENT_KEY, "")
    context.attach(W3C.extract({PARENT_KEY: str(parent)}, Context()))


class Traces:
    """Exporter of a daemon's spans."""

    def __init__(self, config: TracesConfig, role: CertificateRole, name: str) -> None:
        self._provider = TracerProvider(
            resource=Resource({"service.namespace": f"fedboost {role}", "service.name": name}),
            shutdown_on_exit=False,
        )
        secure = config.endpoint.startswith("https://")
        sends = OTLPSpanExporter(config.endpoint, insecure=not secure, timeout=SEND_S)
        self._provider.add_span_processor(BatchSpanProcessor(sends, schedule_delay_millis=EVERY_MS))
        self._tracer = self._provider.get_tracer("fedboost")

    def start(self, name: str, parent: Span | None = None, since_s: float = 0.0) -> Span:
        """Start a span that began `since_s` seconds ago, below `parent` or in a new trace."""
        below = trace.set_span_in_context(parent, Context()) if parent is not None else Context()
        began = time.time_ns() - int(since_s * 1e9)
        return self._tracer.start_span(name, below, start_time=began)

    def close(self) -> None:
        """Send the remaining spans; blocks until they are sent."""
        self._provider.shutdown()


def mark_failed(span: Span, code: str) -> None:
    """Mark a span by an error's code alone: its text may hold figures."""
    span.set_attribute("error.type", code)
    span.set_status(StatusCode.ERROR)


class WalkTraces:
    """The coordinator's spans: of each attempt that is under way, of its stage and its round."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._open: dict[tuple[str, int], list[tuple[str, Span]]] = {}  # outermost first

    def trace_calls_of(self, control: Any) -> TracedControl:
        """Return a wrapper of the link to a party whose calls carry their position."""
        return TracedControl(control, self)

    @contextmanager
    def attach_span(self, call: str, request: Any) -> Iterator[None]:
        """Attach the innermost open span to a call."""
        key = request.job, request.attempt
        if call in ("begin", "open_stage", "run_step", "finish"):
            self._move_to_step(key, request)
        spans = self._open.get(key, [])
        if call == "stop" and spans and request.reason.code:
            mark_failed(spans[0][1], request.reason.code)
        token = context.attach(
            trace.set_span_in_context(spans[-1][1], Context()) if spans else Context()
        )
        try:
            yield
        finally:
            context.detach(token)
            if call == "stop" or (call == "finish" and request.HasField("journal")
                                  and request.result):  # fmt: skip
                self._end_spans(key, 0)

    def _move_to_step(self, key: tuple[str, int], request: Any) -> None:
        """End the spans that a call has left, and begin the spans that it has entered."""
        stage, rounds = getattr(request, "stage", ""), getattr(request, "rounds", ())
        path = ["job", *([f"stage {stage}"] if stage else []), *(f"round {n}" for n in rounds[:1])]
        spans = self._open.setdefault(key, [])
        same = 0
        while same < min(len(path), len(spans)) and spans[same][0] == path[same]:
            same += 1
        self._end_spans(key, same)
        spans = self._open.setdefault(key, [])
        for name in path[same:]:
            span = self._traces.start(name, spans[-1][1] if spans else None)
            if not spans:
                log.info("the attempt's trace is %032x", span.get_span_context().trace_id)
                span.set_attribute("fedboost.attempt", key[1])
            spans.append((name, span))

    def _end_spans(self, key: tuple[str, int], keeps: int) -> None:
        spans = self._open.get(key, [])
        while len(spans) > keeps:
            spans.pop()[1].end()
        if not spans:
            self._open.pop(key, None)

    def close(self) -> None:
        """End every span, and send the remaining ones."""
        for key in list(self._open):
            self._end_spans(key, 0)
        self._traces.close()


class TracedControl:
    """The coordinator's link to a party; its calls carry their position."""

    def __init__(self, control: Any, walks: WalkTraces) -> None:
        self._control, self._walks = control, walks

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._control, name)
        if name not in CALLS:
            return method

        async def call_in_span(request: Any, *more: Any) -> Any:
            with self._walks.attach_span(name, request):
                return await method(request, *more)

        return call_in_span


class TracedParty:
    """A party's node with a span for each step of a traced job."""

    def __init__(self, node: PartyNode, shown: Any, traces: Traces) -> None:
        """Wrap a node; `shown` is the node or an existing wrapper of it."""
        self._node, self._shown, self._traces = node, shown, traces
        self._done: dict[str, tuple[int, str, int]] = {}  # the last step of each job, by place

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._shown, name)
        if name not in WORKS:
            return method

        async def call_and_record(caller: Peer, request: Any) -> Any:
            """Call the method, and record a span of its duration."""
            with self._record_error(name, request) as took:
                reply = await method(caller, request)
            self._record_call(name, request, took())
            if name == "finish" and request.result:
                self._done.pop(request.job, None)
            return reply

        return call_and_record

    async def stop(self, caller: Peer, request: Any) -> Any:
        """Stop a job and forget its last step, see `PartyNode`."""
        self._done.pop(request.job, None)
        return await self._shown.stop(caller, request)

    async def run_step(self, caller: Peer, request: StepCall) -> StepReply:
        """Run a step with spans, see `PartyNode`; a repeated answer makes no second span."""
        with self._record_error("run_step", request):
            reply: StepReply = await self._shown.run_step(caller, request)
        last = max((turn.number for turn in request.turns), default=0)
        place = request.attempt, request.stage, last
        if self._done.get(request.job) == place:
            return reply
        self._done[request.job] = place
        left_s = sum(turn.cost.seconds for turn in reply.turns)
        for turn, spent in zip(request.turns, reply.turns, strict=False):
            stage, step = protocols.shown_step(request.stage, turn.step)
            attributes: dict[str, Any] = {
                "fedboost.step": step,
                "fedboost.step.number": turn.number,
                "fedboost.cpu_seconds": spent.cost.cpu_seconds,
                "fedboost.bytes_sent": sum(link.bytes for link in spent.cost.sent),
            }
            self._record_span((step, left_s, spent.cost.seconds), request.job, stage, attributes)
            left_s -= spent.cost.seconds
        return reply

    @contextmanager
    def _record_error(self, call: str, request: Any) -> Iterator[Callable[[], float]]:
        """Make a span of an error in a call; gives the seconds since it began."""
        began = time.monotonic()

        def seconds_taken() -> float:
            return time.monotonic() - began

        try:
            yield seconds_taken
        except FedboostError as error:
            self._record_call(call, request, seconds_taken(), error.code)
            raise

    def _record_call(self, call: str, request: Any, took_s: float, code: str = "") -> None:
        stage = protocols.shown_step(getattr(request, "stage", ""))[0]
        self._record_span((call, took_s, took_s), request.job, stage, {}, code)

    def _record_span(
        self,
        times: tuple[str, float, float],
        job: str,
        stage: str,
        more: dict[str, Any],
        code: str = "",
    ) -> None:
        """Record one span by name, start and duration in seconds."""
        parent = trace.get_current_span()
        if not parent.get_span_context().is_valid:
            return
        name, since_s, took_s = times
        span = self._traces.start(name, parent, since_s)
        if (known := self._node.under_way.get(job)) is not None:
            table = known.signed.table
            more["fedboost.party.role"] = str(table.role_of(self._node.config.name))
        if stage:
            more["fedboost.stage"] = stage
        span.set_attributes(more)
        if code:
            mark_failed(span, code)
        span.end(time.time_ns() - int((since_s - took_s) * 1e9))
