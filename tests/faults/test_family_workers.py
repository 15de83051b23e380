"""Real workers of Dask, their scheduler and the daemon that uses them are killed all over a job:
it comes to the same model, and nothing is released twice.

One such death on each change is in tests/e2e/test_dask.py; these run with `--long`.
"""

from __future__ import annotations

import sys

import pytest

from fedboost.runtime.party.workers import dask_part_workers
from tests.e2e import world
from tests.support import drills
from tests.support.dask_cluster import dask_cluster
from tests.support.dask_drills import GUEST, HOST, STRUCK, DaskTown, behind, job, steps
from tests.tiers import number

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.xdist_group("dask")]

PLACES = 30  # of each that dies, evenly over a job's training
LATER_S = 0.1  # at most, behind such a place
GONE_S = (
    1.0,
    dask_part_workers.DASK_CONNECT_S + 2.0,
)  # a scheduler that is waited for, and one that is not
ROWS = 20_000
JOBS = {
    "lattice": job("lattice", n_estimators=4, max_depth=4),
    "plain": job("plain", n_estimators=4, max_depth=4),
}


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """A host of many rows and two workers; its jobs are long enough to be struck anywhere."""
    folder = tmp_path_factory.mktemp("town")
    tables = {
        GUEST: world.toy(rows=ROWS, label=True),
        HOST: world.toy(columns=6, rows=ROWS),
    }
    sources = {name: world.write(folder / f"{name}.parquet", t) for name, t in tables.items()}
    with (
        dask_cluster(tmp_path_factory.mktemp("dask")) as workers,
        world.WarmCluster(
            folder / "c", world.spec(JOBS["plain"]), sources, timers=drills.TIMERS, workers=1
        ) as cluster,
    ):
        made = DaskTown(cluster, workers)
        made.alone(JOBS)
        yield made


@pytest.mark.parametrize("place", range(PLACES))
@pytest.mark.parametrize("who", STRUCK)
def test_a_job_survives_the_death_of_whoever_adds_up_for_it(town, who, place):
    scheme = tuple(JOBS)[place % len(JOBS)]
    at = behind((place + 0.5) / PLACES, steps(town.cluster, town.whole[scheme]))
    later_s = LATER_S * number(f"{who} {place}") / 2**32
    gone_s = GONE_S[place // len(JOBS) % len(GONE_S)]
    done = town.dies(who, JOBS[scheme], at, later_s, gone_s)
    sys.stdout.write(f"\n{who}, {scheme}, {place} of {PLACES} and {later_s:.3f} s: {done}\n")
