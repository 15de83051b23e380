"""A fault of a table tells others its kind, and the table's owner the figures.

The defence is `PartyNode.hush`, through which every fault of a table leaves a party.
"""

import re
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedboost.crypto.workers import Serial
from fedboost.data.sources import SourceSpec
from fedboost.errors import DataError
from fedboost.runtime import faults, local
from tests.federated import PLAIN, job_spec, now

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


def failed(folder, **columns):
    """What the submitter reads of a job on telco's table, and what telco's owner does."""
    sources = {}
    for party, own in {
        BANK: table(y=[n % 2 for n in range(ROWS)]),
        TELCO: table(**columns),
    }.items():
        pq.write_table(own, folder / f"{party}.parquet")
        sources[party] = SourceSpec(path=str(folder / f"{party}.parquet"))

    async def run():
        async with local.cluster(folder / "c", JOB, sources, Serial()) as cluster:
            node = cluster.parties[TELCO]
            policy = node.config.policy.model_copy(update={"tells": ("metrics", "curves")})
            node.config = node.config.model_copy(update={"policy": policy})
            status = (await cluster.run(JOB)).status
            bank = cluster.parties[BANK].store.job(status.id).reason
            return faults.from_message(status.reason), bank, node.store.job(status.id).reason

    return now(run())


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_of_a_table_tells_others_its_kind_and_its_owner_the_figures(tmp_path, fault):
    told, bank, own = failed(tmp_path, **FAULTY[fault])
    assert (told.code, told.where["party"]) == ("data", TELCO)
    assert set(told.where) <= {"party", "step", "stage", "job"}
    for text in (*told.lines(), bank):
        assert not re.search(r"\d|hiv|salary|positive", text)
    assert re.search(r"\b(13|47)\b", own)


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_of_a_table_told_everybody_its_figures(tmp_path, fault, monkeypatch):
    monkeypatch.setattr(DataError, "quiet", lambda self: self)
    told, bank, _ = failed(tmp_path, **FAULTY[fault])
    for text in (told.what, bank):
        assert re.search(r"\b(13|47)\b", text)
