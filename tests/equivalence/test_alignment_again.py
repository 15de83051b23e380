"""A job that uses the rows in common of an earlier one trains the model of one that aligns."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedboost.ground.errors import ConfigError
from fedboost.ground.workers import Serial
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.jobs.submitted import read_spec
from tests.support import small_jobs
from tests.support.federated import _left, now, run_jobs
from tests.support.whole_jobs import written

NAMES = ("secureboost", "federboost-vertical", "hybridtree")


def again(job, **changes):
    """The same job, on the rows in common of an earlier one."""
    return lambda before: job.model_copy(update={"alignment": before.journal.status.id, **changes})


def stages(finished):
    """The stages that a job has walked."""
    found = [event.stage.stage for event in finished.journal.events]
    return [stage for stage in found if stage]


def same_models(one, other):
    """Whether two jobs have left the same trees with every party.

    Hosts' trees of hybridtree have their nodes in a secret order, which is another in each job.
    """
    for party, shard in one.shards.items() if one.result["protocol"] != "hybridtree" else ():
        assert shard.arrays.keys() == other.shards[party].arrays.keys()
        for name, array in shard.arrays.items():
            np.testing.assert_array_equal(array, other.shards[party].arrays[name])


@pytest.mark.some(2)
@pytest.mark.parametrize("name", NAMES)
def test_rows_found_once_train_the_same_model_again(tmp_path, name):
    job = small_jobs.spec(name)
    first, second = now(run_jobs(tmp_path, small_jobs.tables(name), [job, again(job)]))
    assert (first.state, second.state) == ("finished", "finished"), second.error
    same_models(first, second)
    assert stages(second) == stages(first)[1:] == [job.protocol]
    assert second.result["rows"] == first.result["rows"]
    assert second.result["metrics"] == first.result["metrics"]
    assert "align" not in second.result["seconds"]


@pytest.mark.some(2)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_the_ids_travels_again(tmp_path, name):
    job = small_jobs.spec(name)
    first, second = now(run_jobs(tmp_path, small_jobs.tables(name), [job, again(job)]))
    said = {row.kind for party in first.ledgers.values() for row in party}
    said_again = {row.kind for party in second.ledgers.values() for row in party}
    assert any("CommonDigests" in kind for kind in said)
    assert said_again == {kind for kind in said if ".align" not in kind}


def test_folds_of_one_alignment_hold_every_row_out_once(tmp_path):
    job = small_jobs.spec("secureboost")

    def fold(number):
        held = {"fold": number, "folds": 3, "seed": 4}
        return type(job).model_validate({**job.model_dump(), "validation": held})

    first, second = fold(0), again(job, validation=fold(1).validation)
    found = now(run_jobs(tmp_path, small_jobs.tables("secureboost"), [first, second]))
    assert [one.result["rows"] for one in found] == [
        {"aligned": 300, "train": 200, "validation": 100}
    ] * 2


def altered(tmp_path, change, **changes):
    """How a second job ends, that uses the rows of the first behind `change` of the files."""
    job = small_jobs.spec("secureboost")
    sources = written(tmp_path, small_jobs.tables("secureboost"))

    async def run():
        async with open_cluster(tmp_path / "cluster", job, sources, Serial()) as own:
            first = _left(own, await own.run(job))
            change(tmp_path, own)
            return _left(own, await own.run(again(job, **changes)(first)))

    return now(run())


def drop_a_row(folder: Path, _):
    """Takes the last row away from telco's table."""
    file = folder / "telco.parquet"
    table = pq.read_table(file)
    pq.write_table(table.slice(0, len(table) - 1), file)


def nothing(*_):
    """Leaves everything as it is."""


def test_a_table_with_other_ids_cannot_use_them(tmp_path):
    second = altered(tmp_path, drop_a_row)
    assert (second.state, second.error.code) == ("failed", "data")
    assert "other ids" in second.error.what
    assert second.error.where["party"] == "telco"


def test_other_parties_cannot_use_them(tmp_path):
    parties = small_jobs.spec("secureboost").parties
    turned = parties.model_copy(update={"hosts": ["shop", "telco"]})
    second = altered(tmp_path, nothing, parties=turned)
    assert (second.state, second.error.code) == ("failed", "config")
    assert "aligned bank with telco, shop" in second.error.what


def test_a_party_that_now_opens_no_fewer_rows_refuses(tmp_path):
    def stricter(_, own):
        node = own.parties["shop"]
        policy = node.config.policy.model_copy(update={"intersection_min": 301})
        node.config = node.config.model_copy(update={"policy": policy})

    second = altered(tmp_path, stricter)
    assert (second.state, second.error.code) == ("failed", "policy")
    assert second.error.where["party"] == "shop"


def test_what_was_never_aligned_cannot_be_used(tmp_path):
    job = small_jobs.spec("secureboost").model_copy(update={"alignment": "no-such-job"})
    (found,) = now(run_jobs(tmp_path, small_jobs.tables("secureboost"), [job]))
    assert (found.state, found.error.where["key"]) == ("failed", "alignment")


def test_using_rows_again_is_no_alignment_of_the_day(tmp_path):
    def spent(_, own):
        for node in own.parties.values():
            policy = node.config.policy.model_copy(update={"alignments_per_day": 1})
            node.config = node.config.model_copy(update={"policy": policy})
            node.judge.config = node.config

    assert altered(tmp_path, spent).state == "finished"


def test_a_job_that_aligns_nothing_has_no_use_for_an_alignment():
    job = {**small_jobs.raw("gbun"), "alignment": "gbun-00000000"}
    with pytest.raises(ConfigError, match="aligns no rows") as refused:
        read_spec(json.dumps(job).encode())
    assert refused.value.where["key"] == "alignment"
