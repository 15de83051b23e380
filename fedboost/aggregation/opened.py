"""Which fresh statistics may have been opened, and over whom, in any attempt of a job."""

from __future__ import annotations

from dataclasses import dataclass

from fedboost.flow import Notebook

Parties = tuple[str, ...]
Run = tuple[int, int, Parties]  # the first and the last of statistics, and over whom


@dataclass(frozen=True)
class OpenedSums:
    """A party's own record; statistics that follow one another over the same parties are a run."""

    notebook: Notebook

    def over(self, fresh: int) -> Parties:
        """Return over whom a statistic is noted; nobody where it is not."""
        return _over(self._runs, fresh)

    def note(self, fresh: int, parties: Parties) -> bool:
        """Note that a statistic is opened over parties; return False where it must not be.

        It was opened over others before, or later ones have been, and nobody knows whether it was.
        """
        runs = self._runs
        over = _over(runs, fresh)
        if over or (runs and fresh <= runs[-1][1]):
            return over == parties
        if runs and runs[-1][1:] == (fresh - 1, parties):
            runs[-1] = (runs[-1][0], fresh, parties)
        else:
            runs.append((fresh, fresh, parties))
        self.notebook.write({"opened": [[first, last, list(over)] for first, last, over in runs]})
        return True

    @property
    def _runs(self) -> list[Run]:
        kept = self.notebook.read().get("opened", [])
        return [(first, last, tuple(over)) for first, last, over in kept]


def _over(runs: list[Run], fresh: int) -> Parties:
    return next((over for first, last, over in runs if first <= fresh <= last), ())
