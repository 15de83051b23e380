"""Record of a job's trees for a party's own audit: a file for each round.

STORE/jobs/ID/transcript/part-00000012.npz     data of round 12; facts as JSON among arrays
STORE/jobs/ID/transcript/part-00000012.00000001.00000002.npz     and the trees done inside round 13
STORE/jobs/ID/transcript/part-99999999.npz     data of the end
STORE/jobs/ID/transcript/findings.json         findings of an audit

It stays when the job is done, is deleted with the job or its model, and never leaves the party.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedboost import protocols
from fedboost.audit.findings import Finding
from fedboost.flow import Artefact, Place
from fedboost.ground.disk import (
    SECRET_MODE,
    make_folder,
    on_disk,
    open_database,
    read_file,
    write_file,
)
from fedboost.ground.errors import ConfigError, StoreError
from fedboost.ground.settings import parse_settings
from fedboost.model import arrays as archives
from fedboost.model import shards

BYTES_MAX = 64 << 20  # of a job's rounds: the first ones are kept, and an audit states their number
END: Place = (99_999_999,)  # the part behind all rounds
FOLDER, FACTS, FINDINGS = "transcript", "facts", "findings.json"
_PART = re.compile(r"part-(\d{8}(?:\.\d{8})*)\.npz")


@dataclass(frozen=True)
class Transcripts:
    """Transcripts in one party's store, by job."""

    store: Path  # its folder
    _held: dict[str, int] = field(default_factory=dict)  # bytes of a job's rounds, once counted

    def folder(self, job: str) -> Path:
        """Return the folder of a job's transcript; raise ConfigError for an invalid id."""
        return shards.folder_of(self.store / "jobs", job) / FOLDER

    def add(self, job: str, place: Place, part: Artefact | None) -> None:
        """Keep the data up to a place, or up to the `END`, unless the limit is reached.

        Do nothing if a protocol keeps no transcript.
        """
        import numpy as np

        if part is None:
            return
        folder = self.folder(job)
        facts = np.frombuffer(json.dumps(part.facts).encode(), np.uint8)
        packed = archives.pack_arrays({**part.arrays, FACTS: facts}, compressed=True)
        path = folder / f"part-{'.'.join(f'{number:08d}' for number in place)}.npz"
        with on_disk(folder):
            if job not in self._held:
                self._held[job] = sum(part.stat().st_size for part in self._round_files(job))
            held = self._held[job] - (path.stat().st_size if path.exists() else 0) + len(packed)
        if place == END or held <= BYTES_MAX:
            make_folder(folder)
            write_file(path, packed, SECRET_MODE)
            self._held[job] = held

    def discard_after(self, job: str, place: Place) -> None:
        """Remove data after a place: the parties agreed to continue from there."""
        self._held.pop(job, None)
        for path in self._round_files(job):
            if _place_of_file(path) > place:
                with on_disk(path):
                    path.unlink()

    def load(self, job: str) -> Artefact:
        """Return all parts together.

        A ConfigError if the job has no transcript, a StoreError if a part is damaged.
        """
        facts: dict[str, Any] = {}
        arrays: dict[str, Any] = {}
        for path in self._round_files(job):
            packed = read_file(path)
            try:
                part = archives.read_arrays(packed)
                facts |= json.loads(part.pop(FACTS).tobytes())
            except (ValueError, KeyError, TypeError, RecursionError):
                raise StoreError(
                    "a part of the job's transcript is damaged",
                    todo="restore it from a backup; the job can no longer be audited without it",
                    private=str(path),
                    file=path.name,
                ) from None
            arrays |= part
        if not facts:
            raise self._absent_transcript_error(job)
        return Artefact(facts, arrays)

    def delete(self, job: str) -> None:
        """Remove the transcript of a job, if there is one."""
        shutil.rmtree(self.folder(job), ignore_errors=True)

    def keep_findings(self, job: str, findings: Sequence[Finding]) -> None:
        """Keep the findings of an audit, for the job's report."""
        text = json.dumps([asdict(finding) for finding in findings], indent=1).encode()
        write_file(self.folder(job) / FINDINGS, text, SECRET_MODE)

    def findings(self, job: str) -> list[Finding]:
        """Return the findings of the last audit; empty if none has run.

        Raise StoreError if the file is damaged, ConfigError if another version wrote it.
        """
        path = self.folder(job) / FINDINGS
        if not path.exists():
            return []
        try:
            return [Finding(**fields) for fields in json.loads(read_file(path))]
        except TypeError:
            raise ConfigError(
                "the findings of the audit were written by another version",
                todo=f"fedboost audit {job}",
            ) from None
        except (ValueError, RecursionError):
            raise StoreError(
                "the findings of the audit are damaged", todo="fedboost audit", file=path.name
            ) from None

    def _absent_transcript_error(self, job: str) -> ConfigError:
        """Return an error for the owner which explains why a job has no transcript."""
        spec = self._spec_of_job(job)
        if spec is None:
            return ConfigError(f"this party has no job {job}", todo="fedboost party jobs", job=job)
        shown = f"fedboost ledger show --job {job} lists what left and came"
        protocol = protocols.load_protocol(spec["protocol"])
        asks = protocol.policy.asks(parse_settings(protocol.params, spec["params"]))
        if asks.epsilon is not None:
            noise = f"with ε = {asks.epsilon:g} for each" if asks.epsilon < math.inf else "truly"
            what = f"in {protocol.name} hosts tell the bucket of every value, {noise}: no sums"
            return ConfigError(what, todo=f"{shown}; the report has the ε of a row", job=job)
        if asks.scheme is None:
            what = f"in {protocol.name} no sums leave that are of one party's rows alone"
            return ConfigError(what, todo=shown, job=job)
        return ConfigError(
            "no round of the job has been kept here, or its transcript is deleted",
            todo="audit the job when a round is over",
            job=job,
        )

    def _spec_of_job(self, job: str) -> dict[str, Any] | None:
        """Return a job's spec from the store's journal, even while a daemon writes; None if it is
        absent.
        """
        path = self.store / "store.sqlite"
        if not path.exists():
            return None
        with on_disk(path), closing(open_database(path, "ro")) as connection:
            row = connection.execute("SELECT text FROM manifests WHERE job = ?", (job,)).fetchone()
        return None if row is None else json.loads(row[0])["spec"]

    def _round_files(self, job: str) -> list[Path]:
        """Return the files of the rounds, in order."""
        parts = self.folder(job).glob("part-*.npz")
        return sorted((path for path in parts if _PART.fullmatch(path.name)), key=_place_of_file)


def _place_of_file(path: Path) -> Place:
    match = _PART.fullmatch(path.name)
    assert match is not None
    return tuple(map(int, match[1].split(".")))
