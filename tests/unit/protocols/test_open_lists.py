"""What one more metric, encryption scheme and kind of models takes: each is added by its own record
alone, and used from the job's settings to the result, the command and the reference.
"""

import importlib
import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fedboost.cli.groups import model_group
from fedboost.core import local, metrics
from fedboost.core.metrics import METRICS, Metric, OfRows, WeightedMean
from fedboost.core.objectives import metrics_of
from fedboost.core.params import TreeParams
from fedboost.crypto import schemes as keyed
from fedboost.crypto.lattice import parameters
from fedboost.encrypted.number import packed
from fedboost.encrypted.scheme import schemes
from fedboost.encrypted.scheme.schemes import JobScheme
from fedboost.flow import Artefact
from fedboost.ground.arrays import Floats, Indices
from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.ground.settings import parse_settings
from fedboost.model import export, kinds, shards
from fedboost.model.kinds.kind import Exported, Frames, ModelKind, Shards
from fedboost.protocols.predict.params import PredictParams, check_model
from fedboost.protocols.secureboost.params import SecureBoostParams
from tests.conftest import ROOT
from tests.support import conversations, secureboost_jobs
from tests.support.conversations import PARAMS
from tests.support.federated import GUEST, now, room_for

# A metric


def _squared(y, p):
    return (y - p) ** 2


@pytest.fixture
def brier(monkeypatch):
    """A metric that this version does not have, by one record."""
    made = Metric("brier", "mean squared error of a chance", WeightedMean(_squared), ("chance",),
                  bigger_is_better=False)  # fmt: skip
    monkeypatch.setitem(METRICS, "brier", made)
    return made


def test_an_added_metric_is_measured_by_guests_and_stops_their_jobs(brier):
    params = {**PARAMS, "eval_metric": ["auc", "brier"], "early_stopping_rounds": 1}
    room = room_for("secureboost", conversations.tables(), params, held=0.25)
    now(room.walk())
    guest = room.state(GUEST)
    assert not guest.stopping.bigger_is_better
    for part in guest.history:
        for values in part.values():
            assert 0.0 < values["brier"] < 0.3


def test_an_added_metric_adds_up_over_parties(brier):
    room = conversations.federboost_horizontal(eval_metric=["rmse", "brier"])
    shard = now(room.walk())[GUEST]
    assert shard.facts["history"]
    for measured in shard.facts["history"]:
        for values in measured.values():
            assert values["brier"] == pytest.approx(values["rmse"] ** 2, abs=1e-9)


def test_a_metric_that_no_sums_come_to_is_refused_where_rows_lie_apart(monkeypatch):
    of = OfRows(lambda y, p, w: float(np.median(np.abs(y - p))))
    made = Metric("medae", "median absolute error", of, ("chance", "number"), False)
    monkeypatch.setitem(METRICS, "medae", made)
    values = np.arange(20, dtype=np.float32)[:, None]
    y = np.resize([0.0, 1.0], 20)
    own = parse_settings(TreeParams, {"eval_metric": "medae", "n_estimators": 1})
    found = local.train(local.TrainingTable(values, y), own)
    expected = metrics.evaluate("medae", y, found.predict(values))
    assert found.history[0]["train"]["medae"] == expected > 0.0
    room = conversations.federboost_horizontal(eval_metric=["auc", "medae"])
    with pytest.raises(ConfigError, match="medae cannot be added up over parties") as refused:
        now(room.walk())
    assert refused.value.todo == "leave it out of eval_metric"


def test_settings_and_reference_know_an_added_metric(brier, monkeypatch):
    assert "brier" in metrics_of("binary:logistic")
    assert "brier" not in metrics_of("reg:squarederror")
    with pytest.raises(ConfigError, match="brier does not fit reg:squarederror"):
        parse_settings(TreeParams, {"objective": "reg:squarederror", "eval_metric": "brier"})
    with pytest.raises(ConfigError, match=r"no metric 'briar', but auc, .*mae, .*brier"):
        parse_settings(TreeParams, {"eval_metric": "briar"})
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    page = importlib.import_module("generate_reference").pages()["job.md"]
    assert "| `brier` | lower | mean squared error of a chance |" in page


