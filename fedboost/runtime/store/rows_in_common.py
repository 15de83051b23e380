"""Result of a job's alignment, kept so that later jobs train on the same rows without another
alignment.

store/alignments/JOB: the indices of the party's rows, and the owners of the ids
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fedboost.crypto.set_sizes import check_common
from fedboost.flow import Artefact, Table
from fedboost.ground.errors import ConfigError, DataError, PolicyError
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import StatusReport
from fedboost.model import shards

if TYPE_CHECKING:
    from fedboost.data.frame import Frame
    from fedboost.ground.ids import EncodedIds


# Facts; counts and matched ids are a guest's.
STAGE, KEPT, COUNTS, MATCHED = "stage", "artefact", "counts", "matched"
TABLE_ROWS = "table_rows"


@dataclass(frozen=True)
class JobArtefacts:
    """Artefacts of one kind that a party's store holds, by job."""

    store: Path  # its folder
    kind: ClassVar[str]  # the folder in it

    def folder(self, job: str) -> Path:
        """Return the folder of a job's artefact."""
        return shards.folder_of(self.store / self.kind, job)

    def delete(self, job: str) -> None:
        """Remove the artefact of a job, if there is one."""
        if (self.folder(job) / shards.FACTS).is_file():
            shards.delete_model(self.folder(job))


class RowsInCommon(JobArtefacts):
    """Rows in common in one party's store, by the aligning job."""

    kind = "alignments"

    def save(
        self, job: str, left: Artefact, facts: dict[str, Any], reports: Sequence[StatusReport]
    ) -> None:
        """Keep an alignment's result; `facts` come from `description_of`, `reports` from a
        guest.
        """
        counts = {count.name: count.count for report in reports for count in report.counts}
        matched = [(m.party, m.brought, m.matched) for report in reports for m in report.ids]
        facts_kept = {**facts, "job": job, COUNTS: counts, MATCHED: matched, KEPT: left.facts}
        shards.save_shard(self.folder(job), Artefact(facts_kept, left.arrays))

    def load(self, job: str) -> dict[str, Artefact]:
        """Return the result of an alignment, by the name of its stage."""
        kept = shards.load_shard(self.folder(job))
        return {kept.facts[STAGE]: Artefact(kept.facts[KEPT], kept.arrays)}

    def guest_report(self, job: str) -> StatusReport:
        """Return a guest's report of it; empty at a host."""
        report = StatusReport()
        facts = shards.load_facts(self.folder(job))
        for name, count in facts[COUNTS].items():
            report.counts.add(name=name, count=count)
        for party, brought, matched in facts.get(MATCHED, ()):
            report.ids.add(party=party, brought=brought, matched=matched)
        return report

    def table_rows(self, job: str) -> int:
        """Return the number of rows in the table, matched or not."""
        return int(shards.load_facts(self.folder(job))[TABLE_ROWS])

    def check(self, job: str, wanted: dict[str, Any], least: int) -> None:
        """Raise ConfigError if no such rows of the job are kept, DataError if the table's ids have
        changed, PolicyError if they are too few to be opened now.

        `wanted` is the result of `description_of` for the job that would use them.
        """
        party = wanted["party"]
        try:
            kept = shards.load_shard(self.folder(job))
        except ConfigError:
            raise ConfigError(
                f"no rows in common of the job {job} are kept here",
                todo="name a job that aligned these parties' rows itself, or leave alignment out",
                key="alignment",
                party=party,
            ) from None
        was = kept.facts
        if any(was[key] != wanted[key] for key in (STAGE, "guest", "hosts", "dataset")):
            raise ConfigError(
                f"the job {job} aligned {was['guest']} with {', '.join(was['hosts'])} "
                f"by {was[STAGE]}, here of the data set {was['dataset']}",
                todo="name the same parties and data sets, hosts in the same order",
                key="alignment",
                party=party,
            )
        if was["ids"] != wanted["ids"]:
            raise DataError(
                f"the table has other ids than when the job {job} aligned them",
                todo="put the old table back, or leave alignment out to align anew",
                key="alignment",
                party=party,
                kind="the table has other ids than when they were aligned",
            )
        for size in _row_counts(kept):
            try:
                check_common(size, least)
            except PolicyError as error:
                raise error.at(party=party) from None


