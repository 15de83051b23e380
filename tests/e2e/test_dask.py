"""A host that adds up encrypted rows on Dask: the model of one that does it alone, whoever dies."""

import pytest

from tests.e2e import world
from tests.support.dask_cluster import dask_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("dask")]
HOST = "shop"
SMALL = {"n_estimators": 1, "max_depth": 2, "max_bin": 6}
LATTICE = world.job(hosts=(HOST,), params={"encryption": {"scheme": "lattice"}})
NUMBERS = world.job(hosts=(HOST,), params={**SMALL, "encryption": {"scheme": "okamoto-uchiyama"}})
LONG = world.job(
    hosts=(HOST,),
    params={"n_estimators": 8, "max_depth": 4, "encryption": {"scheme": "lattice"}},
)


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    with dask_cluster(tmp_path_factory.mktemp("dask")) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, workers):
    folder = tmp_path_factory.mktemp("town")
    tables = {"bank": world.toy(rows=120, label=True), HOST: world.toy(columns=4, rows=120)}
    sources = {name: world.write(folder / f"{name}.parquet", t) for name, t in tables.items()}
    with world.WarmCluster(
        folder / "c", world.spec(LATTICE), sources, timers=world.TIMERS, workers=1
    ) as made:
        yield made
        assert world.tracebacks(made) == []


def works_by(cluster, workers):
    """Has the host's daemon come up again with other workers."""
    cluster.kill(HOST)
    world.edit(cluster, HOST, lambda raw: raw.update(workers=workers))
    cluster.start(HOST)
    cluster.wait(HOST)


def finished(cluster, raw):
    journal = world.run(cluster, raw)
    world.result(journal)
    return journal.status.id


def test_a_host_on_dask_makes_the_model_of_one_alone(cluster, workers):
    jobs = (LATTICE, NUMBERS)
    works_by(cluster, "embedded")
    alone = [finished(cluster, raw) for raw in jobs]
    works_by(cluster, workers.raw())
    for raw, id_ in zip(jobs, alone, strict=True):
        world.assert_same_model(cluster, finished(cluster, raw), id_)
    said = world.fedboost("doctor", "--config", cluster.config(HOST), "--json")
    [found] = [one for one in said.last["findings"] if one["what"] == f"workers {workers.address}"]
    assert (found["ok"], found["note"]) == (True, "2 workers, 2 threads")
    assert "Client-fedboost" in (workers.folder / "scheduler.log").read_text()


@pytest.mark.full
def test_a_job_loses_nothing_to_a_worker_s_death_and_waits_for_a_scheduler(cluster, workers):
    works_by(cluster, "embedded")
    alone = finished(cluster, LONG)
    works_by(cluster, workers.raw())
    id_ = world.submit(cluster, LONG)
    world.watch(cluster, id_, world.in_round(1, "sum_candidates"))
    workers.kill_worker()
    events = world.watch(cluster, id_)
    assert events[-1].state.state == "finished"
    world.assert_same_model(cluster, id_, alone)
    id_ = world.submit(cluster, LONG)
    world.watch(cluster, id_, world.in_round(2, "sum_candidates"))
    workers.kill_scheduler()
    said = world.fedboost("doctor", "--config", cluster.config(HOST), "--json")
    assert (said.code, said.last["failed"]) == (3, 1)
    events = world.watch(cluster, id_)
    assert events[-1].state.state == "paused"
    assert "scheduler of the workers" in events[-1].state.reason.what
    workers.close()
    workers.workers.clear()
    workers.start_scheduler()
    workers.start_workers(1)
    world.gone_on(cluster, id_)
    world.assert_same_model(cluster, id_, alone)
