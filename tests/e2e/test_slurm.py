"""A host's workers come and go as jobs of Slurm, by the script that operators are given."""

import sys
from contextlib import contextmanager

import pytest

from tests.conftest import ROOT
from tests.e2e import world
from tests.support.dask_cluster import QUIET, DaskCluster, dask_cluster
from tests.support.dask_drills import GUEST, HOST, DaskTown, job
from tests.support.slurm import Slurm, slurm

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.xdist_group("slurm")]
SCRIPT = ROOT / "deploy" / "dask" / "workers.sh"
ASKED = ("--nodes=1", "--cpus-per-task=1", "--mem=1G", "--time=10", "--parsable")
JOB = job("lattice", n_estimators=6, max_depth=4)
COMES_S = 60.0  # a worker, whose job may wait for a node that is being left


class Allocations:
    """Jobs of Slurm with a worker each."""

    def __init__(self, cluster: Slurm, dask: DaskCluster) -> None:
        self._cluster, self._dask = cluster, dask
        self.ids: list[str] = []
        program = cluster.folder / "bin" / "dask"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m dask "$@"\n')
        program.chmod(0o755)

    def more(self, count: int) -> None:
        """Has so many more workers."""
        path = f"{self._cluster.folder}/bin:{self._cluster.env['PATH']}"
        certs = str(self._dask.folder / "certs")
        told = {"SCHEDULER": self._dask.address, "CERTS": certs, "PATH": path, **QUIET}
        for _ in range(count):
            self.ids.append(self._cluster.run("sbatch", *ASKED, str(SCRIPT), env=told))
        self.wait(len(self.ids))

    def cancel(self, count: int) -> None:
        gone, self.ids = self.ids[:count], self.ids[count:]
        self._cluster.run("scancel", *gone)

    def wait(self, count: int) -> None:
        """Until the scheduler knows so many."""
        with client(self._dask) as asked:
            world.wait_for(lambda: len(asked.nthreads()) == count, COMES_S, f"{count} workers")


@contextmanager
def client(dask: DaskCluster):
    from distributed import Client, Security

    tls = dask.files()
    files = {"tls_ca_file": tls["ca"], "tls_client_cert": tls["cert"], "tls_client_key": tls["key"]}
    security = Security(require_encryption=True, **files)
    with Client(dask.address, security=security, set_as_default=False) as asked:
        yield asked


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    folder = tmp_path_factory.mktemp("town")
    tables = {GUEST: world.toy(rows=120, label=True), HOST: world.toy(columns=4, rows=120)}
    sources = {name: world.write(folder / f"{name}.parquet", t) for name, t in tables.items()}
    with (
        slurm(tmp_path_factory.mktemp("slurm")) as cluster,
        dask_cluster(tmp_path_factory.mktemp("dask"), workers=0) as dask,
        world.WarmCluster(
            folder / "c", world.spec(JOB), sources, timers=world.TIMERS, workers=1
        ) as daemons,
    ):
        made = DaskTown(daemons, dask)
        made.alone({"lattice": JOB})
        yield made, Allocations(cluster, dask)


def test_a_job_goes_on_with_the_workers_that_slurm_leaves(town):
    daemons, allocations = town
    allocations.more(2)
    id_ = world.submit(daemons.cluster, JOB)
    world.watch(daemons.cluster, id_, world.in_round(2, "open_layer"))
    allocations.cancel(1)
    events = world.watch(daemons.cluster, id_)
    assert events[-1].state.state == "finished"
    world.assert_same_model(daemons.cluster, id_, daemons.whole["lattice"])
    allocations.wait(1)


def test_a_job_without_workers_waits_for_an_allocation(town):
    daemons, allocations = town
    if not allocations.ids:
        allocations.more(1)
    id_ = world.submit(daemons.cluster, JOB)
    world.watch(daemons.cluster, id_, world.in_round(2, "open_layer"))
    allocations.cancel(len(allocations.ids))
    events = world.watch(daemons.cluster, id_)
    assert events[-1].state.state == "paused"
    assert "has no workers" in events[-1].state.reason.what
    allocations.more(1)
    world.gone_on(daemons.cluster, id_)
    world.assert_same_model(daemons.cluster, id_, daemons.whole["lattice"])
