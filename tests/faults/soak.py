"""`python -m tests.faults.soak`: jobs of three protocols at once on real daemons, a fault a minute.

No job hangs, every model is the undisturbed one, and no daemon grows.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import COORDINATOR
from tests.e2e import world
from tests.support import drills, small_jobs
from tests.support.proxies import FAIR, SILENT, Proxy, Weather
from tests.support.whole_jobs import written

PROTOCOLS = ("secureboost", "federboost-horizontal", "hybridtree")
NAMES = (COORDINATOR, *small_jobs.PARTIES)
FAULT_EVERY_S = 60.0
FAULT_LASTS_S = (1.0, 15.0)
SAMPLE_S = 5.0  # between two looks at the daemons' memory
WARM_UP = 0.1  # of the time, in which daemons may still grow
GROWTH_MAX = 0.05


@dataclass
class Soak:
    """Daemons, what was seen of them, and what went wrong."""

    cluster: ClusterProcesses
    proxy: Proxy
    seed: int
    rest_s: float = 0.0  # of each protocol between two jobs
    over: threading.Event = field(default_factory=threading.Event)
    jobs: dict[str, int] = field(default_factory=dict)
    faults: int = 0
    wrong: list[str] = field(default_factory=list)
    memory: list[dict[str, int]] = field(default_factory=list)  # resident bytes by daemon

    def train(self, name: str, raw: dict[str, Any], whole: str) -> None:
        """Job after job of one protocol; each leaves the model of `whole`."""
        while not self.over.is_set():
            id_ = drills.submitted(self.cluster, raw)
            drills.carried_on(self.cluster, id_, 0)
            drills.assert_same(self.cluster, id_, whole)
            self.jobs[name] = self.jobs.get(name, 0) + 1
            self.over.wait(self.rest_s)

    def strike(self) -> None:
        """A random fault each minute, mended before the next."""
        draw = random.Random(self.seed)
        while not self.over.wait(FAULT_EVERY_S):
            name, fault = draw.choice(self.kinds(draw))
            say(f"fault {self.faults}: {name}\n")
            fault.strike()
            time.sleep(draw.uniform(*FAULT_LASTS_S))
            fault.mend()
            self.faults += 1

    def kinds(self, draw: random.Random) -> list[tuple[str, drills.Fault]]:
        """One fault of each kind, at daemons and links of the draw's choosing."""
        who, link = draw.choice(NAMES), draw.choice(self.proxy.links)
        weathers = {
            "silence": SILENT,
            "latency": Weather(latency_s=0.05),
            "slices": Weather(slices=True),
            "reset": Weather(reset_after=draw.randrange(1000)),
        }

        def bad(weather: Weather) -> drills.Fault:
            return drills.Fault(lambda: self.proxy.set(weather, link), lambda: self.proxy.set(FAIR))

        return [
            (f"{who} is killed", drills.killed(self.cluster, who)),
            (f"{who} stands still", drills.frozen(self.cluster, who)),
            *((f"{word} from {link[0]} to {link[1]}", bad(w)) for word, w in weathers.items()),
        ]

    def watch_memory(self) -> None:
        """Notes how much memory each daemon holds, its workers included."""
        while not self.over.wait(SAMPLE_S):
            self.memory.append({name: self.resident(name) for name in NAMES})

    def resident(self, name: str) -> int:
        """Bytes; 0 for a daemon that is not there."""
        total = 0
        for pid in world.processes(self.cluster.processes[name].pid):
            with suppress(psutil.Error):  # it has just ended
                total += psutil.Process(pid).memory_info().rss
        return total

    def growth(self) -> dict[str, float]:
        """By how much the second half's peak of each daemon is above the first half's."""
        seen = self.memory[int(len(self.memory) * WARM_UP) :]
        first, second = seen[: len(seen) // 2], seen[len(seen) // 2 :]
        return {
            name: max(s[name] for s in second) / max(s[name] for s in first) - 1.0
            for name in NAMES
            if first and second
        }

    def guarded(self, work: Callable[[], None]) -> threading.Thread:
        """A thread whose failure ends the soak."""

        def body() -> None:
            try:
                work()
            except Exception as error:  # whatever it is, it is the result
                self.wrong.append(f"{type(error).__name__}: {str(error)[:500]}")
                self.over.set()

        thread = threading.Thread(target=body)
        thread.start()
        return thread


def job_of(name: str) -> dict[str, Any]:
    """A toy job on the data set of its protocol."""
    raw = small_jobs.raw(name)
    for party in raw["data"].values():
        party["dataset"] = name
    return raw


def town(folder: Path) -> ClusterProcesses:
    """Daemons that hold the tables of all three protocols."""
    sources = written(folder / PROTOCOLS[0], small_jobs.tables(PROTOCOLS[0]))
    cluster = ClusterProcesses(
        folder / "c", small_jobs.spec(PROTOCOLS[0]), sources, timers=drills.TIMERS, workers=1
    )
    for name in PROTOCOLS:
        own = written(folder / name, small_jobs.tables(name))
        for party, source in own.items():
            world.edit(cluster, party, _holding(name, str(source.path)))
    return cluster


def _holding(name: str, path: str) -> Callable[[dict[str, Any]], None]:
    def change(raw: dict[str, Any]) -> None:
        raw["datasets"][name] = {**raw["datasets"]["data"], "path": path, "labels": ["y"]}
        raw["policy"]["datasets"] = list(raw["datasets"])

    return change


def soak(folder: Path, minutes: float, seed: int, rest_s: float) -> Soak:
    """Runs jobs and faults for so long."""
    cluster = town(folder)
    with Proxy(cluster, seed) as proxy, cluster:
        wholes = {name: world.run(cluster, job_of(name)) for name in PROTOCOLS}
        for whole in wholes.values():
            world.result(whole)
        run = Soak(cluster, proxy, seed, rest_s)
        threads = [
            run.guarded(lambda n=name, w=whole: run.train(n, job_of(n), w.status.id))  # type: ignore[misc]
            for name, whole in wholes.items()
        ]
        threads += [run.guarded(run.strike), run.guarded(run.watch_memory)]
        run.over.wait(60 * minutes)
        run.over.set()
        for thread in threads:
            thread.join()
        run.wrong += [f"the log of {name} holds a traceback" for name in world.tracebacks(cluster)]
    return run


def say(text: str) -> None:
    """A line at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> int:
    """0 where nothing hung, nothing differed and nothing grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument(
        "--rest", type=float, default=0.0, help="seconds between two jobs of a protocol"
    )
    asked = parser.parse_args()
    say(f"seed {asked.seed}\n")
    with tempfile.TemporaryDirectory() as folder:
        done = soak(Path(folder), asked.minutes, asked.seed, asked.rest)
    growth = done.growth()
    say(f"jobs {done.jobs}, faults {done.faults}\n")
    say("memory " + ", ".join(f"{name} {by:+.1%}" for name, by in growth.items()) + "\n")
    grown = [f"{name} grew by {by:.1%}" for name, by in growth.items() if by > GROWTH_MAX]
    for wrong in (*done.wrong, *grown):
        say(f"wrong: {wrong}\n")
    return 1 if done.wrong or grown else 0


if __name__ == "__main__":
    sys.exit(main())
