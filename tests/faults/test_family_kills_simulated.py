"""Each daemon is killed just before and just after each kind of durable write; nothing is lost.

Without `--long` few of the kinds are met, each in the first of `TOYS` that has it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import pytest

from fedboost.runtime.local import COORDINATOR
from tests.faults.grounds import WRITES, ground, lines, listed
from tests.invariants import check
from tests.simulator.disk import When, Write
from tests.toys import AGGREGATOR, PARTIES, TOYS, to_its_end

# What a dead process was about to do, it does not do.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")

WHENS: tuple[When, ...] = get_args(When)
SMOKE_EVERY = 12  # of the kinds of writes, so many of a role share one case on each change
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


def cases(*, long: bool) -> Iterator[tuple[str, str, str, When]]:
    """Each kind of write of each daemon, before and after: toy, process, what, when."""
    seen: set[tuple[str, str]] = set()
    for toy, process, what in lines(WRITES):
        kind = ROLES.get(process, "host"), what
        turn = len(seen) % SMOKE_EVERY
        for place, when in enumerate(WHENS):
            if long or (kind not in seen and turn == place * SMOKE_EVERY // 2):
                yield toy, process, what, when
        seen.add(kind)


def pytest_generate_tests(metafunc):
    """Few cases or all; a second kill at every seventh of all."""
    long = metafunc.config.getoption("--long")
    if "share" in metafunc.fixturenames:
        toys, shares = (list(TOYS), MOMENTS) if long else (SMOKE_TOYS, MOMENTS[::3])
        metafunc.parametrize("toy", toys)
        metafunc.parametrize("share", shares)
    if "when" not in metafunc.fixturenames:
        return
    found: list[Any] = list(cases(long=long))
    names: tuple[str, ...] = ("toy", "process", "what", "when")
    if "again" in metafunc.fixturenames:
        found = [(*case, again) for case in (found[::7] if long else found[:2]) for again in AGAIN]
        names = (*names, "again")
    ids = ["-".join(map(str, case)) for case in found]
    metafunc.parametrize(names, found, ids=ids)


def middle(toy: str, process: str, what: str) -> int:
    """Which of the writes of a kind lies in the middle of the job."""
    times = ground(toy).whole.writes.count(Write(process, what))
    return (times + 1) // 2


def test_a_daemon_killed_at_a_write_loses_nothing(toy, process, what, when):
    own = ground(toy)
    plan = KillAt(process, what, when, middle(toy, process, what))
    left = own.run(plan=plan)
    assert plan.kills == 1, "nobody was killed"
    check(own.toy, left, own.whole)


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


def test_daemons_that_are_killed_all_at_once_lose_nothing(toy, share):
    own = ground(toy)
    plan = Blackout(max(1, round(share * len(own.whole.writes))))

    async def work(cluster, job):
        plan.cluster = cluster
        await to_its_end(cluster, job)

    left = own.run(work, plan=plan)
    assert plan.is_out, "nobody was killed"
    check(own.toy, left, own.whole)


def test_the_list_of_writes_is_what_happens(golden):
    golden(WRITES, listed(row for toy in TOYS for row in writes(toy)))
