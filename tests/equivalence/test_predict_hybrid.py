"""Do predictions of trees in two parts come out as the training had them, and as a naive way
through the parties' shards has them?
"""

from dataclasses import replace

import numpy as np
import pytest

from fedboost.core.partition import ROOT, left_child, right_child
from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.schemes import KEYED_SCHEMES
from fedboost.encrypted.number.leaf_answers import Precision
from fedboost.ground.workers import Serial
from fedboost.model import rounds, vertical
from fedboost.model.batches import BatchesState
from fedboost.model.hybrid import NO_BOTTOM, SHARD_KEY
from tests.support.federated import GUEST, HOSTS, now
from tests.support.hybrid_unscored import (
    broken_off,
    goes_right,
    later,
    leaves,
    made,
    standing,
    trained,
)

SPLITS = ("scored", "unscored")
CLASSES = {"objective": "multi:softprob", "num_class": 3}
GAP_MAX = 1e-12  # of unscored margins, which add up other floats in another order


def scored(job, shards, **more):
    """The margins of all rows of the job's tables, by a prediction."""
    room = job.scoring(shards, **{"output_margin": True, **more})
    return now(room.walk())[GUEST].arrays["prediction"]


def assert_margins(split, found, expected):
    """Bit by bit where splits are scored, whose leaf values are the guest's."""
    assert found.shape == expected.shape
    if split == "scored":
        assert found.tobytes() == expected.tobytes()
    assert np.abs(found - expected).max() <= GAP_MAX


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    ("params", "how"),
    [
        ({}, {}),
        ({"learning_rate": 1.0}, {"shares": [1.0, 0.2]}),
        ({**CLASSES}, {"categories": 5}),
        ({**CLASSES, "multi_output": True}, {"missing": 0.4}),
        ({"objective": "reg:squarederror", "subsample": 0.3}, {"rows": 40, "least": 1}),
        ({"objective": "count:poisson"}, {"weighted": True}),
        ({"guest_depth": 8, "host_depth": 2}, {"rows": 300, "least": 1}),
        ({"guest_depth": 2, "host_depth": 8, "max_bin": 60}, {"rows": 300, "least": 1}),
        ({"guest_depth": 8, "host_depth": 6}, {"rows": 200, "least": 1}),
        ({"n_estimators": 4}, {"sparse": (GUEST, HOSTS[0]), "zero": 0.6}),
    ],
    ids=str,
)
def test_predictions_of_the_training_rows_are_their_margins(split, params, how):
    job = made({"split": split, **params}, (2, 3, 2), **how)
    done = trained(job)
    assert_margins(split, scored(job, done.shards), done.margins[-1])


@pytest.mark.parametrize("split", SPLITS)
def test_a_model_cut_by_early_stopping_predicts_its_best_round(split):
    stops = {"n_estimators": 12, "early_stopping_rounds": 1, "learning_rate": 1.0}
    job = made({"split": split, **stops}, held=0.4, seed=3)
    done = trained(job)
    kept = done.shards[GUEST].facts["trees"]
    assert 0 < kept < len(done.margins)
    assert int(done.shards[HOSTS[0]].facts["trees"]) > kept
    assert_margins(split, scored(job, done.shards), done.margins[kept - 1])


@pytest.fixture(scope="module", params=SPLITS)
def model(request):
    """A job of three hosts and what it left."""
    job = made({"split": request.param, **CLASSES}, (2, 3, 2, 1), shares=[0.7, 0.4, 0.2], rows=130)
    return job, trained(job)


@pytest.mark.parametrize("batch_rows", [1, 7, 64, 129, 130])
def test_batches_of_any_size_come_to_the_same(model, batch_rows):
    job, done = model
    if batch_rows == 1:
        job = some_rows(job, 12)
    whole = scored(job, done.shards)
    assert scored(job, done.shards, batch_rows=batch_rows).tobytes() == whole.tobytes()


