"""Possible releases of a job that waits for its owner."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedboost.flow import Releases
from fedboost.runtime.config.policy import Policy


@dataclass(frozen=True)
class Planned:
    """Possible releases of a job's sums to a guest, and earlier releases to the guest's group."""

    releases: Releases
    guest: str
    before: float
    rows: int  # that the last job on the table learnt from; 0 if there was none
    last: str  # that job, or ""

    @property
    def ratio(self) -> float:
        """Return the equations per row if the job has as many rows as the last one."""
        return self.releases.ratio(self.rows)

    @property
    def total(self) -> float:
        """Return the same with earlier releases."""
        return self.before + self.ratio

    def in_words(self, policy: Policy) -> str:
        """Describe possible releases of a waiting job, without the number of common rows."""
        sums, share = self.releases.whole, self.releases.by_row
        guest, before = self.guest, self.before
        if not sums and not share:
            return ""
        sentence = f"would release up to {sums:,} sums for each bin of a column to {guest}"
        if not sums:
            sentence = f"would tell {guest} as much as {share:.2g} sums per bin and row"
        if before:
            sentence += f", after {before:.2g} per row by earlier jobs"
        left = policy.disclosure_max - before
        if left <= share:
            return f"{sentence}: the policy allows no more"
        margin, below = policy.disclosure_warn - before, []
        if sums and left < math.inf:
            below.append(f"refused below {math.ceil(sums / left):,}")
        if sums and 0.0 < margin < math.inf:
            below.append(f"with a warning below {math.ceil(sums / margin):,}")
        return f"{sentence}: {', '.join(below)} rows in common" if below else sentence
