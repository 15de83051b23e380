"""Record of the fresh statistics that may have been opened in any attempt, with their parties."""

from __future__ import annotations

from dataclasses import dataclass

from fedboost.flow import Notebook

PartyNames = tuple[str, ...]
StatisticRun = tuple[int, int, PartyNames]  # the first and the last statistic, and their parties


@dataclass(frozen=True)
class OpenedSums:
    """A party's own record; statistics that follow one another over the same parties are a run."""

    notebook: Notebook

    def parties_of(self, fresh: int) -> PartyNames:
        """Return the parties of a statistic; empty if it is not recorded."""
        return _parties_in_runs(self._recorded_runs, fresh)

    def note(self, fresh: int, parties: PartyNames) -> bool:
        """Record that a statistic is opened over parties; return False if it must not be.

        It must not be opened if it was opened over other parties before, or if later ones were
        opened and its own opening is unknown.
        """
        runs = self._recorded_runs
        over = _parties_in_runs(runs, fresh)
        if over or (runs and fresh <= runs[-1][1]):
            return over == parties
        if runs and runs[-1][1:] == (fresh - 1, parties):
            runs[-1] = (runs[-1][0], fresh, parties)
        else:
            runs.append((fresh, fresh, parties))
        self.notebook.write({"opened": [[first, last, list(over)] for first, last, over in runs]})
        return True

    @property
    def _recorded_runs(self) -> list[StatisticRun]:
        kept = self.notebook.read().get("opened", [])
        return [(first, last, tuple(over)) for first, last, over in kept]


def _parties_in_runs(runs: list[StatisticRun], fresh: int) -> PartyNames:
    return next((over for first, last, over in runs if first <= fresh <= last), ())