def some_rows(job, count):
    """The same job on the guest's first rows."""
    inside = {host: rows < count for host, rows in job.rows.items()}
    columns = {h: job.columns[h][own] for h, own in inside.items()}
    return replace(
        job,
        columns={GUEST: job.columns[GUEST][:count], **columns},
        rows={host: rows[inside[host]] for host, rows in job.rows.items()},
        y=job.y[:count],
    )


def test_probabilities_are_those_of_the_margins(model):
    job, done = model
    margins = scored(job, done.shards)
    whole = np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)
    assert np.allclose(scored(job, done.shards, output_margin=False), whole, rtol=0, atol=1e-15)


# New rows, and the naive way through the shards


def bottoms(shards, values, tree):
    """The bottom node of each row in one tree, row by row."""
    arrays, found = shards[GUEST].arrays, []
    own = {int(arrays["node"][i]): i for i in np.flatnonzero(arrays["tree"] == tree).tolist()}
    for row in values:
        node = ROOT
        while arrays["owner"][own[node]] == vertical.GUEST:
            right = goes_right(arrays, own[node], row[int(arrays["feature"][own[node]])])
            node = right_child(node) if right else left_child(node)
        found.append(node)
    return np.array(found), arrays["value"][[own[node] for node in found]]


def hosts_values(shards, host):
    """What a host's leaves are worth, by tree and node; the hidden ones by the guest's key."""
    guest, own = shards[GUEST], shards[host].arrays
    if guest.facts["split"] == "scored":
        mine = guest.arrays["below_host"] == list(shards).index(host)
        named = [guest.arrays[f"below_{name}"][mine] for name in ("tree", "node", "value")]
        return {(int(t), int(n)): value for t, n, value in zip(*named, strict=True)}
    scheme = KEYED_SCHEMES[guest.facts["params"]["encryption"]["scheme"]]
    key = scheme.load_private(guest.arrays[SHARD_KEY].tobytes(), Serial())
    packing = Precision(**guest.facts["precision"]).layout(key.plaintext_bits)
    data = np.ascontiguousarray(own["leaf_value"]).reshape(-1, 1, own["leaf_value"].shape[2])
    numbers = key.decrypt(Ciphertexts(data), packing, [1] * len(own["leaf_tree"]))
    named = [own["leaf_tree"], own["leaf_node"], numbers * guest.facts["value_unit"]]
    return {(int(t), int(n)): value for t, n, value in zip(*named, strict=True)}


def followed(job, shards):
    """The margins of a job's rows, tree by tree, row by row."""
    facts, n = shards[GUEST].facts, len(job.y)
    margin = np.tile(np.array(facts["base_margin"], float), (n, 1))
    holders = np.zeros(n)
    for rows in job.rows.values():
        holders[rows] += 1
    for tree, output in enumerate(rounds.classes(facts).tolist()):
        bottom, own = bottoms(shards, job.columns[GUEST], tree)
        added = np.zeros_like(own)
        for host, rows in job.rows.items():
            values = hosts_values(shards, host)
            starts = standing(shards, host, tree, bottom[rows])
            ends = leaves(shards, job, host, tree, starts)
            for row, start, leaf in zip(rows, starts.tolist(), ends.tolist(), strict=True):
                added[row] += 0.0 if start == NO_BOTTOM else values[tree, leaf]
        outputs = slice(None) if output == rounds.ALL else slice(output, output + 1)
        margin[:, outputs] += own + added / np.maximum(holders, 1)[:, None]
    return margin


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    ("shares", "more"),
    [
        ([0.5, 0.9], {"missing": 0.4}),
        ([1.0, 1.0], {}),
        ([[], range(50)], {}),
        ([[], []], {}),  # nobody has any of the rows
        ([range(45, 50), range(3)], {}),  # batches without rows of a host
    ],
    ids=str,
)
def test_new_rows_go_where_the_shards_send_them(split, shares, more):
    params = {"split": split, "subsample": 0.5}
    job = made(params, (2, 3, 2), shares=[0.3, 0.6], least=2, categories=4)
    shards = trained(job).shards
    fresh = made(params, (2, 3, 2), rows=50, seed=9, shares=shares, categories=4, **more)
    expected = followed(fresh, shards)
    assert_close(scored(fresh, shards), expected)
    assert_close(scored(fresh, shards, batch_rows=11), expected)
    assert len(np.unique(expected)) > 3


