"""The tables of a job in an estimate, and small ones in their place."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedboost import protocols
from fedboost.core.params import BoostingParams
from fedboost.core.quantiles import GROUP_MIN
from fedboost.data.frame import Frame
from fedboost.flow import GUEST, Artefact, RowsUsed
from fedboost.ground.ids import EncodedIds
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec

CELLS, ROWS, ROWS_LEAST = 1_000_000, 32_000, 1024  # of all tables together; of the guest's
THINNED_LEAST = 64  # rows below which a table is not thinned out
Frames = Mapping[str, Frame]  # by party


@dataclass(frozen=True)
class Scene:
    """The known facts about the tables of a job."""

    spec: JobSpec
    rows: Mapping[str, int]  # of each party's table
    columns: Mapping[str, int]
    common: int  # rows of the guest that a job on all rows learns from or measures
    shared: Mapping[str, int]  # rows that a host has in common with the guest

    @cached_property
    def used(self) -> RowsUsed:
        """The kind of rows that the job uses."""
        return protocols.load_protocol(self.spec.protocol).tables.rows

    @property
    def guest(self) -> str:
        """Name of the party with the labels."""
        return self.spec.parties.table().guest

    @property
    def parties(self) -> tuple[str, ...]:
        """The parties with rows: the guest, then the hosts."""
        return (self.guest, *self.spec.parties.table().hosts)

    @property
    def training(self) -> float:
        """Rows in common that trees learn from."""
        held = self.spec.validation
        if held is None:
            return float(self.common)
        out = held.fraction if held.fraction is not None else 1.0 / (held.folds or 1)
        return self.common * (1.0 - out)

    def met_rows(self, party: str) -> int:
        """Return the number of a party's rows that an alignment finds."""
        return self.shared.get(party, self.common) if self.used is RowsUsed.GUESTS else self.common

    def learnt_rows(self, party: str) -> int:
        """Return the number of rows that a party brings to the training."""
        return self.rows[party] if self.used is RowsUsed.OWN else self.met_rows(party)

    def thinning(self) -> float:
        """Return the share of the rows that fits into a rehearsal."""
        rows = {party: self.learnt_rows(party) for party in self.parties}
        cells = sum(count * self.columns[party] for party, count in rows.items())
        most = max(1, *rows.values())
        least = max(ROWS_LEAST / most, self.searched_rows / max(1, sum(rows.values())))
        return min(1.0, max(least, min(CELLS / max(1, cells), ROWS / most)))

    @property
    def searched_rows(self) -> float:
        """Rows of all parties that a search for cut points needs; 0 for jobs without a search."""
        if self.used is not RowsUsed.OWN:
            return 0.0
        protocol = protocols.load_protocol(self.spec.protocol)
        params = parse_settings(protocol.params, self.spec.params, section="params")
        bins = protocol.tables.bins(params, GUEST) or 0
        return 4.0 * GROUP_MIN * bins * self.common / max(1.0, self.training)


