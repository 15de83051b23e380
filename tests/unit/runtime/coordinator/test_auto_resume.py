"""Paused jobs go on when everybody is back, soon, and never faster than it makes sense."""

import asyncio
import itertools

from fedboost.ground.errors import PeerError, UnreachableError
from fedboost.messages.job_pb2 import HelloReply
from fedboost.runtime.coordinator.auto_resume import (
    TELL_S,
    VAIN_MAX,
    AutoResume,
    Notifications,
    first_gone,
)
from fedboost.runtime.process.clock import monotonic_s
from fedboost.runtime.transport.addresses import Timers
from tests.support.hurry import hurried
from tests.support.walks import BANK, HOSTS, walk_of

TIMERS = Timers()
RESUMED_S = 10.0  # within so much of a return a job goes on
NOTICED_S = 15.0  # and of a death it pauses


class Absent:
    """A party that is away, and cut off from peers, between moments of the loop's clock."""

    def __init__(self, gone=(0.0, 0.0), cut=(0.0, 0.0), refuses=None, slow_s=0.0):
        self.gone, self.cut, self.refuses, self.slow_s = gone, cut, refuses, slow_s
        self.looks = 0

    async def hello(self, *, retries=True):
        """Who is there, if anybody is."""
        assert not retries
        self.looks += 1
        await asyncio.sleep(self.slow_s)
        if self.gone[0] <= monotonic_s() < self.gone[1]:
            raise UnreachableError("nobody is there")
        if self.refuses is not None:
            raise self.refuses
        return HelloReply()

    async def reaches(self, _):
        """Whether a peer is."""
        return not self.cut[0] <= monotonic_s() < self.cut[1]


class Goes:
    """When jobs went on."""

    def __init__(self):
        self.at, self.happened = [], asyncio.Event()

    async def __call__(self, job):
        """Notes it."""
        self.at.append(monotonic_s())
        self.happened.set()


def waited(first_gone_s, *parties, gained=True, attempts=1):
    """How long after `first_gone_s` a job of these parties went on, for each of its attempts."""

    async def run():
        goes = Goes()
        named = {f"party-{place}": one for place, one in enumerate(parties)}
        returns = AutoResume(named.__getitem__, TIMERS, goes)
        for _ in range(attempts):
            goes.happened.clear()
            returns.expect("job-1", named, gained=gained)
            await goes.happened.wait()
        return [at - 1000.0 - first_gone_s for at in goes.at]

    return hurried(run())


def gone_for(seconds):
    return Absent(gone=(0.0, 1000.0 + seconds))


def test_a_job_goes_on_within_seconds_of_a_return_however_long_it_took():
    for seconds in (0.0, 1.0, 16.0, 300.0, 3600.0):
        [late] = waited(seconds, gone_for(seconds), Absent())
        assert 0 <= late < RESUMED_S / 2


def test_it_goes_on_when_the_last_party_is_back():
    [late] = waited(60.0, gone_for(30.0), gone_for(60.0), gone_for(1.0))
    assert 0 <= late < RESUMED_S / 2


def test_parties_that_are_there_and_do_not_reach_each_other_are_not_asked_in_vain():
    [late] = waited(90.0, Absent(), Absent(cut=(0.0, 1090.0)))
    assert 0 <= late < RESUMED_S / 2


def test_an_hour_of_waiting_is_two_thousand_looks_and_no_more():
    party = gone_for(3600.0)
    waited(3600.0, party)
    assert 3600 / 2 <= party.looks < 3600 / 0.9


def test_a_party_that_refuses_us_is_there():
    assert waited(0.0, Absent(refuses=PeerError("your certificate has been revoked")))


def test_attempts_that_keep_nothing_follow_each_other_ever_more_slowly():
    at = waited(0.0, Absent(), gained=False, attempts=10)
    pauses = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert pauses[0] <= 2.0
    assert all(10.0 <= pause <= TIMERS.retry_max_s for pause in pauses[-3:])
    at = waited(0.0, Absent(), gained=True, attempts=10)
    assert at[-1] <= 10 * TIMERS.retry_first_s


def test_after_many_attempts_in_vain_a_person_has_to_look():
    async def run():
        returns = AutoResume({BANK: Absent()}.__getitem__, TIMERS, Goes())
        taken = [returns.expect("job-1", [BANK], gained=False) for _ in range(VAIN_MAX + 1)]
        assert taken == [True] * VAIN_MAX + [False]
        await asyncio.sleep(100.0)
        assert returns.expect("job-1", [BANK], gained=True), "a person has resumed it"
        returns.close()

    hurried(run())