def assert_close(found, expected):
    assert np.abs(found - expected).max() <= GAP_MAX


@pytest.mark.parametrize("split", SPLITS)
def test_rows_that_no_host_has_keep_the_guests_leaves(split):
    job = made({"split": split, "n_estimators": 2})
    shards = trained(job).shards
    alone = np.setdiff1d(np.arange(len(job.y)), np.concatenate(list(job.rows.values())))
    assert len(alone) > 5
    margin = np.tile(np.array(shards[GUEST].facts["base_margin"], float), (len(job.y), 1))
    for tree in range(2):
        margin += bottoms(shards, job.columns[GUEST], tree)[1]
    found = scored(job, shards)
    assert found[alone].tobytes() == margin[alone].tobytes()
    others = np.setdiff1d(np.arange(len(job.y)), alone)
    assert (found[others] != margin[others]).any(axis=1).mean() > 0.9


@pytest.mark.parametrize("split", SPLITS)
def test_categories_are_read_by_their_names_and_new_ones_as_missing(split):
    job = made({"split": split, "n_estimators": 4}, (1, 1, 1), categories=5, missing=0.2)
    shards = trained(job).shards
    room = job.scoring(shards, output_margin=True)
    host = HOSTS[0]
    frame = room.contexts[host].frame
    assert frame is not None
    texts = frame.categories["c0"]
    # The same table with another list of names, two of them unknown to the model.
    names = ("nowhere", *texts[::-1], "elsewhere")
    codes = len(texts) - frame.values[:, 0]
    codes[:3] = [0, len(names) - 1, np.nan]
    renamed = replace(frame, values=np.asfortranarray(codes[:, None]), categories={"c0": names})
    contexts = {**room.contexts, host: replace(room.contexts[host], frame=renamed)}
    found = now(type(room)(room.protocol, contexts).walk())[GUEST].arrays["prediction"]
    gone = job.columns[host].copy()
    gone[:3] = np.nan
    expected = followed(replace(job, columns={**job.columns, host: gone}), shards)
    assert_close(found, expected)
    assert not np.array_equal(expected, followed(job, shards))


# Under real keys, and in two attempts


@pytest.mark.some(2, of="trees under real keys")
@pytest.mark.parametrize(
    ("scheme", "params"),
    [
        ("paillier", {}),
        ("okamoto-uchiyama", {**CLASSES}),
        ("okamoto-uchiyama", {**CLASSES, "num_class": 14, "multi_output": True}),
    ],
)
def test_under_real_keys_predictions_are_the_margins_too(scheme, params):
    """Leaves of so many classes take more than two packages a row."""
    own = {"encryption": {"scheme": scheme}, "n_estimators": 2, **params}
    job = made(own, rows=40, least=2, shares=[1.0, 0.6])
    if params.get("num_class") == 14:
        job = replace(job, y=(np.arange(40) % 14).astype(np.float64), held=0.0)
    done = trained(job)
    assert_margins("unscored", scored(job, done.shards), done.margins[-1])


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_prediction_carried_on_comes_to_the_same(model, batches):
    job, done = model
    room = job.scoring(done.shards, batch_rows=40, output_margin=True)
    kept = now(broken_off(room, "place_rows", batches + 1))
    assert kept[GUEST].state(BatchesState).first == 40 * batches
    found = now(later(room).carry_on(kept, batches))[GUEST].arrays["prediction"]
    assert found.tobytes() == scored(job, done.shards).tobytes()
