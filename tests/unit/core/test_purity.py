"""How much a node tells of its rows' labels."""

import numpy as np
import pytest

from fedboost.core.purity import PurityLimit


def limit(counts, most=0.9):
    """Of rows of so many a class, class after class."""
    return PurityLimit(np.repeat(np.arange(len(counts)), counts), most)


def rows(*spans):
    return np.concatenate([np.arange(*span) for span in spans]).astype(np.int32)


@pytest.mark.parametrize("counts", [(50, 50), (10, 990), (3, 5, 7)])
def test_all_rows_together_tell_nothing_however_rare_a_class_is(counts):
    assert limit(counts).of(rows((0, sum(counts)))) == pytest.approx(1 / len(counts))


def test_a_node_is_as_pure_as_it_changes_the_odds():
    """99 of 199 rows of one class and 9 of 1999 of the other: 100/200 against 10/2000."""
    own = limit((199, 1999))
    assert own.of(rows((0, 99), (500, 509))) == pytest.approx(0.5 / (0.5 + 0.005))
    assert own.is_exceeded(rows((0, 99), (500, 509)))
    assert not own.is_exceeded(rows((0, 99), (500, 1000)))


def test_a_few_rows_of_a_frequent_class_are_no_evidence_and_many_are():
    own = limit((700, 9300))
    assert not own.is_exceeded(rows((1000, 1020)))
    assert own.is_exceeded(rows((1000, 1500)))
    assert own.is_exceeded(rows((0, 20)))  # as many of the rare one


def test_an_empty_node_is_not_pure():
    assert limit((5, 5)).of(rows((0, 0))) == 0.5


def test_rows_held_out_are_not_counted():
    y = np.array([0.0, 0, 0, 1, 1, 1, 1, 1])
    training = np.array([1, 1, 1, 1, 1, 1, 0, 0], np.bool_)
    own = PurityLimit.from_labels("binary:logistic", y, training, 0.9)
    assert own.of(rows((0, 6))) == own.of(rows((0, 8))) == 0.5


def test_labels_that_are_numbers_are_above_the_mean_or_not():
    y = np.array([1.0, 1, 1, 9, 9, 2])
    own = PurityLimit.from_labels("reg:squarederror", y, np.ones(6, np.bool_), 0.75)
    assert own.of(rows((3, 5))) == pytest.approx(1.0 / (1.0 + 1 / 5))
    assert own.is_exceeded(rows((3, 5)))
    assert not own.is_exceeded(rows((2, 4)))


@pytest.mark.parametrize("objective", ["multi:softprob", "reg:squarederror"])
def test_one_class_alone_is_pure_for_nobody_to_learn(objective):
    """All labels are equal: there is no class to tell from another, whatever is shown."""
    own = PurityLimit.from_labels(objective, np.ones(4), np.ones(4, np.bool_), 0.9)
    assert own.of(rows((0, 4))) == own.of(rows((0, 1))) == 1.0
