"""Which fresh statistics may have been opened, and over whom, in any attempt of a job."""

from __future__ import annotations

from dataclasses import dataclass

from fedboost.flow import Notebook

Parties = tuple[str, ...]


@dataclass(frozen=True)
class OpenedSums:
    """A party's own record; statistics that follow one another over the same parties are a run."""

    notebook: Notebook

    def over(self, fresh: int) -> Parties:
        """Return over whom a statistic is noted; nobody where it is not."""
        return next((over for first, last, over in self._runs if first <= fresh <= last), ())

    def note(self, fresh: int, parties: Parties) -> bool:
        """Note that a statistic is opened over parties; return False where it must not be.

        It was opened over others before, or later ones have been, and nobody knows whether it was.
        """
        runs, over = self._runs, self.over(fresh)
        if over or (runs and fresh <= runs[-1][1]):
            return over == parties
        if runs and runs[-1][1:] == (fresh - 1, parties):
            runs[-1] = (runs[-1][0], fresh, parties)
        else:
            runs.append((fresh, fresh, parties))
        self.notebook.write({"opened": [[first, last, list(over)] for first, last, over in runs]})
        return True

    @property
    def _runs(self) -> list[tuple[int, int, Parties]]:
        kept = self.notebook.read().get("opened", [])
        return [(first, last, tuple(over)) for first, last, over in kept]
