"""Small tables that stand for a job's: some rows of those at hand, or made up."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedboost.core.params import BoostingParams
from fedboost.data.frame import Frame
from fedboost.data.holdout import canonical_order
from fedboost.flow import Artefact, RowsUsed
from fedboost.job import JobSpec

CELLS, ROWS, ROWS_LEAST = 1_000_000, 32_000, 1024  # of all tables together; of the guest's
THINNED_LEAST = 64  # rows of a table that is thinned out


@dataclass(frozen=True)
class Scene:
    """The tables of a job as far as they are known."""

    guest: str
    hosts: tuple[str, ...]
    rows: Mapping[str, int]  # of each party's table
    columns: Mapping[str, int]
    common: int  # rows of the guest that a job of all learns from or measures
    shared: Mapping[str, int]  # rows that a host has of the guest's
    held_out: float  # share of the rows
    meet: Literal["all", "pairs", "none"]  # whose rows are in common, where any are

    @property
    def parties(self) -> tuple[str, ...]:
        """Return who has rows: the guest, then the hosts."""
        return (self.guest, *self.hosts)

    @property
    def training(self) -> float:
        """Rows in common that trees learn from."""
        return self.common * (1.0 - self.held_out)

    def met(self, party: str) -> int:
        """Rows of a party that an alignment finds."""
        return self.shared[party] if self.meet == "pairs" and party in self.shared else self.common

    def learnt(self, party: str) -> int:
        """Rows that a party brings to the training."""
        return self.rows[party] if self.meet == "none" else self.met(party)

    def thinning(self) -> float:
        """The share of the rows that fits into a rehearsal."""
        rows = {party: self.learnt(party) for party in self.parties}
        cells = sum(count * self.columns[party] for party, count in rows.items())
        most = max(1, *rows.values())
        return min(1.0, max(ROWS_LEAST / most, min(CELLS / max(1, cells), ROWS / most)))


@dataclass(frozen=True)
class TableSample:
    """A share of a job's rows, party by party in canonical order, as stages find them."""

    scene: Scene
    frames: Mapping[str, Frame]
    share: float

    def thinned(self, each: int) -> TableSample:
        """One row of so many; all of them where there are few. Parties keep the same ids."""
        if max(frame.n_rows for frame in self.frames.values()) < each * THINNED_LEAST:
            return self
        guest = self.scene.guest
        kept = _thinned(self.scene, self.frames, 1.0 / each)
        share = self.share * kept[guest].n_rows / self.frames[guest].n_rows
        return replace(self, frames=kept, share=share)

    def held_out(self, spec: JobSpec) -> dict[str, NDArray[np.bool_]]:
        """Return which rows of each are held out."""
        from fedboost import protocols

        held = spec.validation
        by_id = protocols.named(spec.protocol).rows is RowsUsed.GUESTS
        return {
            party: np.zeros(frame.n_rows, np.bool_)
            if held is None
            else held.rows(frame.ids, by_id=by_id)
            for party, frame in self.frames.items()
        }

    def met(self) -> Artefact:
        """Return what a pairwise alignment leaves at the guest: which of its rows each host has."""
        guest = self.frames[self.scene.guest]
        place = {row: number for number, row in enumerate(guest.ids)}
        rows = {
            f"with_{host}": np.array(
                [place[row] for row in self.frames[host].ids if row in place], np.int64
            )
            for host in self.scene.hosts
        }
        return Artefact(arrays={"rows": np.arange(guest.n_rows), **rows})


def of_frames(scene: Scene, frames: Mapping[str, Frame]) -> TableSample:
    """Some rows of tables at hand, cut to those in common."""
    ids = {party: set(frame.ids) for party, frame in frames.items()}
    common = ids[scene.guest] if scene.meet == "pairs" else set.intersection(*ids.values())
    found = dict(frames)
    for party, frame in frames.items():
        if scene.meet == "all" or (scene.meet == "pairs" and party != scene.guest):
            found[party] = _of_ids(frame, common)
    kept = _thinned(scene, found, scene.thinning())
    share = kept[scene.guest].n_rows / max(1, scene.learnt(scene.guest))
    in_order = {party: frame.take(canonical_order(frame.ids)) for party, frame in kept.items()}
    return TableSample(scene, in_order, share)


