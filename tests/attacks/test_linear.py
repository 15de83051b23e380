"""Linear programming on sums that a host has let go: under the meter's limit, and beyond it."""

import math

import numpy as np
import pytest

from fedboost.audit import attacks, linear
from fedboost.ground.errors import PolicyError
from fedboost.runtime.config.policy import Policy
from tests.support.federated import now
from tests.support.linking import matched
from tests.support.released import coarsened
from tests.support.released import made as released
from tests.support.secureboost_jobs import made

TREES, DEPTH, BINS = 25, 5, 32
TRIED = 3  # of the trees
EQUATIONS = 2 * 2 ** (DEPTH - 1) * TREES  # about a bin: g and h of every node that is its own


def times_chance(rows, least):
    """How many times as often as by chance rows of a bin are named, by an attacker that links the
    sums of each tree's nodes. Groups have so many rows at least.
    """
    given = released(rows, TRIED, depth=DEPTH, bins=BINS)
    given = coarsened(given, least) if least > 1 else given
    known, found = linear.generic_coefficients(1, rows, given.values), []
    for tree in range(TRIED):
        for target in attacks.draw_targets(given, 1):
            equations = linear.equations_of_bin(given, 0, target.cells, [tree], known)
            right = linear.precision_of_guess(linear.nearest_solution(equations), equations.truth)
            found.append(right / equations.chance_precision)
    return np.mean(found)


def test_jobs_under_the_meters_limit_tell_linear_programming_little():
    """With the least rows, and the groups, that the default policy takes for so many trees."""
    policy = Policy()
    rows = math.ceil(EQUATIONS / policy.disclosure_max)
    policy.judge_sums(EQUATIONS / rows, 0.0)
    assert times_chance(rows, policy.group_rows_min) < 2


def test_jobs_beyond_the_meters_limit_tell_linear_programming_who_is_in_a_bin():
    few = 150
    with pytest.raises(PolicyError, match="released sums per bin"):
        Policy().judge_sums(EQUATIONS / few, 0.0)
    Policy(disclosure_max=math.inf).judge_sums(EQUATIONS / few, 0.0)
    assert times_chance(few, 1) > 10


# Over several jobs

ROWS, EACH = 2000, 3  # trees of each job


def named_over_jobs(remembers):
    """The share of a bin's rows that a guest names who has as many of five jobs as pass the policy,
    and knows which sums belong together. `remembers`: whether earlier jobs count.
    """
    strict = Policy().disclosure_warn  # an owner who is not content with a warning
    policy, before, jobs = Policy(disclosure_max=strict), 0.0, 0
    ratio = 2 * 2 ** (DEPTH - 1) * EACH / ROWS
    for _ in range(5):
        try:
            policy.judge_sums(ratio, before if remembers else 0.0)
        except PolicyError:
            break
        before, jobs = before + ratio, jobs + 1
    given = released(ROWS, EACH * jobs, depth=DEPTH, bins=BINS)
    known, found = linear.generic_coefficients(1, ROWS, given.values), []
    for target in attacks.draw_targets(given, 1):
        equations = linear.equations_of_bin(given, 0, target.cells, range(EACH * jobs), known)
        found.append(linear.precision_of_guess(linear.nearest_solution(equations), equations.truth))
    return np.mean(found)


def test_jobs_that_follow_each_other_tell_together_what_one_may():
    assert named_over_jobs(remembers=True) < 0.5


def test_jobs_that_follow_each_other_tell_everything_where_nobody_adds_them_up():
    assert named_over_jobs(remembers=False) > 0.98


# Which sums belong together


def linked(heard, **more):
    """The share of the root's sums that are those of two sums in its children, exactly."""
    said = {"n_estimators": 1, "max_bin": 16, "max_depth": 2, **more}
    now(made(said, (1, 3), 1500, missing=0.0, held=None).room().walk())
    root, left, right = heard[:3]
    return len({place for place, *_ in matched(root, left, right)}) / len(root)


def test_sums_of_a_node_and_its_children_do_not_match_up_under_noise(heard):
    assert linked(heard, host_noise=0.5) == 0.0


def test_sums_of_a_node_and_its_children_match_up_without_noise(heard):
    assert linked(heard) == 1.0
