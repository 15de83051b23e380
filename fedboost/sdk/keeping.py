"""Fitted estimators in a folder: JSON and plain arrays, checked by hash; no pickle.

FOLDER/estimator/        the estimator's class, parameters, classes and columns
FOLDER/parties/PARTY/    that party's shard of the model
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError
from fedboost.model import shards
from fedboost.sdk import disclosure
from fedboost.sdk.federated import Federated
from fedboost.sdk.parameters import plain_value
from fedboost.sdk.refusals import OtherClassError

ESTIMATOR, PARTIES = "estimator", "parties"
ARRAYS = ("classes_", "feature_names_in_")  # attributes that some estimators have

Kept = TypeVar("Kept", bound=Federated)


def save_estimator(model: Federated, folder: Path) -> None:
    """Write a fitted estimator into `folder`; raise ConfigError for a parameter without a JSON
    form.
    """
    facts: dict[str, Any] = {
        "class": type(model).__name__,
        "params": {name: plain_value(value) for name, value in model.said().items()},
        "guest": model.guest_,
        "parties": list(model.parties_),
        "columns": {party: list(names) for party, names in model.columns_.items()},
        "result": getattr(model, "result_", {}),
        "disclosure": disclosure.facts_of(model.disclosure_),
        "objects": [n for n in ARRAYS if getattr(model, n, np.empty(0)).dtype == object],
    }
    try:
        json.dumps(facts)
    except TypeError:
        raise ConfigError(
            "a parameter is no number, text or list of them", todo="set it to one, and save again"
        ) from None
    arrays = {n: _plain_array(getattr(model, n)) for n in ARRAYS if hasattr(model, n)}
    arrays["journal"] = np.frombuffer(getattr(model, "journal_", b""), np.uint8)
    for party, shard in model.shards_.items():
        shards.save_shard(folder / PARTIES / party, shard)
    shards.save_shard(folder / ESTIMATOR, Artefact(facts, arrays))


def load_estimator(kind: type[Kept], folder: Path) -> Kept:
    """Return the estimator in `folder`; raise ConfigError if it is missing or of another class.

    Raise DataError if its files were changed.
    """
    if not (folder / ESTIMATOR / shards.FACTS).is_file():
        raise ConfigError(
            "no estimator was saved there",
            todo="give the file that save_model wrote, or the folder of save",
            folder=str(folder),
        )
    kept = shards.load_shard(folder / ESTIMATOR)
    facts = kept.facts
    if facts["class"] != kind.__name__:
        raise OtherClassError(
            f"a {facts['class']} was saved, not a {kind.__name__}", todo=f"use {facts['class']}"
        )
    model = kind(**facts["params"])
    model.guest_, model.parties_ = facts["guest"], tuple(facts["parties"])
    model.columns_ = {party: tuple(names) for party, names in facts["columns"].items()}
    model.n_features_in_ = sum(map(len, model.columns_.values()))
    model.result_ = facts["result"]
    model.disclosure_ = disclosure.from_facts(facts["disclosure"])
    for name in (name for name in ARRAYS if name in kept.arrays):
        values = kept.arrays[name]
        setattr(model, name, values.astype(object) if name in facts["objects"] else values)
    model.journal_ = kept.arrays["journal"].tobytes()
    owners = shards.model_ids(folder / PARTIES)
    model.shards_ = {party: shards.load_shard(folder / PARTIES / party) for party in owners}
    return model


def _plain_array(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array without objects, as texts or numbers."""
    return np.array(values.tolist()) if values.dtype == object else values
