"""Traces by OpenTelemetry, where the owner wants them: a job is a trace, a step a span.

Off unless `set_up` is called; nothing is imported then. Names of protocols and steps leave, and how
long they took; no name, id or figure of anybody. The trace's own number is drawn at random.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fedboost.errors import ConfigError

KEY = "traceparent"  # W3C Trace Context, in gRPC's metadata

_tracer: Any = None


def set_up(endpoint: str, service: str) -> Callable[[], None]:
    """Send spans to an OTLP collector by gRPC from now on; return what sends the last ones.

    A ConfigError where the extra `otel` is not installed.
    """
    global _tracer
    try:
        sdk = importlib.import_module("opentelemetry.sdk.trace")
        resources = importlib.import_module("opentelemetry.sdk.resources")
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.grpc.trace_exporter")
    except ImportError:
        raise ConfigError(
            "traces need packages that are not installed",
            todo="pip install 'fedboost[otel]'",
            key="traces",
        ) from None
    exporter = otlp.OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http:"))
    provider = sdk.TracerProvider(
        resource=resources.Resource({"service.name": service}), shutdown_on_exit=False
    )
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    _tracer = provider.get_tracer("fedboost")

    def close() -> None:
        global _tracer
        _tracer = None
        provider.shutdown()

    return close


@contextmanager
def span(name: str) -> Iterator[None]:
    """Inside, what this task does is one span; no text of an error goes into it."""
    if _tracer is None:
        yield
        return
    with _tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False):
        yield


def follow(name: str, task: asyncio.Future[Any]) -> None:
    """Have a span end when a task does, from now on."""
    if _tracer is not None:
        own = _tracer.start_span(name)
        task.add_done_callback(lambda _: own.end())


def carried() -> tuple[tuple[str, str], ...]:
    """Return what goes along with a call, so that the other end goes on with the trace."""
    if _tracer is None:
        return ()
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    return ((KEY, carrier[KEY]),) if KEY in carrier else ()


def take_up(metadata: Sequence[tuple[str, str | bytes]] | Mapping[str, Any] | None) -> None:
    """Go on, in this task, with the trace of whoever calls, if it has one."""
    if _tracer is None:
        return
    said = dict(metadata or ()).get(KEY)
    if isinstance(said, str):
        context = importlib.import_module("opentelemetry.context")
        context.attach(_propagator().extract({KEY: said}))


def _propagator() -> Any:
    module = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
    return module.TraceContextTextMapPropagator()
