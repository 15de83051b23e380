"""Operations of SecureBoost and SecureBoost+: by the paper's equations 8 to 15, and as counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import BlindedPackages, Ciphertexts, Encrypted
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.residues import ResiduePrivate, ResiduePublic
from fedboost.data.sources import SourceSpec
from fedboost.flow import Artefact
from fedboost.ground.errors import JobError
from fedboost.ground.workers import Serial, Workers
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import Event, JobJournal
from fedboost.model import shards
from fedboost.runtime.cluster import local


@dataclass(frozen=True)
class Shape:
    """What the equations need to know of a job."""

    rows: int  # n: that are encrypted for a tree
    columns: int  # m: the host's
    bins: int  # b
    depth: int  # h
    capacity: int = 1  # c: sums in a package


@dataclass
class Operations:
    """Of one tree, or of all trees of a job."""

    additions: float = 0.0  # of rows to cells, and of cells: sums, prefix sums, subtractions
    encryptions: float = 0.0
    decryptions: float = 0.0

    @property
    def ciphertexts(self) -> float:
        """How many travel (equations 10 and 15)."""
        return self.encryptions + self.decryptions

    def named(self) -> dict[str, float]:
        """All four by name."""
        return {**asdict(self), "ciphertexts": self.ciphertexts}

    def per_tree(self, trees: int) -> Operations:
        """The mean of so many trees."""
        return Operations(
            self.additions / trees, self.encryptions / trees, self.decryptions / trees
        )


def baseline(shape: Shape) -> Operations:
    """SecureBoost (equations 8, 9 and 10)."""
    cells = shape.bins * shape.columns * 2**shape.depth
    return Operations(
        additions=2 * shape.rows * shape.depth * shape.columns + 2 * cells,
        encryptions=2 * shape.rows,
        decryptions=2 * cells,
    )


def plus(shape: Shape) -> Operations:
    """With packing, subtraction and compressing (equations 13, 14 and 15)."""
    cells = shape.bins * shape.columns * 2**shape.depth
    return Operations(
        additions=shape.rows * shape.depth * shape.columns / 2 + cells,
        encryptions=shape.rows,
        decryptions=cells / shape.capacity,
    )


@dataclass(frozen=True)
class PlainRun:
    """A job's result and metrics by round, trained in this process."""

    result: dict[str, Any]
    rounds: list[dict[str, float]]  # "train.auc" and so on
    shards: dict[str, Artefact] = field(default_factory=dict)  # each party's part of the model


def train_plain(
    spec: JobSpec,
    sources: Mapping[str, SourceSpec],
    folder: Path,
    after_round: Callable[[], None] | None = None,
    workers: Workers | None = None,
) -> PlainRun:
    """Trains all parties in this process; a JobError unless the job finishes."""

    def hear(event: Event) -> None:
        if after_round is not None and event.WhichOneof("what") == "round":
            after_round()

    async def whole() -> JobJournal:
        async with local.cluster(folder, spec, sources, workers or Serial()) as cluster:
            return await cluster.run(spec, hear)

    journal = asyncio.run(whole())
    rounds, result = [], None
    for event in journal.events:
        what = event.WhichOneof("what")
        if what == "round":
            rounds.append({f"{m.split}.{m.name}": m.value for m in event.round.metrics})
        elif what == "finished":
            result = json.loads(event.finished.result)
    if result is None:
        raise JobError(f"the job {journal.status.state}: {journal.status.reason.what}")
    kept = {party: folder / "var" / party / "models" for party in sources}
    return PlainRun(
        *(result, rounds),
        {party: shards.load(shards.folder_of(kept[party], result["model"])) for party in kept},
    )


@contextmanager
def counting(plaintext_bits: int) -> Iterator[Operations]:
    """Counts what plain jobs ask of their keys, packages as if of keys of `plaintext_bits`."""
    done = Operations()

    def segment_sum(
        ciphertexts: Ciphertexts, rows: NDArray[Any], cells: NDArray[np.int32], n_cells: int
    ) -> None:
        done.additions += int((cells >= 0).sum()) * ciphertexts.lanes

    def pairs(a: Ciphertexts, b: Ciphertexts) -> None:
        done.additions += len(a) * a.lanes

    def prefix_sums(cells: Ciphertexts, offsets: NDArray[Any]) -> None:
        done.additions += (len(cells) - (len(offsets) - 1)) * cells.lanes

    def encrypt(gh: NDArray[np.int64], layout: GhLayout, _: Any = None) -> None:
        done.encryptions += len(gh) * len(layout.lanes)

    def release(
        sums: Ciphertexts,
        layout: GhLayout,
        blinders: Any,
        counts: Sequence[int] | None = None,
        masks: Any = None,
    ) -> None:
        as_if = replace(layout, plaintext_bits=plaintext_bits)
        done.decryptions += len(as_if.packages([len(sums)] if counts is None else counts))

    noted: list[tuple[type, str, Callable[..., None]]] = [
        (ResiduePublic, "segment_sum", segment_sum),
        (ResiduePublic, "add", pairs),
        (ResiduePublic, "subtract", pairs),
        (ResiduePublic, "prefix_sums", prefix_sums),
        (ResiduePublic, "release", release),
        (ResiduePrivate, "encrypt", encrypt),
    ]
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in noted]
    try:
        for (owner, name, note), (_, _, method) in zip(noted, kept, strict=True):
            setattr(owner, name, _noting(method, note))
        yield done
    finally:
        for owner, name, method in kept:
            setattr(owner, name, method)


Answer = Ciphertexts | BlindedPackages | Iterator[Encrypted]


def _noting(method: Callable[..., Answer], note: Callable[..., None]) -> Callable[..., Answer]:
    def noted(key: object, *given: Any, **named: Any) -> Answer:
        note(*given, **named)
        return method(key, *given, **named)

    return noted
