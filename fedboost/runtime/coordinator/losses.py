"""Training losses that grow from round to round, and the warning about them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise

from fedboost.messages.job_pb2 import Metric

# Losses that training lowers. Metrics that count wrong rows may rise while a loss falls.
LOSSES = ("logloss", "mlogloss", "rmse", "mae")
ROUNDS_GROWING = 3
GROWTH_MIN = 1e-3  # over these rounds, as a share: less can come from sampling
REMEDY = "lower learning_rate, or set max_delta_step"


class Losses:
    """The training losses of one stage, by metric and round."""

    def __init__(self) -> None:
        self._values: dict[str, dict[int, float]] = {}
        self._warned: set[tuple[str, bool]] = set()

    def add_metrics(self, done: int, metrics: Iterable[Metric]) -> Iterator[str]:
        """Add the metrics after round `done`, from 1; yield new warnings, each kind once."""
        for metric in metrics:
            if metric.split != "train" or metric.name not in LOSSES:
                continue
            by_round = self._values.setdefault(metric.name, {})
            by_round[done] = metric.value
            last = [by_round.get(done - back, math.nan) for back in range(ROUNDS_GROWING, -1, -1)]
            lost = not math.isfinite(metric.value)
            if not lost and not _is_growing(last):
                continue
            if (metric.name, lost) not in self._warned:
                self._warned.add((metric.name, lost))
                words = (
                    "is not a finite number" if lost else f"grew {ROUNDS_GROWING} rounds in a row"
                )
                yield f"the training {metric.name} {words}, up to round {done}: {REMEDY}"


def _is_growing(values: list[float]) -> bool:
    """Return whether each value is above the one before, and the last clearly above the first."""
    rising = all(before < other for before, other in pairwise(values))
    return rising and values[-1] - values[0] > GROWTH_MIN * abs(values[0])
