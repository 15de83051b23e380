"""Each daemon is killed just before and just after each kind of durable write; nothing is lost.

On each change every daemon of every job is killed at a kind of write, all of a job in one run. With
`--all` every kind of write of every daemon is met so, and few of them alone, each in the first of
`TOYS` that has it; with `--long` every one alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, get_args

import pytest

from fedboost.runtime.cluster.local import COORDINATOR
from tests import tiers
from tests.faults.grounds import WRITES, ground, lines, listed
from tests.simulator.disk import When, Write
from tests.support.invariants import check
from tests.support.toys import AGGREGATOR, PARTIES, TOYS, to_its_end
from tests.tiers import Tier

# What a dead process was about to do, it does not do.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")

WHENS: tuple[When, ...] = get_args(When)
SMOKE_EVERY = 12  # of the kinds of writes, so many of a role share one case on each change
KILLS_EACH = 8  # that share a run with `--all`
MOMENTS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.99)  # of a job's writes, when everybody is killed
SMOKE_TOYS = ("vertical", "gbun")
AGAIN = (1, 3, 6)  # the write of its second life at which a daemon is killed again
ROLES = {COORDINATOR: COORDINATOR, PARTIES[0]: "guest", AGGREGATOR: "aggregator"}  # others: host


@dataclass
class KillAt:
    """Kills a daemon at the n-th write of a kind; and again at the k-th write of its next life."""

    process: str
    what: str
    when: When
    times: int
    again: int = 0
    kills: int = 0
    seen: int = 0

    def __call__(self, write: Write, when: When) -> bool:
        """Whether to kill now."""
        if write.process != self.process or when != self.when:
            return False
        if not self.kills:
            self.seen += write.what == self.what
            due = self.seen == self.times
        else:
            self.seen += 1
            due = self.kills == 1 and self.seen == self.again
        if due:
            self.kills, self.seen = self.kills + 1, 0
        return due


@dataclass
class KillEach:
    """Kills daemons at the first of each of some kinds of writes."""

    due: set[tuple[str, str, When]]
    kills: list[tuple[str, str, When]] = field(default_factory=list)

    def __call__(self, write: Write, when: When) -> bool:
        """Whether to kill now."""
        kind = write.process, write.what, when
        if kind not in self.due:
            return False
        self.due.remove(kind)
        self.kills.append(kind)
        return True


@dataclass
class Blackout:
    """Kills everybody just after one of the writes, whosever it is."""

    times: int
    cluster: Any = None
    seen: int = 0
    is_out: bool = False

    def __call__(self, write: Write, when: When) -> bool:
        """Whether to kill now."""
        self.seen += when == "after"
        if self.is_out or self.cluster is None or self.seen < self.times or when != "after":
            return False
        self.is_out = True
        for name in self.cluster.place.names:
            self.cluster.loop.call_soon_threadsafe(
                self.cluster.kill, name, context=self.cluster.outside
            )
        return True


def writes(toy: str) -> Iterator[tuple[str, str, str]]:
    """Every kind of durable write in a toy's job; of the hosts those of the first."""
    for write in ground(toy).whole.writes:
        if write.process != PARTIES[2]:
            yield toy, write.process, write.what


Case = tuple[str, str, str, When]  # toy, process, what, when


def several() -> Iterator[tuple[str, list[Case]]]:
    """Kills that share a run, by toy: of every daemon one; with `--all` every one there is."""
    for toy in TOYS:
        known = [(*row, when) for row in lines(WRITES) if row[0] == toy for when in WHENS]
        runs = max(1, round(len(known) / KILLS_EACH))
        if tiers.runs(Tier.ALL):
            yield from ((toy, known[run::runs]) for run in range(runs))
        else:
            yield toy, tiers.of_each(known, itemgetter(1))


