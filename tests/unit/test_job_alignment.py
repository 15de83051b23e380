"""What a job says of its alignment: an earlier job, or a method; and what comes of it."""

from typing import Any

import pytest

from fedboost import protocols
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.job import Alignment, JobSpec
from fedboost.runtime.jobs.manifest import Manifest
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.jobs.submitted import read_spec
from tests.support import small_jobs
from tests.support.federated import now, run_jobs

JOB: dict[str, Any] = {
    "name": "fraud",
    "protocol": "secureboost",
    "parties": {"guest": "bank", "hosts": ["telco"]},
    "data": {"bank": {"dataset": "cards", "label": "y"}, "telco": {"dataset": "calls"}},
}


def job(alignment, protocol="secureboost"):
    return parse_settings(JobSpec, {**JOB, "protocol": protocol, "alignment": alignment})


@pytest.mark.parametrize(
    ("said", "known", "aligned_by"),
    [
        (None, None, None),
        ("a-job", "a-job", "a-job"),
        ({}, Alignment(), None),
        ({"method": "oprf"}, Alignment(method="oprf"), None),
    ],
)
def test_a_job_names_another_one_or_a_method_and_is_read_back_as_it_was(said, known, aligned_by):
    spec = job(said)
    assert (spec.alignment, spec.alignment_job) == (known, aligned_by)
    assert parse_settings(JobSpec, spec.model_dump(mode="json")) == spec
    assert ("alignment" in spec.model_dump()) == (said is not None)  # as it was signed before


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("A JOB", "neither a job's id nor a method"),
        (3, "neither a job's id nor a method"),
        (["oprf"], "neither a job's id nor a method"),
        ({"method": "psi"}, "'auto', 'oprf' or 'ecdh'"),
        ({"metod": "oprf"}, "unknown key 'metod'"),
    ],
)
def test_anything_else_is_refused(said, says):
    with pytest.raises(ConfigError) as refused:
        job(said)
    assert says in refused.value.what


def signed(spec):
    terms = Manifest(job="a-job", coordinator="coordinator", submitter="ana", members=[], spec=spec)
    return SignedJob("bank", terms, b"")


@pytest.mark.parametrize("protocol", ["secureboost", "federboost-vertical", "align", "align-pairs"])
def test_the_stage_that_aligns_has_what_the_job_says(protocol):
    spec = job({"method": "oprf"}, protocol)
    stage = protocols.aligning_stage(
        spec, parse_settings(protocols.load_protocol(protocol).params, {})
    )
    assert stage is not None
    assert signed(spec).params_of(stage) == Alignment(method="oprf")
    assert signed(job(None, protocol)).params_of(stage) == Alignment()


def test_a_job_that_aligns_no_rows_says_no_method():
    spec = small_jobs.spec("gbun").model_copy(update={"alignment": Alignment(method="oprf")})
    with pytest.raises(ConfigError, match="aligns no rows"):
        read_spec(spec.model_dump_json().encode())


@pytest.mark.parametrize("name", ["federboost-vertical", "hybridtree"])
def test_a_whole_job_says_how_it_aligned_and_its_rows_are_used_again(tmp_path, name):
    first = small_jobs.spec(name).model_copy(update={"alignment": Alignment(method="oprf")})

    def again(done):
        return first.model_copy(update={"alignment": done.journal.status.id})

    one, other = now(run_jobs(tmp_path, small_jobs.tables(name), [first, again]))
    assert (one.state, other.state) == ("finished", "finished"), other.error
    assert one.result["alignment"] == "oprf"
    assert other.result["rows"] == one.result["rows"]
    assert "alignment" not in other.result
