"""Training losses that grow or are no numbers are warned of, once."""

import math

import pytest

from fedboost.messages.job_pb2 import Event, Metric, Progress, RoundDone
from fedboost.runtime.coordinator.losses import Losses
from tests.support.walks import BANK, STAGE, walk_of


def heard(losses, values, name="rmse", split="train", first=1):
    """The warnings of these rounds."""
    return [
        warning
        for done, value in enumerate(values, start=first)
        for warning in losses.add_metrics(done, [Metric(split=split, name=name, value=value)])
    ]


def test_a_loss_that_grows_three_rounds_in_a_row_is_warned_of_once():
    losses = Losses()
    assert heard(losses, [1.0, 2.0, 3.0]) == []
    [warning] = heard(losses, [4.0, 5.0, 6.0], first=4)
    assert warning.startswith("the training rmse grew 3 rounds in a row, up to round 4: lower")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_warned_of(value):
    [warning] = heard(Losses(), [1.0, value, value])
    assert warning.startswith("the training rmse is not a finite number, up to round 2")


@pytest.mark.parametrize(
    ("values", "more"),
    [
        ([1.0, 2.0, 3.0, 2.0, 3.0, 4.0], {}),
        ([1.0, 1.0001, 1.0002, 1.0003], {}),  # sampling
        ([0.1, 0.2, 0.3, 0.4], {"name": "auc"}),
        ([0.1, 0.2, 0.3, 0.4], {"split": "validation"}),
    ],
)
def test_everything_else_is_not(values, more):
    assert heard(Losses(), values, **more) == []


def round_event(done, value):
    metric = Metric(split="train", name="rmse", value=value)
    progress = Progress(round="tree", done=done, of=9)
    return Event(round=RoundDone(stage=STAGE, progress=progress, metrics=[metric]))


def test_rounds_of_earlier_attempts_count_and_the_journal_has_the_warning():
    job, _, emitted = walk_of()
    job.recall([round_event(done, float(done)) for done in (1, 2, 3)])
    last = round_event(4, 4.0).round
    job.note_round(STAGE, last.progress, 1.0, [*last.metrics])
    [warned] = [e.warned for e in emitted if e.WhichOneof("what") == "warned"]
    assert job.warned == {warned.warning: BANK}
