"""HybridTree with all parties in one process: real sessions and messages, rows aligned already."""

import asyncio
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.federboost_jobs import Params
from benchmarks.federboost_room import TERMS, Place, Room, Shards, contexts
from benchmarks.hybridtree_data import GUEST, Parties
from fedboost import flow
from fedboost.flow import MODEL, Artefact

TRAINING, PREDICTION, ALIGNMENT = "hybridtree", "predict-hybrid", "align-pairs"


@dataclass(frozen=True)
class Done:
    """One stage: what everybody is left with, and what it took."""

    left: Shards
    seconds: float
    sent: int  # payload bytes of all parties


def train(parties: Parties, given: Params) -> Done:
    """A model of all the guest's rows; with scheme `plain` its trees are those of any scheme."""
    done = _stage(TRAINING, parties, given, {})
    guest = done.left[GUEST]
    named = Artefact({**guest.facts, "hosts": list(parties.hosts)}, guest.arrays)  # a store's part
    return replace(done, left={**done.left, GUEST: named})


def predict(model: Shards, parties: Parties) -> Done:
    """Probabilities, see `probabilities`."""
    given = {"model": TERMS.job, "split": model[GUEST].facts["split"]}
    return _stage(PREDICTION, parties, given, model)


def probabilities(done: Done) -> NDArray[np.float64]:
    """float64 (n,) of the guest's rows."""
    return done.left[GUEST].arrays["prediction"].astype(np.float64)[:, 0]


def _stage(name: str, parties: Parties, given: Params, model: Shards) -> Done:
    table = flow.Table(GUEST, tuple(parties.hosts), None)
    rows = {"rows": np.arange(parties.guest.n_rows)}
    with_hosts = {f"with_{host}": indices for host, indices in parties.indices.items()}
    left = {GUEST: Artefact(arrays={**rows, **with_hosts})}
    left |= {
        host: Artefact(arrays={"rows": np.arange(frame.n_rows)})
        for host, frame in parties.hosts.items()
    }
    indices = {
        party: Place(
            frame=parties.guest if party == GUEST else parties.hosts[party],
            artefacts={ALIGNMENT: aligned, **({MODEL: model[party]} if party in model else {})},
        )
        for party, aligned in left.items()
    }
    room = Room(*contexts(name, table, given, indices))
    found = asyncio.run(room.walk())
    return Done(found, sum(room.seconds.values()), sum(room.sent.values()))
