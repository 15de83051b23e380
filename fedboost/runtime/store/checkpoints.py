"""Checkpoints for resuming a job: per place a JSON file and its arrays, checked by hash.

jobs/ID/STAGE/checkpoint-00000012.json          written last: it makes the checkpoint exist
jobs/ID/STAGE/checkpoint-00000012-3f9a….arrays  arrays one behind the other; the JSON holds their
                                                names, dtypes, shapes and hash
jobs/ID/STAGE/checkpoint-00000012.00000000.00000003.json     inside round 13, after three layers
jobs/ID/STAGE/grown-00000001.pieces             lists that only grow (see `pieces`): a round costs
                                                the same in a long job as in a short one
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.flow import Place
from fedboost.ground.disk import (
    NEW,
    SECRET_MODE,
    make_folder,
    on_disk,
    read_file,
    replace_file,
    write_file,
)
from fedboost.ground.errors import ProtocolError, StoreError
from fedboost.ground.formats import CHECKPOINT_FORMAT
from fedboost.ground.mapped import free_pages
from fedboost.ground.state import GrownList, join_state
from fedboost.runtime.store import pieces
from fedboost.runtime.store.pieces import Pieces

log = logging.getLogger(__name__)

ARRAY_PIECE_BYTES = 1 << 23  # of an array, that are written together
CHECKPOINTS_KEPT = 2  # the last joint commit may lie one place behind the last checkpoint
NUMBER_MAX = 99_999_999  # of a place
_JSON_NAME = re.compile(r"checkpoint-(\d{8}(?:\.\d{8})*)\.json")
_ARRAYS = ".arrays"


@dataclass(frozen=True)
class Checkpoint:
    """The state at a place; its contents stay out of `repr`."""

    place: Place
    state: dict[str, Any] = field(repr=False)
    arrays: dict[str, NDArray[Any]] = field(repr=False)


class Checkpoints:
    """The checkpoints of one store's jobs; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pieces: dict[Path, Pieces] = {}  # by folder, of the checkpoint saved last

    def save(
        self,
        folder: Path,
        place: Place,
        state: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        grown: Mapping[str, GrownList] | None = None,
    ) -> None:
        """Keep the state at a place, durably; only the last two checkpoints stay.

        `state` must be JSON, `arrays` numeric, boolean or fixed-width text arrays; a ProtocolError
        refuses anything else, so nothing is lost silently. Of lists that the previous checkpoint
        also holds, only new values are written.
        """
        if not place or not all(0 <= number <= NUMBER_MAX for number in place):
            raise ProtocolError(f"the place {place} is empty or outside 0..{NUMBER_MAX}")
        _check_plain(dict(state))
        contents = [_bytes_of(name, array) for name, array in arrays.items()]
        hashed = hashlib.sha256()
        for piece in _pieces_of(contents):
            hashed.update(piece)
        digest = hashed.hexdigest()
        body: dict[str, Any] = {
            "format": CHECKPOINT_FORMAT,
            "place": list(place),
            "arrays": f"{_stem_of_place(place)}-{digest[:16]}{_ARRAYS}",
            "arrays_sha256": digest,
            "layout": [(name, array.dtype.str, array.shape) for name, array in arrays.items()],
            "state": dict(state),
        }
        with self._lock:
            make_folder(folder)
            before = self._pieces.get(folder)
            if before is None or not before.is_followed_by(grown or {}):
                before = pieces.new_file(folder)
            after = before.append_lists(grown or {})
            body["grown"] = after.named
            text = json.dumps({**body, "sha256": _body_digest(body)}).encode()
            with replace_file(folder / body["arrays"], SECRET_MODE) as file:
                file.writelines(_pieces_of(contents))
            write_file(_checkpoint_path(folder, place), text, SECRET_MODE)
            self._pieces[folder] = after
            self._remove_old_checkpoints(folder)

    def let_go(self) -> None:
        """Forget the lists that have been saved; the next checkpoints hold them anew."""
        with self._lock:
            self._pieces.clear()

    def places(self, folder: Path) -> list[Place]:
        """Return the places with a checkpoint, oldest first, whether whole or torn."""
        with self._lock, on_disk(folder):
            if not folder.exists():
                return []
            names = (_JSON_NAME.fullmatch(path.name) for path in folder.iterdir())
            return sorted(tuple(map(int, m[1].split("."))) for m in names if m)

    def loadable_checkpoints(self, folder: Path) -> list[Checkpoint]:
        """Return the loadable checkpoints, oldest first."""
        wholes = (self._if_whole(folder, place) for place in self.places(folder))
        return [checkpoint for checkpoint in wholes if checkpoint is not None]

    def _if_whole(self, folder: Path, place: Place) -> Checkpoint | None:
        try:
            return self.load(folder, place)
        except StoreError as error:
            log.warning(
                "no job goes on from %s: %s", _stem_of_place(place), "; ".join(error.lines())
            )
            return None

    def load(self, folder: Path, place: Place | None = None) -> Checkpoint | None:
        """Return the checkpoint at a place, or the newest whole one; None if there is none.

        Raise StoreError with the file's name if the requested checkpoint is absent, torn or
        changed, or if no existing checkpoint is whole.
        """
        with self._lock:
            if place is not None:
                return _load_checkpoint(_checkpoint_path(folder, place))
            torn: StoreError | None = None
            for candidate in reversed(self.places(folder)):
                try:
                    return _load_checkpoint(_checkpoint_path(folder, candidate))
                except StoreError as error:
                    torn = torn or error
            if torn is not None:
                raise torn
            return None

    def discard_after(self, folder: Path, place: Place) -> None:
        """Remove the checkpoints of later places: the parties agreed to go on from this one."""
        with self._lock, on_disk(folder):
            for later in self.places(folder):
                if later > place:
                    _checkpoint_path(folder, later).unlink()
            self._remove_old_checkpoints(folder)

    def _remove_old_checkpoints(self, folder: Path) -> None:
        """Keep the last two checkpoints and the arrays that they name."""
        with on_disk(folder):
            for old in self.places(folder)[:-CHECKPOINTS_KEPT]:
                _checkpoint_path(folder, old).unlink()
            kept = [_checkpoint_path(folder, place) for place in self.places(folder)]
            named = set[str]().union(*(_files_named(path.read_bytes()) for path in kept))
            for path in folder.glob("checkpoint-*"):
                if path.name.endswith(NEW) or (path.suffix == _ARRAYS and path.name not in named):
                    path.unlink()
            pieces.remove_others(folder, named)


