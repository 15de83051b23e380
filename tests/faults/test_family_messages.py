"""Every kind of message, and of call, meets each of seven faults: nothing is lost.

Without `--long` each kind of message is tried in one job only, the first of `TOYS` that has it, and
those of jobs that take longer with two of the faults.
"""

from collections.abc import Iterator

import pytest

from fedboost import protocols
from fedboost.runtime.local import USER
from tests.faults.grounds import MESSAGES, ground, lines, listed
from tests.invariants import check
from tests.simulator.fates import FAULTS, Once, Past
from tests.toys import TOYS, to_its_end

BEFORE = "Hello"  # asked before there is a job: where it is lost, none is taken in
QUICK = ("vertical", "predict", "predict-scored", "gbun")


def calls(toy: str) -> Iterator[tuple[str, str, str]]:
    """Every kind of call in a toy's job, by who makes it."""
    for trip in ground(toy).whole.trips:
        if trip.what != BEFORE and trip.sender in ground(toy).place(MESSAGES).names:
            yield toy, "coordinator" if trip.envelope is None else "party", trip.what


def cases(*, long: bool) -> Iterator[tuple[str, str, str]]:
    """Each kind of call with each fault: toy, what, fault."""
    seen: set[str] = set()
    for toy, who, what in lines(MESSAGES):
        is_step = who == "coordinator" and what.startswith("RunStep")
        for place, fault in enumerate(FAULTS):
            spared = toy not in QUICK and (len(seen) + place) % len(FAULTS) > 1
            if long or not (what in seen or is_step or spared):
                yield toy, what, fault
        seen.add(what)


def pytest_generate_tests(metafunc):
    """Few cases or all."""
    if "what" in metafunc.fixturenames:
        found = list(cases(long=metafunc.config.getoption("--long")))
        metafunc.parametrize(("toy", "what", "fault"), found, ids=["-".join(c) for c in found])


def test_whatever_befalls_a_message_the_job_is_the_undisturbed_one(toy, what, fault):
    own = ground(toy)
    schedule = Once(what, fault, Past(own.earlier.trips))
    left = own.run(schedule=schedule)
    assert schedule.has_happened, f"{what} never came"
    check(own.toy, left, own.whole)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_job_is_handed_in_once_whatever_befalls_its_submission(fault):
    own = ground("vertical")
    jobs: list[str] = []
    schedule = Once("Submit", fault, Past(own.earlier.trips), USER)

    async def work(made, job):
        await to_its_end(made, job)
        jobs.extend(one.id for one in await made.client().jobs())

    left = own.run(work, schedule=schedule)
    assert schedule.has_happened
    assert jobs == [own.earlier.job, left.job]
    check(own.toy, left, own.whole)


def test_the_list_of_messages_is_what_happens(golden):
    golden(MESSAGES, listed(row for toy in TOYS for row in calls(toy)))


def test_every_message_type_of_every_protocol_is_tried():
    tried = {what for _, _, what in lines(MESSAGES)}
    for name, protocol in protocols.known().items():
        steps = [step.name for step in protocol.flow if step.gives is not None]
        missing = [step for step in steps if f"{name}.{step}" not in tried]
        assert name == "echo" or not missing, (name, missing)
