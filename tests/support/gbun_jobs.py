"""Jobs of boosted networks on random tables, and what one table with all rows comes to."""

from dataclasses import dataclass, fields, replace
from types import SimpleNamespace

import numpy as np
from scipy.sparse import csc_array

from fedboost.core import gbun
from fedboost.core.gbun import GbunParams
from fedboost.data.frame import Frame
from fedboost.ground.ids import EncodedIds
from fedboost.model import networks
from tests.support import horizontal_jobs
from tests.support.federated import GUEST, now, room_for
from tests.support.horizontal_jobs import Job, assert_same_shards

PROTOCOL = "gbun"
MARGIN_GAP_MAX = 1e-6


@dataclass(frozen=True)
class NetworksJob(Job):
    """A job of boosted networks; columns are called as svmlight's are."""

    @property
    def names(self):
        return tuple(f"f{i}" for i in range(self.values.shape[1]))

    @property
    def own(self):
        """The settings that a table in one place knows."""
        return GbunParams(**{k: v for k, v in self.params.items() if k in GbunParams.model_fields})

    @property
    def frame(self):
        """All rows as one table."""
        values = np.asfortranarray(self.values)
        return Frame(
            ids=EncodedIds.of(self.ids),
            values=csc_array(values) if self.is_sparse else values.copy(order="F"),
            columns=self.names,
            label=self.y.copy(),
            id_columns=("id",),
        )

    def room(self, params=None, **more):
        """A room to train in; the guest adds up unless told otherwise."""
        contexts = {"held": self.held, "aggregator": GUEST, **more}
        return room_for(PROTOCOL, self.frames(), {**self.params, **(params or {})}, **contexts)


def made(params=None, sizes=(90, 70, 80), columns=5, seed=1, **how):
    """A job on random columns; `how` as for `tests.support.horizontal_jobs.made`."""
    job = horizontal_jobs.made(params, sizes, columns, seed, **how)
    said = {**job.params, "outputs": 8, "columns": "standard", **(params or {})}
    del said["max_depth"]
    known = {one.name: getattr(job, one.name) for one in fields(Job)}
    return NetworksJob(**{**known, "params": said})


def pooled(job):
    """What `core.gbun` trains on all rows in one place."""
    held = job.part(job.out) if job.out.any() else None
    return gbun.train(job.part(~job.out), job.own, held)


def assert_pooled(job, room=None):
    """The federated model is the one of all rows in one place, to 1e-6 of a margin.

    Gives the shards, the room and the pooled model.
    """
    room = room or job.room()
    left = now(room.walk())
    shards = {party: left[party] for party in job.parties}
    assert_same_shards(shards)
    trained = pooled(job)
    shard = shards[GUEST]
    assert shard.facts["rounds"] == trained.best_round + 1
    margins = networks.margins(shard, job.frame)
    expected = trained.margins(job.dealt(np.ones(len(job.y), np.bool_)))
    np.testing.assert_allclose(margins, expected, rtol=0, atol=MARGIN_GAP_MAX)
    assert np.ptp(expected) > 100 * MARGIN_GAP_MAX  # there is something to be equal
    history = shard.facts["history"]
    assert len(history) == len(trained.history)
    for found, own in zip(history, trained.history, strict=True):
        for part, values in own.items():
            for name in set(values) & {"logloss", "mlogloss", "rmse"}:
                np.testing.assert_allclose(found[part][name], values[name], rtol=1e-6, atol=1e-6)
    for party, span in job.spans.items():  # in training they had the margins of every round
        for part, rows in (("train", ~job.out), ("validation", job.out)):
            seen = room.state(party).training.watched.get(part)
            if seen is not None and trained.best_round + 1 == len(history):
                own = margins[span][rows[span]]
                np.testing.assert_allclose(seen.margin, own, rtol=0, atol=1e-12)
    return SimpleNamespace(shards=shards, room=room, trained=trained)


def uplink(room, party):
    """The bytes that a party has sent in each kind of its steps, by the step's name."""
    found: dict[str, int] = {}
    for posted in room.posted:
        if posted.envelope.sender == party:
            step = posted.envelope.step
            found[step] = found.get(step, 0) + len(posted.payload)
    return found


def with_params(job, **params):
    """The same rows under further settings."""
    return replace(job, params={**job.params, **params})
