"""Jobs of every protocol on tiny tables: two hosts, 300 rows, four columns each, three trees."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.runtime.cluster.local import DATASET

PARTIES = ("bank", "telco", "shop")
GUEST = PARTIES[0]
ROWS, COLUMNS = 300, 4
TREES = {"n_estimators": 3, "max_depth": 3, "max_bin": 16}
PLAIN = {"encryption": {"scheme": "plain"}}
HELD = {"fraction": 0.2, "seed": 7}

Raw = dict[str, Any]
Tables = Mapping[str, pa.Table]


@dataclass(frozen=True)
class Toy:
    """How the tables of a protocol's parties lie to one another, and its own parameters."""

    protocol: str
    params: Mapping[str, Any]
    rows: str = "same"  # of everybody; or "some" of the guest's, or "own"


HYBRID = {"n_estimators": 3, "guest_depth": 2, "host_depth": 2, "max_bin": 16, **PLAIN}
TOYS = {
    "secureboost": Toy("secureboost", {**TREES, **PLAIN}),
    # Without noise, which would be another one in every job.
    "federboost-vertical": Toy("federboost-vertical", {**TREES, "buckets": 8, "epsilon": None}),
    "federboost-horizontal": Toy(
        "federboost-horizontal", {**TREES, "quantile_tolerance": 10}, rows="own"
    ),
    "gbun": Toy("gbun", {"n_estimators": 2, "outputs": 4}, rows="own"),
    "hybridtree": Toy("hybridtree", HYBRID, rows="some"),
    "hybridtree-unscored": Toy("hybridtree", {**HYBRID, "split": "unscored"}, rows="some"),
}


def tables(name: str, rows: int = ROWS, seed: int = 1) -> dict[str, pa.Table]:
    """The tables of a toy job by party; ids in another order with each, and a few empty cells."""
    toy, draw = TOYS[name], np.random.default_rng(seed)
    own = {party: _ids(toy.rows, place, rows) for place, party in enumerate(PARTIES)}
    pull = {row: 0.0 for ids in own.values() for row in ids}
    found: dict[str, dict[str, Any]] = {}
    for place, (party, ids) in enumerate(own.items()):
        values = np.round(draw.normal(size=(len(ids), COLUMNS)), 2)
        for row, first in zip(ids, values[:, 0] * (1 + place), strict=True):
            pull[row] += float(first)
        cells = np.where(draw.random(values.shape) < 0.03, np.nan, values)
        names = range(COLUMNS) if toy.rows == "own" else range(place * 10, place * 10 + COLUMNS)
        found[party] = {"id": ids, **{f"x{n}": cells[:, i] for i, n in enumerate(names)}}
    for party in PARTIES if toy.rows == "own" else (GUEST,):
        found[party]["y"] = [int(pull[row] > 0) for row in own[party]]
    return {party: pa.table(columns) for party, columns in found.items()}


def _ids(how: str, place: int, rows: int) -> list[str]:
    """A party's rows: the same of everybody, some of the guest's and a few more, or its own."""
    if how == "own":
        return [f"{PARTIES[place]}{n}" for n in range(rows)]
    first, count = (0, rows)
    if how == "some" and place:
        first, count = (place - 1) * rows // 4, rows // 2 + 10 * place
    ids = [f"p{n}" for n in range(first, first + count)]
    return [ids[row] for row in np.random.default_rng(place).permutation(count)]


def raw(name: str, **params: Any) -> Raw:
    """A toy job as its file says it; `params` over its own."""
    toy = TOYS[name]
    guest, *hosts = PARTIES
    parties: Raw = {"guest": guest, "hosts": hosts}
    data: dict[str, Raw] = {party: {"dataset": DATASET} for party in PARTIES}
    if toy.rows == "own":
        parties["aggregator"] = guest
    for party in PARTIES if toy.rows == "own" else (guest,):
        data[party]["label"] = "y"
    return {
        "name": name,
        "protocol": toy.protocol,
        "parties": parties,
        "data": data,
        "validation": HELD,
        "params": {**toy.params, **params},
    }


def spec(name: str, **params: Any) -> JobSpec:
    """The same as the program has it."""
    return parse_settings(JobSpec, raw(name, **params))
