"""Metrics of a daemon for Prometheus: counters at events, gauges read from the stored state.

Protocols do not know them. A coordinator counts the entries of its journals; for a party's metrics
see `party_metrics`.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Literal, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    make_wsgi_app,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fedboost import protocols
from fedboost.ground import formats
from fedboost.ground.build_version import build_version
from fedboost.ground.errors import BY_CODE, ConfigError, FedboostError, StoreError
from fedboost.messages.job_pb2 import Event, StepDone, Waiting
from fedboost.protocols import OTHER
from fedboost.runtime.config.daemons import CoordinatorConfig, DaemonConfig
from fedboost.runtime.process.clock import monotonic_s
from fedboost.runtime.store.store import RESTS, JobState, Store
from fedboost.runtime.transport.addresses import split_address
from fedboost.runtime.transport.hosts import OwnHosts
from fedboost.runtime.transport.identity import Identity

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
At: TypeAlias = Literal["every daemon", "coordinator", "party", "relay"]

SECONDS = (0.005, 0.02, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)  # of histograms


@dataclass(frozen=True)
class Family:
    """One metric; counters and histograms grow with events, gauges are read on request."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    says: str
    at: At = "every daemon"


FAMILIES = (
    Family("fedboost_info", "gauge", ("role", "name", "version", "wire_version"),
           "1, with who the daemon is and which version it runs"),
    Family("fedboost_jobs", "gauge", ("state",), "jobs in the daemon's store, by state"),
    Family("fedboost_calls_refused_total", "counter", ("code",),
           "refused calls, by the error's code; policy: by the policy, or who may do what"),
    Family("fedboost_connection_failures_total", "counter", ("peer",),
           "calls to a daemon that did not reach it, or lost it; each try counts"),
    Family("fedboost_certificate_end_timestamp_seconds", "gauge", (),
           "when our certificate ends, in seconds since 1970"),
    Family("fedboost_store_free_bytes", "gauge", (), "free on the disk that holds the store"),
    Family("fedboost_event_loop_lag_seconds", "gauge", (),
           "how long the daemon's event loop took to answer just now; 2: longer than that"),
    Family("fedboost_job_ends_total", "counter", ("state",),
           "how often a job came to rest: finished, failed, cancelled, paused", "coordinator"),
    Family("fedboost_rounds_total", "counter", ("stage",),
           "finished rounds: trees of a training, batches of a prediction", "coordinator"),
    Family("fedboost_stage_seconds", "histogram", ("stage",), "seconds of a whole stage",
           "coordinator"),
    Family("fedboost_step_seconds", "histogram", ("stage", "step"),
           "seconds of a step until the slowest party had done it", "coordinator"),
    Family("fedboost_party_seconds_total", "counter", ("party", "stage"),
           "seconds in steps, waits for others included, as parties say", "coordinator"),
    Family("fedboost_party_cpu_seconds_total", "counter", ("party", "stage"),
           "processor seconds in steps, as parties say", "coordinator"),
    Family("fedboost_link_bytes_total", "counter", ("sender", "receiver"),
           "bytes of payloads from party to party, as parties say", "coordinator"),
    Family("fedboost_parties_lost_total", "counter", ("party",),
           "hosts that a job went on without for good", "coordinator"),
    Family("fedboost_warnings_total", "counter", ("party",),
           "warnings of a job, by the party that they are about", "coordinator"),
    Family("fedboost_waiting_seconds", "gauge", ("party", "reason"),
           "the longest that a job has waited for a party just now: for a step, an approval, "
           "or its return where it is paused", "coordinator"),
    Family("fedboost_own_step_seconds", "histogram", ("stage", "step"),
           "seconds of a step here, waits for peers included", "party"),
    Family("fedboost_own_step_cpu_seconds_total", "counter", ("stage",),
           "processor seconds in steps here, worker processes included", "party"),
    Family("fedboost_payload_bytes_total", "counter", ("direction", "peer"),
           "bytes of payloads that left (out) or came (in), by peer", "party"),
    Family("fedboost_payloads_total", "counter", ("direction", "peer"),
           "payloads that left (out) or came (in), by peer", "party"),
    Family("fedboost_checkpoints_total", "counter", ("stage",), "checkpoints kept here", "party"),
    Family("fedboost_ledger_rows", "gauge", (), "rows of the disclosure ledger", "party"),
    Family("fedboost_disclosed_sums", "gauge", ("dataset", "guest"),
           "sums per bin and row of a data set that disclosure_max counts for a guest, of all jobs",
           "party"),
    Family("fedboost_disclosed_placed", "gauge", ("dataset", "guest"),
           "share of a data set's rows that an attacking guest could have placed, of all jobs",
           "party"),
    Family("fedboost_disclosed_sums_limit", "gauge", ("limit",),
           "the policy's disclosure_warn and disclosure_max, as warn and max", "party"),
    Family("fedboost_disclosed_epsilon_row", "gauge", ("dataset",),
           "epsilon of a row of a data set, over all jobs that told noisy values of it", "party"),
    Family("fedboost_unknown_categories_share", "gauge", ("dataset", "column"),
           "share of a column's values whose category the model does not know, in the last table "
           "to predict since the daemon's start", "party"),
    Family("fedboost_worker_memory_peak_bytes", "gauge", (),
           "peak memory of the worker processes together", "party"),
    Family("fedboost_relay_connected", "gauge", ("member",),
           "1 for each member that can be called", "relay"),
    Family("fedboost_relay_lines", "gauge", ("member",),
           "open calls of a member, made or taken", "relay"),
    Family("fedboost_relay_bytes_total", "counter", ("member",),
           "bytes passed on in both directions of a member's calls", "relay"),
    Family("fedboost_relay_refused_total", "counter", (),
           "connections of strangers that were refused", "relay"),
)  # fmt: skip