def description_of(stage: str, party: str, spec: JobSpec, frame: Frame) -> dict[str, Any]:
    """Return the parties and rows of an alignment: two equal descriptions find the same rows."""
    from fedboost.ground.ids import frame_ids

    table = spec.parties.table()
    digest = hashlib.sha256(repr((*frame.id_columns, frame.n_rows)).encode())
    for some in frame.ids.blocks():
        digest.update(frame_ids(some, little_endian=True).data.data)
    return {
        STAGE: stage,
        "party": party,
        "guest": table.guest,
        "hosts": list(table.hosts),
        "dataset": spec.data[party].dataset or "",
        "ids": digest.hexdigest(),
        TABLE_ROWS: frame.n_rows,
    }


def _row_counts(kept: Artefact) -> Iterator[int]:
    """Yield the number of rows in common, with each host if a guest keeps them separately."""
    pairs = [rows for name, rows in kept.arrays.items() if name.startswith("with_")]
    for rows in pairs or [kept.arrays["rows"]]:
        if not pairs or len(rows):  # none at all is not one too few
            yield len(rows)


IDS, SIZES = "ids", "id_sizes"  # the guest's rows: their ids one after the other, and their lengths


class Disclosures(JobArtefacts):
    """Disclosures in one party's store, by the job that made them."""

    kind = "disclosures"

    def save(self, job: str, kept: Artefact, protocol: str, table: Table) -> None:
        """Keep the disclosure of a job, with its parties."""
        between = {"protocol": protocol, "guest": table.guest, "hosts": list(table.hosts)}
        facts = {"job": job, **between, **kept.facts}
        shards.save_shard(self.folder(job), Artefact(facts, kept.arrays))

    def load(self, job: str) -> Artefact:
        """Return the artefact that `save` kept."""
        return shards.load_shard(self.folder(job))

    def check(self, job: str, protocol: str, table: Table) -> None:
        """Raise ConfigError if the job's disclosure is not kept, or was made to other parties."""
        try:
            facts = shards.load_facts(self.folder(job))
        except ConfigError:
            raise ConfigError(
                f"no disclosure of the job {job} is kept here",
                todo="name a finished job that did not itself reuse one, or leave reuse out",
            ) from None
        was: tuple[Any, Any, Any] = (facts["protocol"], facts["guest"], facts["hosts"])
        if was != (protocol, table.guest, list(table.hosts)):
            raise ConfigError(
                f"the job {job} was {was[0]} of {was[1]} with {', '.join(was[2])}",
                todo="name the same protocol and parties in the job, hosts in the same order",
            )


def with_rows(kept: Artefact, ids: EncodedIds) -> Artefact:
    """Return a disclosure with the ids of its rows, in their order."""
    return Artefact(kept.facts, {**kept.arrays, IDS: ids.data, SIZES: ids.sizes})


def rows_again(frame: Frame, kept: Artefact) -> Frame:
    """Return the rows of a disclosure in their former order; other rows of the table are ignored.

    Raise DataError if the table lacks some of them; a disclosure without ids takes the table
    unchanged.
    """
    import numpy as np

    from fedboost.ground.ids import EncodedIds, ends_of

    if IDS not in kept.arrays:
        return frame
    data, sizes = kept.arrays[IDS].astype(np.uint8), kept.arrays[SIZES].astype(np.int64)
    rows = frame.ids.find(EncodedIds(data, ends_of(sizes)))
    absent = int((rows < 0).sum())
    if absent:
        raise DataError(
            f"the table lacks {absent} of the {len(rows)} rows that the reused buckets describe",
            rows=absent,
            todo="give the table of that job, or train without reuse",
            kind="the table lacks rows that the reused buckets describe",
        )
    return frame.take(rows)
