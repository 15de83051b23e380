"""Callbacks of `fit`: what they hear, in XGBoost's shape, and where it goes."""

import json

import numpy as np
import pytest

from fedboost.sdk import FederBoostClassifier, GBUNClassifier, SecureBoostClassifier
from fedboost.sdk.callbacks import EvaluationMonitor, TensorBoardCallback, TrainingCallback
from fedboost.sdk.refusals import InvalidParameterError

RNG = np.random.default_rng(6)
X = RNG.normal(size=(240, 4))
Y = (X[:, 0] + X[:, 3] > 0).astype(int)
SMALL = {"n_estimators": 3, "max_depth": 2, "encryption": {"scheme": "lattice"}}
HELD = (X[200:], Y[200:])


class Heard(TrainingCallback):
    """Keeps what it hears."""

    def __init__(self, stops=False):
        self.heard, self.stops = [], stops

    def before_training(self, model):
        self.heard.append("before")

    def after_iteration(self, model, epoch, evals_log):
        self.heard.append((epoch, {s: len(m["auc"]) for s, m in evals_log.items()}))
        return self.stops

    def after_training(self, model):
        self.heard.append(model.evals_result())


def fit(**options):
    model = SecureBoostClassifier(**SMALL, eval_metric=["auc"])
    return model.fit(X[:200], Y[:200], eval_set=HELD, **options)


def test_a_callback_hears_every_round_and_the_fitted_model():
    callback = Heard()
    model = fit(callbacks=[callback])
    rounds = [(n, {"train": n + 1, "validation_0": n + 1}) for n in range(3)]
    assert callback.heard == ["before", *rounds, model.evals_result()]


def test_a_callback_that_stops_says_what_does():
    with pytest.raises(InvalidParameterError, match="early_stopping_rounds"):
        fit(callbacks=[Heard(stops=True)])


def test_verbose_prints_every_so_many_rounds(capsys):
    fit(verbose=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["[0]", "[2]"]
    assert "validation_0-auc:" in lines[0]


def test_event_files_of_tensorboard_have_each_value(tmp_path):
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        model = fit(callbacks=[TensorBoardCallback(writer)])
    accumulated = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard, which reads event files, is not installed",
    ).EventAccumulator(str(tmp_path))
    accumulated.Reload()
    assert sorted(accumulated.Tags()["scalars"]) == ["train-auc", "validation_0-auc"]
    for split, metrics in model.evals_result().items():
        found = accumulated.Scalars(f"{split}-auc")
        assert [one.step for one in found] == [0, 1, 2]
        assert [one.value for one in found] == pytest.approx(metrics["auc"])


def kept_offline(file):
    """The records of an offline run's file: a log of blocks as LevelDB writes it."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts = file.read_bytes(), 7, []
    assert data.startswith(b":W&B")
    while place < len(data):
        room = 32768 - place % 32768
        if room < 7:  # too few for a header
            place += room
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        parts.append(data[place + 7 : place + 7 + length])
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(b"".join(parts))
            parts = []


def test_a_run_of_wandb_without_a_network_has_parameters_and_metrics(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    from fedboost.sdk.callbacks import WandbCallback

    monkeypatch.setenv("WANDB_MODE", "offline")
    with wandb.init(project="tests", dir=tmp_path):
        model = fit(callbacks=[WandbCallback()])
    wandb.teardown()  # its process writes the file to the end
    (file,) = tmp_path.rglob("run-*.wandb")
    records = list(kept_offline(file))
    said = {one.key: one.value_json for r in records for one in r.config.update}
    assert said["max_depth"] == "2"
    rows = [
        {one.key or ".".join(one.nested_key): json.loads(one.value_json) for one in r.history.item}
        for r in records
        if r.HasField("history")
    ]
    assert [row["_step"] for row in rows] == [0, 1, 2]
    for split, metrics in model.evals_result().items():
        assert [row[f"{split}-auc"] for row in rows] == pytest.approx(metrics["auc"])


def test_a_run_of_mlflow_has_parameters_and_metrics(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    from fedboost.sdk.callbacks import MLflowCallback

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file:{tmp_path}/runs")
    with mlflow.start_run() as run:
        model = fit(callbacks=[MLflowCallback()])
    kept = mlflow.get_run(run.info.run_id).data
    assert kept.params["max_depth"] == "2"
    last = model.evals_result_["validation"]["auc"][-1]
    assert kept.metrics["validation-auc"] == pytest.approx(last)
    history = mlflow.tracking.MlflowClient().get_metric_history(run.info.run_id, "train-auc")
    assert [one.step for one in history] == [0, 1, 2]


def test_an_earlier_model_is_continued():
    earlier = fit()
    model = fit(xgb_model=earlier)
    assert model.get_booster().num_boosted_rounds() == 6
    at_once = SecureBoostClassifier(**{**SMALL, "n_estimators": 6}, eval_metric=["auc"])
    at_once.fit(X[:200], Y[:200], eval_set=HELD)
    assert np.array_equal(model.predict_proba(X), at_once.predict_proba(X))


def test_options_that_cannot_be_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'bogus'"):
        fit(bogus=1)
    with pytest.raises(InvalidParameterError, match="of the type int"):
        fit(callbacks=[3])
    with pytest.raises(InvalidParameterError, match="verbose of fit"):
        fit(verbose="often")
    with pytest.raises(InvalidParameterError, match="xgb_model is of the type"):
        fit(xgb_model=3)
    with pytest.raises(InvalidParameterError, match="continues no model"):
        FederBoostClassifier(layout="horizontal").fit(X, Y, xgb_model=fit())
    with pytest.raises(InvalidParameterError, match="no job runs"):
        GBUNClassifier().fit(X, Y, callbacks=[])


def test_the_monitor_writes_where_it_is_told():
    lines: list[str] = []
    EvaluationMonitor(1, lines.append).after_iteration(None, 4, {"train": {"auc": [0.5, 0.75]}})
    assert lines == ["[4]\ttrain-auc:0.75000"]
