"""Fitted estimators in one file: XGBoost's own, whose attributes hold the parties' shards.

XGBoost reads the trees of all parties from it; `load_model` becomes the saved estimator again.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from fedboost.ground.errors import ConfigError, DataError
from fedboost.model.export import SHARD_BYTES_MAX
from fedboost.model.xgboost_json import import_xgboost
from fedboost.sdk.federated import Federated
from fedboost.sdk.keeping import Kept, load_estimator, save_estimator

ATTRIBUTE = "fedboost"  # of the booster
UNPACKED_BYTES_MAX = 4 * SHARD_BYTES_MAX  # a few kilobytes can unpack to any size
ENTRY_DATE = (1980, 1, 1, 0, 0, 0)  # of packed files: two saves of a model have the same bytes


def save_in_file(model: Federated, booster: Any, file: Path) -> None:
    """Write a fitted estimator, whose trees are `booster`: JSON where the name ends so, otherwise
    UBJSON.
    """
    kept = {
        "trees": _hash_of_trees(booster),
        "folder": base64.b64encode(_packed_estimator(model)).decode(),
    }
    theirs = {"_estimator_type": model._estimator_type}
    booster.set_attr(**{ATTRIBUTE: json.dumps(kept), "scikit_learn": json.dumps(theirs)})
    file.write_bytes(booster.save_raw("json" if file.suffix == ".json" else "ubj"))


def load_from_file(kind: type[Kept], file: Path) -> Kept:
    """Return the estimator in `file`; errors as of `load_estimator`."""
    xgboost = import_xgboost("explain")
    try:
        booster = xgboost.Booster(model_file=bytearray(file.read_bytes()))
    except xgboost.core.XGBoostError:
        raise DataError(
            "the file is no model", todo="give a file of save_model", file=str(file)
        ) from None
    text = booster.attr(ATTRIBUTE)
    if text is None:
        raise ConfigError(
            "the file holds trees of XGBoost, without the parties that know their splits",
            todo="load it with xgboost",
            file=str(file),
        )
    try:
        kept = json.loads(text)
        trees, packed = kept["trees"], io.BytesIO(base64.b64decode(kept["folder"]))
        files = zipfile.ZipFile(packed)
        if sum(entry.file_size for entry in files.infolist()) > UNPACKED_BYTES_MAX:
            raise ValueError
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile):
        raise DataError(
            "the estimator in the file is damaged", todo="save it again", file=str(file)
        ) from None
    if trees != _hash_of_trees(booster):
        raise DataError(
            "the trees were changed after save_model",
            todo="load the file with xgboost, or save the estimator again",
            file=str(file),
        )
    with tempfile.TemporaryDirectory(prefix="fedboost-") as folder, files:
        files.extractall(folder)
        return load_estimator(kind, Path(folder))


def _packed_estimator(model: Federated) -> bytes:
    """Return the files that `save` writes, zipped."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="fedboost-") as scratch:
        folder = Path(scratch)
        save_estimator(model, folder)
        with zipfile.ZipFile(packed, "w") as files:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), ENTRY_DATE)
                files.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _hash_of_trees(booster: Any) -> str:
    trees = "\n".join(booster.get_dump(dump_format="json"))
    return hashlib.sha256(trees.encode()).hexdigest()