# A scheme


def added(monkeypatch, scheme: JobScheme) -> None:
    monkeypatch.setitem(schemes.SCHEMES, scheme.name, scheme)


@pytest.fixture
def twin(monkeypatch):
    """A scheme of numbers: `plain` under another name, by one record."""
    made = replace(keyed.KEYED_SCHEMES["plain"], name="twin")
    monkeypatch.setitem(keyed.KEYED_SCHEMES, "twin", made)
    added(monkeypatch, schemes.of_numbers(made))


@pytest.fixture
def ring(monkeypatch):
    """A lattice with another flood, by one record."""
    made = replace(parameters.by_name("lattice"), name="lattice-flooded", flood=2.0**20 + 1)
    monkeypatch.setitem(parameters.BY_NAME, made.name, made)
    added(monkeypatch, schemes.of_lattice(made))


@pytest.fixture
def nearest(monkeypatch):
    """A scheme of another kind, with a precision of its own: 9 bits, by its class and its entry."""

    class NineBits(packed.PackedScheme):
        bits_least: ClassVar[int] = 9

        def bits_most(self, params, n_rows):
            return 9

        def encoding(self, params, n_rows, of):
            return replace(of(params), bits=self.bits_of(params, n_rows))

    monkeypatch.setitem(
        keyed.KEYED_SCHEMES, "nine", replace(keyed.KEYED_SCHEMES["plain"], name="nine")
    )
    entry = JobScheme("nine", secure=False, multiplies=False, adds_noise=False,
                      has_modulus=False, packs_answers=False, gradient_bits_max=9,
                      replays=False, module="nine_bits")  # fmt: skip
    added(monkeypatch, entry)
    module = type(packed)("fedboost.encrypted.nine_bits")
    monkeypatch.setattr(module, "tree_scheme", lambda _: NineBits(), raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)


def trees_of(scheme):
    params = {**PARAMS, "encryption": {"scheme": scheme}, "allow_insecure": True}
    room = room_for("secureboost", conversations.tables(), params, held=0.25)
    return now(room.walk()), room


def test_an_added_scheme_of_numbers_grows_the_plain_trees(twin):
    found, expected = trees_of("twin")[0], trees_of("plain")[0]
    for party, shard in expected.items():
        for name, array in shard.arrays.items():
            assert found[party].arrays[name].tobytes() == array.tobytes()
    with pytest.raises(ConfigError, match="twin is broken"):
        parse_settings(SecureBoostParams, {"encryption": {"scheme": "twin"}})


def test_an_added_lattice_grows_the_trees_of_the_lattice(ring):
    found, room = trees_of("lattice-flooded")
    expected, _ = trees_of("lattice")
    arrays = found[GUEST].arrays
    assert arrays["feature"].tobytes() == expected[GUEST].arrays["feature"].tobytes()
    assert room.state(GUEST).nonces
    with pytest.raises(ConfigError, match="lattice-flooded has no modulus"):
        parse_settings(
            SecureBoostParams, {"encryption": {"scheme": "lattice-flooded", "key_bits": 2048}}
        )


def test_a_scheme_of_another_kind_brings_its_own_precision(nearest):
    _, room = trees_of("nine")
    assert room.state(GUEST).side.key_message(0).value_bits == 9
    said = {"encryption": {"scheme": "nine"}, "precision_bits": 20, "allow_insecure": True}
    job = secureboost_jobs.made(said)
    with pytest.raises(ConfigError, match="precision_bits is 20; nine adds up"):
        now(job.room().walk())
    asked = parse_settings(
        SecureBoostParams, {"encryption": {"scheme": "nine"}, "allow_insecure": True}
    )
    with pytest.raises(ConfigError, match=r"host_noise adds numbers .* which nine cannot"):
        parse_settings(
            SecureBoostParams, {**asked.model_dump(exclude_defaults=True), "host_noise": 1.0}
        )


