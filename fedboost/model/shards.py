"""A party's share of a model on disk: one JSON file and one file of plain arrays, checked by hash."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from fedboost.errors import ConfigError, DataError
from fedboost.flow import Artefact

FORMAT = 1
FACTS, ARRAYS = "model.json", "arrays.npz"


def save(folder: Path, shard: Artefact) -> None:
    """Writes the shard into `folder`, which appears whole or not at all; replaces an older one."""
    packed = io.BytesIO()
    arrays: dict[str, Any] = dict(shard.arrays)
    np.savez(packed, **arrays)
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    text = json.dumps({"format": FORMAT, "arrays_sha256": digest, **shard.facts}, indent=1)
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700, parents=True)
    for name, content in ((ARRAYS, packed.getvalue()), (FACTS, text.encode())):
        with (fresh / name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def load(folder: Path) -> Artefact:
    """The shard in `folder`; a ConfigError where there is none, a DataError where it was changed."""
    try:
        facts = json.loads((folder / FACTS).read_text())
        packed = (folder / ARRAYS).read_bytes()
    except OSError:
        raise ConfigError(
            f"there is no model {folder.name} here", todo="fedboost model list"
        ) from None
    except ValueError:
        raise DataError("the model's file is damaged", file=f"{folder.name}/{FACTS}") from None
    if facts.get("format") != FORMAT:
        raise DataError(
            f"the model has format {facts.get('format')}, this version reads {FORMAT}",
            file=f"{folder.name}/{FACTS}",
        )
    if hashlib.sha256(packed).hexdigest() != facts.get("arrays_sha256"):
        raise DataError("the model's arrays were changed", file=f"{folder.name}/{ARRAYS}")
    with np.load(io.BytesIO(packed), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return Artefact({k: v for k, v in facts.items() if k != "arrays_sha256"}, arrays)


def names(folder: Path) -> list[str]:
    """The models that lie in `folder`, by name."""
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if (path / FACTS).is_file())


def delete(folder: Path) -> None:
    """Removes a model; a ConfigError where there is none."""
    if not (folder / FACTS).is_file():
        raise ConfigError(f"there is no model {folder.name} here", todo="fedboost model list")
    shutil.rmtree(folder)
