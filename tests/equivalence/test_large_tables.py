"""Jobs on tables that lie in files: the model of those in memory, and nothing stays behind."""

import asyncio
import errno
import gc
import os

import numpy as np
import pytest

from fedboost.encrypted.lattice.host import LatticeHost
from fedboost.ground import mapped
from fedboost.ground.errors import PeerError, StoreError
from fedboost.ground.workers import Serial
from fedboost.messages.job_pb2 import JobId
from fedboost.protocols.secureboost import host as training
from fedboost.runtime.cluster import local
from tests.attacks.test_border_approval import until
from tests.equivalence.test_secureboost_pooled import pooled, scattered
from tests.support.federated import GUEST, HOSTS, job_spec
from tests.support.whole_jobs import again, models, resumed, written

HOST = HOSTS[0]
TREES = {"n_estimators": 2, "max_depth": 3, "max_bin": 8, "subsample": 0.9}


def spec_of():
    params = {**TREES, "encryption": {"scheme": "lattice"}}
    return job_spec("secureboost", (GUEST, HOST), params=params)


@pytest.fixture
def large(monkeypatch):
    """Has every table be a large one."""
    monkeypatch.setattr("fedboost.runtime.party.job.table.LARGE_ROWS", 1)
    monkeypatch.setattr("fedboost.data.mapped_rows.BATCH_ROWS", 50)
    monkeypatch.setattr(mapped, "FILE_BYTES_MIN", 1)


def ran(folder, work):
    """What some work with a cluster gives; then nothing lies on its parties' disks any more."""
    sources = written(folder / "tables", scattered(pooled((3, 4), 130, seed=12), 13))

    async def run():
        async with local.open_cluster(folder / "cluster", spec_of(), sources, Serial()) as cluster:
            given = await work(cluster)
            folders = [party.store.folder for party in cluster.parties.values()]
            await until(lambda: not any(map(taken, folders)))
            assert not [file for folder in folders for file in folder.glob("tmp*")]
            return given

    return asyncio.run(run())


def taken(folder):
    """Return the bytes of files in a folder."""
    gc.collect()  # what an error's traceback holds
    return mapped._disks[folder].taken


def trained(folder):
    """The models of a job without limits."""

    async def work(cluster):
        done = await cluster.run(spec_of())
        assert done.status.state == "finished", done.status.reason
        return models(cluster, done.status.id)

    return ran(folder, work)


def assert_same(found, expected):
    for party, shard in expected.items():
        assert set(shard.arrays) == set(found[party].arrays)
        for name, array in shard.arrays.items():
            assert np.array_equal(array, found[party].arrays[name])


def test_a_model_is_that_of_tables_in_memory(tmp_path, monkeypatch):
    expected = trained(tmp_path / "memory")
    monkeypatch.setattr("fedboost.runtime.party.job.table.LARGE_ROWS", 1)
    monkeypatch.setattr(mapped, "FILE_BYTES_MIN", 1)
    in_files, take, begin = [], LatticeHost.rows, training.begin

    def taking(side, held, *others):
        in_files.append(mapped.file_of(held) is not None)
        return take(side, held, *others)

    def beginning(context):
        state = begin(context)
        in_files.append(mapped.file_of(state.bins) is not None)
        return state

    monkeypatch.setattr(LatticeHost, "rows", taking)
    monkeypatch.setattr(training, "begin", beginning)
    monkeypatch.setattr("fedboost.data.mapped_rows.BATCH_ROWS", 50)
    assert_same(trained(tmp_path / "files"), expected)
    assert in_files == [True] * 3  # bins, and rows of two trees


@pytest.mark.usefixtures("large")
def test_a_job_pauses_where_an_owner_s_limit_is_reached_and_goes_on_with_more(tmp_path):
    expected = trained(tmp_path / "whole")

    async def work(cluster):
        folder = cluster.parties[HOST].store.folder
        mapped.limit_folder(folder, 10_000)  # room for ids, cells and bins, but not for ciphertexts
        paused = (await cluster.run(spec_of())).status
        assert (paused.state, paused.reason.code) == ("paused", StoreError.code)
        assert paused.reason.what == "a large table needs more disk space than its files may take"
        where = {place.key: place.value for place in paused.reason.where}
        assert where == {"key": "disk_gb", "party": HOST, "step": "receive_gradients"}
        mapped.limit_folder(folder, 1e9)
        done = await again(cluster, JobId(id=paused.id))
        assert done.status.state == "finished"
        return models(cluster, paused.id)

    assert_same(ran(tmp_path / "limited", work), expected)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("share", [0.2, 0.6, 1.0])
def test_a_full_disk_pauses_a_job_which_goes_on_to_the_same_model(tmp_path, monkeypatch, share):
    calls, reserve, full = [], os.posix_fallocate, 0

    def filling(*what):
        calls.append(what)
        if len(calls) == full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        reserve(*what)

    monkeypatch.setattr("fedboost.ground.mapped.os.posix_fallocate", filling)
    expected = trained(tmp_path / "whole")
    full = round(share * len(calls))
    calls.clear()

    async def work(cluster):
        done = await resumed(cluster, spec_of())
        assert done.status.state == "finished"
        return models(cluster, done.status.id)

    assert_same(ran(tmp_path / "full", work), expected)
    assert len(calls) > full


@pytest.mark.usefixtures("large")
def test_nothing_stays_of_a_job_that_fails(tmp_path, monkeypatch):
    def failing(state, got):
        del state, got
        raise PeerError("no honest party sends this")

    monkeypatch.setattr(training, "divide_rows", failing)

    async def work(cluster):
        return (await cluster.run(spec_of())).status.state

    assert ran(tmp_path, work) == "failed"
