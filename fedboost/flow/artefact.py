"""Results of a stage in a party's own store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:  # a coordinator knows no tables
    import numpy as np
    from numpy.typing import NDArray

    from fedboost.ground.state import GrownList

T = TypeVar("T")

# A fact of a checkpoint, hex: equal at all parties of its stage that have kept the place.
HISTORY = "history_sha256"
MODEL = "model"  # the artefact of stages that use a model: the party's own shard
DISCLOSURE = "disclosure"  # the artefact of a job that uses an earlier disclosure again


@dataclass(frozen=True)
class Artefact:
    """Result of a stage in a party's own store: a checkpoint, an alignment, a model shard.

    `facts` is JSON, `arrays` are plain numpy arrays; neither ever travels.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    disclosure: Artefact | None = None  # a disclosure that later jobs may use again
    transcript: Artefact | None = None  # facts for an audit, since the last one
    # Lists of a checkpoint that only grow; the store knows which values it has
    grown: Mapping[str, GrownList] = field(default_factory=dict)

    @classmethod
    def from_state(
        cls, held: Any, transcript: Artefact | None = None, history: bytes = b""
    ) -> Self:
        """Return a checkpoint of a dataclass (`ground.state`); `history` is its `HISTORY`."""
        from fedboost.ground.state import split_state

        facts, arrays, grown = split_state(type(held), held)
        if history:
            facts[HISTORY] = history.hex()
        return cls(facts, arrays, transcript=transcript, grown=grown)

    def whole(self) -> Artefact:
        """Return the artefact with all lists among facts and arrays, as a store gives it back."""
        from fedboost.ground.state import join_state

        pieces = [column.since(0) for column in self.grown.values()]
        facts, arrays = join_state(self.facts, self.arrays, pieces)
        return replace(self, facts=facts, arrays=arrays, grown={})

    def state(self, kind: type[T]) -> T:
        """Return the state of class `kind` that `from_state` kept."""
        from fedboost.ground.state import load_state

        kept = self.whole()
        return load_state(kind, kept.facts, kept.arrays)
