"""A store that was restored from a backup has forgotten what it told; its peers have not."""

import asyncio
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from fedboost.cli.groups import ledger_group
from fedboost.ground.errors import PolicyError
from fedboost.ground.workers import Serial
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.ledger.signed_heads import Recalled
from tests.support import small_jobs
from tests.support.federated import _left
from tests.support.whole_jobs import written

HOST = "telco"


class Town:
    """What runs a job on the same stores as before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources = written(folder, small_jobs.tables("secureboost", rows=60))
        self.spec = small_jobs.spec("secureboost", n_estimators=1, max_depth=1)
        self.store, self.backup = folder / "c" / "var" / HOST, folder / "backup"

    def __call__(self):
        """The job, and the host's entries then."""

        async def work():
            folder = self.folder / "c"
            async with open_cluster(folder, self.spec, self.sources, Serial()) as made_of:
                done = _left(made_of, await made_of.run(self.spec))
                return done, made_of.parties[HOST].spending.account.entries()

        return asyncio.run(work())


@pytest.fixture
def town(tmp_path):
    return Town(tmp_path)


def restore(town):
    """The host tells something, and its store is put back to where it was before."""
    town()
    shutil.copytree(town.store, town.backup)
    _, entries = town()
    assert len(entries) == 2
    shutil.rmtree(town.store)
    shutil.copytree(town.backup, town.store)


def test_no_job_runs_on_a_restored_store_before_its_owner_has_seen_it(town, tmp_path):
    """The defence is `Recalled.refuse_gaps`, when a job begins."""
    restore(town)
    for _ in range(2):
        done, entries = town()
        assert isinstance(done.error, PolicyError)
        assert "its store was restored" in done.error.what
        assert len(entries) == 1
    raw = {
        "name": HOST, "listen": "127.0.0.1:7102", "insecure_loopback": True,
        "coordinator": {"name": "coord", "address": "127.0.0.1:7100"}, "store": str(town.store),
    }  # fmt: skip
    (tmp_path / "telco.yaml").write_text(yaml.safe_dump(raw))
    command = ["restored", "--config", str(tmp_path / "telco.yaml")]
    assert "no job runs until --seen" in CliRunner().invoke(ledger_group, command).output
    said = CliRunner().invoke(ledger_group, [*command, "--seen"]).output
    assert "has our signature of row" in said
    done, entries = town()
    assert done.state == "finished"
    assert len(entries) == 2


def test_a_restored_store_tells_it_all_again_where_no_peer_is_asked(town, monkeypatch):
    async def nobody(*_):
        """Peers remember, and nobody asks."""

    monkeypatch.setattr(Recalled, "refuse_gaps", nobody)
    restore(town)
    done, entries = town()
    assert done.state == "finished"
    assert len(entries) == 2  # and of three jobs that have run


def test_a_store_that_goes_on_is_no_restored_one(town):
    for jobs in (1, 2, 3):
        done, entries = town()
        assert done.state == "finished"
        assert len(entries) == jobs
