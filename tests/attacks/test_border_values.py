"""What noise is worth where another value stands behind an id: next month's table, or another one.

The guest writes splits of its own behind every bucket and asks the model where all rows go; it
holds what it hears against what training told. The host, its store and its policy are stock.
"""

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedboost.core.categories import SET_BYTES
from fedboost.crypto.noise import ValueNoise
from fedboost.data.sources import SourceSpec
from fedboost.flow import Out
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial
from fedboost.messages.protocol.federboost_vertical_pb2 import OwnSplits
from fedboost.messages.protocol.predict_pb2 import Questions
from fedboost.model.telling import Telling
from fedboost.protocols.federboost_vertical import guest as training
from fedboost.protocols.predict import guest as predicting
from fedboost.runtime.cluster import local
from fedboost.runtime.config.policy import PredictPolicy
from fedboost.runtime.policy import noisy_values
from tests.support.federated import _left, job_spec

GUEST, HOST = "bank", "telco"
ROWS, BUCKETS, EPSILON = 300, 8, 0.5
IDS = [f"p{row:03d}" for row in range(ROWS)]
CUTS = [4 * k - 0.5 for k in range(1, BUCKETS)]
DRAW = np.random.default_rng(1)
BEFORE = DRAW.integers(0, 32, ROWS).astype(float)  # each a group of its own (`bins_max`)
AFTER = np.where(DRAW.random(ROWS) < 0.5, BEFORE, DRAW.integers(0, 32, ROWS).astype(float))
CHANGE = (np.digitize(AFTER, CUTS) - np.digitize(BEFORE, CUTS)) % BUCKETS
HAS_CHANGED = CHANGE != 0
BY_CHANCE = 1 / (BUCKETS - 1)  # of another bucket: where a guess of it is right
PARAMS = {"n_estimators": BUCKETS - 1, "max_depth": 1, "buckets": BUCKETS, "epsilon": EPSILON}
TRAINING = job_spec(
    "federboost-vertical",
    (GUEST, HOST),
    params={**PARAMS, "public_cuts": {HOST: {"score": CUTS}}},
)


class HasHeardError(FedboostError):
    """The guest has what it wanted."""


@dataclass
class Heard:
    """What the guest makes of a host's answers: noisy buckets, in the order of `IDS`."""

    trained: NDArray[np.int64]
    asked: NDArray[np.int64] | None = None  # None: it got no answer
    error: FedboostError | None = None  # with which the prediction ended
    noise: tuple[float, ...] = ()  # ε of a row that the account has, by job

    @property
    def share_read(self) -> float:
        """The share of people who have changed whose change the guest reads by a difference."""
        assert self.asked is not None
        read = (self.asked - self.trained) % BUCKETS
        return float((read == CHANGE)[HAS_CHANGED].mean())


def in_order(context, buckets) -> NDArray[np.int64]:
    """Buckets of a table's rows in the order of `IDS`; keys of ids end with the id."""
    place = {bytes(id_).decode()[-4:]: row for row, id_ in enumerate(context.data.ids)}
    return np.array([int(buckets[place[id_]]) for id_ in IDS])


def split_behind_every_bucket(real, state) -> Out:
    """The guest's own splits in place of those of its trees."""
    numbers, nothing = np.arange(BUCKETS - 1, dtype=np.int32), np.zeros(BUCKETS - 1, np.int32)
    splits = OwnSplits(
        trees=wire.pack(numbers),
        nodes=wire.pack(nothing),
        columns=wire.pack(nothing),
        buckets=wire.pack(numbers),
        missing_left=wire.pack_bits(np.zeros(BUCKETS - 1, np.bool_)),
        sets=wire.pack(np.empty((0, SET_BYTES), np.uint8)),
    )
    return Out(send={HOST: splits}, told=real(state).told)


def ask_every_row(state) -> Out:
    """Questions about all rows at all splits."""
    count = BUCKETS - 1
    return Out(
        send={
            HOST: Questions(
                trees=wire.pack(np.arange(count, dtype=np.int32)),
                nodes=wire.pack(np.zeros(count, np.int32)),
                counts=wire.pack(np.full(count, ROWS, np.int32)),
                rows=wire.pack(np.tile(np.arange(ROWS, dtype=np.int32), count)),
            )
        }
    )


def written(path, scores) -> SourceSpec:
    columns: dict[str, Any] = {"id": IDS, "score": scores}
    pq.write_table(pa.table(columns), path)
    return parse_settings(SourceSpec, {"path": str(path)})


