"""Random schedules: any call may meet any fault, any daemon may be killed; one seed says when.

A few on each change, chosen by the commit, two hundred with `--all`, ten thousand with `--long`. A
seed that fails is in the case's name:

    pytest tests/faults/test_family_schedules.py --long -k "seed-4711"

and one beyond those ten thousand with the FEDBOOST_TEST_SEED that has chosen it.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests import tiers
from tests.faults.grounds import ground
from tests.simulator.disk import When, Write
from tests.simulator.fates import FAULTS, AtRandom, Past
from tests.support.invariants import check
from tests.tiers import Tier

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")

SEEDS_CHANGE, SEEDS, SEEDS_LONG = 10, 200, 10_000
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


def drawn(seed: int) -> tuple[random.Random, str]:
    """A seed's dice, and the toy that they have chosen first."""
    draw = random.Random(seed)
    return draw, draw.choice(TOYS_SELDOM if draw.random() < SELDOM else TOYS_OFTEN)


def cases() -> Iterator[Any]:
    """Few seeds or all, each with its toy."""
    seeds: Iterable[int] = range(SEEDS_LONG) if tiers.runs(Tier.LONG) else (*range(SEEDS), *FOUND)
    if not tiers.runs(Tier.ALL):
        first = tiers.number("schedules")
        seeds = [first + n for n in range(SEEDS_CHANGE)] + tiers.sampled(FOUND, 1)
    for seed in seeds:
        yield pytest.param(seed, drawn(seed)[1], id=f"seed-{seed}")


@pytest.mark.some(3)
@pytest.mark.parametrize(("seed", "toy"), list(cases()))
def test_whatever_the_schedule_the_job_is_the_undisturbed_one(seed, toy):
    draw, own = drawn(seed)[0], ground(toy)
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


@pytest.mark.some(1)
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
