"""New values of a stage's lists, checkpoint by checkpoint: a file that is only appended to.

jobs/ID/STAGE/grown-00000001.pieces     for each checkpoint with new values: the size of a
                                        head, the head (JSON: texts; name, dtype and shape of each
                                        array), the arrays' bytes

A checkpoint records the file, its number of bytes in it, and their hash. Each attempt begins its
own file with all values of the lists, so going back to an earlier place needs no care.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.ground.disk import SECRET_MODE, append_file, on_disk, read_file
from fedboost.ground.state import GrownList

Piece = tuple[dict[str, list[str]], dict[str, NDArray[Any]]]

_NAME = re.compile(r"grown-(\d{8})\.pieces")
_HEAD_BYTES = 4  # size of the field with a head's size


@dataclass(frozen=True)
class Pieces:
    """A file of pieces as far as a checkpoint has filled it."""

    path: Path
    size: int = 0  # bytes
    hashed: Any = field(default_factory=hashlib.sha256, repr=False)  # of these bytes
    lists: Mapping[str, GrownList] = field(default_factory=dict, repr=False)

    @property
    def named(self) -> dict[str, Any]:
        """Return the record of the file for a checkpoint."""
        return {"file": self.path.name, "bytes": self.size, "sha256": self.hashed.hexdigest()}

    def append_lists(self, grown: Mapping[str, GrownList]) -> Pieces:
        """Return the same with the lists' new values; on the disk on return."""
        texts: dict[str, list[str]] = {}
        arrays: dict[str, NDArray[Any]] = {}
        for name, values in grown.items():
            known = self.lists.get(name)
            more_texts, more_arrays = values.since(known.count if known else 0)
            texts |= more_texts
            arrays |= more_arrays
        if not texts and not arrays:
            return Pieces(self.path, self.size, self.hashed, grown)
        layout = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
        head = json.dumps([texts, layout]).encode()
        packed = [array.tobytes() for array in arrays.values()]
        content = b"".join([len(head).to_bytes(_HEAD_BYTES), head, *packed])
        append_file(self.path, self.size, content, SECRET_MODE)
        hashed = self.hashed.copy()
        hashed.update(content)
        return Pieces(self.path, self.size + len(content), hashed, grown)

    def is_followed_by(self, grown: Mapping[str, GrownList]) -> bool:
        """Return whether the lists continue the stored ones, with or without new values."""
        return grown.keys() >= self.lists.keys() and all(
            grown[name].values is known.values and grown[name].count >= known.count
            for name, known in self.lists.items()
        )


def new_file(folder: Path) -> Pieces:
    """Return a new file of pieces in a stage's folder, which the first piece makes."""
    return Pieces(folder / f"grown-{1 + max(_numbers(folder), default=0):08d}.pieces")


def read_pieces(folder: Path, named: Mapping[str, Any]) -> list[Piece]:
    """Return the pieces that a checkpoint names, oldest first.

    Raise ValueError, KeyError or TypeError if they differ from the written ones, StoreError if the
    file is missing.
    """
    if not named["bytes"]:
        return []
    if not _NAME.fullmatch(named["file"]):
        raise ValueError
    content = read_file(folder / named["file"])[: named["bytes"]]
    if hashlib.sha256(content).hexdigest() != named["sha256"]:
        raise ValueError
    return list(_parse_pieces(content))


def remove_others(folder: Path, names: set[str]) -> None:
    """Remove the files of pieces that no checkpoint names any more."""
    for path in folder.glob("grown-*.pieces"):
        if path.name not in names:
            path.unlink()


def _parse_pieces(content: bytes) -> Iterator[Piece]:
    at = 0
    while at < len(content):
        start = at + _HEAD_BYTES
        at = start + int.from_bytes(content[at:start])
        texts, layout = json.loads(content[start:at])
        arrays = {}
        for name, kind, shape in layout:
            count = math.prod(shape)
            arrays[name] = np.frombuffer(content, np.dtype(kind), count, at).reshape(shape)
            at += arrays[name].nbytes
        yield texts, arrays


def _numbers(folder: Path) -> Iterator[int]:
    with on_disk(folder):
        for path in folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match is not None:
                yield int(match[1])