@dataclass(frozen=True)
class TableSample:
    """A share of a job's rows, by party in canonical order, as stages get them."""

    scene: Scene
    frames: Frames
    share: float

    def thinned(self, each: int) -> TableSample:
        """Return a sample of one row in `each`, or all rows if there are few.

        The parties keep the same ids.
        """
        rows = [frame.n_rows for frame in self.frames.values()]
        if max(rows) < each * THINNED_LEAST or sum(rows) < each * self.scene.searched_rows:
            return self
        guest = self.scene.guest
        kept = thinned_rows(self.scene, self.frames, 1.0 / each)
        share = self.share * kept[guest].n_rows / self.frames[guest].n_rows
        return replace(self, frames=kept, share=share)

    def held_out(self) -> dict[str, NDArray[np.bool_]]:
        """Return the mask of held-out rows of each party."""
        held, by_id = self.scene.spec.validation, self.scene.used is RowsUsed.GUESTS
        return {
            party: np.zeros(frame.n_rows, np.bool_)
            if held is None
            else held.rows(frame.ids, by_id=by_id)
            for party, frame in self.frames.items()
        }

    def alignment_result(self) -> Artefact:
        """Return the result of a pairwise alignment at the guest: rows in common with each host."""
        guest, *hosts = self.scene.parties
        ids = self.frames[guest].ids
        matches = {f"with_{host}": ids.find(self.frames[host].ids) for host in hosts}
        rows = {name: rows_of[rows_of >= 0] for name, rows_of in matches.items()}
        return Artefact(arrays={"rows": np.arange(len(ids)), **rows})

    def ids_sample(self, most: int) -> TableSample:
        """Return tables of `most` ids or fewer without columns, with the job's share in common."""
        scene = self.scene
        share = min(1.0, most / max(scene.rows.values()))
        frames = {}
        for number, party in enumerate(scene.parties):
            count = round(share * scene.rows[party])
            shared = count if not number else round(share * scene.met_rows(party))
            ids = [b"%d-%d" % (number * (row >= shared), row) for row in range(max(shared, count))]
            values = np.zeros((len(ids), 0), np.float32, order="F")
            frames[party] = Frame(EncodedIds.of(ids), values, (), None, ("id",))
        return replace(self, frames=frames, share=share)


def random_tables(scene: Scene, params: BoostingParams) -> TableSample:
    """Return tables of random numbers, with separate rows if the job uses separate rows."""
    share, apart = scene.thinning(), scene.used is RowsUsed.OWN
    counts = {party: _row_count(scene.learnt_rows(party), share) for party in scene.parties}
    frames, pull = dict[str, Frame](), np.zeros(max(counts.values()))
    for number, party in reversed([*enumerate(scene.parties)]):
        draw, count = np.random.default_rng(number), counts[party]
        values = draw.normal(size=(count, scene.columns[party])).astype(np.float32)
        place = number if apart else 0
        pull = pull * (not apart)
        pull[:count] += values[:, :1].sum(axis=1)
        label = None
        if apart or party == scene.guest:
            label = _random_labels(params, pull[:count] + draw.normal(size=count))
        names = tuple(f"{number - place}-{column}" for column in range(values.shape[1]))
        ids = [b"%d-%09d" % (place, row) for row in range(count)]
        frames[party] = Frame(EncodedIds.of(ids), np.asfortranarray(values), names, label, ("id",))
    return TableSample(scene, {party: frames[party] for party in scene.parties}, share)


def _random_labels(params: BoostingParams, pull: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return labels that suit the objective, with about as many rows for each."""
    return params.record.labels.sample(pull, params.num_class or 2)


def _thinned_frame(frame: Frame, share: float) -> Frame:
    """Return a share of the rows in the order of a hash of ids, the same at all parties."""
    count = _row_count(frame.n_rows, share)
    if count >= frame.n_rows:
        return frame
    ranks = np.array([zlib.crc32(row) for row in frame.ids], np.uint32)
    return frame.take(np.sort(np.argsort(ranks, kind="stable")[:count]))


def _row_count(rows: int, share: float) -> int:
    return max(min(rows, THINNED_LEAST), round(share * rows))


def rows_with_ids(frame: Frame, ids: Collection[bytes]) -> Frame:
    return frame.take([row for row, id_ in enumerate(frame.ids) if id_ in ids])


def thinned_rows(scene: Scene, frames: Frames, share: float) -> dict[str, Frame]:
    """Return a share of the rows; if parties have rows in common, a share of the guest's."""
    if scene.used is RowsUsed.OWN:
        return {party: _thinned_frame(frame, share) for party, frame in frames.items()}
    guest = _thinned_frame(frames[scene.guest], share)
    kept = set(guest.ids)
    return {p: guest if p == scene.guest else rows_with_ids(frames[p], kept) for p in scene.parties}
