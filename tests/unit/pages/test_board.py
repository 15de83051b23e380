"""A job's page at the coordinator: which buttons it has."""

import pytest

from fedboost.ground.errors import (
    ConfigError,
    DataError,
    JobError,
    PeerError,
    PolicyError,
    UnreachableError,
)
from fedboost.messages.job_pb2 import JobStatus
from fedboost.pages.board import may_help_to_resume
from fedboost.runtime.transport.faults import fault_of_error

LIMIT = PolicyError("the job would release too much", key="policy.disclosure_max", party="telco")


@pytest.mark.parametrize(
    ("state", "reason", "helps"),
    [
        ("paused", UnreachableError("telco is gone"), True),
        ("failed", UnreachableError("telco is gone"), True),
        ("failed", LIMIT, True),  # its owner may raise the limit
        ("failed", PolicyError("telco's owner denied the job", party="telco"), False),
        ("failed", ConfigError("max_depth is 0"), False),
        ("failed", DataError("the table lacks a column"), False),
        ("failed", JobError("there is nothing to learn"), False),
        ("failed", PeerError("telco sent what no honest party sends"), False),
        ("finished", None, False),
        ("running", None, False),
    ],
)
def test_a_job_is_resumed_only_where_another_attempt_may_end_otherwise(state, reason, helps):
    fault = None if reason is None else fault_of_error(reason)
    assert may_help_to_resume(JobStatus(state=state, reason=fault)) == helps
