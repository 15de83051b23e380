"""Share of a party in a model, on disk: a JSON file and a file of plain arrays, checked by hash."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedboost.flow import Artefact
from fedboost.ground.disk import FOLDER_MODE, on_disk, sync_folder
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.formats import SHARD_FORMAT
from fedboost.model import arrays

FACTS, ARRAYS = "model.json", "arrays.npz"
MODEL_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")  # a job's id; safe as the name of a folder


LATEST = "latest"  # stands for the newest model
LISTED = 10  # most models that an error lists
KnownModels = Mapping[str, tuple[str, str]]  # by a model's id: its job's name, and its time


def folder_of(models: Path, model: str) -> Path:
    """Return the folder of a model's shard below `models`; a ConfigError for a wrong id."""
    if not MODEL_ID.fullmatch(model):
        raise ConfigError(f"{model[:80]!r} is not a model's id", todo="fedboost model list")
    return models / model


@dataclass(frozen=True)
class Packed:
    """A shard as the contents of its two files."""

    facts: bytes = field(repr=False)  # JSON
    arrays: bytes = field(repr=False)  # npz


def save_shard(folder: Path, shard: Artefact) -> None:
    """Write the shard into `folder`, which appears whole or not at all; replaces an older one.

    A StoreError if the disk refuses.
    """
    packed = arrays.pack_arrays(shard.arrays)
    packed_sha256 = hashlib.sha256(packed).hexdigest()
    facts = {**shard.facts, "format": SHARD_FORMAT, "arrays_sha256": packed_sha256}
    text = json.dumps({**facts, "sha256": digest(facts)}, indent=1).encode()
    write_files(folder, Packed(text, packed))


def write_files(folder: Path, packed: Packed) -> None:
    """Write a shard's two files as `save_shard` does; the caller has checked them."""
    fresh, old = (folder.with_name(f".{folder.name}.{word}") for word in ("new", "old"))
    for left_over in (fresh, old):
        shutil.rmtree(left_over, ignore_errors=True)
    with on_disk(folder):
        fresh.mkdir(mode=FOLDER_MODE, parents=True)
        try:
            for name, content in ((ARRAYS, packed.arrays), (FACTS, packed.facts)):
                with (fresh / name).open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
        except OSError:  # a full disk: half a shard would only keep it full
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
        sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def load_shard(folder: Path) -> Artefact:
    """Return the shard in `folder`; a ConfigError if absent, a DataError if it was changed."""
    return unpack_shard(read_files(folder), folder.name)


def read_files(folder: Path) -> Packed:
    """Return a shard's two files unchecked; a ConfigError if there are none."""
    facts = _facts_file(folder)
    try:
        return Packed(facts, (folder / ARRAYS).read_bytes())
    except OSError:
        raise DataError(
            "the model's arrays cannot be read",
            file=f"{folder.name}/{ARRAYS}",
            todo="check the folder's permissions",
        ) from None


def unpack_shard(packed: Packed, name: str) -> Artefact:
    """Return the shard in two files of the model `name`; a DataError if they were changed."""
    facts = _parse_facts(packed.facts, name)
    if hashlib.sha256(packed.arrays).hexdigest() != facts.get("arrays_sha256"):
        raise _damaged_error("the model's arrays were changed", f"{name}/{ARRAYS}")
    try:
        unpacked_arrays = arrays.read_arrays(packed.arrays)
    except ValueError:
        raise _damaged_error("the model's arrays are damaged", f"{name}/{ARRAYS}") from None
    return Artefact({k: v for k, v in facts.items() if k != "arrays_sha256"}, unpacked_arrays)


def load_facts(folder: Path) -> dict[str, Any]:
    """Return the facts of a shard's JSON file, without its arrays; errors as in `load_shard`."""
    return _parse_facts(_facts_file(folder), folder.name)


def _facts_file(folder: Path) -> bytes:
    try:
        return (folder / FACTS).read_bytes()
    except OSError:
        raise _absent_error(folder) from None


def _parse_facts(text: bytes, name: str) -> dict[str, Any]:
    file = f"{name}/{FACTS}"
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        raise _damaged_error("the model's file is damaged", file) from None
    if not isinstance(facts, dict) or facts.get("format") != SHARD_FORMAT:
        written = facts.get("format") if isinstance(facts, dict) else "none"
        raise DataError(
            f"the model has format {written}, this version reads {SHARD_FORMAT}",
            file=file,
            todo="use the version of fedboost that wrote it",
        )
    if facts.pop("sha256", None) != digest(facts):
        raise _damaged_error("the model's file was changed", file)
    return facts


def _absent_error(folder: Path) -> ConfigError:
    return ConfigError(f"there is no model {folder.name} here", todo="fedboost model list")


def _damaged_error(what: str, file: str) -> DataError:
    return DataError(what, file=file, todo="take the model's folder from a backup, or train again")


def model_ids(models: Path) -> list[str]:
    """Return the ids of the models below `models`, sorted."""
    if not models.is_dir():
        return []
    folders = (path for path in models.iterdir() if MODEL_ID.fullmatch(path.name))
    return sorted(path.name for path in folders if has_shard(path))


def has_shard(folder: Path) -> bool:
    """Return whether a model's shard is in a folder."""
    return (folder / FACTS).is_file()


def delete_model(folder: Path) -> None:
    """Remove a model; a ConfigError if there is none."""
    if not has_shard(folder):
        raise _absent_error(folder)
    gone = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(gone, ignore_errors=True)
    with on_disk(folder):
        folder.rename(gone)  # in one step, so that half a model is never read
        shutil.rmtree(gone)
        sync_folder(folder.parent)


def digest(facts: dict[str, Any]) -> str:
    """Return the hash of the facts as JSON, in their order."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def resolve_model(text: str, known: KnownModels) -> str:
    """Return the id of the model that a text names: an id, `latest`, or a job's name for its newest
    model.

    A ConfigError lists the `known` models if `text` names none of them, or several.
    """
    models = matching_models(text, known)
    if len(models) == 1:
        return models[0]
    if models:
        what, listed = f"{text} can mean {len(models)} models of the same second", models
    else:
        what, listed = f"there is no model {text} here", sorted(known)
    ids = ", ".join(listed[:LISTED]) + (", …" if len(listed) > LISTED else "")
    raise ConfigError(
        what,
        todo=f"write an id: {ids}; or {LATEST}, or a job's name, for its newest model"
        if listed
        else "no models lie here: train one, or name its store with --config or --cluster",
    )


def matching_models(text: str, known: KnownModels) -> list[str]:
    """Return the newest models with that id or job's name; several if they are of one second."""
    if text in known:
        return [text]
    made = {model: created for model, (name, created) in known.items() if text in (LATEST, name)}
    return [model for model, created in made.items() if created == max(made.values())]
