"""A host that adds up rows on a Dask cluster, and the deaths that strike the three: a worker, the
scheduler, or the host's daemon while the workers live on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedboost.messages.job_pb2 import Event
from fedboost.messages.protocol.encrypted_pb2 import CandidateSums
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import Row
from fedboost.runtime.ledger.signed_heads import shared_fields
from fedboost.runtime.policy.account import Account
from tests.e2e import world
from tests.support import drills
from tests.support.dask_cluster import DaskCluster
from tests.support.drills import Drill, Fault

GUEST, HOST = "bank", "shop"
STRUCK = ("worker", "scheduler", "driver")
WORKERS = 2
DEPTH = 4  # of trees, at most
# Sums of a column that a layer tells of its nodes, two of each, and where they divide.
LAYER = 3 * 2 ** (DEPTH - 1)
SUMS = CandidateSums.DESCRIPTOR.full_name


def job(scheme: str, **params: Any) -> dict[str, Any]:
    """A small job of two parties, whose host has rows added up.

    Its answers are always packed: which kind is cheaper, the first tree of an attempt has to guess.
    """
    encryption = {"scheme": scheme, **({"answers": "packed"} if scheme == "lattice" else {})}
    return world.job(GUEST, (HOST,), params={**params, "encryption": encryption})


@dataclass
class DaskTown:
    """Daemons of the two parties, a Dask cluster, and jobs that nobody has disturbed."""

    cluster: ClusterProcesses
    workers: DaskCluster
    whole: dict[str, str] = field(default_factory=dict)  # ids, by scheme

    def works_by(self, workers: object) -> None:
        """Has the host's daemon come up again with other workers."""
        self.cluster.kill(HOST)
        world.edit(self.cluster, HOST, lambda raw: raw.update(workers=workers))
        self.cluster.start(HOST)
        self.cluster.wait(HOST)

    def alone(self, jobs: Mapping[str, dict[str, Any]]) -> None:
        """Runs jobs at a host that adds up by itself; afterwards it does so on Dask."""
        self.works_by("embedded")
        self.whole |= {scheme: self.finished(raw) for scheme, raw in jobs.items()}
        self.works_by(self.workers.raw())

    def finished(self, raw: dict[str, Any]) -> str:
        """The id of a job that has run to its end."""
        journal = world.run(self.cluster, raw)
        world.result(journal)
        return journal.status.id

    def dies(
        self,
        who: str,
        raw: dict[str, Any],
        at: Callable[[Event], bool],
        later_s: float = 0.0,
        gone_s: float = 1.0,
    ) -> Drill:
        """Kills one so much later than an event of a job: its end, its releases and its ledgers are
        as they should be.

        Whoever died is there again afterwards, a scheduler with its workers after `gone_s`.
        """
        fault = {
            "worker": Fault(self.workers.kill_worker, lambda: self.workers.start_workers(1)),
            "scheduler": Fault(self.workers.kill_scheduler, self.cluster_again, gone_s),
            "driver": drills.killed(self.cluster, HOST),
        }[who]

        def strike() -> None:
            time.sleep(later_s)
            fault.strike()

        whole = self.whole[raw["params"]["encryption"]["scheme"]]
        done = drills.drill(self.cluster, raw, at, replace(fault, strike=strike), whole)
        assert who != "worker" or done.attempts == 1, "a worker's death has paused the job"
        self.released_once(done, whole)
        return done

    def cluster_again(self) -> None:
        """A scheduler takes its workers along: their owner has all begin again."""
        self.workers.close()
        self.workers.workers.clear()
        self.workers.start_scheduler()
        self.workers.start_workers(WORKERS)

    def released_once(self, done: Drill, whole: str) -> None:
        """Nothing stands in a ledger twice, and the account has what an undisturbed job tells.

        Only an attempt that begins in the middle of a tree may tell its first layer again, and
        counts it in full, since nobody knows that the gradients above it were the same.
        """
        sent, came = self._rows(HOST, done.id), self._rows(GUEST, done.id)
        out = Counter(shared_fields(HOST, row) for row in sent if row.direction == "out")
        theirs = Counter(shared_fields(GUEST, row) for row in came if row.direction == "in")
        assert max(out.values()) == 1, "a message stands in the ledger twice"
        assert not theirs - out, "the guest has what nobody has sent"
        mine, expected = _sums(sent), _sums(self._rows(HOST, whole))
        again, more = done.attempts - 1, self._told(done.id) - self._told(whole)
        assert expected, "no sums have left at all"
        assert (mine == expected) or again, "other sums have left"
        assert 0 <= mine.total() - expected.total() <= again * drills.LOST_LAYERS
        assert 0 <= more <= again * LAYER, f"{more} sums were charged beyond what a job tells"

    def _told(self, id_: str) -> int:
        """Sums about the most told column, as the host's account has them of a job."""
        file: Path = self.cluster.store(HOST) / "store.sqlite"
        with closing(Account(file, read_only=True)) as account:
            [found] = [one for one in account.entries() if one.job == id_]
        assert found.counted, "nothing was charged at all"
        return round(found.counted * found.rows)

    def _rows(self, party: str, id_: str) -> list[Row]:
        """A party's ledger of a job; it proves itself whole."""
        file: Path = self.cluster.store(party) / "store.sqlite"
        with closing(Ledger(file, read_only=True)) as ledger:
            ledger.verify()
            return ledger.rows(id_)


def _sums(rows: list[Row]) -> Counter[tuple[int, int]]:
    """How many sums of how many nodes the host has sent, message by message."""
    return Counter((row.values, row.bytes) for row in rows if row.kind == SUMS)


def behind(share: float, of_steps: int) -> Callable[[Event], bool]:
    """True once such a share of the training's steps is done."""
    done, due = 0, max(1, round(share * of_steps))

    def check(event: Event) -> bool:
        nonlocal done
        done += event.WhichOneof("what") == "step" and event.step.stage == "secureboost"
        return done >= due

    return check


def steps(cluster: ClusterProcesses, id_: str) -> int:
    """How many steps a job's training has taken."""
    events = world.watch(cluster, id_)
    return sum(e.WhichOneof("what") == "step" and e.step.stage == "secureboost" for e in events)
