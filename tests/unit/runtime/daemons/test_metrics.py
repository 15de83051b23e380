"""Figures for Prometheus: right, bounded in number, without secrets, and named in the documents."""

import asyncio
import json
import re
import threading
import time
import urllib.request
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fedboost.flow.steps import Charge, Spent
from fedboost.ground.errors import BY_CODE, ConfigError, PeerError, PolicyError, StoreError
from fedboost.ground.settings import parse_settings
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.job_pb2 import (
    Event,
    LinkBytes,
    PartyLost,
    Progress,
    RoundDone,
    StageDone,
    StateChanged,
    StepCost,
    StepDone,
    Waiting,
    Warned,
)
from fedboost.messages.party_pb2 import StepCall, StepReply, Turn, TurnReply
from fedboost.runtime.config.daemons import CoordinatorConfig, PartyConfig
from fedboost.runtime.daemons import metrics
from fedboost.runtime.daemons.metrics import CoordinatorMetrics
from fedboost.runtime.daemons.party_metrics import PartyMetrics
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.policy.account import Account, AccountEntry, add_charges, released_amounts
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.store.store import JobState, Store
from fedboost.runtime.transport.identity import Peer
from tests.conftest import ROOT

NOWHERE = "127.0.0.1:9"
SECRET = "salary of mallory"


class Ours:
    """An identity that ends at a known moment."""

    not_after = datetime(2030, 1, 1, tzinfo=UTC)


def ours() -> Any:
    """Who we are."""
    return Ours()


class Node:
    """What a party's figures read of its node."""

    def __init__(self, store, config):
        self.config, self.ledger, self.spending = config, Ledger(store.database), self
        self.account = Account(store.database)
        self.unknown_categories = {}


def values(made):
    """Every number on the page, by name and labels."""
    from prometheus_client import generate_latest

    found = {}
    for family in text_string_to_metric_families(generate_latest(made.registry).decode()):
        for sample in family.samples:
            found[sample.name, tuple(sample.labels.values())] = sample.value
    return found


def page(made, store):
    """The same, asked for while the event loop runs, as by the server's thread."""

    async def inside():
        made.begin(store)
        return await asyncio.to_thread(values, made)

    return asyncio.run(inside())


def again(made):
    """The page once more, in an event loop of its own."""

    async def inside():
        made._loop = asyncio.get_running_loop()
        return await asyncio.to_thread(values, made)

    return asyncio.run(inside())


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store", "party bank") as opened:
        yield opened


@pytest.fixture
def coordinator():
    config = parse_settings(CoordinatorConfig, {
        "name": "coord", "listen": NOWHERE, "insecure_loopback": True, "store": "x",
        "parties": {"bank": NOWHERE, "telco": NOWHERE},
    })  # fmt: skip
    waits = [
        Waiting(party="bank", step="open_layer", since=time.time() - 5),
        Waiting(party="bank", step="blind", since=time.time() - 50),
        Waiting(party="telco", step="its return", since=time.time() - 7),
        Waiting(party="mallory", step="approval", since=time.time() + 100),
    ]
    return CoordinatorMetrics(config, ours, lambda: waits)


@pytest.fixture
def party(store):
    config = parse_settings(PartyConfig, {
        "name": "bank", "listen": NOWHERE, "insecure_loopback": True, "store": "x",
        "coordinator": {"name": "coord", "address": NOWHERE}, "peers": {"telco": NOWHERE},
        "datasets": {"credit": {"path": "x.csv"}},
    })  # fmt: skip
    made = PartyMetrics(config, ours, lambda: 4096)
    node: Any = Node(store, config)
    made.count_calls_of(node)
    yield made
    node.ledger.close()
    node.account.close()


def step(name="sum_candidates", stage="secureboost", calls=1, party="telco"):
    cost = StepCost(party=party, seconds=2.0, cpu_seconds=1.5)
    cost.sent.append(LinkBytes(peer="bank", bytes=1000, messages=1))
    return Event(step=StepDone(stage=stage, step=name, seconds=3.0, calls=calls, costs=[cost]))


