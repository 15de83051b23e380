"""Possible releases of a job that waits for its owner."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedboost.flow import Releases


@dataclass(frozen=True)
class Planned:
    """Possible releases of a job's sums to a guest, and earlier releases to the guest's group,
    beside the policy's limits: sums per bin and row.
    """

    releases: Releases
    guest: str
    before: float
    rows: int  # that the last job on the table learnt from; 0 if there was none
    last: str  # that job, or ""
    limit: float  # the policy refuses more; may be inf
    warning: float  # above it the owner is warned; may be inf

    @property
    def ratio(self) -> float:
        """Return the equations per row if the job has as many rows as the last one."""
        return self.releases.ratio(self.rows)

    @property
    def total(self) -> float:
        """Return the same with earlier releases."""
        return self.before + self.ratio

    @property
    def is_over(self) -> bool:
        """Return True if the jobs together pass the limit."""
        return self.total > self.limit

    def excess_in_words(self) -> str:
        """Say how far the jobs pass the limit."""
        earlier = f", of which earlier jobs used {percent_text(self.before, self.limit)}"
        return (
            f"With {self.rows:,} rows in common, as in {self.last}, it needs "
            f"{percent_text(self.total, self.limit)} of the budget{earlier * (self.before > 0)}."
        )

    def in_words(self) -> str:
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
        left = self.limit - before
        if left <= share:
            return f"{sentence}: the policy allows no more"
        margin, below = self.warning - before, []
        if sums and left < math.inf:
            below.append(f"refused below {math.ceil(sums / left):,}")
        if sums and 0.0 < margin < math.inf:
            below.append(f"with a warning below {math.ceil(sums / margin):,}")
        return f"{sentence}: {', '.join(below)} rows in common" if below else sentence


def percent_text(part: float, total: float) -> str:
    """Format a part of a limit, rounded up; the part itself of a limit that is 0 or inf."""
    return f"{math.ceil(100 * part / total)} %" if 0 < total < math.inf else f"{part:.2g}"
