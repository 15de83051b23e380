"""Tables of a hybrid job as files would hold them, and jobs on them."""

from typing import Any

import numpy as np
import pyarrow as pa

from fedboost.job import JobSpec
from tests.support.federated import GUEST, HOSTS, PLAIN, job_spec

PARTIES = (GUEST, *HOSTS[:2])


def tables(seed: int = 4, rows: int = 150) -> dict[str, pa.Table]:
    """A guest's table, and two hosts that have parts of its rows and some others."""
    draw, whole = np.random.default_rng(seed), rows + 30
    pull, columns = np.zeros(whole), {}
    for party, share in zip(PARTIES, (1.0, 0.7, 0.6), strict=True):
        own = np.arange(rows)
        if party != GUEST:
            own = draw.permutation(np.flatnonzero(draw.random(whole) < share))
        values = np.round(draw.normal(size=(len(own), 2)), 2)
        pull[own] += values.sum(axis=1)
        columns[party] = {"id": own, "x0": values[:, 0], "x1": values[:, 1]}
    columns[GUEST]["y"] = (pull[:rows] > 0).astype(float)
    return {party: pa.table(own) for party, own in columns.items()}


def spec(**params: Any) -> JobSpec:
    """An unscored job on such tables, unless `params` say otherwise."""
    own = {"split": "unscored", "n_estimators": 4, "guest_depth": 1, "host_depth": 2}
    held = {"fraction": 0.25, "seed": 7}
    return job_spec("hybridtree", PARTIES, validation=held, params={**PLAIN, **own, **params})