# What a coordinator counts


def test_a_coordinator_counts_what_its_journals_say(coordinator, store):
    done = RoundDone(stage="secureboost", progress=Progress(done=1, of=2))
    for event in (
        step(), step(calls=4), Event(round=done), Event(round=done),
        Event(stage=StageDone(stage="align", seconds=1.5)),
        Event(state=StateChanged(state="running")), Event(state=StateChanged(state="paused")),
        Event(state=StateChanged(state="finished")), Event(lost=PartyLost(party="telco")),
        Event(warned=Warned(party="bank")),
    ):  # fmt: skip
        coordinator.hear(event)
    found = page(coordinator, store)
    at = ("secureboost", "sum_candidates")
    assert found["fedboost_step_seconds_count", at] == 5
    assert found["fedboost_step_seconds_sum", at] == pytest.approx(6.0)
    assert found["fedboost_party_seconds_total", ("telco", "secureboost")] == 4.0
    assert found["fedboost_party_cpu_seconds_total", ("telco", "secureboost")] == 3.0
    assert found["fedboost_link_bytes_total", ("bank", "telco")] == 2000
    assert found["fedboost_rounds_total", ("secureboost",)] == 2
    assert found["fedboost_stage_seconds_sum", ("align",)] == 1.5
    assert found["fedboost_job_ends_total", ("paused",)] == 1
    assert found["fedboost_job_ends_total", ("finished",)] == 1
    assert ("fedboost_job_ends_total", ("running",)) not in found
    assert found["fedboost_job_ends_total", ("failed",)] == 0, "a first event must be a rise"
    assert found["fedboost_parties_lost_total", ("telco",)] == 1
    assert found["fedboost_warnings_total", ("bank",)] == 1


def test_whom_jobs_wait_for_is_read_when_asked(coordinator, store):
    found = page(coordinator, store)
    assert found["fedboost_waiting_seconds", ("bank", "step")] == pytest.approx(50, abs=5)
    assert found["fedboost_waiting_seconds", ("telco", "return")] == pytest.approx(7, abs=5)
    assert found["fedboost_waiting_seconds", ("other", "approval")] == 0.0
    assert 0 <= found["fedboost_event_loop_lag_seconds", ()] < 2.0


def test_names_that_peers_make_up_are_one_label(coordinator, store):
    for name in (SECRET, "x" * 1000, "y"):
        coordinator.hear(step(name=name, party=name))
        coordinator.hear(step(stage=name, name=name))
        coordinator.failed(name)
        coordinator.refused(type("Foreign", (PeerError,), {"code": name})(name))
    found = page(coordinator, store)
    assert found["fedboost_step_seconds_count", ("secureboost", "other")] == 3
    assert found["fedboost_step_seconds_count", ("other", "other")] == 3
    assert found["fedboost_connection_failures_total", ("other",)] == 3
    assert found["fedboost_calls_refused_total", ("other",)] == 3
    assert not any(SECRET in label or "xx" in label for _, labels in found for label in labels)


def test_jobs_are_counted_by_state_and_refusals_by_code(coordinator, store):
    for n in range(3):
        store.add_job(f"job-{n}", SECRET, b"{}", JobState.WAITING)
    store.move_to_state("job-0", JobState.RUNNING)
    coordinator.refused(PolicyError("no"))
    coordinator.refused(PolicyError("no"))
    found = page(coordinator, store)
    assert found["fedboost_jobs", ("waiting for approval",)] == 2
    assert found["fedboost_jobs", ("running",)] == 1
    assert found["fedboost_jobs", ("finished",)] == 0
    assert found["fedboost_calls_refused_total", ("policy",)] == 2
    assert found["fedboost_certificate_end_timestamp_seconds", ()] == Ours.not_after.timestamp()
    assert found["fedboost_store_free_bytes", ()] > 0
    assert set(BY_CODE) >= {"policy", "peer"}