def test_a_job_that_somebody_has_decided_about_is_left_alone():
    async def run():
        goes = Goes()
        returns = AutoResume({BANK: gone_for(5.0)}.__getitem__, TIMERS, goes)
        returns.expect("job-1", [BANK], gained=True)
        returns.expect("job-2", [BANK], gained=True)
        returns.drop("job-1")
        await asyncio.sleep(60.0)
        assert len(goes.at) == 1

    hurried(run())


# Deaths of parties that are asked for nothing


def noticed(parties, *, begun=True, busy=(), spares=False, for_s=60.0):
    """Who was found gone, and when; None for nobody."""

    async def run():
        job, _, _ = walk_of()
        job.has_begun, job.spares = begun, spares
        job.waiting.update(dict.fromkeys(busy))
        links = {p: parties.get(p, Absent()) for p in job.everybody}
        try:
            async with asyncio.timeout(for_s):
                error = await first_gone(job, links.__getitem__, TIMERS)
        except TimeoutError:
            return None
        return error.where["party"], monotonic_s() - 1000.0

    return hurried(run())


def test_an_idle_party_that_dies_is_noticed_in_time():
    for moment in (0.0, 1.0, 4.9, 5.1, 12.0):
        host = Absent(gone=(1000.0 + moment, 1e9))
        party, at = noticed({HOSTS[0]: host})
        assert party == HOSTS[0]
        assert moment < at <= moment + NOTICED_S


def test_a_short_absence_is_no_death():
    assert noticed({HOSTS[0]: Absent(gone=(1004.0, 1011.0))}) is None


def test_a_slow_answer_is_one_and_a_frozen_party_is_dead():
    assert noticed({HOSTS[0]: Absent(slow_s=8.0)}) is None
    party, at = noticed({HOSTS[0]: Absent(slow_s=1e6)})
    assert party == HOSTS[0]
    assert at <= NOTICED_S


def test_whoever_is_at_work_or_not_needed_is_not_looked_at():
    dead = {HOSTS[0]: Absent(gone=(0.0, 1e9))}
    assert noticed(dead, busy=HOSTS[:1]) is None
    assert noticed(dead, spares=True) is None
    assert noticed(dead, begun=False) is None
    assert noticed(dead) is not None


# Ends that somebody missed


class StatusReport:
    """Parties that hear of an end, some of them late."""

    def __init__(self, back_at):
        self.id, self.back_at, self.heard = "job-1", back_at, {}
        self.lost: list[str] = []

    async def stop(self, state, reason, parties=()):
        """Those that are still gone."""
        late = []
        for party in parties or tuple(self.back_at):
            if monotonic_s() < self.back_at[party]:
                late.append(party)
            else:
                self.heard[party] = state
        return tuple(late)


def test_whoever_missed_an_end_hears_it_when_it_is_back():
    async def run():
        walk = StatusReport({BANK: 0.0, "telco": 1500.0, "shop": 1000.0 + TELL_S + 100})
        errands = Notifications(TIMERS)
        await errands.notify_parties(walk, "cancelled", PeerError("x"))
        assert walk.heard == {BANK: "cancelled"}
        await asyncio.sleep(500.0 + TIMERS.retry_max_s)
        assert walk.heard == {BANK: "cancelled", "telco": "cancelled"}
        await asyncio.sleep(TELL_S + 200)
        assert "shop" not in walk.heard
        assert not errands._under_way

    hurried(run())


def test_a_pause_is_told_once():
    async def run():
        walk = StatusReport({"telco": 1500.0})
        errands = Notifications(TIMERS)
        await errands.notify_parties(walk, "paused", PeerError("x"))
        assert not errands._under_way

    hurried(run())


def test_a_host_that_a_finished_job_has_lost_forgets_it_when_it_is_back():
    async def run():
        told = StatusReport({"telco": monotonic_s(), "shop": monotonic_s() + 40.0})
        told.lost = ["shop"]
        errands = Notifications(TIMERS)
        await errands.notify_parties(told, "finished", None)
        await asyncio.sleep(90.0)
        assert told.heard == {"shop": "cancelled"}
        assert not errands._under_way

    hurried(run())
