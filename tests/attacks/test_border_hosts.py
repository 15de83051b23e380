"""A web page elsewhere whose own name leads to a daemon's metrics (DNS rebinding), to read them.

The defence is `OwnHosts`: a browser names the host that it believes to call.
"""

import http.client
from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry, Gauge

from fedboost.ground.settings import parse_settings
from fedboost.runtime.config.metrics import MetricsConfig
from fedboost.runtime.daemons import metrics
from fedboost.runtime.transport.hosts import OwnHosts

EVIL = ["evil.example", "evil.example:9100", "127.0.0.1.evil.example", "localhost.evil.example",
        "", "bank.evil.example", "u@evil.example", "[::1].evil.example", "evil.example:x",
]  # fmt: skip
OURS = ["localhost", "LOCALHOST:1", "127.0.0.1:9100", "[::1]:9100", "10.0.0.7", "telco:9100",
        "metrics.bank.example"]  # fmt: skip


def read_as(host):
    """What a browser reads that believes to call `host`; empty where it is refused."""
    registry = CollectorRegistry()
    Gauge("rows", "of a table", registry=registry).set(41)
    names = parse_settings(
        MetricsConfig, {"listen": "127.0.0.1:1", "names": ["metrics.bank.example"]}
    ).names
    with metrics.serve_metrics("127.0.0.1:0", registry, ("telco", *names)) as port:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        with closing(link):
            link.request("GET", "/metrics", headers={"Host": host})
            answer = link.getresponse()
            return answer.read().decode() if answer.status == 200 else ""


@pytest.mark.parametrize("host", EVIL)
def test_metrics_are_not_read_under_a_name_of_somebody_else(host):
    assert read_as(host) == ""


@pytest.mark.parametrize("host", OURS)
def test_metrics_are_read_under_names_of_ours(host):
    assert "rows 41" in read_as(host)


@pytest.mark.parametrize("host", EVIL)
def test_metrics_are_read_under_a_name_of_somebody_else_where_nobody_looks_at_it(host, monkeypatch):
    monkeypatch.setattr(OwnHosts, "is_own_host", lambda *_: True)
    assert "rows 41" in read_as(host)