async def test_a_store_that_cannot_be_read_leaves_the_last_figures(party, store, monkeypatch):
    store.add_job("one", "job", b"{}", JobState.RUNNING)

    def full(*_):
        raise StoreError("the disk is full")

    party.begin(store)
    before = await asyncio.to_thread(values, party)
    monkeypatch.setattr(store, "counts", full)
    after = await asyncio.to_thread(values, party)
    for key in (("fedboost_jobs", ("running",)), ("fedboost_ledger_rows", ())):
        assert after[key] == before[key]
    assert after["fedboost_store_free_bytes", ()] > 0


async def test_a_loop_that_is_stuck_is_seen_and_not_waited_for(coordinator, store, monkeypatch):
    monkeypatch.setattr(metrics, "LOOP_S", 0.2)
    coordinator.begin(store)
    asked = []
    thread = threading.Thread(target=lambda: asked.append(values(coordinator)))
    thread.start()
    thread.join()  # the loop does nothing else meanwhile
    found = asked[0]
    assert found["fedboost_event_loop_lag_seconds", ()] == 0.2
    assert not any(name == "fedboost_waiting_seconds" for name, _ in found)


# What a party counts


def test_a_partys_steps_count_once_however_often_they_are_answered(party, store):
    call = StepCall(job="j", attempt=1, stage="secureboost", turns=[
        Turn(step="open_layer", number=4), Turn(step="choose_splits", number=6)])  # fmt: skip
    turn = TurnReply(cost=StepCost(seconds=1.0, cpu_seconds=0.5))
    for _ in range(3):
        party.count_steps(call, StepReply(turns=[turn, turn]))
    found = page(party, store)
    assert found["fedboost_own_step_seconds_count", ("secureboost", "open_layer")] == 1
    assert found["fedboost_own_step_cpu_seconds_total", ("secureboost",)] == 1.0
    party.forget_job("j")
    party.forget_job("j")


def test_payloads_count_by_direction_and_peer(party, store):
    envelope = Envelope(payload_bytes=700)
    party.count_payload("out", "telco", envelope)
    party.count_payload("in", "telco", envelope)
    party.count_payload("in", "telco", envelope)
    party.count_checkpoint("secureboost")
    found = page(party, store)
    assert found["fedboost_payload_bytes_total", ("out", "telco")] == 700
    assert found["fedboost_payloads_total", ("in", "telco")] == 2
    assert found["fedboost_checkpoints_total", ("secureboost",)] == 1
    assert found["fedboost_worker_memory_peak_bytes", ()] == 4096


def test_the_account_of_data_sets_is_shown(party, store):
    account = party._node.account
    for job, dataset, guest, planned, epsilon in (
        ("a", "credit", "telco", 0.03, 0.0), ("b", "credit", "telco", 0.02, 0.0),
        ("c", "credit", "telco", 0.0, 2.5), ("d", SECRET, SECRET, 0.01, 0.0),
    ):  # fmt: skip
        store.add_job(job, job, b"{}", JobState.RUNNING)
        account.expect(
            AccountEntry(job, "", dataset, "", guest, "secureboost", 10, planned, epsilon)
        )
    found = page(party, store)
    assert found["fedboost_disclosed_sums", ("credit", "telco")] == pytest.approx(0.05)
    assert found["fedboost_disclosed_sums", ("other", "other")] == pytest.approx(0.01)
    assert found["fedboost_disclosed_epsilon_row", ("credit",)] == 2.5
    assert found["fedboost_disclosed_sums_limit", ("max",)] == 0.15
    assert found["fedboost_ledger_rows", ()] == 0


