"""What a stage leaves in a party's own store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:  # a coordinator knows no tables
    import numpy as np
    from numpy.typing import NDArray

    from fedboost.ground.state import GrownList

T = TypeVar("T")

# A fact of a checkpoint, hex: what all parties of its stage that have kept the place have alike.
HISTORY = "history_sha256"
MODEL = "model"  # the artefact of stages that use a model: the party's own shard
DISCLOSURE = "disclosure"  # that of one that uses an earlier job's disclosure again


@dataclass(frozen=True)
class Artefact:
    """What a stage leaves in a party's own store: a checkpoint, an alignment, a model shard.

    `facts` is JSON, `arrays` are plain numpy arrays; neither ever travels.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    disclosure: Artefact | None = None  # beside it, what later jobs may use again
    transcript: Artefact | None = None  # and, since the last one, what an audit needs to know
    # Of a checkpoint, the lists that only grow; the store knows what it has of them
    grown: Mapping[str, GrownList] = field(default_factory=dict)

    @classmethod
    def of_state(cls, held: Any, transcript: Artefact | None = None, history: bytes = b"") -> Self:
        """Return a checkpoint of a dataclass (`ground.state`); `history` is its `HISTORY`."""
        from fedboost.ground.state import parted_state

        facts, arrays, grown = parted_state(type(held), held)
        if history:
            facts[HISTORY] = history.hex()
        return cls(facts, arrays, transcript=transcript, grown=grown)

    def whole(self) -> Artefact:
        """Return the same with all lists among facts and arrays, as a store gives it back."""
        from fedboost.ground.state import joined_state

        pieces = [column.since(0) for column in self.grown.values()]
        facts, arrays = joined_state(self.facts, self.arrays, pieces)
        return replace(self, facts=facts, arrays=arrays, grown={})

    def state(self, kind: type[T]) -> T:
        """Return what `of_state` has kept, of this kind."""
        from fedboost.ground.state import load_state

        kept = self.whole()
        return load_state(kind, kept.facts, kept.arrays)