def heard(folder, patch, scores, *, epsilon_row_max, asked_of="data") -> Heard:
    """Train on the table `data` of `BEFORE`, predict from a table that holds `scores` by then."""
    tables = {name: written(folder / f"{name}.parquet", BEFORE) for name in ("data", "june")}
    labels: dict[str, Any] = {
        "id": IDS,
        "y": DRAW.integers(0, 2, ROWS),
        "z": DRAW.normal(size=ROWS),
    }
    pq.write_table(pa.table(labels), folder / "bank.parquet")
    sources = {GUEST: SourceSpec(path=str(folder / "bank.parquet")), HOST: tables["data"]}
    permissive, declared = local.permissive_policy, local.declared_sources
    limits = {"epsilon_element_max": EPSILON, "epsilon_row_max": epsilon_row_max}
    limits |= {"predict": PredictPolicy(peers=(GUEST,), rows_per_day=10 * ROWS)}

    def policy(name, spec, **how):
        rules = {**limits, "datasets": tuple(tables)} if name == HOST else {}
        return permissive(name, spec, **how).model_copy(update=rules)

    patch.setattr(local, "permissive_policy", policy)
    patch.setattr(
        local,
        "declared_sources",
        lambda name, *said: dict(tables) if name == HOST else declared(name, *said),
    )
    found = Heard(np.empty(0, np.int64))
    receive, close = training.receive_buckets, training.close_model

    def receives(state, got):
        out = receive(state, got)
        found.trained = in_order(state.context, state.told[HOST].ids[:, 0])
        return out

    def follows(state, got):
        bits = wire.unpack_bits(got[HOST].goes_right, ROWS * (BUCKETS - 1), "the answers")
        found.asked = in_order(state.context, bits.reshape(BUCKETS - 1, ROWS).sum(axis=0))
        raise HasHeardError("the guest has heard enough")

    patch.setattr(training, "receive_buckets", receives)
    patch.setattr(training, "close_model", partial(split_behind_every_bucket, close))

    async def work():
        async with local.open_cluster(folder / "c", TRAINING, sources, Serial()) as made:
            first = _left(made, await made.run(TRAINING))
            assert first.state == "finished"
            written(folder / f"{asked_of}.parquet", scores)
            patch.setattr(predicting, "ask_hosts", ask_every_row)
            patch.setattr(predicting, "follow_answers", follows)
            asked = job_spec(
                "predict",
                (GUEST, HOST),
                data={HOST: {"dataset": asked_of}},
                params={"model": first.result["job"]},
            )
            found.error = _left(made, await made.run(asked)).error
            entries = made.parties[HOST].spending.account.entries()
            found.noise = tuple(entry.noise for entry in entries)

    asyncio.run(work())
    return found


def noise_by_id_alone(patch):
    """Whatever the value: what is told of it is moved by the same step, and charged once."""
    by_value = ValueNoise._random_words

    def by_id(state, purpose, true):
        return by_value(state, purpose, np.zeros_like(true))

    patch.setattr(ValueNoise, "_random_words", by_id)
    patch.setattr(noisy_values, "charges_of_new_values", lambda *_: [])


def noise_of_any_table(patch):
    """Noise that does not know of which table it is."""
    tell = Telling.tell_values

    def of_any(terms, values, ids, context):
        return tell(terms, values, ids, replace(context, dataset=""))

    patch.setattr(Telling, "tell_values", of_any)


def test_the_same_table_is_told_again_with_the_same_noise_and_nothing_is_charged(
    tmp_path, monkeypatch
):
    found = heard(tmp_path, monkeypatch, BEFORE, epsilon_row_max=EPSILON)
    assert found.asked is not None
    assert found.asked.tolist() == found.trained.tolist()
    assert sum(found.noise) == EPSILON


# Next month's table


def test_a_changed_table_is_charged_again_and_its_changes_are_not_read(tmp_path, monkeypatch):
    """The defences: the value in `ValueNoise`, and `noisy_values.charges_of_new_values`."""
    found = heard(tmp_path, monkeypatch, AFTER, epsilon_row_max=2 * EPSILON)
    assert found.share_read < BY_CHANCE + 0.12
    assert found.noise == (EPSILON, EPSILON)


def test_a_changed_table_is_refused_where_its_epsilon_is_spent(tmp_path, monkeypatch):
    found = heard(tmp_path, monkeypatch, AFTER, epsilon_row_max=EPSILON)
    assert found.asked is None
    assert found.error is not None
    assert found.error.where["key"] == "policy.epsilon_row_max"
    assert sum(found.noise) == EPSILON


def test_changes_of_a_table_are_read_exactly_where_noise_goes_by_id_alone(tmp_path, monkeypatch):
    noise_by_id_alone(monkeypatch)
    found = heard(tmp_path, monkeypatch, AFTER, epsilon_row_max=EPSILON)
    assert found.share_read == 1.0
    assert sum(found.noise) == EPSILON


# Another table of the same owner, about the same people


def test_another_table_meets_noise_of_its_own_and_is_charged(tmp_path, monkeypatch):
    """The defences: the table in the noise's derivation, and
    `noisy_values.charges_of_new_values`.
    """
    found = heard(tmp_path, monkeypatch, AFTER, epsilon_row_max=EPSILON, asked_of="june")
    assert found.share_read < BY_CHANCE + 0.12
    assert found.noise == (EPSILON, EPSILON)
    # Nor does it show who is the same in both.
    assert found.asked is not None
    same = found.asked == found.trained
    assert abs(same[HAS_CHANGED].mean() - same[~HAS_CHANGED].mean()) < 0.15


def test_another_table_shows_every_difference_where_noise_goes_by_id_alone(tmp_path, monkeypatch):
    noise_by_id_alone(monkeypatch)
    noise_of_any_table(monkeypatch)
    found = heard(tmp_path, monkeypatch, AFTER, epsilon_row_max=EPSILON, asked_of="june")
    assert found.share_read == 1.0
    assert sum(found.noise) == EPSILON
