"""A coordinator, hosts and a submitter that do as they like, and a guest that is as it should be.

They want labels: of metrics over few rows, of sets of rows that differ by few since a
seed, a fold or a host's table is another, and of metrics without end. What else they do: `lies`.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fedboost.data.ids import encode_ids
from fedboost.flow import Spent
from fedboost.ground.ids import EncodedIds
from fedboost.job import JobSpec
from fedboost.runtime.cluster import local
from tests.support.federated import PLAIN, job_spec
from tests.support.lies import JOBS_MAX, Schedule, judged, ruled

GUEST, HOSTS = "bank", ("telco", "mill")
ROWS = 60
PEOPLE = [f"p{row:02d}" for row in range(ROWS)]
KNOWN = encode_ids([pa.chunked_array([pa.array(PEOPLE)])], ["id"])
LABELS = np.random.default_rng(3).integers(0, 2, ROWS)
CLASS_OF = dict(zip(KNOWN, LABELS.tolist(), strict=True))
METRICS = {"eval_metric": ["logloss", "auc"]}
KINDS: dict[str, dict[str, Any]] = {
    "secureboost": {"n_estimators": 2, "max_depth": 1, "max_bin": 2, **METRICS, **PLAIN},
    "federboost-vertical": {"n_estimators": 1, "buckets": 4, "epsilon": 1.0, **METRICS},
}
DROPPED = (0, 0, 1, 2, 9)  # people whom a host leaves out


@dataclass
class Limits:
    """What the guest's owner allows, drawn by a schedule."""

    approve: str
    holdout_rows_min: int
    metrics_max: int
    tells: tuple[str, ...]

    @classmethod
    def drawn(cls, draw: random.Random) -> Limits:
        """Tight ones and wide ones."""
        return cls(
            approve=draw.choice(("always", "never")),
            holdout_rows_min=draw.choice((3, 5, 8)),
            metrics_max=draw.choice((6, 60, 100_000)),
            tells=draw.choice((("metrics",), ("metrics", "curves"), ("metrics", "curves"))),
        )


@dataclass
class LabelsAdversary(Schedule):
    """One schedule against a guest."""

    victim = GUEST
    others = HOSTS

    def __post_init__(self) -> None:
        super().__post_init__()
        self.limits = Limits.drawn(self.draw)
        self.asks_owner = self.limits.approve == "always"
        self._specs: dict[str, JobSpec] = {}

    # The ground

    def ground(self) -> JobSpec:
        """A guest with labels, and hosts that know most of its people."""
        self.write(GUEST, id=PEOPLE, y=LABELS)
        for host in HOSTS:
            self.changes_table(host)
        return job_spec("secureboost", (GUEST, *HOSTS), params=KINDS["secureboost"])

    def changes_table(self, party: str) -> str:
        """A host's table without a few people."""
        dropped = self.draw.choice(DROPPED)
        own = self.draw.sample(PEOPLE, ROWS - dropped)
        values = np.random.default_rng(self.draw.getrandbits(32)).normal(size=len(own))
        self.write(party, id=own, x=values)
        return f"{party} leaves out {dropped}"

    def rule(self) -> None:
        """The guest's policy; hosts allow themselves everything."""
        for name, node in self.town.cluster.parties.items():
            [source] = node.config.datasets.values()
            own = {"labels": ["y"] if name == GUEST else [], "columns": None}
            policy = vars(self.limits) if name == GUEST else {}
            ruled(node, policy, {local.DATASET: source.model_copy(update=own)})

    # Jobs

    async def jobs(self) -> None:
        """The same metrics of other rows, again and again."""
        for _ in range(self.draw.randint(2, JOBS_MAX + 1)):
            protocol = self.draw.choice(list(KINDS))
            hosts = self.draw.choice((HOSTS[:1], HOSTS[1:], HOSTS))
            held = self._held()
            spec = job_spec(protocol, (GUEST, *hosts), params=KINDS[protocol], validation=held)
            self.did.append(f"job {protocol} with {', '.join(hosts)}, held out: {held}")
            job, _ = await self.carry(spec)
            self._specs[job] = spec
            if self.draw.random() < 0.5:
                self.did.append(self.changes_table(self.draw.choice(HOSTS)))

    def _held(self) -> dict[str, Any]:
        seed = self.draw.choice((0, 0, 0, 1))
        if self.draw.random() < 0.6:
            return {"fraction": self.draw.choice((20, 21, 24, 30)) / ROWS, "seed": seed}
        return {"fold": 0, "folds": self.draw.choice((2, 3, 3, 20)), "seed": seed}

    # What must hold

    def assert_within(self) -> None:
        """What an observer has seen leave is what the account says, and within the policy."""
        self.assert_noted()
        seen = self.observer.metrics()
        said = {
            entry.job: sum(entry.charged[Spent.METRICS].values())
            for entry in self.entries
            if Spent.METRICS in entry.charged
        }
        for job in seen.keys() | said.keys():
            told, charged = seen.get(job, 0), said.get(job, 0.0)
            assert told <= charged, "metrics are more than the account says"
            unanswered = job in self.observer.unanswered
            assert unanswered or told == charged, "metrics are not what the account says"
        assert sum(seen.values()) <= self.limits.metrics_max, "more metrics than allowed"
        sets = set(self._measured())
        least = self.limits.holdout_rows_min
        for one in sets:
            assert min(sizes(one)) >= least, "a metric of few people"
        for atom in atoms(sets):
            assert min(sizes(atom)) >= least, "metrics that together tell of few"

    def _measured(self) -> Iterator[frozenset[bytes]]:
        """Yield the held-out rows, and the training rows, of which metrics were told."""
        common = self.observer.ids_in_common(KNOWN)
        for answer in self.observer.remembered_answers():
            spec = self._specs[answer.job]
            ids = common[answer.job, self.observer.aligned(answer.job, answer.before)]
            assert spec.validation is not None
            held = spec.validation.rows(EncodedIds.of(ids))
            for split, told in (("validation", held), ("train", ~held)):
                if split in answer.splits:
                    yield frozenset(one for one, is_told in zip(ids, told, strict=True) if is_told)


def sizes(held: frozenset[bytes]) -> list[int]:
    """How many rows a set has, and how many of each class that is in it."""
    return [len(held), *Counter(CLASS_OF[one] for one in held).values()]


def atoms(sets: Collection[frozenset[bytes]]) -> Iterator[frozenset[bytes]]:
    """Yield the people who are in the same sets, and in one at least."""
    alike: dict[tuple[bool, ...], set[bytes]] = defaultdict(set)
    for person in frozenset().union(*sets):
        alike[tuple(person in one for one in sets)].add(person)
    yield from map(frozenset, alike.values())


def carried_out(draw: random.Random, folder: Path) -> LabelsAdversary:
    """A schedule and what came of it; an error says what was done."""
    return judged(LabelsAdversary(draw, folder))
