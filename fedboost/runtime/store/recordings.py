"""Record of a guest's replayable job: its steps and its received messages.

STORE/jobs/ID/replay/records     one behind the other, in order of time, over all attempts
STORE/jobs/ID/replay/rows.npy    the aligned rows of the table, in their order

A record is its kind, the sizes of its head and of its body, and both. It is written before the
ledger's row of the received message. The folder stays when the job is done, with the job's sealed
seed; it is deleted with the job, or by its owner. It never leaves the party.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from google.protobuf.message import DecodeError

from fedboost.flow import Place
from fedboost.ground.disk import SECRET_MODE, make_folder, on_disk, replace_file
from fedboost.ground.errors import ConfigError, StoreError
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.model import shards

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FOLDER, RECORDS, ROWS = "replay", "records", "rows.npy"
_HEADER = struct.Struct("<cIQ")  # kind, bytes of the head, bytes of the body
_OPENED, _ASKED, _CAME, _LEFT = b"o", b"a", b"c", b"l"


@dataclass(frozen=True)
class Opening:
    """A stage that is opened in one attempt."""

    attempt: int
    stage: str
    place: Place  # after this place
    table: str  # the digest of the party's whole table, hex


@dataclass(frozen=True)
class RecordedMessage:
    """A message that came or left; its payload lies in the file."""

    envelope: Envelope
    path: Path
    offset: int
    n_bytes: int

    def payload(self) -> bytes:
        """Return the payload."""
        with on_disk(self.path), self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.n_bytes)


@dataclass
class RecordedAttempt:
    """One attempt at the stage."""

    opening: Opening
    steps: list[tuple[int, str]] = field(default_factory=list)  # number and name, as asked for
    came: list[RecordedMessage] = field(default_factory=list)
    left: dict[tuple[int, int, str], RecordedMessage] = field(default_factory=dict)  # small ones


class Recording:
    """The record of an attempt that is under way; made by `Recordings.begin`."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file

    def asked(self, step: str, number: int) -> None:
        """Note a step that was asked for."""
        self._write_record(_ASKED, json.dumps([number, step]).encode())

    def came(self, envelope: Envelope, payload: bytes) -> None:
        """Keep a message that has come."""
        self._write_record(_CAME, envelope.SerializeToString(), payload)

    def left(self, envelope: Envelope, payload: bytes) -> None:
        """Keep a message that leaves."""
        self._write_record(_LEFT, envelope.SerializeToString(), payload)

    def sync(self) -> None:
        """Return once all of it is on the disk, also if the power fails."""
        with on_disk(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """End the record of this attempt; nothing is written after it."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def _write_record(self, kind: bytes, head: bytes, body: bytes = b"") -> None:
        with on_disk(self._path):
            self._file.write(b"".join((_HEADER.pack(kind, len(head), len(body)), head, body)))


@dataclass(frozen=True)
class Recordings:
    """Recordings in one party's store, by job."""

    store: Path  # its folder

    def folder(self, job: str) -> Path:
        """Return the folder of a job's recording; raise ConfigError for an invalid id."""
        return shards.folder_of(self.store / "jobs", job) / FOLDER

    def begin(self, job: str, opening: Opening, rows: NDArray[np.int64] | None) -> Recording:
        """Begin the record of an attempt, after earlier ones; `rows` are the aligned rows, None if
        the job takes all.
        """
        import numpy as np

        folder = self.folder(job)
        make_folder(folder)
        path = folder / RECORDS
        with on_disk(path):
            if rows is not None and not (folder / ROWS).exists():
                with replace_file(folder / ROWS, SECRET_MODE) as file:
                    np.save(file, rows.astype("<i8", copy=False))
            handle = os.open(path, os.O_RDWR | os.O_CREAT, SECRET_MODE)
            records = os.fdopen(handle, "r+b", buffering=0)
            end = 0
            for _, _, offset, n_bytes in _read_records(records):
                end = offset + n_bytes
            records.truncate(end)  # remove a half-written record after a crash
            records.seek(end)
        recording = Recording(path, records)
        recording._write_record(_OPENED, json.dumps(asdict(opening)).encode())
        return recording

    def attempts(self, job: str) -> list[RecordedAttempt]:
        """Return the records of each attempt, in order.

        Raise ConfigError if there are none, StoreError if the file is damaged.
        """
        path = self.folder(job) / RECORDS
        if not path.exists():
            raise ConfigError(
                "there are no records here for a replay of the job",
                todo="replay a job with replayable: true, at its guest, before it is forgotten",
                job=job,
            )
        attempts: list[RecordedAttempt] = []
        try:
            with on_disk(path), path.open("rb") as file:
                for kind, head, offset, n_bytes in _read_records(file):
                    _add_record(attempts, kind, head, (path, offset, n_bytes))
        except (ValueError, TypeError, KeyError, IndexError, DecodeError):
            raise StoreError(
                "the job's records for a replay are damaged",
                todo="restore it from a backup; the job can no longer be replayed without it",
                private=str(path),
                file=path.name,
            ) from None
        return attempts

    def rows(self, job: str) -> NDArray[np.int64] | None:
        """Return the aligned rows in their order; None where the job takes all."""
        import numpy as np

        path = self.folder(job) / ROWS
        if not path.exists():
            return None
        with on_disk(path):
            rows: NDArray[np.int64] = np.load(path, allow_pickle=False)
        return rows

    def delete(self, job: str) -> None:
        """Remove the recording of a job, if there is one."""
        shutil.rmtree(self.folder(job), ignore_errors=True)


def _read_records(file: BinaryIO) -> Iterator[tuple[bytes, bytes, int, int]]:
    """Yield kind and head of each whole record, and where its body lies."""
    size, at = os.fstat(file.fileno()).st_size, 0
    while at + _HEADER.size <= size:
        file.seek(at)
        kind, head_bytes, body_bytes = _HEADER.unpack(file.read(_HEADER.size))
        body = at + _HEADER.size + head_bytes
        if body + body_bytes > size:
            return
        yield kind, file.read(head_bytes), body, body_bytes
        at = body + body_bytes


def _add_record(
    attempts: list[RecordedAttempt], kind: bytes, head: bytes, lies: tuple[Path, int, int]
) -> None:
    """Add a record to the attempts; raise ValueError for an invalid one."""
    if kind == _OPENED:
        opened = json.loads(head)
        attempts.append(RecordedAttempt(Opening(**{**opened, "place": tuple(opened["place"])})))
    elif kind == _ASKED:
        number, step = json.loads(head)
        attempts[-1].steps.append((int(number), str(step)))
    elif kind in (_CAME, _LEFT):
        message = RecordedMessage(Envelope.FromString(head), *lies)
        if kind == _CAME:
            attempts[-1].came.append(message)
        else:
            envelope = message.envelope
            attempts[-1].left[envelope.number, envelope.part, envelope.receiver] = message
    else:
        raise ValueError(kind)
