"""Warnings that somebody outside can cause at will: a few a minute reach the log."""

from __future__ import annotations

import logging

from fedboost.runtime.process.clock import monotonic_s

RARE_WARNINGS_MAX = 20  # in each period, so that nobody fills the disk by being refused
WARNED_AGAIN_S = 60.0


class RareWarnings:
    """A log for warnings of one kind; it says how many it has left out."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._since, self._logged, self._left_out = monotonic_s(), 0, 0

    def warn(self, text: str, *values: object) -> None:
        """Log a warning, or count it where this period has had too many."""
        if monotonic_s() - self._since >= WARNED_AGAIN_S:
            if self._left_out:
                self._log.warning("%d more warnings of this kind were left out", self._left_out)
            self._since, self._logged, self._left_out = monotonic_s(), 0, 0
        if self._logged < RARE_WARNINGS_MAX:
            self._logged += 1
            self._log.warning(text, *values)
        else:
            self._left_out += 1