def _load_checkpoint(path: Path) -> Checkpoint:
    try:
        body = json.loads(read_file(path))
        claimed = body.pop("sha256")
        if claimed != _body_digest(body):
            raise ValueError
        if body["format"] != CHECKPOINT_FORMAT:
            raise StoreError(
                "a checkpoint was written by another version of fedboost",
                todo="finish the job with the version that began it, or submit it anew",
                private=str(path),
                file=path.name,
            )
        place, state = tuple(body["place"]), body["state"]
        arrays_path, arrays_hash = path.parent / body["arrays"], body["arrays_sha256"]
        layout, grown = body["layout"], body["grown"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _torn_checkpoint_error(path) from None
    try:
        with on_disk(arrays_path):
            arrays = _read_arrays(arrays_path, arrays_hash, layout)
    except (ValueError, TypeError):
        raise _torn_checkpoint_error(arrays_path) from None
    try:
        gained = pieces.read_pieces(path.parent, grown)
    except (ValueError, KeyError, TypeError):
        raise _torn_checkpoint_error(path) from None
    return Checkpoint(place, *join_state(state, arrays, gained))


def _stem_of_place(place: Place) -> str:
    return "checkpoint-" + ".".join(f"{number:08d}" for number in place)


def _checkpoint_path(folder: Path, place: Place) -> Path:
    return folder / f"{_stem_of_place(place)}.json"


def _torn_checkpoint_error(path: Path) -> StoreError:
    return StoreError(
        "a checkpoint is torn or was changed",
        todo="resume from an earlier one, or start the job anew",
        private=str(path),
        file=path.name,
    )


def _bytes_of(name: str, array: NDArray[Any]) -> memoryview:
    """Return an array's bytes without a copy; a ProtocolError for an array of objects."""
    if array.dtype.hasobject:
        raise ProtocolError(f"the array {name} holds objects, which no checkpoint keeps")
    return np.ascontiguousarray(array.reshape(-1)).view(np.uint8).data


def _pieces_of(contents: Sequence[memoryview]) -> Iterator[memoryview]:
    """Yield bytes of arrays piece by piece; bytes of mapped files leave memory after each piece."""
    for content in contents:
        for start in range(0, len(content), ARRAY_PIECE_BYTES):
            yield content[start : start + ARRAY_PIECE_BYTES]
            free_pages(content)


def _read_arrays(
    path: Path, sha256: str, layout: Sequence[tuple[str, str, Sequence[int]]]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file, each read into its place; raise ValueError or TypeError if they
    differ from the written ones.
    """
    hashed, arrays = hashlib.sha256(), {}
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size
        for name, kind, shape in layout:
            dtype = np.dtype(kind)
            left -= math.prod(shape) * dtype.itemsize
            if left < 0:
                raise ValueError
            arrays[name] = np.empty(shape, dtype)
            content = _bytes_of(name, arrays[name])
            if file.readinto(content) < len(content):
                raise ValueError
            hashed.update(content)
    if left or hashed.hexdigest() != sha256:
        raise ValueError
    return arrays


def _body_digest(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_plain(state: dict[str, Any]) -> None:
    try:
        back = json.loads(json.dumps(state))
    except (TypeError, ValueError):
        raise ProtocolError("the state of a checkpoint cannot be written as JSON") from None
    # Not a number never equals itself, but reads the same.
    if back != state and repr(back) != repr(state):
        raise ProtocolError("the state of a checkpoint changes in JSON (a tuple, a key not text)")


def _files_named(text: bytes) -> set[str]:
    try:
        body = json.loads(text)
        return {str(body["arrays"]), str(body["grown"]["file"])}
    except (ValueError, KeyError, TypeError):
        return set()