def test_an_unknown_scheme_is_refused_with_those_there_are(twin):
    with pytest.raises(
        ConfigError, match=r"no encryption scheme 'rot13', but auto, paillier, .*twin"
    ):
        parse_settings(SecureBoostParams, {"encryption": {"scheme": "rot13"}})


# A kind of models


@dataclass(frozen=True)
class Constant(ModelKind):
    """Models that predict their base margin."""

    is_whole: ClassVar[bool] = True

    def rounds(self, facts):
        return 1

    def exported_parts(self, shard: Artefact) -> Exported:
        return export.facts_of(shard), {}

    def importance(self, shard: Artefact) -> list[Any]:
        return []

    def tree_lines(self, shard: Artefact, trees: int, first: int = 0) -> list[str]:
        return [f"always {shard.facts['base_margin'][0]}"]

    def shared_rules(self, shard: Artefact, names: Collection[str] | None = None) -> Any:
        raise ConfigError("the model has no rules")

    def picture(self, shard: Artefact, tree: int) -> Any:
        raise ConfigError("the model has no trees")

    def join_shards(self, shard: Artefact, hosts: Shards) -> Any:
        raise ConfigError("the model has no trees")

    def margins(
        self, shards: Shards, guest: str, frames: Frames, held: Mapping[str, Indices]
    ) -> Floats:
        return np.full((frames[guest].n_rows, 1), shards[guest].facts["base_margin"][0])

    def column_gains(self, shards: Shards, guest: str) -> None:
        return None


MODEL = "credit-0a1b2c3d"
FACTS: dict[str, Any] = {
    **{"kind": "constant", "job": MODEL, "name": "credit", "protocol": "constants"},
    **{"party": "bank", "role": "guest", "guest": "bank", "hosts": ["telco"], "trees": 0},
    **{"objective": "reg:squarederror", "base_margin": [4.25], "columns": ["x"]},
    **{"categories": {}, "id": ["id"], "history": [{"train": {"rmse": 2.0}}]},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A local cluster's folder with a model of a kind that this version does not have."""
    monkeypatch.setitem(kinds.MODEL_KINDS, "constant", Constant())
    shards.save_shard(tmp_path / "var" / "bank" / "models" / MODEL, Artefact(FACTS))
    pq.write_table(pa.table({"id": ["a", "b"], "x": [1.0, 2.0]}), tmp_path / "new.parquet")
    return tmp_path


def said(*words):
    """What the command prints; what it raises is raised."""
    more: dict[str, Any] = {"catch_exceptions": False, "standalone_mode": False}
    return CliRunner().invoke(model_group, [str(word) for word in words], **more).stdout


def test_an_added_kind_is_listed_shown_and_exported(folder):
    where = ("--cluster", folder)
    (listed,) = json.loads(said("list", *where, "--json"))["models"]
    assert (listed["rounds"], listed["whole"], listed["metrics"]) == (1, True, FACTS["history"][0])
    assert "always 4.25" in said("show", MODEL, *where)
    out = folder / "model.json"
    said("export", MODEL, *where, "--format", "json", "--out", out)
    assert json.loads(out.read_text())["base_margin"] == [4.25]
    with pytest.raises(ConfigError, match="no rules"):
        said("rules", MODEL, *where)
    with pytest.raises(ConfigError, match="has no trees"):
        said("export", MODEL, *where, "--out", folder / "x.json")


def test_an_added_kind_predicts_alone_and_no_job_scores_with_it(folder):
    data, out = f"bank={folder / 'new.parquet'}", folder / "p.parquet"
    said("predict", MODEL, "--cluster", folder, "--data", data, "--out", out)
    assert pq.read_table(out)["prediction"].to_pylist() == [4.25, 4.25]
    with pytest.raises(ConfigError, match="predicts with it alone, without a job"):
        check_model(parse_settings(PredictParams, {"model": MODEL}), FACTS)


def test_a_kind_that_nobody_knows_is_refused_and_an_update_advised(folder, monkeypatch):
    monkeypatch.delitem(kinds.MODEL_KINDS, "constant")
    with pytest.raises(FedboostError, match="made of constant, which this version") as refused:
        said("show", MODEL, "--cluster", folder)
    assert refused.value.todo == "update fedboost"
