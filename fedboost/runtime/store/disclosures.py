"""What a party keeps of a job's disclosure, so that later jobs train on it and tell nothing new.

A guest keeps what hosts told and of which rows, a host what its words meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedboost.errors import ConfigError, DataError
from fedboost.flow import Artefact, Table
from fedboost.model import shards

if TYPE_CHECKING:
    from fedboost.data.frame import Frame
    from fedboost.encoded_ids import EncodedIds

IDS, SIZES = "ids", "id_sizes"  # the guest's rows: their ids one after the other, and their lengths


@dataclass(frozen=True)
class Disclosures:
    """Those that one party's store holds, by the job that made them."""

    store: Path  # its folder

    def folder(self, job: str) -> Path:
        """Return where that of a job lies."""
        return shards.folder_of(self.store / "disclosures", job)

    def save(self, job: str, kept: Artefact, protocol: str, table: Table) -> None:
        """Keeps what a job disclosed, and between whom."""
        between = {"protocol": protocol, "guest": table.guest, "hosts": list(table.hosts)}
        facts = {"job": job, **between, **kept.facts}
        shards.save(self.folder(job), Artefact(facts, kept.arrays))

    def load(self, job: str) -> Artefact:
        """Return what `save` kept."""
        return shards.load(self.folder(job))

    def check(self, job: str, protocol: str, table: Table) -> None:
        """A ConfigError where nothing of the job is kept, or it was disclosed to others."""
        try:
            facts = shards.load_facts(self.folder(job))
        except ConfigError:
            raise ConfigError(
                f"nothing that the job {job} disclosed is kept here",
                todo="name a finished job that did not itself reuse one, or leave reuse out",
            ) from None
        was: tuple[Any, Any, Any] = (facts["protocol"], facts["guest"], facts["hosts"])
        if was != (protocol, table.guest, list(table.hosts)):
            raise ConfigError(
                f"the job {job} was {was[0]} of {was[1]} with {', '.join(was[2])}",
                todo="name the same protocol and parties in the job, hosts in the same order",
            )

    def delete(self, job: str) -> None:
        """Removes that of a job, if there is one."""
        if (self.folder(job) / shards.FACTS).is_file():
            shards.delete(self.folder(job))


def with_rows(kept: Artefact, ids: EncodedIds) -> Artefact:
    """A disclosure and the ids of its rows, in their order."""
    return Artefact(kept.facts, {**kept.arrays, IDS: ids.data, SIZES: ids.sizes})


def rows_again(frame: Frame, kept: Artefact) -> Frame:
    """The rows of a disclosure in their order then, whatever else the table holds now.

    A DataError says how many of them the table lacks; one without ids takes the table as it is.
    """
    import numpy as np

    from fedboost.encoded_ids import EncodedIds, ends_of

    if IDS not in kept.arrays:
        return frame
    data, sizes = kept.arrays[IDS].astype(np.uint8), kept.arrays[SIZES].astype(np.int64)
    rows = frame.ids.find(EncodedIds(data, ends_of(sizes)))
    absent = int((rows < 0).sum())
    if absent:
        raise DataError(
            f"the table lacks {absent} of the {len(rows)} rows whose buckets are used again",
            rows=absent,
            todo="give the table of that job, or train without reuse",
            kind="the table lacks rows whose buckets are used again",
        )
    return frame.take(rows)