def made(scene: Scene, params: BoostingParams, *, rows_apart: bool) -> TableSample:
    """Tables of numbers at random; `rows_apart` where each party has rows and labels of its own."""
    share = scene.thinning()
    counts = {party: _count(scene.learnt(party), share) for party in scene.parties}
    frames, pull = dict[str, Frame](), np.zeros(max(counts.values()))
    for number, party in reversed([*enumerate(scene.parties)]):
        draw, count = np.random.default_rng(number), counts[party]
        values = draw.normal(size=(count, scene.columns[party])).astype(np.float32)
        place = number if rows_apart else 0
        pull = pull * (not rows_apart)
        pull[:count] += values[:, :1].sum(axis=1)
        label = None
        if rows_apart or party == scene.guest:
            label = _label(params, pull[:count] + draw.normal(size=count))
        of = 0 if rows_apart else number
        names = tuple(f"{of}-{column}" for column in range(values.shape[1]))
        ids = [b"%d-%09d" % (place, row) for row in range(count)]
        frames[party] = Frame(ids, np.asfortranarray(values), names, label, ("id",))
    return TableSample(scene, {party: frames[party] for party in scene.parties}, share)


def set_sizes(sample: TableSample, most: int) -> tuple[dict[str, Frame], float]:
    """Sets of at most so many ids that are in common as those of the job, and the share of it that
    they are.
    """
    scene = sample.scene
    share = min(1.0, most / max(scene.rows.values()))
    frames = {}
    for number, party in enumerate(scene.parties):
        own = round(share * (scene.rows[party] if party == scene.guest else scene.met(party)))
        ids = [b"0-%d" % row for row in range(own)]
        ids += [b"%d-%d" % (number, row) for row in range(own, round(share * scene.rows[party]))]
        values = np.zeros((len(ids), 0), np.float32, order="F")
        frames[party] = Frame(ids, values, (), None, ("id",))
    return frames, share


def _label(params: BoostingParams, pull: NDArray[np.float64]) -> NDArray[np.float64]:
    """Labels that the objective takes, of about as many rows each."""
    classes = params.num_class or 2
    if params.objective.startswith(("binary", "multi")):
        ranks = np.argsort(np.argsort(pull))
        return (ranks * classes // len(pull)).astype(np.float64)
    return np.floor(np.exp(pull)) if params.objective.startswith("count") else np.exp(pull)


def _some(frame: Frame, share: float) -> Frame:
    """The rows whose ids come first in an order of their own, which all parties have alike."""
    count = _count(frame.n_rows, share)
    if count >= frame.n_rows:
        return frame
    ranks = np.array([zlib.crc32(row) for row in frame.ids], np.uint32)
    return frame.take(np.sort(np.argsort(ranks, kind="stable")[:count]))


def _count(rows: int, share: float) -> int:
    return max(min(rows, THINNED_LEAST), round(share * rows))


def _of_ids(frame: Frame, ids: AbstractSet[bytes]) -> Frame:
    return frame.take([row for row, own in enumerate(frame.ids) if own in ids])


def _thinned(scene: Scene, frames: Mapping[str, Frame], share: float) -> dict[str, Frame]:
    """A share of the rows; where parties have rows in common, of the guest's."""
    if scene.meet == "none":
        return {party: _some(frame, share) for party, frame in frames.items()}
    guest = _some(frames[scene.guest], share)
    kept = set(guest.ids)
    others = {party: _of_ids(frames[party], kept) for party in scene.hosts}
    return {scene.guest: guest, **others}