def test_sums_are_shown_as_the_policy_counts_them(party, store):
    """Each job tells most of another column, and two guests may compare notes."""
    node = party._node
    table = Owned("credit", "")
    for job, column, guest in (("a", "x", "telco"), ("b", "y", "telco"), ("c", "x", SECRET)):
        store.add_job(job, job, b"{}", JobState.RUNNING)
        node.account.expect(AccountEntry(job, "", "credit", "", guest, "secureboost", 10, 0.0, 0.0))
        with node.account.changes() as sql:
            add_charges(sql, table, job, guest, [Charge(Spent.SUMS, 0.02, column)])
    found = page(party, store)
    assert found["fedboost_disclosed_sums", ("credit", "telco")] == pytest.approx(0.04)
    with node.account.changes() as sql:
        assert released_amounts(sql, table, node.config.policy.together("telco"))[
            Spent.SUMS
        ] == pytest.approx(0.04)
    policy = node.config.policy.model_copy(update={"disclosure_apart": ["telco"]})
    node.config = node.config.model_copy(update={"policy": policy})
    assert again(party)["fedboost_disclosed_sums", ("credit", "telco")] == pytest.approx(0.02)


def test_limits_and_data_sets_are_those_of_the_last_reload(party, store):
    node = party._node
    store.add_job("a", "a", b"{}", JobState.RUNNING)
    node.account.expect(AccountEntry("a", "", "new", "", "telco", "secureboost", 10, 0.03, 0.0))
    found = page(party, store)
    assert found["fedboost_disclosed_sums", ("other", "telco")] == pytest.approx(0.03)
    raw = node.config.model_dump() | {"datasets": {"new": {"path": "y.csv"}}}
    fresh = parse_settings(PartyConfig, raw)
    policy = fresh.policy.model_copy(update={"disclosure_max": 0.5})
    node.config = fresh.model_copy(update={"policy": policy})
    found = again(party)
    assert found["fedboost_disclosed_sums_limit", ("max",)] == 0.5
    assert found["fedboost_disclosed_sums", ("new", "telco")] == pytest.approx(0.03)


def test_unknown_categories_of_declared_data_sets_are_shown(party, store):
    party._node.unknown_categories |= {"credit": {"town": 0.25}, SECRET: {"town": 1.0}}
    found = page(party, store)
    assert found["fedboost_unknown_categories_share", ("town", "credit")] == 0.25
    assert not [labels for _, labels in found if SECRET in labels]


def test_a_node_and_its_links_are_counted_at_the_border(party):
    class Working:
        """A node that does what it is asked, and has had every second message before."""

        had = True

        async def accept(self, *_):
            self.had = not self.had
            return self.had

        async def hello(self, *_):
            return "hello"

    class Delivers:
        """A link that works."""

        async def deliver(self, *_):
            return None

    counted = party.count_calls_of(Working())
    telco, envelope = Peer("party", "telco", "", 0), Envelope(payload_bytes=10, receiver="telco")
    for _ in range(2):
        asyncio.run(counted.accept(telco, envelope, b""))
    asyncio.run(party.count_payloads_of(Delivers()).deliver(envelope, b""))
    assert asyncio.run(counted.hello()) == "hello"
    got = party.registry.get_sample_value
    for direction in ("in", "out"):
        labels = {"direction": direction, "peer": "telco"}
        assert got("fedboost_payloads_total", labels) == 1


# The page, and what names it


@pytest.mark.parametrize("role", ["coordinator", "party"])
async def test_every_family_of_the_table_is_on_the_page_and_nothing_else(role, store, request):
    made = request.getfixturevalue(role)
    made.begin(store)
    found = await asyncio.to_thread(lambda: list(made.registry.collect()))
    shown = {family.name for family in found}
    shown |= {f"{family.name}_total" for family in found if family.type == "counter"}
    wanted = {family.name for family in metrics.families_of(role)}
    assert wanted <= shown
    ours = {name for name in shown if name.startswith("fedboost_")}
    assert ours <= wanted | {name.removesuffix("_total") for name in wanted}


