"""An error about a table tells others its kind, and the table's owner the figures.

The defence is `PartyNode.public_error`, through which such an error leaves a party, whatever was
asked.
"""

import re
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.message_factory import GetMessageClass

from fedboost import protocols
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import DataError, PolicyError
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial
from fedboost.messages import exchange_pb2, party_pb2
from fedboost.runtime.cluster import local
from fedboost.runtime.party.node.node import PartyNode
from fedboost.runtime.transport import faults
from fedboost.runtime.transport.identity import Peer
from fedboost.runtime.transport.server import _snake_case
from tests.support.federated import PLAIN, job_spec, now

BANK, TELCO = "bank", "telco"
ROWS = 47
JOB = job_spec("secureboost", [BANK, TELCO], params={"n_estimators": 1, **PLAIN})


def table(**columns):
    names = [f"p{n}" for n in range(ROWS)]
    whole = {"id": names, "x": [float(n) for n in range(ROWS)], **columns}
    return pa.table(whole)


FAULTY: dict[str, dict[str, list[Any]]] = {
    "ids": {"id": [f"p{n // 3}" for n in range(ROWS)]},
    "text": {"hiv": ["positive"] * 13 + ["2.0"] * (ROWS - 13)},
    "infinite": {"salary": [float("inf")] * 13 + [2.0] * (ROWS - 13)},
}


def failed(folder, columns=None, spec=JOB, **rules):
    """What the submitter reads of a job on telco's table, and what telco's owner does."""
    sources = {}
    for party, own in {
        BANK: table(y=[n % 2 for n in range(ROWS)]),
        TELCO: table(**(columns or {})),
    }.items():
        pq.write_table(own, folder / f"{party}.parquet")
        sources[party] = SourceSpec(path=str(folder / f"{party}.parquet"))

    async def run():
        async with local.open_cluster(folder / "c", spec, sources, Serial()) as cluster:
            node = cluster.parties[TELCO]
            policy = node.config.policy.model_copy(update={"tells": ("metrics", "curves"), **rules})
            node.config = node.judge.config = node.config.model_copy(update={"policy": policy})
            status = (await cluster.run(spec)).status
            bank = cluster.parties[BANK].store.job(status.id).reason
            return faults.error_of_fault(status.reason), bank, node.store.job(status.id).reason

    return now(run())


# A job that lists the values of a column, but for one that a party's rows have.
DOMAINS = job_spec(
    "federboost-horizontal",
    [BANK, TELCO],
    data={party: {"label": "y"} for party in (BANK, TELCO)},
    params={"n_estimators": 1, "max_bin": 64, "domains": {"x": [float(n) for n in range(ROWS)]}},
)
DOMAINS = DOMAINS.model_copy(
    update={"parties": DOMAINS.parties.model_copy(update={"aggregator": BANK})}
)
LISTED = {"x": [99.0] * 13 + [2.0] * (ROWS - 13), "y": [n % 2 for n in range(ROWS)]}


def test_values_beyond_the_jobs_domains_are_counted_for_their_owner_alone(tmp_path):
    told, bank, own = failed(tmp_path, LISTED, DOMAINS)
    assert (told.code, told.where["party"]) == ("data", TELCO)
    for text in (*told.lines(), bank):
        assert not re.search(r"\d|domain", text)
    assert "13 of 47 values" in own


def test_values_beyond_the_jobs_domains_were_counted_for_everybody(tmp_path, monkeypatch):
    monkeypatch.setattr(DataError, "redacted", lambda self: self)
    told, _, _ = failed(tmp_path, LISTED, DOMAINS)
    assert "13 of 47" in told.what


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_of_a_table_tells_others_its_kind_and_its_owner_the_figures(tmp_path, fault):
    told, bank, own = failed(tmp_path, FAULTY[fault])
    assert (told.code, told.where["party"]) == ("data", TELCO)
    assert set(told.where) <= {"party", "step", "stage", "job"}
    for text in (*told.lines(), bank):
        assert not re.search(r"\d|hiv|salary|positive", text)
    assert re.search(r"\b(13|47)\b", own)


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_of_a_table_told_everybody_its_figures(tmp_path, fault, monkeypatch):
    monkeypatch.setattr(DataError, "redacted", lambda self: self)
    told, bank, _ = failed(tmp_path, FAULTY[fault])
    for text in (told.what, bank):
        assert re.search(r"\b(13|47)\b", text)


