"""Scores of people whom a job holds out: what the guest would hear from a prediction.

The host's policy allows nobody predictions, which is the default. The defences are
`Policy.judge_held_share`, what hosts charge for rows held out, and `Policy.judge_rows`.
"""

import numpy as np
import pyarrow as pa
import pytest

from fedboost.flow import StageContext
from fedboost.ground.workers import Serial
from fedboost.job import Validation
from fedboost.protocols.secureboost import guest as guest_steps
from fedboost.runtime.cluster import local
from fedboost.runtime.config.policy import Policy, PredictPolicy
from tests.attacks.test_border_approval import ruled
from tests.e2e import world
from tests.support.federated import now

HOST, ROWS, MANY = "telco", 400, 0.9
JOB = world.spec(world.job("bank", (HOST,), params={"objective": "binary:logistic"}))
DEFAULT = Policy()


def tables():
    """The label follows the host's column; the guest's own says nothing of it."""
    draw = np.random.default_rng(5)
    ids, column = [f"p{n:03d}" for n in range(ROWS)], draw.normal(size=ROWS)
    label = (column + 0.2 * draw.normal(size=ROWS) > 0).astype(np.int64)
    guests = {"id": ids, "y": label, "z": draw.normal(size=ROWS)}
    return {"bank": pa.table(guests), HOST: pa.table({"id": ids, "x": column})}


async def trained(folder, held, *, jobs=1, **rules):
    """Jobs that hold out a share of the rows, one after the other, at a host with the default rules
    about that but for `rules`; how each ended, and what the host's account says of rows.
    """
    sources = {n: world.write(folder / f"{n}.parquet", table) for n, table in tables().items()}
    async with local.open_cluster(folder / "c", JOB, sources, Serial()) as cluster:
        host = cluster.parties[HOST]
        ruled(host, **{"holdout_max": DEFAULT.holdout_max, "predict": DEFAULT.predict} | rules)
        ended = []
        for number in range(jobs):
            cut = Validation(fraction=held, seed=number)
            update = {"validation": cut, "name": f"job-{number}"}
            journal = await cluster.run(JOB.model_copy(update=update))
            where = {place.key: place.value for place in journal.status.reason.where}
            ended.append((journal.status.state, where.get("key")))
        return ended, [entry.scored for entry in host.spending.account.entries()]


def ranked(label, score):
    """The area under the ROC curve: how often a positive ranks before a negative."""
    pairs = score[label == 1][:, None] - score[label == 0][None, :]
    return float(np.mean((pairs > 0) + 0.5 * (pairs == 0)))


@pytest.fixture
def scores(monkeypatch):
    """How well the guest ranks the people held out, by the scores that it has of them: AUC."""
    found, stock = [], guest_steps.close_model

    def close_model(guest):
        held = guest.context.validation
        found.append((int(held.sum()), ranked(guest.y[held], guest.margin[held, 0])))
        return stock(guest)

    monkeypatch.setattr(guest_steps, "close_model", close_model)
    return found


def test_most_people_are_not_held_out_to_be_scored(tmp_path, scores):
    [ended], charged = now(trained(tmp_path, MANY))
    assert ended == ("failed", "policy.holdout_max")
    assert (scores, charged) == ([], [])


def test_most_people_are_held_out_and_scored_where_no_share_is_judged(
    tmp_path, scores, monkeypatch
):
    monkeypatch.setattr(Policy, "judge_held_share", lambda *_: None)
    monkeypatch.setattr(Policy, "judge_prediction", lambda *_: None)
    monkeypatch.setattr(Policy, "judge_rows", lambda *_: None)
    [(state, _)], charged = now(trained(tmp_path, MANY))
    [(held, auc)] = scores
    assert state == "finished"
    assert held == charged[0] == MANY * ROWS
    assert auc > 0.85


def test_training_with_a_usual_share_held_out_works_and_is_counted(tmp_path, scores):
    ended, charged = now(trained(tmp_path, 0.2, jobs=2))
    assert [state for state, _ in ended] == ["finished"] * 2
    assert [held for held, _ in scores] == charged == [80, 80]


def test_people_held_out_count_as_predicted_where_the_guest_may_ask_for_predictions(tmp_path):
    few = PredictPolicy(peers=("bank",), rows_per_day=500)
    ended, charged = now(trained(tmp_path, MANY, jobs=2, predict=few))
    assert [state for state, _ in ended] == ["finished", "failed"]
    assert ended[1][1] == "policy.predict.rows_per_day"
    assert charged[0] == MANY * ROWS


def test_people_held_out_do_not_count_where_hosts_charge_nothing_for_them(tmp_path, monkeypatch):
    monkeypatch.setattr(StageContext, "held_out_charges", ())
    few = PredictPolicy(peers=("bank",), rows_per_day=500)
    ended, charged = now(trained(tmp_path, MANY, jobs=2, predict=few))
    assert [state for state, _ in ended] == ["finished"] * 2
    assert charged == [0, 0]
