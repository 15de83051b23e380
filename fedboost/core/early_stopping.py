"""Early stopping: a job ends if its metric has not improved for some rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class EarlyStopping:
    """State of early stopping; with `patience` None it finds the best round but never stops."""

    patience: int | None
    bigger_is_better: bool
    seen: int = 0  # rounds measured
    best_round: int = -1  # from 0; -1 before the first number
    best: float | None = None

    def after(self, value: float) -> EarlyStopping:
        """Return the state after one more round; an equal value or NaN is not better."""
        better = not math.isnan(value) and (
            self.best is None or (value > self.best if self.bigger_is_better else value < self.best)
        )
        if better:
            return replace(self, seen=self.seen + 1, best_round=self.seen, best=value)
        return replace(self, seen=self.seen + 1)

    @property
    def stop(self) -> bool:
        """Return whether the last `patience` rounds brought no improvement."""
        return self.patience is not None and self.seen - 1 - self.best_round >= self.patience
