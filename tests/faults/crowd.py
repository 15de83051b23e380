"""`python -m tests.faults.crowd`: many jobs at once, few places, and a coordinator that is killed.

Every job finishes, and a restart of the coordinator pauses only the jobs that ran.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedboost.ground.errors import UnreachableError
from fedboost.runtime.client.client import CoordinatorClient
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import COORDINATOR
from tests.e2e import world
from tests.faults.soak import PROTOCOLS, job_of, say, town
from tests.support import drills, small_jobs

AT_ONCE, OPEN_MAX = 6, 4  # jobs at the coordinator, and of it at each party
KILL_EVERY_S = (10.0, 30.0)
RESTARTED = "the coordinator was restarted"


@dataclass(frozen=True)
class Crowd:
    """What came of many jobs."""

    states: Counter[str]
    kills: int
    pauses: int  # that the coordinator's log ascribes to its restarts
    seconds: float

    @property
    def wrong(self) -> list[str]:
        """What should not have come of them."""
        lost = [f"{count} jobs are {state}" for state, count in self.states.items()
                if state != "finished"]  # fmt: skip
        if self.pauses > self.kills * AT_ONCE:
            lost.append(f"{self.kills} kills paused {self.pauses} jobs, and {AT_ONCE} run at once")
        return lost


def crowd(folder: Path, jobs: int, seed: int) -> Crowd:
    """Hands in so many jobs, and kills the coordinator until all are over."""
    draw, kills, began = random.Random(seed), 0, time.monotonic()
    cluster = town(folder)
    for party in small_jobs.PARTIES:
        world.edit(cluster, party, _change("policy", jobs_open_max=OPEN_MAX))
    world.edit(cluster, COORDINATOR, lambda raw: raw.update(jobs_at_once=AT_ONCE))
    with cluster:
        for _ in range(jobs):
            drills.submitted(cluster, job_of(draw.choice(PROTOCOLS)))
        while set(states := _states(cluster)) - set(world.ENDS):
            say(f"{dict(states)}, {kills} kills\n")
            time.sleep(draw.uniform(*KILL_EVERY_S))
            fault = drills.killed(cluster, COORDINATOR)
            fault.strike()
            fault.mend()
            kills += 1
        pauses = cluster.log(COORDINATOR).read_text().count(RESTARTED)
    return Crowd(states, kills, pauses, time.monotonic() - began)


def _states(cluster: ClusterProcesses) -> Counter[str]:
    """How many jobs are in each state."""

    async def work() -> Counter[str]:
        async with CoordinatorClient(cluster.client, retry_s=5.0) as client:
            return Counter(job.state for job in await client.jobs())

    def once() -> Counter[str] | None:
        with suppress(UnreachableError):
            return asyncio.run(work())
        return None

    found: Counter[str] = world.wait_for(once, drills.END_S, "the coordinator lists its jobs")
    return found


def _change(section: str, **values: Any) -> Callable[[dict[str, Any]], None]:
    def change(raw: dict[str, Any]) -> None:
        raw[section].update(values)

    return change


def main() -> int:
    """0 where no job was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.crowd", description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    asked = parser.parse_args()
    say(f"seed {asked.seed}\n")
    with tempfile.TemporaryDirectory() as folder:
        done = crowd(Path(folder), asked.jobs, asked.seed)
    say(f"{dict(done.states)}, {done.kills} kills, {done.pauses} pauses, {done.seconds:.0f} s\n")
    for wrong in done.wrong:
        say(f"wrong: {wrong}\n")
    return 1 if done.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
