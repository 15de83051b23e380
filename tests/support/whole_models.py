"""Models that every party holds whole, trained on pooled tables until they come from jobs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from fedboost.core import local
from fedboost.core.local import Trained
from fedboost.core.params import TreeParams
from fedboost.data.frame import Frame
from fedboost.flow import Artefact
from fedboost.ground.ids import EncodedIds
from fedboost.model import columns, shards, whole
from fedboost.model.unknown_categories import RARE

MODEL = "credit-0a1b2c3d"
PARTIES = ("bank", "telco", "shop")
COLUMNS = ("age", "city", "odd [a<b]", "sum")
CITIES = tuple("city " + letter for letter in "abcdefgh")
CLASSES = {"objective": "multi:softprob", "num_class": 3}
# Everything that decides what a whole model's file looks like, by a name for the test.
KINDS: dict[str, dict[str, Any]] = {
    "binary": {},
    "classes": CLASSES,
    "multi_output": {**CLASSES, "multi_output": True},
    "regression": {"objective": "reg:squarederror"},
    "absolute": {"objective": "reg:absoluteerror"},
    "poisson": {"objective": "count:poisson"},
    "tweedie": {"objective": "reg:tweedie"},
    "gamma": {"objective": "reg:gamma"},
    "huber": {"objective": "reg:pseudohubererror", "huber_slope": 2.0},
    "forest": {"forest": {"n_trees": 3, "subsample": 0.6}},
    "dynamic": {"forest": {"dynamic": {"n_trees": (3, 1), "subsample": (0.5, 0.9)}}},
    "classes_forest": {**CLASSES, "forest": {"n_trees": 2, "subsample": 0.6}},
}


def table(seed: int, rows: int = 300, cities: tuple[str, ...] = CITIES) -> Frame:
    """Numbers and one column of categories; a tenth of the cells are missing."""
    draw = np.random.default_rng(seed)
    values = np.round(draw.normal(size=(rows, len(COLUMNS))), 1).astype(np.float32, order="F")
    values[:, 1] = draw.integers(0, len(cities), rows)
    values[draw.random(values.shape) < 0.1] = np.nan
    return framed(values, COLUMNS, {"city": cities})


def sparse_table(seed: int, rows: int = 300, width: int = 40) -> Frame:
    """Mostly zeros, which are not stored; some stored values are missing."""
    draw = np.random.default_rng(seed)
    values = draw.normal(size=(rows, width)).astype(np.float32)
    values[draw.random(values.shape) < 0.8] = 0
    values[draw.random(values.shape) < 0.02] = np.nan
    return framed(csc_array(values), [f"f{place}" for place in range(width)])


def framed(
    values: Any, names: Any, categories: Mapping[str, tuple[str, ...]] | None = None
) -> Frame:
    """A frame of these values without a label."""
    ids = EncodedIds.of(b"%d" % row for row in range(values.shape[0]))
    return Frame(ids, values, tuple(names), None, ("id",), categories=categories or {})


def cells(frame: Frame) -> NDArray[np.float32]:
    """The frame's values, writable, zeros and all."""
    if isinstance(frame.values, csc_array):
        dense: NDArray[np.float32] = frame.values.toarray(order="F")
        return dense
    return frame.values.copy(order="F")


def labels(frame: Frame, params: TreeParams) -> NDArray[np.float64]:
    """Labels that the first and the second column decide, as the objective wants them."""
    dense = cells(frame)
    pull = np.nan_to_num(dense[:, 0].astype(np.float64)) + (np.nan_to_num(dense[:, 1]) % 3)
    if params.objective == "binary:logistic":
        return (pull > np.median(pull)).astype(np.float64)
    if params.objective == "multi:softprob":
        return np.digitize(pull, np.quantile(pull, [0.4, 0.7])).astype(np.float64)
    return np.floor(np.abs(pull)) + float(params.record.predicts == "positive")


def trained(frame: Frame, **params: Any) -> Trained:
    """What pooled training makes of the table."""
    settings = TreeParams(**{"n_estimators": 4, "max_depth": 4, "max_bin": 6, **params})
    table = local.TrainingTable(
        frame.values, labels(frame, settings), categorical=frame.categorical
    )
    return local.train(table, settings)


def model_of(frame: Frame, found: Trained, party: str = "bank") -> Artefact:
    """The shard that a job would leave at the party."""
    left = whole.make_shard(found, frame.columns, columns.categories(frame, found.binning))
    facts = {
        "protocol": "federboost-horizontal",
        "job": MODEL,
        "name": "credit",
        "party": party,
        "role": "guest" if party == PARTIES[0] else "host",
        "guest": PARTIES[0],
        "hosts": list(PARTIES[1:]),
        "id": ["id"],
        "ids": {name: ["id"] for name in PARTIES},
        "created": "2026-01-31T12:00:00+00:00",
    }
    known = left.facts["categories"]
    rare = {name: sorted({*frame.categories[name]} - {*texts}) for name, texts in known.items()}
    return Artefact({**facts, **left.facts, RARE: rare}, left.arrays)


def stored(folder: Path, frame: Frame, found: Trained) -> None:
    """Puts every party's shard where a local cluster in `folder` would have left it."""
    for party in PARTIES:
        shards.save_shard(folder / "var" / party / "models" / MODEL, model_of(frame, found, party))