def families_of(role: Literal["coordinator", "party", "relay"]) -> list[Family]:
    """Return the metrics of a daemon of that role, in the table's order; a relay is no daemon."""
    common = () if role == "relay" else ("every daemon",)
    return [family for family in FAMILIES if family.at in (*common, role)]


LOOP_S = 2.0  # an event loop that takes longer is not waited for

Reading: TypeAlias = tuple[str, tuple[str, ...], float]  # a gauge's name, its labels, its value


class DaemonMetrics(Collector):
    """Common metrics of all daemons; the daemon's own registry holds them."""

    def __init__(
        self,
        config: DaemonConfig,
        role: Literal["coordinator", "party"],
        identity: Callable[[], Identity],
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._config, self._role, self._identity = config, role, identity
        self._names = {*config.addresses()}
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for family in families_of(role):
            if family.kind == "counter":
                made = Counter(family.name, family.says, family.labels, registry=self.registry)
                self._counters[family.name] = made
            elif family.kind == "histogram":
                self._histograms[family.name] = Histogram(
                    family.name, family.says, family.labels, registry=self.registry,
                    buckets=SECONDS,
                )  # fmt: skip
        self._store: Store | None = None
        self._last: list[Reading] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        ProcessCollector(registry=self.registry)
        for code in BY_CODE:
            self.count("fedboost_calls_refused_total", code, by=0.0)
        for name in self._names - {config.name}:
            self.count("fedboost_connection_failures_total", name, by=0.0)

    def begin(self, store: Store) -> None:
        """Start to read the gauges; call it in the daemon's event loop."""
        self._store, self._loop = store, asyncio.get_running_loop()
        self.registry.register(self)

    def refused(self, error: FedboostError) -> None:
        """Count a refused call of another daemon or user."""
        self.count("fedboost_calls_refused_total", error.code if error.code in BY_CODE else OTHER)

    def failed(self, name: str) -> None:
        """Count a call of ours that did not reach a daemon."""
        self.count("fedboost_connection_failures_total", self.name(name))

    def count(self, family: str, *labels: str, by: float = 1.0) -> None:
        """Add to a counter; adding 0 creates it, so its first event shows as a rise."""
        counter = self._counters[family]
        (counter.labels(*labels) if labels else counter).inc(by)

    def observe(self, family: str, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram."""
        self._histograms[family].labels(*labels).observe(seconds)

    def name(self, name: str) -> str:
        """Return a daemon's name, if our file holds it."""
        return name if name in self._names else OTHER

    def stage(self, stage: str) -> str:
        """Return a stage's name, if there is such a protocol."""
        return protocols.shown_step(stage)[0]

    # Requests

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the gauges, without values."""
        return [GaugeMetricFamily(f.name, f.says, labels=f.labels)
                for f in families_of(self._role) if f.kind == "gauge"]  # fmt: skip

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges, read now."""
        families = {family.name: family for family in self.describe()}
        for name, labels, value in (*self.read(), *self._last_store_readings()):
            families[name].add_metric(labels, value)
        yield from families.values()

    def _last_store_readings(self) -> list[Reading]:
        """Return gauges of the store, as last read where the disk is full or broken."""
        with suppress(StoreError):
            self._last = list(self.store_readings())
        return self._last

    def store_readings(self) -> Iterator[Reading]:
        """Yield the gauges of the store; a StoreError if it cannot be read."""
        assert self._store is not None
        counts = self._store.counts()
        for state in dict.fromkeys(state.shown for state in JobState):
            yield "fedboost_jobs", (state,), counts[state]

    def read(self) -> Iterator[Reading]:
        """Yield every other gauge's values, in the thread of the request."""
        assert self._store is not None
        who = (self._role, self._config.name, build_version(), str(formats.WIRE_VERSION))
        yield "fedboost_info", who, 1.0
        end = self._identity().not_after.timestamp()
        yield "fedboost_certificate_end_timestamp_seconds", (), end
        yield "fedboost_store_free_bytes", (), shutil.disk_usage(self._store.folder).free
        started = monotonic_s()
        yield from self._readings_in_loop()
        yield "fedboost_event_loop_lag_seconds", (), min(LOOP_S, monotonic_s() - started)

    def _readings_in_loop(self) -> list[Reading]:
        """Return the gauges that only the event loop may read; empty if the loop is too busy."""
        assert self._loop is not None

        async def read_in_loop() -> list[Reading]:
            return list(self.loop_readings())

        looking = asyncio.run_coroutine_threadsafe(read_in_loop(), self._loop)
        try:
            return looking.result(LOOP_S)
        except TimeoutError:
            looking.cancel()
            return []

    def loop_readings(self) -> Iterator[Reading]:
        """Return gauges from the event loop's own state."""
        return iter(())


class CoordinatorMetrics(DaemonMetrics):
    """Metrics of a coordinator: from its journals, and from the parties that jobs wait for."""

    def __init__(
        self,
        config: CoordinatorConfig,
        identity: Callable[[], Identity],
        waits: Callable[[], Collection[Waiting]],
    ) -> None:
        super().__init__(config, "coordinator", identity)
        self._waits = waits
        for state in RESTS:
            self.count("fedboost_job_ends_total", state, by=0.0)
        for party in config.parties:
            self.count("fedboost_parties_lost_total", party, by=0.0)
            self.count("fedboost_warnings_total", party, by=0.0)

    def hear(self, event: Event) -> None:
        """Count one event of a job's journal."""
        what = event.WhichOneof("what")
        if what == "step":
            self._count_step(event.step)
        elif what == "round":
            self.count("fedboost_rounds_total", self.stage(event.round.stage))
        elif what == "stage":
            stage = self.stage(event.stage.stage)
            self.observe("fedboost_stage_seconds", event.stage.seconds, stage)
        elif what == "state" and event.state.state in RESTS:
            self.count("fedboost_job_ends_total", event.state.state)
        elif what == "lost":
            self.count("fedboost_parties_lost_total", self.name(event.lost.party))
        elif what == "warned":
            self.count("fedboost_warnings_total", self.name(event.warned.party))

    def _count_step(self, done: StepDone) -> None:
        calls = max(1, done.calls)
        stage, step = protocols.shown_step(done.stage, done.step)
        for _ in range(calls):
            self.observe("fedboost_step_seconds", done.seconds / calls, stage, step)
        for cost in done.costs:
            party = self.name(cost.party)
            self.count("fedboost_party_seconds_total", party, stage, by=cost.seconds)
            self.count("fedboost_party_cpu_seconds_total", party, stage, by=cost.cpu_seconds)
            for link in cost.sent:
                to = self.name(link.peer)
                self.count("fedboost_link_bytes_total", party, to, by=link.bytes)

    def loop_readings(self) -> Iterator[Reading]:
        """Yield the waiting times, see `DaemonMetrics`."""
        longest: dict[tuple[str, str], float] = {}
        for wait in self._waits():
            key = self.name(wait.party), _waiting_reason(wait.step)
            longest[key] = max(longest.get(key, 0.0), time.time() - wait.since)
        for labels, seconds in longest.items():
            yield "fedboost_waiting_seconds", labels, max(0.0, seconds)


_WAITING_REASONS = {
    "approval": "approval",
    "its return": "return",
    "which cannot be reached": "return",
}


def _waiting_reason(step: str) -> str:
    return _WAITING_REASONS.get(step, "step")


class _MetricsServer(ThreadingMixIn, WSGIServer):
    """Server with a thread for each request."""

    daemon_threads = True


class _IPv6MetricsServer(_MetricsServer):
    address_family = socket.AF_INET6


class _SilentHandler(WSGIRequestHandler):
    """Logs no request."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def only_own_hosts(hosts: OwnHosts, answer: WSGIApplication) -> WSGIApplication:
    """Answer only requests that call us by a host of ours."""

    def answer_own_host(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if hosts.is_own_host(environ.get("HTTP_HOST", "")):
            return answer(environ, start)
        start("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"this host is none of ours: add it to metrics.names\n"]

    return answer_own_host


@contextmanager
def serve_metrics(
    listen: str, registry: CollectorRegistry, names: Collection[str] = ()
) -> Iterator[int]:
    """Serve the registry at ``http://LISTEN/metrics``; yield the port.

    A separate thread answers requests under that address, other IP addresses, this machine's names,
    and `names`. Raise ConfigError if the address is taken.
    """
    host, port = split_address(listen)
    answer = only_own_hosts(OwnHosts(listen, names, with_ips=True), make_wsgi_app(registry))
    try:
        family, *_, at = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        kind = _IPv6MetricsServer if family == socket.AF_INET6 else _MetricsServer
        server = make_server(str(at[0]), port, answer, kind, _SilentHandler)
    except OSError as error:
        raise ConfigError(
            f"cannot show metrics on {listen}: {error.strerror}",
            todo="is another daemon running there? change `metrics.listen`",
        ) from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
