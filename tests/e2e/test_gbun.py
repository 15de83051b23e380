"""Real daemons boost networks over their rows: one model for all, that of one process."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedboost.model import shards
from tests.e2e import world
from tests.e2e.test_horizontal import FOUR, SUM, assert_equal, assert_one_model, dealt, links
from tests.e2e.test_horizontal import simulated as alone

pytestmark = pytest.mark.e2e
ROUNDS = 5


def job(aggregator, **params):
    """A job of four parties."""
    return {
        "name": "clinics",
        "protocol": "gbun",
        "parties": {"guest": FOUR[0], "hosts": FOUR[1:], "aggregator": aggregator},
        "data": {party: {"dataset": "data", "label": "y"} for party in FOUR},
        "validation": {"fraction": 0.25, "seed": 7},
        "params": {
            "n_estimators": ROUNDS,
            "outputs": 16,
            "eval_metric": ["logloss", "auc"],
            **params,
        },
    }


@world.JOBS
@pytest.mark.parametrize(("aggregator", "mode"), [(SUM, "wait"), (FOUR[0], "continue")])
def test_daemons_come_to_the_networks_of_one_process(tmp_path, data_file, aggregator, mode):
    sources = dealt(data_file("breast.parquet"), tmp_path, FOUR)
    raw = job(aggregator, dropout=mode)
    expected, model = alone(tmp_path, raw, sources)
    with world.WarmCluster(tmp_path / "c", world.spec(raw), sources, workers=1) as cluster:
        result = world.result(world.run(cluster, raw))
        id_ = result["job"]
        assert_equal(assert_one_model(tmp_path / "c", FOUR, id_), model)
        for key in ("rows", "metrics", "trees", "rounds", "exchanges"):
            assert result[key] == expected[key]
        assert (result["trees"], result["rounds"]) == (0, ROUNDS)
        assert result["metrics"]["validation"]["auc"] > 0.95
        assert links(cluster, id_, "out") == links(cluster, id_, "in")
        party = FOUR[2]
        out = tmp_path / "scores.parquet"
        data = ("--data", f"{party}=data", "--config", cluster.config(party))
        said = world.fedboost("model", "predict", id_, *data, "--out", out)
        assert said.code == 0, said.err
        scores = pq.read_table(out)
        assert len(scores) == len(pq.read_table(sources[party].path))
        assert np.isfinite(scores.column(scores.column_names[-1]).to_numpy()).all()
        stored = shards.load_shard(tmp_path / "c" / "var" / party / "models" / id_)
        assert stored.facts["kind"] == "networks"
        assert world.tracebacks(cluster) == []
