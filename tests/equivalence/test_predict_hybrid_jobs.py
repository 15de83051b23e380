"""Whole jobs that train trees in two parts and score rows with them, from files."""

import numpy as np
import pyarrow as pa
import pytest

from fedboost.cli.predicting import PredictionRequest, Target
from fedboost.core import objectives
from fedboost.data.ids import encode_ids
from fedboost.ground.errors import ConfigError
from fedboost.protocols.hybridtree import guest as training
from fedboost.runtime.cluster.local import DATASET
from tests.support.federated import GUEST, HOSTS, PLAIN, job_spec, now, run_jobs
from tests.support.hybrid_tables import PARTIES, spec, tables

SPLITS = ("scored", "unscored")


def scoring(protocol="predict-hybrid", parties=PARTIES, **more):
    """From a finished training, the job that scores the same rows."""

    def of(done):
        params = {"model": done.result["model"], **more}
        return job_spec(protocol, parties, params=params)

    return of


def noting_margins(monkeypatch):
    """The guest's ids and margins when its training ends."""
    noted: dict[bytes, np.ndarray] = {}
    finish = training.finish

    def noting(state):
        noted.update(zip(state.context.frame.ids, state.margin.copy(), strict=True))
        return finish(state)

    monkeypatch.setattr(training, "finish", noting)
    return noted


@pytest.mark.parametrize("batch_rows", [40, 1 << 18])
@pytest.mark.parametrize("split", SPLITS)
def test_a_trained_model_scores_all_rows_of_the_guest_in_its_order(
    tmp_path, monkeypatch, split, batch_rows
):
    margins, own = noting_margins(monkeypatch), tables()
    jobs = [spec(split=split), scoring(split=split, batch_rows=batch_rows)]
    trained, whole = now(run_jobs(tmp_path, own, jobs))
    assert trained.state == whole.state == "finished", whole.error.lines()
    found = whole.predictions
    assert found is not None
    assert found["id"].equals(own[GUEST]["id"])
    expected = np.array([margins[i] for i in encode_ids([found["id"]], ["id"])])
    expected = objectives.transform("binary:logistic", expected)[:, 0]
    assert np.abs(found["prediction"].to_numpy() - expected).max() <= 1e-12
    held = np.isin(own[GUEST]["id"], np.concatenate([own[host]["id"] for host in HOSTS[:2]]))
    counts = {"aligned": int(held.sum()), "alone": int((~held).sum()), "predicted": 150}
    assert whole.result["rows"] == counts
    assert counts["alone"] > 5


@pytest.mark.parametrize(
    ("first", "then", "says"),
    [
        (spec(), scoring(split="scored"), "trained with split: unscored, the job says scored"),
        (spec(split="scored"), scoring(split="unscored"), "split: scored, the job says unscored"),
        (spec(), scoring("predict"), "is scored by predict-hybrid"),
        (spec(), scoring(parties=(GUEST, *HOSTS[1::-1]), split="unscored"), "telco, shop"),
    ],
    ids=["not scored", "not unscored", "another protocol", "another order"],
)
def test_a_prediction_that_does_not_fit_the_model_is_refused(tmp_path, first, then, says):
    trained, refused = now(run_jobs(tmp_path, tables(), [first, then]))
    assert trained.state == "finished"
    assert refused.state == "failed"
    assert isinstance(refused.error, ConfigError)
    assert says in refused.error.what
    assert refused.predictions is None


def test_a_model_of_other_trees_is_refused(tmp_path):
    first = job_spec("secureboost", PARTIES, params={**PLAIN, "n_estimators": 1})
    trained, refused = now(run_jobs(tmp_path, tables(), [first, scoring(split="scored")]))
    assert trained.state == "finished"
    assert "a model of secureboost is scored by predict, not" in refused.error.what


@pytest.mark.parametrize("split", SPLITS)
def test_the_commands_job_scores_a_model_of_either_kind(tmp_path, split):
    """`fedboost model predict` reads protocol and split from the guest's shard."""

    def typed(done):
        wish = PredictionRequest.of(
            done.shards[GUEST], dict.fromkeys(PARTIES, "new"), Target(tmp_path / "p.parquet")
        )
        return wish.job(dict.fromkeys(PARTIES, DATASET))

    _, found = now(run_jobs(tmp_path, tables(), [spec(split=split), typed]))
    assert found.state == "finished", found.error.lines()
    assert found.predictions is not None
    assert len(found.predictions) == 150
    assert found.predictions["prediction"].type == pa.float64()
