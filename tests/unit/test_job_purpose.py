"""The purpose of a job: optional, one line, and part of the signed text only where it is said."""

import json
from typing import Any

import pytest

from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.job import PURPOSE_CHARS_MAX, JobSpec

JOB: dict[str, Any] = {
    "name": "fraud",
    "protocol": "secureboost",
    "parties": {"guest": "bank", "hosts": ["telco"]},
    "data": {"bank": {"dataset": "cards", "label": "y"}, "telco": {"dataset": "calls"}},
}


def test_a_job_without_a_purpose_is_written_as_before_and_another_one_with_it():
    assert "purpose" not in json.loads(parse_settings(JobSpec, JOB).model_dump_json())
    said = parse_settings(JobSpec, {**JOB, "purpose": "Risk of new customers"})
    assert json.loads(said.model_dump_json())["purpose"] == "Risk of new customers"


@pytest.mark.parametrize("purpose", ["", "  ", "two\nlines", "a\u202eb", "x" * 501])
def test_a_purpose_is_one_readable_line(purpose):
    assert PURPOSE_CHARS_MAX == 500
    with pytest.raises(ConfigError):
        parse_settings(JobSpec, {**JOB, "purpose": purpose})
