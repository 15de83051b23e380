"""Real daemons with bad weather between them: a job ends as if the links had been fair.

A few cases run on each change; every link, every weather and three moments with `--long`.
"""

import sys
from dataclasses import dataclass

import pytest

from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import COORDINATOR
from tests.e2e import world
from tests.support import drills, small_jobs
from tests.support.proxies import BACK, FAIR, SILENT, THERE, Proxy, Weather
from tests.support.whole_jobs import written

pytestmark = pytest.mark.e2e

RAW = small_jobs.raw("secureboost", n_estimators=8)
NAMES = (COORDINATOR, *small_jobs.PARTIES)
# A host never calls another one in this job but in the alignment's ring.
LINKS = [(caller, called) for caller in NAMES for called in NAMES if caller != called]
WEATHERS = {
    "latency": Weather(latency_s=0.05),
    "64 KB/s": Weather(bytes_per_s=64_000),
    "slices": Weather(slices=True),
    "reset": Weather(reset_after=300),
    "silence": SILENT,
    "dead there": Weather(dead=(THERE,)),
    "dead back": Weather(dead=(BACK,)),
}
LASTS = ("silence", "dead there", "dead back")  # until they are mended; the job has to notice
MOMENTS = {
    "alignment": "blind_ids",
    "first tree": "encrypt_gradients",
    "later tree": "choose_splits",
}
SMOKE = (
    ("bank", "telco", "silence", "later tree"),
    (COORDINATOR, "shop", "dead back", "first tree"),
    ("shop", "bank", "reset", "later tree"),
    ("telco", "bank", "slices", "first tree"),
    ("bank", "shop", "64 KB/s", "first tree"),
)


@dataclass(frozen=True)
class Town:
    """Daemons, the links between them, and a job that nobody has disturbed."""

    cluster: ClusterProcesses
    proxy: Proxy
    whole: str


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    folder = tmp_path_factory.mktemp("links")
    sources = written(folder, small_jobs.tables("secureboost"))
    spec = small_jobs.spec("secureboost")
    cluster = ClusterProcesses(folder / "c", spec, sources, timers=drills.TIMERS, workers=1)
    with Proxy(cluster) as proxy, cluster:
        whole = world.run(cluster, RAW)
        world.result(whole)
        yield Town(cluster, proxy, whole.status.id)


def at(moment):
    """True at an event of that moment of the job."""
    step, done = MOMENTS[moment], 2 if moment == "later tree" else 0
    return world.in_round(done, step)


CASES = [
    pytest.param(*case, id="-".join(case), marks=[] if case in SMOKE else [pytest.mark.long])
    for caller, called in LINKS
    for weather in WEATHERS
    for moment in MOMENTS
    for case in [(caller, called, weather, moment)]
]


@world.KILLS
@pytest.mark.parametrize(("caller", "called", "weather", "moment"), CASES)
def test_a_job_comes_to_the_same_model_whatever_the_weather(town, caller, called, weather, moment):
    link = (caller, called)
    fault = drills.Fault(
        lambda: town.proxy.set(WEATHERS[weather], link),
        lambda: town.proxy.set(FAIR),
    )
    done = drills.drill(town.cluster, RAW, at(moment), fault, town.whole)
    sys.stdout.write(f"\n{caller} -> {called}, {weather}, {moment}: {done}\n")
    assert done.detect_s is None or done.detect_s < drills.DETECT_S
    assert done.resume_s is None or done.resume_s < drills.RESUME_S
    if weather not in (*LASTS, "reset"):
        assert done.attempts == 1, "slow is not lost"
