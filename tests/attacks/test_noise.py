"""What several tellings of noisy values add up to, and what keeps them from adding up."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedboost.crypto import noise
from fedboost.crypto.secrets import Secrets
from fedboost.flow import MemoryNotebook
from fedboost.ground.errors import PolicyError
from fedboost.ground.ids import EncodedIds
from fedboost.messages.protocol.federboost_vertical_pb2 import BucketIds
from fedboost.protocols.federboost_vertical import buckets
from fedboost.protocols.federboost_vertical import host as host_steps
from fedboost.runtime.config.policy import Policy
from tests.support.contexts import altered
from tests.support.federated import HOSTS
from tests.support.federboost_jobs import open_job, room_of

TELCO = HOSTS[0]
ROWS = 300
ATTEMPTS = 121


# Noise drawn again in every attempt


def told(context):
    """What the host tells, uint8 (rows, columns)."""
    message = host_steps.send_buckets(host_steps.begin(context)).send
    assert isinstance(message, BucketIds)
    return buckets.read_message(message, ROWS, TELCO, 1 << 30).ids


def shares_right(draws_again):
    """Of all values: how many one telling has right, and the most frequent of many attempts.

    `draws_again`: whether noise comes from the attempt's secret instead of the store's.
    """
    job = open_job({"epsilon": 1.0, "n_estimators": 1, "buckets": 8}, (1, 3), ROWS, missing=0.0)
    quiet = room_of(replace(job, params={**job.params, "epsilon": None})).contexts[TELCO]
    truth, context = told(quiet), room_of(job).contexts[TELCO]
    heard = np.zeros((*truth.shape, 8), np.int64)
    for attempt in range(ATTEMPTS):
        own = Secrets(attempt.to_bytes(32, "big"))
        later = altered(context, secrets={"attempt": own})
        anew = altered(
            later, secrets={"lasting": own.child}, services={"notebook": MemoryNotebook()}
        )
        ids = told(anew if draws_again else later)
        heard[(*np.indices(truth.shape), ids)] += 1
        once = (ids == truth).mean()
    return once, (heard.argmax(axis=2) == truth).mean()


def test_a_job_begun_again_and_again_tells_no_more_than_once():
    once, many = shares_right(draws_again=False)
    assert many == once < 0.4


def test_a_job_begun_again_and_again_tells_everything_where_noise_is_drawn_anew():
    once, many = shares_right(draws_again=True)
    assert once < 0.4
    assert many > 0.98


# One person over many columns

COLUMNS, VALUES = 30, 16


def told_apart(epsilon, people=2000):
    """How often a guest that waits for one of two people, unlike in all columns, is right."""
    ids = EncodedIds.of(b"%d" % person for person in range(people))
    own = noise.ValueNoise(Secrets(bytes(range(32))), ids)
    scores = np.zeros(people)
    for column in range(COLUMNS):
        heard = own.randomised(np.full(people, 3, np.uint8), VALUES, epsilon, column)
        scores += (heard == 3).astype(int) - (heard == 9)  # the one's bucket, the other's bucket
    return ((scores > 0) + (scores == 0) / 2).mean()


def test_columns_that_keep_within_one_epsilon_a_row_do_not_tell_people_apart():
    """The bound of the policy is for the row: no guess is right more often than it allows."""
    row = 1.0
    best = math.exp(row) / (1 + math.exp(row))
    assert told_apart(row / COLUMNS) < best
    policy = Policy(epsilon_element_max=4.0, epsilon_row_max=row)
    policy.judge_disclosure(row / COLUMNS, COLUMNS)
    with pytest.raises(PolicyError, match="epsilon 60"):
        policy.judge_disclosure(2.0, COLUMNS)


def test_columns_that_add_up_without_a_bound_tell_people_apart():
    Policy(epsilon_element_max=4.0, epsilon_row_max=math.inf).judge_disclosure(2.0, COLUMNS)
    assert told_apart(2.0) > 0.98