def test_the_page_is_served_and_stops_with_its_daemon(coordinator, store):
    async def inside():
        coordinator.begin(store)
        with metrics.serve_metrics("127.0.0.1:0", coordinator.registry) as port:
            url = f"http://127.0.0.1:{port}/metrics"
            read = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read())
            twice = metrics.serve_metrics(f"127.0.0.1:{port}", coordinator.registry)
            with pytest.raises(ConfigError, match="cannot show metrics"):
                twice.__enter__()
        with pytest.raises(OSError):
            urllib.request.urlopen(url, timeout=1)
        return read.decode()

    before = threading.active_count()
    text = asyncio.run(inside())
    assert 'fedboost_info{name="coord",role="coordinator"' in text
    assert threading.active_count() <= before + 1  # that of to_thread


@pytest.mark.parametrize("listen", ["0.0.0.0:9100", "10.0.0.1:9100", "bank:9100"])
def test_other_addresses_than_loopback_must_be_wanted_and_are_warned_of(listen):
    raw = {
        "name": "coord", "listen": NOWHERE, "insecure_loopback": True, "store": "x",
        "parties": {"bank": NOWHERE},
    }  # fmt: skip
    with pytest.raises(ConfigError, match="not loopback"):
        parse_settings(CoordinatorConfig, {**raw, "metrics": {"listen": listen}})
    wanted = {**raw, "metrics": {"listen": listen, "allow_remote": True}}
    assert any(listen in said for said in parse_settings(CoordinatorConfig, wanted).warnings())
    near = {**raw, "metrics": {"listen": "127.0.0.1:9100"}}
    assert not any("metrics" in said for said in parse_settings(CoordinatorConfig, near).warnings())


def series(family):
    """The names under which a metric's numbers stand on the page."""
    if family.kind == "histogram":
        return [f"{family.name}_{end}" for end in ("bucket", "sum", "count")]
    return [family.name]


FAMILIES = {
    family.name: family for role in ("coordinator", "party") for family in metrics.families_of(role)
}
# What the client library says of the process itself, on Linux.
PROCESS = (
    "process_cpu_seconds_total", "process_resident_memory_bytes", "process_virtual_memory_bytes",
    "process_start_time_seconds", "process_open_fds", "process_max_fds",
)  # fmt: skip
KNOWN = {
    *(name for family in FAMILIES.values() for name in series(family)),
    *PROCESS,
    "up",
}
NAME = re.compile(r"\b(?:fedboost|process)_[a-z_]+\b|\bup\b")


def expressions():
    """Every query of the dashboard and of the alert rules, by what it is for."""
    board = json.loads((ROOT / "deploy" / "monitoring" / "dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    rules = yaml.safe_load((ROOT / "deploy" / "monitoring" / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule.get("alert") or rule["record"], rule["expr"]


def test_dashboard_and_alerts_ask_for_metrics_that_exist():
    found = list(expressions())
    assert len(found) > 20
    for title, query in found:
        names = NAME.findall(query)
        assert names, title
        assert set(names) <= KNOWN, (title, set(names) - KNOWN)


def test_labels_in_queries_are_those_of_the_metric():
    labels = {name: {*family.labels, "le", "job", "instance"}
              for family in FAMILIES.values()
              for name in series(family)}  # fmt: skip
    for title, query in expressions():
        for name, given in re.findall(r"(fedboost_[a-z_]+)\{([^}]*)\}", query):
            used = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", given))
            assert used <= labels[name], (title, name, used)


def test_the_documents_list_every_metric_with_its_labels():
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for family in FAMILIES.values():
        named = ", ".join(f"`{label}`" for label in family.labels) or "none"
        row = f"| `{family.name}` | {family.kind} | {named} | {family.says} |"
        assert row in text, row
    for name in PROCESS:
        assert f"`{name}`" in text, name
