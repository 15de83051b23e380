"""What an owner reads of a job to approve, where the guest chooses the rows in common."""

import asyncio
import re

from fedboost.ground.workers import Serial
from fedboost.runtime.cluster.local import LocalClient, open_cluster
from fedboost.runtime.policy import approval
from fedboost.runtime.store.store import JobState
from tests.attacks.test_border_budget import GUEST, HOST, IDS, Town, ruled
from tests.support.federated import job_spec

FEW = 60
JOB = job_spec(
    "secureboost",
    (GUEST, HOST),
    params={"n_estimators": 2, "max_depth": 1, "max_bin": 8, "encryption": {"scheme": "lattice"}},
)


def approved(tmp_path):
    """Two jobs, the second with few rows: what its owner read, and what it has told."""
    town = Town(tmp_path)

    async def work():
        async with open_cluster(tmp_path / "c", JOB, town.sources, Serial()) as made:
            host, jobs = ruled(made, approve="always", disclosure_max=0.15), LocalClient(made)
            for ids in (IDS, IDS[:FEW]):
                town.label(ids=ids)
                job = await jobs.submit(JOB.model_dump_json().encode())
                while job not in {one.id for one in host.store.jobs(JobState.WAITING)}:
                    await asyncio.sleep(0.01)
                words = host.owned(host.store.job(job)).forecast
                host.states.approve(job, made.user.name)
                async for _ in made.events(job):
                    pass
                assert (await jobs.status(job)).state == "finished"
            return words, host.spending.account.entry(job).counted

    words, counted = asyncio.run(work())
    return [float(number) for number in re.findall(r"([\d.e-]+) sums per bin", words)], counted


def test_a_job_tells_no_more_than_its_owner_read(tmp_path):
    """The defence is the fewest rows that the policy lets pass (`approval._most_sums`)."""
    (ordinary, at_most), counted = approved(tmp_path)
    assert 3 * ordinary < counted <= at_most


def test_a_job_told_more_than_its_owner_read_where_rows_were_those_of_the_last_job(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(approval, "_most_sums", lambda *_: 0.0)
    (ordinary,), counted = approved(tmp_path)
    assert counted > 3 * ordinary
