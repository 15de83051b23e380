"""A random adversary at the owner's border: whatever coordinator, guests and submitter do, what
left the host is what its account says, within its policy, and approved where somebody is asked.

A few schedules on each change, two hundred with `--all`, ten thousand with `--long`. A seed that
fails is in the case's name:

    pytest tests/faults/test_family_adversary.py --long -k "seed-4711"
"""

import logging
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedboost.runtime.config.policy import Policy
from fedboost.runtime.party.parts import PartyParts
from fedboost.runtime.policy import account as accounts
from fedboost.runtime.policy import judgement
from fedboost.runtime.policy.spending import Spending
from tests import tiers
from tests.support.adversary import carried_out
from tests.tiers import Tier

SEEDS_CHANGE, SEEDS, SEEDS_LONG = 12, 200, 10_000
TRIED_MAX = 60  # schedules, until one shows that a defence is off
EXAMPLES = 20


@pytest.fixture(autouse=True)
def _quiet():
    """What jobs say of their ends is no news here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def seeds():
    """Few seeds or all."""
    first = 0 if tiers.runs(Tier.ALL) else tiers.number("adversary")
    count = SEEDS_LONG if tiers.runs(Tier.LONG) else SEEDS
    count = count if tiers.runs(Tier.ALL) else SEEDS_CHANGE
    return [pytest.param(first + n, id=f"seed-{first + n}") for n in range(count)]


@pytest.mark.parametrize("seed", seeds())
def test_what_left_is_charged_within_the_policy_and_approved(seed, tmp_path):
    carried_out(random.Random(seed), tmp_path / "town")


@settings(
    max_examples=tiers.examples(EXAMPLES),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.randoms(use_true_random=False))
def test_no_schedule_that_hypothesis_finds_leaves_the_border(tmp_path_factory, draw):
    carried_out(draw, tmp_path_factory.mktemp("town"))


# Where it is, what is there in its place, and what a schedule then shows.
OFF = {
    "approvals are asked for": (PartyParts, "consents", True, "left without approval"),
    "messages are charged": (Spending, "charge", None, "what the account says|nobody counted"),
    "only the same bytes are free": (accounts, "has_left", True, "ε is not what the account says"),
    "sums have a limit": (Policy, "judge_told_sums", None, "more sums than"),
    "noise has a limit": (Policy, "judge_told_noise", None, "more ε than"),
    "predictions have a limit": (Policy, "judge_rows", None, "more rows than"),
    "alignments are counted": (judgement, "count_alignment", None, "alignments that nobody"),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("defence", OFF)
def test_with_a_defence_off_a_schedule_shows_it(defence, monkeypatch, tmp_path):
    owner, name, instead, shown = OFF[defence]
    monkeypatch.setattr(owner, name, lambda *_: instead)
    if "limit" in defence:  # no forecast refuses the job before
        monkeypatch.setattr(Policy, "judge_sums", lambda *_: False)
        monkeypatch.setattr(Policy, "allows_sums", lambda *_: True)
        monkeypatch.setattr(Policy, "judge_disclosure", lambda *_: None)
    tried = (carried_out(random.Random(seed), tmp_path / str(seed)) for seed in range(TRIED_MAX))
    with pytest.raises(AssertionError, match=shown):
        all(tried)
