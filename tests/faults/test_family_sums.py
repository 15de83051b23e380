"""A random adversary of sums under masks, who is everybody but two contributors.

A few schedules on each change, two hundred with `--all`, ten thousand with `--long`. A seed that
fails is in the case's name.
"""

import random
from typing import Any

import numpy as np
import pytest

from fedboost.aggregation import standing
from fedboost.aggregation.contributor import Contributor
from fedboost.aggregation.recovery import Epoch
from tests import tiers
from tests.support.sums_adversary import carried_out, isolated, run
from tests.tiers import Tier

SEEDS_CHANGE, SEEDS, SEEDS_LONG = 30, 200, 10_000
TRIED_MAX = 400  # schedules, until one shows that a defence is off


def seeds():
    """Few seeds or all."""
    first = 0 if tiers.runs(Tier.ALL) else tiers.number("sums")
    count = SEEDS_LONG if tiers.runs(Tier.LONG) else SEEDS
    count = count if tiers.runs(Tier.ALL) else SEEDS_CHANGE
    return [pytest.param(first + n, id=f"seed-{first + n}") for n in range(count)]


@pytest.mark.parametrize("seed", seeds())
def test_no_combination_of_what_is_known_is_about_one_of_two(seed):
    carried_out(random.Random(seed))


def test_schedules_come_to_sums_of_the_two():
    """Else nothing would be shown."""
    found = [carried_out(random.Random(seed)) for seed in range(60)]
    learnt = sum(len(one.known()[0]) for one in found if one.masked)
    assert learnt > 20
    assert sum(bool(one.opened) for one in found) > 3
    assert sum(one.attempt for one in found) > 100


OFF: dict[str, list[tuple[Any, str, Any]]] = {
    "masks hang on what is summed and on all totals before": [
        (Contributor, "_mask_context", lambda me, _: me.number.to_bytes(32, "big")),
        (standing, "check_same_history", lambda *_: None),
        (standing, "agreed_tag_key", lambda *_: bytes(32)),
    ],
    "shares are given for a list that enough have signed": [
        (Epoch, "check_agreement", lambda *_: None),
        (Epoch, "_check_left", lambda *_: None),
    ],
}


@pytest.mark.parametrize("defence", OFF)
def test_with_a_defence_off_a_schedule_reads_one_of_the_two(defence, monkeypatch):
    for owner, name, instead in OFF[defence]:
        monkeypatch.setattr(owner, name, instead)
    assert any(_reads_one(seed) for seed in range(TRIED_MAX))


def _reads_one(seed):
    schedule = run(random.Random(seed))
    return bool(schedule.masked) and isolated(*schedule.known())


def test_the_observer_knows_what_isolates():
    one, none = np.array([[1, 0]]), np.array([[0, 0]])
    assert not isolated(one, one)
    assert isolated(one, none)
    assert isolated(np.array([[1, 0], [1, 1]]), np.array([[1, 0], [1, 0]]))
    assert not isolated(np.array([[1, 0], [1, 1]]), np.array([[1, 0], [1, 1]]))
