"""A host that adds up encrypted rows on Dask: the model of one that does it alone, whoever dies."""

import pytest

from tests.e2e import world
from tests.support import drills
from tests.support.dask_cluster import dask_cluster
from tests.support.dask_drills import GUEST, HOST, STRUCK, DaskTown, job

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("dask")]
SMALL = {"n_estimators": 1, "max_depth": 2, "max_bin": 6}
LATTICE = job("lattice", n_estimators=6, max_depth=4)
JOBS = {"lattice": LATTICE, "okamoto-uchiyama": job("okamoto-uchiyama", **SMALL)}


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    folder = tmp_path_factory.mktemp("town")
    tables = {GUEST: world.toy(rows=120, label=True), HOST: world.toy(columns=4, rows=120)}
    sources = {name: world.write(folder / f"{name}.parquet", t) for name, t in tables.items()}
    with (
        dask_cluster(tmp_path_factory.mktemp("dask")) as workers,
        world.WarmCluster(
            folder / "c", world.spec(LATTICE), sources, timers=drills.TIMERS, workers=1
        ) as cluster,
    ):
        made = DaskTown(cluster, workers)
        made.alone(JOBS)
        yield made
        assert world.tracebacks(cluster) == []


def test_a_host_on_dask_makes_the_model_of_one_alone(town):
    for scheme, raw in JOBS.items():
        world.assert_same_model(town.cluster, town.finished(raw), town.whole[scheme])
    told = doctor(town)
    [found] = [one for one in told["findings"] if one["what"].startswith("workers tls://")]
    assert (found["ok"], found["note"]) == (True, "2 workers, 2 threads")
    assert "Client-fedboost" in (town.workers.folder / "scheduler.log").read_text()


@pytest.mark.some(1)
@pytest.mark.parametrize("who", STRUCK)
def test_a_job_loses_nothing_to_a_death(town, who):
    """All over a job: tests/faults/test_family_workers.py."""
    town.dies(who, LATTICE, world.in_round(2, "open_layer"))


@pytest.mark.full
def test_a_job_whose_scheduler_is_gone_waits_for_it(town):
    """Last, for it ends the cluster."""
    id_ = world.submit(town.cluster, LATTICE)
    world.watch(town.cluster, id_, world.in_round(1, "open_layer"))
    town.workers.kill_scheduler()
    assert doctor(town)["failed"] == 1
    events = world.watch(town.cluster, id_)
    assert events[-1].state.state == "paused"
    assert "scheduler of the workers" in events[-1].state.reason.what
    town.cluster_again()
    world.gone_on(town.cluster, id_)
    world.assert_same_model(town.cluster, id_, town.whole["lattice"])


def doctor(town):
    """What `fedboost doctor` says of the host."""
    return world.fedboost("doctor", "--config", town.cluster.config(HOST), "--json").last