# What a policy says of a table's size


LIMITS: dict[str, dict[str, Any]] = {
    "disclosure_max": {"disclosure_max": 0.01},
    "epsilon_row_max": {"epsilon_element_max": 1.0, "epsilon_row_max": 1.0},
}
NOISY = job_spec(
    "federboost-vertical", [BANK, TELCO], params={"n_estimators": 1, "buckets": 4, "epsilon": 0.77}
)
JOBS = {"disclosure_max": JOB, "epsilon_row_max": NOISY}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_tells_others_its_key_and_its_owner_how_far_a_table_is_above_it(tmp_path, limit):
    told, bank, own = failed(tmp_path, {"x2": [0.5] * ROWS}, spec=JOBS[limit], **LIMITS[limit])
    assert (told.code, told.where["key"]) == ("policy", f"policy.{limit}")
    for text in (told.what, told.todo, bank):
        assert not re.search(r"\d", text)
    assert re.search(r"\d", own)


def test_a_limit_told_everybody_how_many_rows_a_table_has(tmp_path, monkeypatch):
    monkeypatch.setattr(PolicyError, "redacted", lambda self: self)
    told, _, _ = failed(tmp_path, **LIMITS["disclosure_max"])
    [ratio] = re.findall(r"the job would release up to ([\d.]+)", told.what)
    table = JOB.parties.table()
    secureboost = protocols.load_protocol("secureboost")
    params = parse_settings(secureboost.params, JOB.params)
    assert secureboost.policy.releases is not None
    planned = secureboost.policy.releases(params, table, TELCO, None).whole
    assert round(planned / float(ratio)) == pytest.approx(ROWS, rel=0.05)


# Every call of others


def calls():
    """What each method of a party that others may call is asked, by name; links tell no table."""
    party, exchange = party_pb2.DESCRIPTOR, exchange_pb2.DESCRIPTOR
    found = {
        _snake_case(method.name): (GetMessageClass(method.input_type)(),)
        for service in (party.services_by_name["Party"], exchange.services_by_name["Exchange"])
        for method in service.methods
        if method.name not in ("CheckLink", "Deliver", "Post")
    }
    envelope = exchange_pb2.Envelope()
    return {**found, "admit": (envelope,), "accept": (envelope, b"")}


def refusals(folder, monkeypatch):
    """What a party's calls are refused with, each of whose inner parts meets a faulty table."""
    node_of = {}
    for party in (BANK, TELCO):
        pq.write_table(table(y=[n % 2 for n in range(ROWS)]), folder / f"{party}.parquet")
        node_of[party] = SourceSpec(path=str(folder / f"{party}.parquet"))

    def fails(*_, **__):
        raise DataError(f"the table has {ROWS} rows", column="hiv")

    async def run():
        found = {}
        async with local.open_cluster(folder / "c", JOB, node_of, Serial()) as cluster:
            node = cluster.parties[TELCO]
            policy = node.config.policy.model_copy(update={"tells": ()})
            node.config = node.judge.config = node.config.model_copy(update={"policy": policy})
            for name in ("stages.check_leader", "halting.check_leader", "node.hello_reply"):
                monkeypatch.setattr(f"fedboost.runtime.party.node.{name}", fails)
            monkeypatch.setattr(node, "_receiver", fails)
            monkeypatch.setattr(node.under_way, "job_led_by", fails)
            monkeypatch.setattr(node.ledger, "newest_head", fails)
            for name, asked in calls().items():
                caller = Peer("party", BANK, "", 0)
                with pytest.raises(DataError) as caught:
                    await getattr(node, name)(caller, *asked)
                found[name] = "; ".join(caught.value.lines())
        return found

    return now(run())


def test_no_call_of_others_is_refused_with_figures(tmp_path, monkeypatch):
    for name, text in refusals(tmp_path, monkeypatch).items():
        assert not re.search(r"\d|hiv", text), name


def test_calls_of_others_were_refused_with_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(PartyNode, "public_error", lambda _, __, error: error)
    found = refusals(tmp_path, monkeypatch)
    assert set(found) >= {"propose", "begin", "accept", "recall"}
    assert all(str(ROWS) in text for text in found.values())
