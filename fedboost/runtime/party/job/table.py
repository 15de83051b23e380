"""A party's table in one job: read once, compared with the first attempt, cut to aligned rows."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedboost import flow, protocols
from fedboost.data.sources import SourceSpec
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError, DataError, FedboostError
from fedboost.messages.job_pb2 import StatusReport, Warned
from fedboost.model import shards, vertical
from fedboost.model.unknown_categories import (
    TrainingCategories,
    UnknownCategories,
    known_categories,
    present_categories,
)
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.party.job.files import JobFiles
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.process.memory import LARGE_ROWS, map_large_arrays_apart, release_memory
from fedboost.runtime.store.rows_in_common import (
    Disclosures,
    RowsInCommon,
    description_of,
    rows_again,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from fedboost.data.frame import Frame
    from fedboost.ground.ids import EncodedIds
    from fedboost.runtime.party.job.table_warnings import TableWarning

log = logging.getLogger(__name__)


@dataclass
class JobTable:
    """The rows that a party brings to a job; empty before they are read and after the job."""

    signed: SignedJob
    files: JobFiles
    frame: Frame | None = None
    stays: bool = False  # keep the table for a rehearsal after the job
    aligned_ids: EncodedIds | None = None  # of the last stage's rows, if it was aligned
    id_cells: pa.Table | None = None  # of a table to predict, as the party wrote them
    warnings: tuple[TableWarning, ...] = ()  # of `frame`
    unknown: UnknownCategories | None = None  # of a table to predict
    categories: TrainingCategories = field(default_factory=TrainingCategories)

    @property
    def disclosures(self) -> Disclosures:
        """Disclosures of earlier jobs that later jobs can reuse."""
        return Disclosures(self.files.store.folder)

    @property
    def rows_in_common(self) -> RowsInCommon:
        """Alignments of earlier jobs that later jobs can reuse."""
        return RowsInCommon(self.files.store.folder)

    @property
    def is_large(self) -> bool:
        """Return whether the table is so large that freed memory is worth giving back."""
        return self.frame is not None and self.frame.n_rows >= LARGE_ROWS

    def read(self, source: SourceSpec, owned: Owned) -> None:
        """Load the party's table from `source`; a DataError if it changed since an attempt."""
        from fedboost.runtime.party.job import table_warnings

        self._check_disclosure()
        signed = self.signed
        self._load_frame(source)
        assert self.frame is not None
        if self.is_large:
            map_large_arrays_apart()
        release_memory()  # memory that reading used besides the table
        if signed.protocol.leaves == "model":
            self.warnings = table_warnings.frame_warnings(signed.party, self.frame)
        self._look_at_categories(source)
        for note in self.frame.notes:
            log.info("%s: %s", signed.id, note)
        if not self.files.pin_digest("table", self.frame.digest().hex()):
            raise DataError(
                "the table has changed since the job began",
                party=signed.party,
                file=source.name,
                todo="put the old table back, or submit a new job",
                kind="the table has changed since the job began",
            )
        if signed.role is flow.HOST or signed.protocol.tables.rows is flow.RowsUsed.OWN:
            self._coarsen(source, owned)

    def _look_at_categories(self, source: SourceSpec) -> None:
        """Count categories that the model does not know, or that training will not keep."""
        from fedboost.runtime.party.job import table_warnings

        signed, frame = self.signed, self.frame
        assert frame is not None
        if signed.protocol.leaves == "predictions" and signed.model is not None:
            self.unknown = UnknownCategories(signed.used_model(self.files.store.models))
            self.unknown.add(frame)
            self.warnings += (*table_warnings.of_unknown(signed.party, self.unknown),)
        if signed.protocol.leaves == "model":
            bins = {name: self._bins_of(name, source) for name in frame.categories}
            self.warnings += (*table_warnings.of_many_categories(signed.party, frame, bins),)

    def _bins_of(self, column: str, source: SourceSpec) -> int | None:
        """Return how many categories of a column a job keeps apart; None: all."""
        signed = self.signed
        has_own_rows = signed.protocol.tables.rows is flow.RowsUsed.OWN
        owners = source.groups_of(column) if has_own_rows or signed.role is flow.HOST else None
        jobs = None if has_own_rows else signed.protocol.tables.bins(signed.params, signed.role)
        return min((most for most in (owners, jobs) if most is not None), default=None)

    def _coarsen(self, source: SourceSpec, owned: Owned) -> None:
        """Replace the table's values by those of their groups, so that others learn no more."""
        from fedboost.runtime.party.job import table_warnings
        from fedboost.runtime.party.job.value_groups import ValueGroups

        assert self.frame is not None
        signed, thresholds = self.signed, {}
        told = table_warnings.group_warnings(signed.party, source.bins_max, self._max_bin)
        self.warnings = (*self.warnings, *told)
        if signed.protocol.leaves == "predictions" and signed.model is not None:
            thresholds = vertical.thresholds(shards.load_shard(self.files.used_model_folder))
        grouped = self._grouped_categories(source)
        present = present_categories(self.frame, grouped)
        groups = ValueGroups(self.files.store)
        self.frame = groups.coarsen_frame(self.frame, owned, source, thresholds)
        kept = present_categories(self.frame, grouped)
        self.categories.hidden = {name: texts - kept[name] for name, texts in present.items()}
        cuts = {self.frame.columns[c]: known for c, known in self.frame.group_cuts.items()}
        asked = [(t, cuts[name]) for name, t in thresholds.items() if name in cuts]
        inside = sum(int((~np.isin(t, known)).sum()) for t, known in asked)
        self.warnings += (*table_warnings.threshold_warnings(signed.party, inside),)

    def _grouped_categories(self, source: SourceSpec) -> list[int]:
        """Return the columns of a table to train on whose categories the owner may hide."""
        frame = self.frame
        if frame is None or self.signed.protocol.leaves != "model":
            return []
        return [c for c in frame.categorical if source.groups_of(frame.columns[c]) is not None]

    @property
    def _max_bin(self) -> int | None:
        """Most bins of a guest's column, which the job calls max_bin; None: it has no bins."""
        return self.signed.protocol.tables.bins(self.signed.params, flow.GUEST)

    def _load_frame(self, source: SourceSpec) -> None:
        self.frame, self.id_cells = load_table(self.signed, source, self.files.store.folder)

    def release(self) -> None:
        """Free the table's memory."""
        self.frame = self.id_cells = self.aligned_ids = None

    def check(self) -> None:
        """Refuse a table that the job's protocol, or the model to predict with, cannot use."""
        from fedboost.data.categories import refuse_many
        from fedboost.model import columns
        from fedboost.model.batches import ScoringParams

        signed = self.signed
        if self.frame is None:
            return
        try:
            if signed.model is not None:
                columns.column_indices(signed.used_model(self.files.store.models), self.frame)
            if self.unknown is not None:
                assert isinstance(signed.params, ScoringParams)
                self.unknown.check(signed.params.unknown_max)
            if signed.protocol.leaves == "model" and self._max_bin is not None:
                refuse_many(self.frame.categories, self.frame.n_rows, self._max_bin)
            if signed.protocol.tables.check is not None:
                held = signed.manifest.spec.validation is not None
                signed.protocol.tables.check(signed.role, signed.params, self.frame, held)
        except FedboostError as error:
            raise error.at(party=signed.party) from None

    def check_alignment(self, least: int) -> None:
        """Refuse an earlier job's rows in common unless they are kept here and fit this job."""
        signed = self.signed
        if signed.alignment_job is not None and self.frame is not None:
            stage = protocols.aligning_stage(signed.manifest.spec, signed.params) or ""
            asked = description_of(stage, signed.party, signed.manifest.spec, self.frame)
            self.rows_in_common.check(signed.alignment_job, asked, least)

    def alignment_report(self, stage: str) -> StatusReport:
        """Return the guest's report on rows in common from the job that found them.

        Only at the first stage of a job; empty otherwise.
        """
        signed = self.signed
        if signed.alignment_job is None or self.frame is None or stage != signed.stages[0]:
            return StatusReport()
        return self.rows_in_common.guest_report(signed.alignment_job)

    def warned(self, stage: str, tells: Collection[str]) -> list[Warned]:
        """Return the warnings about our table at a stage, with figures if our policy tells them."""
        from fedboost.runtime.party.job import table_warnings

        signed, warnings = (
            self.signed,
            list(self.warnings if stage == self.signed.stages[0] else ()),
        )
        if self.frame is not None and protocols.load_protocol(stage).leaves != "rows":
            rows = self.aligned_rows()
            if rows is not None:
                warnings += table_warnings.alignment_warnings(signed.party, self.frame.ids, rows)
        for warning in warnings:
            log.warning("%s: %s", signed.id, warning.text)
        told = [warning.text if "figures" in tells else warning.public_text for warning in warnings]
        return [Warned(party=signed.party, warning=text) for text in told]

    def at(self, stage: str, artefacts: Mapping[str, Artefact]) -> Frame | None:
        """Return the table of a stage: its aligned rows, or the rows of an earlier disclosure.

        Only the last stage's table stays in memory: a later attempt reads the table again. A
        DataError if an earlier attempt at the stage had other rows.
        """
        protocol = protocols.load_protocol(stage)
        is_last = stage == self.signed.stages[-1] and protocol.leaves != "rows"
        frame = self.unchecked_frame(stage, artefacts, goes=is_last and not self.stays)
        if frame is not None and not self.files.pin_digest(
            f"{stage}-rows", frame.ids_digest().hex()
        ):
            raise DataError(
                "the rows in common have changed since the job began",
                party=self.signed.party,
                todo="submit a new job",
            )
        if frame is not None and is_last and protocol.leaves == "model":
            self.categories.train(frame)
        if frame is not None and is_last:
            self.aligned_ids = None if self.aligned_rows() is None else frame.ids
        return replace(frame) if frame is not None and self.stays else frame

    def aligned_rows(self) -> NDArray[np.int64] | None:
        """Return the aligned rows of the table in their order; None without an alignment."""
        signed = self.signed
        if signed.alignment_job is not None:
            (left,) = self.rows_in_common.load(signed.alignment_job).values()
            return left.arrays["rows"].astype(np.int64, copy=False)
        for name in signed.stages:
            if protocols.load_protocol(name).leaves == "rows" and self.files.is_done(name):
                return self.files.artefact_of(name).arrays["rows"].astype(np.int64, copy=False)
        return None

    def unchecked_frame(
        self, stage: str, artefacts: Mapping[str, Artefact], *, goes: bool = False
    ) -> Frame | None:
        """Return the table of a stage without comparing it with earlier attempts.

        With `goes`, the whole table is released.
        """
        frame = self.frame
        if frame is None:
            return None
        if goes:
            self.frame = None
        if flow.DISCLOSURE in artefacts:
            try:
                return rows_again(frame, artefacts[flow.DISCLOSURE])
            except DataError as error:
                raise error.at(party=self.signed.party) from None
        rows = None if protocols.load_protocol(stage).leaves == "rows" else self.aligned_rows()
        if rows is None:
            return frame
        return frame.take_in_place(rows) if goes else frame.take(rows)

    def _check_disclosure(self) -> None:
        """Refuse an earlier disclosure that was not made here or not to these parties."""
        signed = self.signed
        if signed.reused_disclosure is None:
            return
        try:
            self.disclosures.check(signed.reused_disclosure, signed.protocol.name, signed.table)
        except ConfigError as error:
            raise error.at(party=signed.party) from None


