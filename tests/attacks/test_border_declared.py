"""What a job may use of a table is its owner's word: id columns, columns, labels, roles, peers.

Each attack is a job that a submitter writes; the parties' own nodes run it. The defence is
`declared.judge_use`, which `Judge.job` calls before a party signs: without it the attack succeeds.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError
from fedboost.ground.workers import Serial
from fedboost.runtime.cluster import local
from fedboost.runtime.policy import declared
from fedboost.runtime.store.rows_in_common import RowsInCommon
from fedboost.runtime.transport import faults
from tests.support.federated import PLAIN, job_spec, now

BANK, TELCO = "bank", "telco"
PEOPLE, STATUSES = 60, 4
PARAMS = {"n_estimators": 1, "max_depth": 2, "max_bin": 4, **PLAIN}


def tables():
    """telco knows everybody's status; bank brings each id with every status there is."""
    draw = np.random.default_rng(5)
    ids, guesses = np.arange(PEOPLE), np.arange(STATUSES)
    rows = PEOPLE * STATUSES
    brought = {"id": np.repeat(ids, STATUSES), "guess": np.tile(guesses, PEOPLE)}
    brought |= {"y": draw.integers(0, 2, rows), "ill": draw.integers(0, 2, rows)}
    known = {"id": ids, "branch": np.zeros(PEOPLE, int), "x": draw.normal(size=PEOPLE)}
    known |= {"status": draw.integers(0, STATUSES, PEOPLE)}
    return {BANK: brought, TELCO: known}


def job(guest=None, host=None):
    """secureboost between the two, with what it says of their data."""
    data = {
        BANK: {"id": ["id", "guess"], **(guest or {})},
        TELCO: {"id": ["id", "branch"], **(host or {})},
    }
    return job_spec("secureboost", [BANK, TELCO], data=data, params=PARAMS)


def attempt(folder, attack, **telco):
    """Runs a job on a cluster whose owners have declared what `job()` needs; telco more, if said.

    Gives how the job stands, and bank's rows in common.
    """
    sources = {}
    for party, own in tables().items():
        pq.write_table(pa.table(own), folder / f"{party}.parquet")
        more = telco if party == TELCO else {}
        sources[party] = SourceSpec(path=str(folder / f"{party}.parquet"), **more)

    async def run():
        async with local.open_cluster(folder / "c", job(), sources, Serial()) as cluster:
            journal = await cluster.run(attack)
            kept = RowsInCommon(cluster.parties[BANK].store.folder)
            try:
                (left,) = kept.load(journal.status.id).values()
            except ConfigError:
                return journal.status, None
            return journal.status, left.arrays["rows"]

    return now(run())


def undefended(monkeypatch):
    monkeypatch.setattr(declared, "judge_use", lambda *_: None)


def refusal(status):
    assert status.state == "failed"
    error = faults.error_of_fault(status.reason)
    assert error.code == "policy"
    return error.where["party"], error.where["key"]


# What the job says of bank's and of telco's table, what telco's owner has declared, the key.
WISHES: dict[str, tuple[Any, Any, dict[str, Any], tuple[str, str]]] = {
    "id": (None, {"id": ["id", "status"]}, {}, (TELCO, "id")),
    "label": ({"label": "ill"}, None, {}, (BANK, "labels")),
    "label of a host": (None, {"label": "status"}, {}, (TELCO, "labels")),
    "weight": ({"weight": "ill"}, None, {}, (BANK, "weights")),
    "a label as a feature": ({"label": "ill", "columns": ["y"]}, None, {}, (BANK, "columns")),
    "columns": (None, {"columns": ["status"]}, {"columns": ["x"]}, (TELCO, "columns")),
    "role": (None, None, {"roles": ["guest"]}, (TELCO, "roles")),
    "parties": (None, None, {"peers": []}, (TELCO, "peers")),
}


@pytest.mark.parametrize("wish", WISHES)
def test_a_job_uses_of_a_table_only_what_its_owner_has_declared(tmp_path, wish):
    guest, host, owned, (party, key) = WISHES[wish]
    status, rows = attempt(tmp_path, job(guest, host), **owned)
    assert status.state == "failed"
    assert rows is None
    error = faults.error_of_fault(status.reason)
    assert (error.code, error.where["party"]) == ("policy", party)
    assert error.where["key"] == f"datasets.data.{key}"


@pytest.mark.some(3)
@pytest.mark.parametrize("wish", WISHES)
def test_a_job_uses_of_a_table_whatever_it_names_where_nobody_judges(tmp_path, wish, monkeypatch):
    monkeypatch.setattr(declared, "judge_use", lambda *_: None)
    guest, host, owned, _ = WISHES[wish]
    status, rows = attempt(tmp_path, job(guest, host), **owned)
    if wish == "label of a host":  # no table of a host is read for labels
        assert "whose labels it does not read" in faults.error_of_fault(status.reason).what
        return
    if wish != "id":
        assert status.state == "finished"
        return
    brought, known = tables().values()
    learned = dict(zip(brought["id"][rows], brought["guess"][rows], strict=True))
    assert learned == dict(zip(known["id"], known["status"], strict=True))
