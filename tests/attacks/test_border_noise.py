"""What noise is worth that a guest may have drawn again: by other rows, or by asking the model."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedboost.core.categories import SET_BYTES
from fedboost.crypto.noise import ValueNoise
from fedboost.flow import MODEL, MemoryNotebook
from fedboost.ground import wire
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.ground.ids import EncodedIds
from fedboost.messages.protocol.federboost_vertical_pb2 import OwnSplits
from fedboost.messages.protocol.predict_pb2 import Questions
from fedboost.model import telling
from fedboost.protocols.federboost_vertical import buckets
from fedboost.protocols.federboost_vertical import host as training
from fedboost.protocols.predict import host as predicting
from fedboost.runtime.config.policy import Policy, PredictPolicy
from tests.support.contexts import altered
from tests.support.federated import GUEST, HOSTS, contexts_for, frame_of

TELCO = HOSTS[0]
ROWS, BUCKETS, EPSILON = 400, 8, 2.0
IDS = [b"p%03d" % number for number in range(ROWS)]
VALUES = np.random.default_rng(1).permutation(2 * ROWS).astype(np.float32).reshape(ROWS, 2)
TRUTH = np.argsort(np.argsort(VALUES, axis=0), axis=0) * BUCKETS // ROWS


def host_seat(rows, protocol="federboost-vertical", params=None, notebook=None, **more):
    """A host's seat with some rows of its table, in their order."""
    frame = frame_of([IDS[row] for row in rows], VALUES[list(rows)])
    frames = {GUEST: frame_of([b"x"], np.zeros((1, 1), np.float32)), TELCO: frame}
    own = {"epsilon": EPSILON, "buckets": BUCKETS, "n_estimators": 16}
    said = own if params is None else params
    return replace(contexts_for(protocol, frames, said, notebook=notebook)[TELCO], **more)


def told(context):
    """The buckets that a host tells, uint8 (rows, columns)."""
    message: Any = training.send_buckets(training.begin(context)).send
    return buckets.read_message(message, len(context.frame.ids), TELCO, 1 << 30).ids


# Another attempt with other rows

ATTEMPTS = 20


def share_right(attempts=ATTEMPTS, **every):
    """How many buckets the vote over attempts has right, each with a row less than the one before.

    `every`: what is new in the seat of every attempt.
    """
    votes = np.zeros((ROWS, 2, BUCKETS), np.int64)
    first = host_seat(range(ROWS))
    for attempt in range(attempts):
        rows = np.arange(attempt, ROWS)
        fresh = {"notebook": lambda: first.services.notebook, **every}
        ids = told(host_seat(rows, **{name: made() for name, made in fresh.items()}))
        votes[rows[:, None], np.arange(2), ids] += 1
    return (votes.argmax(axis=2) == TRUTH)[ATTEMPTS:].mean()


ONCE = np.exp(EPSILON) / (np.exp(EPSILON) + BUCKETS - 1)


def test_attempts_with_other_rows_tell_no_more_than_one():
    """The defences are `ValueNoise`, which goes by ids, and the cut points kept in the notebook."""
    assert share_right() == share_right(1) < ONCE + 0.05


def test_attempts_with_other_rows_tell_more_where_noise_goes_by_place(monkeypatch):
    by_id = ValueNoise.__init__

    def by_place(state, secrets, ids):
        by_id(state, secrets, EncodedIds.of(b"%d" % place for place, _ in enumerate(ids)))

    monkeypatch.setattr(ValueNoise, "__init__", by_place)
    assert share_right() > 0.9


def test_attempts_with_other_rows_tell_more_where_cut_points_are_drawn_anew():
    assert share_right(notebook=MemoryNotebook) > 0.9


def test_an_id_meets_the_same_noise_in_any_order_and_subset():
    context = host_seat(range(ROWS))
    whole = told(context)
    for rows in (range(ROWS)[::-1], range(0, ROWS, 3), (17,)):
        again = told(host_seat(rows, notebook=context.services.notebook))
        assert again.tolist() == whole[list(rows)].tolist()


def test_other_jobs_tables_cuts_columns_and_epsilons_meet_other_noise():
    context = host_seat(range(ROWS))
    own = training.begin(context).telling
    others = [
        replace(own, job="job-2", mark=telling.mark_of(context.secrets.lasting("job-2"))),
        replace(own, columns=("c1", "c0")),
        replace(own, epsilon=2.0000001),
        replace(own, binning=replace(own.binning, cuts=tuple(c + 1 for c in own.binning.cuts))),
    ]
    ids = EncodedIds.of(IDS)
    moved = [one.tell_values(VALUES, ids, context).ids != TRUTH for one in (own, *others)]
    moved.append(own.tell_values(VALUES, ids, replace(context, dataset="june")).ids != TRUTH)
    for other in moved[1:]:
        assert abs((moved[0] == other).mean() - 0.5) < 0.06  # each moves nearly half of all values


# The model, asked instead of the host


def splits(nodes):
    """The guest's splits: (tree, node, column, bucket) each, in order."""
    numbers = np.array(nodes, np.int32).reshape(-1, 4)
    return OwnSplits(
        trees=wire.pack(numbers[:, 0]),
        nodes=wire.pack(numbers[:, 1]),
        columns=wire.pack(numbers[:, 2]),
        buckets=wire.pack(numbers[:, 3]),
        missing_left=wire.pack_bits(np.zeros(len(numbers), np.bool_)),
        sets=wire.pack(np.empty((0, SET_BYTES), np.uint8)),
    )