def cases() -> Iterator[Case]:
    """Each kind of write of each daemon, before and after; few without `--long`."""
    seen: set[tuple[str, str]] = set()
    for toy, process, what in lines(WRITES) if tiers.runs(Tier.ALL) else ():
        kind = ROLES.get(process, "host"), what
        turn = len(seen) % SMOKE_EVERY
        for place, when in enumerate(WHENS):
            if tiers.runs(Tier.LONG) or (kind not in seen and turn == place * SMOKE_EVERY // 2):
                yield toy, process, what, when
        seen.add(kind)


def kills_again() -> Iterator[tuple[*Case, int]]:
    """A second kill at every seventh of all; at the first ones without `--long`."""
    first = list(cases())
    chosen = first[::7] if tiers.runs(Tier.LONG) else first[:2]
    yield from ((*case, again) for case in chosen for again in AGAIN)


def blackouts() -> list[tuple[str, float]]:
    """Toys, and the share of the writes behind which everybody dies."""
    if tiers.runs(Tier.LONG):
        return [(toy, share) for toy in TOYS for share in MOMENTS]
    known = [(toy, share) for toy in SMOKE_TOYS for share in MOMENTS[::3]]
    return tiers.sampled(known, 2)


def middle(toy: str, process: str, what: str) -> int:
    """Which of the writes of a kind lies in the middle of the job."""
    times = ground(toy).whole.writes.count(Write(process, what))
    return (times + 1) // 2


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("toy", "kills"), [pytest.param(*run, id=f"{run[0]}-{n}") for n, run in enumerate(several())]
)
def test_daemons_killed_at_one_write_after_the_other_lose_nothing(toy, kills):
    own = ground(toy)
    plan = KillEach({kill[1:] for kill in kills})
    left = own.run(plan=plan)
    assert all(may_be_joined(toy, *due) for due in plan.due), "not everybody was killed"
    check(own.toy, left, own.whole)


def may_be_joined(toy: str, process: str, what: str, _: When) -> bool:
    """Whether a daemon writes the same at once with more, as others may be ahead after a kill."""
    parts = {*what.removeprefix("ledger ").split(", ")}
    known = [other for name, own, other in lines(WRITES) if (name, own) == (toy, process)]
    return any(parts < {*other.removeprefix("ledger ").split(", ")} for other in known)


@pytest.mark.parametrize(("toy", "process", "what", "when"), list(cases()))
def test_a_daemon_killed_at_a_write_loses_nothing(toy, process, what, when):
    own = ground(toy)
    plan = KillAt(process, what, when, middle(toy, process, what))
    left = own.run(plan=plan)
    assert plan.kills == 1, "nobody was killed"
    check(own.toy, left, own.whole)


@pytest.mark.parametrize(("toy", "process", "what", "when", "again"), list(kills_again()))
def test_a_daemon_killed_again_while_it_recovers_loses_nothing(toy, process, what, when, again):
    own = ground(toy)
    plan = KillAt(process, what, when, middle(toy, process, what), again)
    left = own.run(plan=plan)
    assert plan.kills >= 1, "nobody was killed"
    check(own.toy, left, own.whole)


def test_a_model_that_is_saved_anew_is_not_lost_when_its_daemon_dies_in_between():
    """One host dies before its model is whole, the other while it saves its own once more."""
    own = ground("secureboost")
    first = KillAt(PARTIES[2], "secureboost-done/checkpoint.json", "before", 1)
    second = KillAt(PARTIES[1], "models.old", "after", 1)
    left = own.run(plan=lambda write, when: first(write, when) or second(write, when))
    assert (first.kills, second.kills) == (1, 1), "nobody was killed"
    check(own.toy, left, own.whole)


@pytest.mark.parametrize(("toy", "share"), blackouts())
def test_daemons_that_are_killed_all_at_once_lose_nothing(toy, share):
    own = ground(toy)
    plan = Blackout(max(1, round(share * len(own.whole.writes))))

    async def work(cluster, job):
        plan.cluster = cluster
        await to_its_end(cluster, job)

    left = own.run(work, plan=plan)
    assert plan.is_out, "nobody was killed"
    check(own.toy, left, own.whole)


@pytest.mark.some(3)
@pytest.mark.parametrize("toy", TOYS)
def test_the_list_of_writes_is_what_happens(toy, request):
    listed(WRITES, toy, writes(toy), rewrite=request.config.getoption("--rewrite"))