def load_table(
    signed: SignedJob, source: SourceSpec, folder: Path
) -> tuple[Frame, pa.Table | None]:
    """Return the table of a job, and the ids as written if the job predicts.

    `folder` is the party's store.
    """
    from fedboost.data.loading import check_label, load_with_ids, refuse_unread_label
    from fedboost.data.mapped_rows import rows_to_predict, rows_to_train
    from fedboost.data.reading import TableInMemory
    from fedboost.data.row_count import row_count_bound

    models = folder / "models"
    selection = signed.selection(models)
    assert selection is not None
    is_horizontal = signed.protocol.tables.rows is flow.RowsUsed.OWN
    needs = signed.role is not flow.GUEST or is_horizontal
    predicts = signed.protocol.leaves == "predictions"
    if predicts and signed.model is not None:
        known = known_categories(signed.used_model(models))
        return rows_to_predict(
            source, selection, known, folder, party=signed.party, needs_features=needs
        )
    labelled = signed.role in signed.protocol.tables.labelled
    check_label(selection, signed.party, needs_label=labelled)
    if signed.guest_label is not None:
        refuse_unread_label(selection, signed.party)
    is_small = isinstance(source, TableInMemory) or row_count_bound(source) < LARGE_ROWS
    if predicts or is_small:
        frame, ids = load_with_ids(
            source,
            selection,
            party=signed.party,
            needs_features=needs,
            guest_label=signed.guest_label,
        )
        return frame, ids if predicts else None
    frame = rows_to_train(
        source,
        selection,
        folder,
        party=signed.party,
        needs_features=needs,
        guest_label=signed.guest_label,
    )
    return frame, None