EVERY_BUCKET = [(c * (BUCKETS - 1) + b, 0, c, b) for c in range(2) for b in range(BUCKETS - 1)]


def trained(rows, nodes):
    """What a host told in training, and its shard of a model with a guest's splits."""
    me = training.begin(host_seat(rows))
    message: Any = training.send_buckets(me).send
    training.keep_splits(me, splits(nodes))
    return buckets.read_message(message, len(rows), TELCO, 1 << 30).ids, training.finish(me)


def asked(context, nodes, rows):
    """Where all these rows go at all these nodes, bool (nodes, rows)."""
    me = predicting.begin(context)
    message = Questions(
        trees=wire.pack(np.array([tree for tree, *_ in nodes], np.int32)),
        nodes=wire.pack(np.array([node for _, node, *_ in nodes], np.int32)),
        counts=wire.pack(np.full(len(nodes), len(rows), np.int32)),
        rows=wire.pack(np.tile(np.array(rows, np.int32), len(nodes))),
    )
    answer: Any = predicting.direct_rows(me, message).send
    bits = wire.unpack_bits(answer.goes_right, len(nodes) * len(rows), "the answer")
    return bits.reshape(len(nodes), len(rows))


def predicting_seat(shard, rows, exact=()):
    limits = Policy(predict=PredictPolicy(peers=(GUEST,), rows_per_day=ROWS, exact=exact))
    more = {"artefacts": {MODEL: shard}, "limits": limits}
    return host_seat(rows, "predict", {"model": "job-1"}, **more)


def read_back(context):
    """Every row's bucket, of how many cut points it lies right."""
    right = asked(context, EVERY_BUCKET, range(len(context.frame.ids)))
    return right.reshape(2, BUCKETS - 1, -1).sum(axis=1).T


def test_a_model_of_the_guests_making_tells_what_training_told_and_no_more():
    """The defence is `Telling` in `predict.host._noisy_shard`: the host answers as it told."""
    first, shard = trained(range(ROWS), EVERY_BUCKET)
    assert read_back(predicting_seat(shard, range(ROWS))).tolist() == first.tolist()
    backwards = predicting_seat(shard, range(ROWS)[::-1])
    assert read_back(backwards).tolist() == first[::-1].tolist()
    assert (first == TRUTH).mean() < ONCE + 0.05


def test_people_who_were_not_in_training_are_answered_with_the_same_noise():
    _, shard = trained(range(0, ROWS, 2), EVERY_BUCKET)
    found = read_back(predicting_seat(shard, range(1, ROWS, 2)))
    assert abs((found == TRUTH[1::2]).mean() - ONCE) < 0.08
    assert read_back(predicting_seat(shard, range(1, ROWS, 2))).tolist() == found.tolist()


def test_a_model_of_the_guests_making_reads_every_bucket_where_the_owner_allows_exact_answers():
    _, shard = trained(range(ROWS), EVERY_BUCKET)
    found = read_back(predicting_seat(shard, range(ROWS), exact=(GUEST,)))
    assert found.tolist() == TRUTH.tolist()
    others = read_back(predicting_seat(shard, range(ROWS), exact=("other",)))
    assert others.tolist() != TRUTH.tolist()


def test_a_store_with_another_key_answers_nothing_with_noise_of_its_own():
    _, shard = trained(range(ROWS), EVERY_BUCKET)
    context = predicting_seat(shard, range(ROWS))
    moved = altered(context, secrets={"lasting": context.secrets.lasting("another store").child})
    with pytest.raises(ConfigError, match="the store has another key"):
        predicting.begin(moved)


def test_ids_by_other_columns_do_not_draw_the_noise_anew():
    _, shard = trained(range(ROWS), EVERY_BUCKET)
    context = predicting_seat(shard, range(ROWS))
    ids = EncodedIds.of(b"x" + row for row in IDS)
    renamed = replace(context.frame, ids=ids, id_columns=("id", "x"))
    with pytest.raises(ConfigError, match="ids of other columns"):
        predicting.begin(replace(context, frame=renamed))


# Nodes that a row does not reach

CHAIN = [(0, 0, 0, 3), (0, 1, 1, 2), (0, 2, 1, 5)]  # two columns, one below the other


def off_path():
    """Of rows that go right at the root: what the node on its left says of them."""
    _, shard = trained(range(ROWS), CHAIN)
    context = predicting_seat(shard, range(ROWS), exact=(GUEST,))
    right = np.flatnonzero(asked(context, CHAIN[:1], range(ROWS))[0])
    return right, asked(context, CHAIN[1:2], right)[0]


def test_a_host_answers_only_where_its_own_splits_let_a_row_come():
    """The defence is `predict.host.check_paths`; nodes that rows do reach are answered."""
    with pytest.raises(PeerError, match="nodes that they do not reach"):
        off_path()
    _, shard = trained(range(ROWS), CHAIN)
    context = predicting_seat(shard, range(ROWS), exact=(GUEST,))
    right = asked(context, CHAIN[:1], range(ROWS))[0]
    for node, there in ((CHAIN[1], ~right), (CHAIN[2], right)):
        rows = np.flatnonzero(there)
        assert asked(context, [node], rows)[0].tolist() == (TRUTH[rows, 1] > node[3]).tolist()


def test_a_host_answers_for_any_row_where_paths_are_not_checked(monkeypatch):
    monkeypatch.setattr(predicting, "check_paths", lambda *_: None)
    rows, found = off_path()
    assert len(rows) == ROWS // 2
    assert found.tolist() == (TRUTH[rows, 1] > CHAIN[1][3]).tolist()
