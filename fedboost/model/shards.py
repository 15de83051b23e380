"""A party's share of a model on disk: one JSON file and one of plain arrays, checked by hash."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from fedboost.errors import ConfigError, DataError
from fedboost.flow import Artefact

FORMAT = 3  # since 3 the facts have a hash of their own
FACTS, ARRAYS = "model.json", "arrays.npz"
MODEL_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")  # as jobs are called; leads nowhere else on disk


def folder_of(models: Path, model: str) -> Path:
    """Where the shard of a model lies below `models`; a ConfigError for what is no model's id."""
    if not MODEL_ID.fullmatch(model):
        raise ConfigError(f"{model[:80]!r} is not a model's id", todo="fedboost model list")
    return models / model


def save(folder: Path, shard: Artefact) -> None:
    """Writes the shard into `folder`, which appears whole or not at all; replaces an older one."""
    packed = io.BytesIO()
    arrays: dict[str, Any] = dict(shard.arrays)
    np.savez(packed, **arrays)
    packed_sha256 = hashlib.sha256(packed.getvalue()).hexdigest()
    facts = {**shard.facts, "format": FORMAT, "arrays_sha256": packed_sha256}
    fresh, old = (folder.with_name(f".{folder.name}.{word}") for word in ("new", "old"))
    for left_over in (fresh, old):
        shutil.rmtree(left_over, ignore_errors=True)
    fresh.mkdir(mode=0o700, parents=True)
    text = json.dumps({**facts, "sha256": digest(facts)}, indent=1).encode()
    for name, content in ((ARRAYS, packed.getvalue()), (FACTS, text)):
        with (fresh / name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    _sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def load(folder: Path) -> Artefact:
    """The shard in `folder`; a ConfigError if there is none, a DataError if it was changed."""
    facts = load_facts(folder)
    file = f"{folder.name}/{ARRAYS}"
    try:
        packed = (folder / ARRAYS).read_bytes()
    except OSError:
        raise DataError("the model's arrays cannot be read", file=file) from None
    if hashlib.sha256(packed).hexdigest() != facts.get("arrays_sha256"):
        raise DataError("the model's arrays were changed", file=file)
    with np.load(io.BytesIO(packed), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return Artefact({k: v for k, v in facts.items() if k != "arrays_sha256"}, arrays)


def load_facts(folder: Path) -> dict[str, Any]:
    """What the shard's JSON file says, without its arrays; refuses as `load` does."""
    file = f"{folder.name}/{FACTS}"
    try:
        facts = json.loads((folder / FACTS).read_text())
    except OSError:
        raise ConfigError(
            f"there is no model {folder.name} here", todo="fedboost model list"
        ) from None
    except ValueError:
        raise DataError("the model's file is damaged", file=file) from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        found = facts.get("format") if isinstance(facts, dict) else "none"
        raise DataError(f"the model has format {found}, this version reads {FORMAT}", file=file)
    if facts.pop("sha256", None) != digest(facts):
        raise DataError("the model's file was changed", file=file)
    return facts


def names(models: Path) -> list[str]:
    """The models that lie below `models`, by name."""
    if not models.is_dir():
        return []
    found = (path for path in models.iterdir() if MODEL_ID.fullmatch(path.name))
    return sorted(path.name for path in found if (path / FACTS).is_file())


def delete(folder: Path) -> None:
    """Removes a model; a ConfigError where there is none."""
    if not (folder / FACTS).is_file():
        raise ConfigError(f"there is no model {folder.name} here", todo="fedboost model list")
    gone = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)  # at once: nobody reads half a model
    shutil.rmtree(gone)
    _sync(folder.parent)


def digest(facts: dict[str, Any]) -> str:
    """The hash of what JSON keeps of the facts, in their order."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
