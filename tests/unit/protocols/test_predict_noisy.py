"""What a predicting host says of noisy values behind its answers, for its owner's account."""

from typing import Any

import numpy as np

from fedboost.ground import wire
from fedboost.messages.protocol.predict_pb2 import Questions
from fedboost.protocols.federboost_vertical import host as training
from fedboost.protocols.predict import host as predicting
from tests.attacks.test_border_noise import (
    EPSILON,
    EVERY_BUCKET,
    ROWS,
    host_seat,
    predicting_seat,
    trained,
)
from tests.support.federated import GUEST


def answers(context, times=2):
    """What stands beside the answers to some questions about one row."""
    me = predicting.begin(context)
    asked = Questions(
        trees=wire.pack(np.zeros(1, np.int32)),
        nodes=wire.pack(np.zeros(1, np.int32)),
        counts=wire.pack(np.ones(1, np.int32)),
        rows=wire.pack(np.full(1, 5, np.int32)),
    )
    every: list[Any] = [predicting.direct_rows(me, asked).about for _ in range(times)]
    return every


def test_the_first_answer_of_an_attempt_names_the_values_of_all_rows():
    _, shard = trained(range(ROWS), EVERY_BUCKET)
    first, second = answers(predicting_seat(shard, range(ROWS)))
    assert first.noisy.columns == ("c0", "c1")
    assert (len(first.noisy.ids), first.noisy.epsilon) == (ROWS, EPSILON)
    assert second.noisy is None
    assert first.epsilon == second.epsilon == EPSILON
    [again, _] = answers(predicting_seat(shard, range(ROWS)))
    assert again.noisy.codes.tolist() == first.noisy.codes.tolist()


def test_training_and_prediction_name_the_same_values_alike():
    about: Any = training.send_buckets(training.begin(host_seat(range(ROWS)))).about
    _, shard = trained(range(ROWS), EVERY_BUCKET)
    first, _ = answers(predicting_seat(shard, range(ROWS)))
    assert first.noisy.noise == about.noisy.noise
    assert first.noisy.ids.tolist() == about.noisy.ids.tolist()
    assert first.noisy.codes.tolist() == about.noisy.codes.tolist()


def test_only_columns_that_the_model_uses_are_named():
    _, shard = trained(range(ROWS), EVERY_BUCKET[:3])
    first, _ = answers(predicting_seat(shard, range(ROWS)))
    assert first.noisy.columns == ("c0",)


def test_exact_answers_name_none():
    _, shard = trained(range(ROWS), EVERY_BUCKET)
    first, _ = answers(predicting_seat(shard, range(ROWS), exact=(GUEST,)))
    assert first.noisy is None
    assert first.epsilon is None
