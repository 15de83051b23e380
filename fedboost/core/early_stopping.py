"""When to stop: a metric that has not improved for so many rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class EarlyStopping:
    """The best round so far; `patience` None watches for the best but never stops."""

    patience: int | None
    bigger_is_better: bool
    seen: int = 0  # rounds measured
    best_round: int = -1  # from 0; -1 before the first number
    best: float | None = None

    def after(self, value: float) -> EarlyStopping:
        """The state after one more round with this metric; equal is not better, nor is NaN."""
        better = not math.isnan(value) and (
            self.best is None or (value > self.best if self.bigger_is_better else value < self.best)
        )
        if better:
            return replace(self, seen=self.seen + 1, best_round=self.seen, best=value)
        return replace(self, seen=self.seen + 1)

    @property
    def stop(self) -> bool:
        """Return whether the last `patience` rounds brought nothing better."""
        return self.patience is not None and self.seen - 1 - self.best_round >= self.patience
