"""Random schedules: any call may meet any fault, any daemon may be killed; one seed says when.

Two hundred on each change, ten thousand with `--long`. A seed that fails is in the case's name:

    pytest tests/faults/test_family_schedules.py --long -k "seed-4711"
"""

import random
from dataclasses import dataclass, field

import pytest

from tests.faults.grounds import ground
from tests.invariants import check
from tests.simulator.disk import When, Write
from tests.simulator.fates import FAULTS, AtRandom, Past

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")

SEEDS, SEEDS_LONG = 200, 10_000
# Schedules that once found something: a model lost while another replaced it, and weather in which
# no job ends.
FOUND = (399, 914, 1605, 2202, 4599)
TOYS_OFTEN = ("vertical", "predict", "predict-scored", "gbun", "hybrid-scored", "secureboost")
TOYS_SELDOM = ("horizontal", "predict-unscored", "warm-start", "hybrid-unscored")
SELDOM = 0.1
KILLS_MAX = 2
KILL_RATE = 0.004  # of the durable writes
KILLED = 0.5  # of the schedules
RATES = (0.01, 0.05, 0.2)  # of the calls that meet a fault


@dataclass
class KillsAtRandom:
    """Kills whoever writes, seldom, a few times in all."""

    draw: random.Random
    kills: list[tuple[Write, When]] = field(default_factory=list)
    most: int = KILLS_MAX

    def __call__(self, write: Write, when: When) -> bool:
        """Whether to kill now."""
        if len(self.kills) >= self.most or self.draw.random() > KILL_RATE:
            return False
        self.kills.append((write, when))
        return True


def pytest_generate_tests(metafunc):
    """Few seeds or all."""
    if "seed" in metafunc.fixturenames:
        seeds = (
            range(SEEDS_LONG) if metafunc.config.getoption("--long") else (*range(SEEDS), *FOUND)
        )
        metafunc.parametrize("seed", seeds, ids=lambda seed: f"seed-{seed}")


def test_whatever_the_schedule_the_job_is_the_undisturbed_one(seed):
    draw = random.Random(seed)
    own = ground(draw.choice(TOYS_SELDOM if draw.random() < SELDOM else TOYS_OFTEN))
    rate, kills = draw.choice(RATES), KillsAtRandom(draw)
    kills.most = KILLS_MAX if draw.random() < KILLED else 0
    schedule = AtRandom(seed, Past(own.earlier.trips), rate, FAULTS)
    try:
        check(own.toy, own.run(seed=seed, schedule=schedule, plan=kills), own.whole)
    except Exception as error:
        faults = ", ".join(f"{what} {fault}" for fault, what in schedule.happened)
        killed = ", ".join(f"{w.process} {when} {w.what}" for w, when in kills.kills)
        error.add_note(f"seed {seed}, {own.toy.name}, faults: {faults}; killed: {killed}")
        raise


@pytest.mark.parametrize("toy", ["vertical", "gbun"])
def test_a_seed_is_one_schedule(toy):
    own, seen = ground(toy), []
    for _ in range(2):
        schedule = AtRandom(7, Past(own.earlier.trips), 0.1)
        left = own.run(seed=7, schedule=schedule, plan=KillsAtRandom(random.Random(7)))
        sent = [(t.what, t.sender, t.receiver) for t in left.trips]
        seen.append((schedule.happened, sent, left.writes, left.seconds))
    assert seen[0] == seen[1]
    assert len(seen[0][0]) > 3
