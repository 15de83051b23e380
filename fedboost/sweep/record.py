"""Record of a sweep's jobs and their ranking, as a file from which a later run continues."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from fedboost.ground.errors import ConfigError
from fedboost.ground.formats import SWEEP_FORMAT
from fedboost.ground.settings import Settings, parse_settings
from fedboost.sweep.plan import Earlier, Sweep, SweepJob, Trial

FINISHED, PAUSED, FAILED = "finished", "paused", "failed"
VALIDATION, TRAIN = "validation", "train"


class SweepEntry(Settings):
    """A job of the sweep with its outcome so far."""

    job: str | None = None  # its id, once it is handed in
    state: str = "waiting"
    metrics: dict[str, dict[str, float]] = Field(default_factory=dict)  # by part, as in a result
    seconds: float = 0.0
    trees: int = 0
    released: dict[str, float] = Field(default_factory=dict)  # sums per bin and row, by host
    error: dict[str, Any] | None = None  # error of a job that did not finish
    code: int = 0  # exit code of the job

    def value(self, metric: str, part: str = VALIDATION) -> float:
        """Return a metric; NaN if it is missing."""
        return self.metrics.get(part, {}).get(metric, math.nan)


class SweepFile(Settings):
    """The record file of a sweep."""

    format: int = SWEEP_FORMAT
    digest: str  # of the sweep
    alignment: str | None = None
    reuse: str | None = None
    members: dict[str, SweepEntry] = Field(default_factory=dict)
    best: SweepEntry | None = None  # of --fit-best


@dataclass
class SweepRecord:
    """The jobs of a sweep and their outcomes; `keep` writes it."""

    sweep: Sweep
    entries: dict[str, SweepEntry] = field(default_factory=dict)
    earlier: Earlier = field(default_factory=Earlier)
    best: SweepEntry | None = None

    def of(self, member: SweepJob) -> SweepEntry:
        """Return a member's entry; a new one if nothing has happened yet."""
        return self.entries.get(member.key, SweepEntry())

    def text(self) -> bytes:
        """Return the record file."""
        kept = SweepFile(
            digest=self.sweep.digest,
            alignment=self.earlier.alignment,
            reuse=self.earlier.reuse,
            members=self.entries,
            best=self.best,
        )
        return kept.model_dump_json(indent=1).encode()

    @classmethod
    def read(cls, sweep: Sweep, text: bytes, **where: str) -> SweepRecord:
        """Read the record in a file; raise ConfigError if it belongs to another sweep."""
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError):
            raise ConfigError(
                "the record of the sweep is no JSON", todo="move it away, to begin anew", **where
            ) from None
        kept = parse_settings(SweepFile, raw, **where)
        if kept.format != SWEEP_FORMAT or kept.digest != sweep.digest:
            raise ConfigError(
                "the record belongs to another sweep: the job file has changed since this "
                "sweep began",
                todo="put the old file back, or choose another folder with --out",
                **where,
            )
        return cls(sweep, dict(kept.members), Earlier(kept.alignment, kept.reuse), kept.best)

    @property
    def state(self) -> str:
        """Return `finished` if every job is, otherwise the state of the first other job."""
        states = [self.of(member).state for member in self.sweep.members]
        return next((state for state in states if state != FINISHED), FINISHED)

    @property
    def code(self) -> int:
        """Return the exit code of the first job that did not finish."""
        entries = [self.of(member) for member in self.sweep.members]
        if self.best is not None:
            entries.append(self.best)
        return next((entry.code or 1 for entry in entries if entry.state != FINISHED), 0)

    def standings(self) -> list[TrialResult]:
        """Return every trial, the best one first; trials with unfinished jobs last, unranked."""
        metric = self.sweep.metric
        standings = []
        for trial in self.sweep.trials:
            entries = [self.of(m) for m in self.sweep.members if m.trial.number == trial.number]
            standings.append(TrialResult(trial, tuple(entries), metric))
        sign = -1.0 if self.sweep.bigger_is_better else 1.0
        complete = sorted(
            (s for s in standings if s.is_whole), key=lambda s: (sign * s.mean, s.number)
        )
        ranked = [replace(standing, rank=place) for place, standing in enumerate(complete, 1)]
        return [*ranked, *(standing for standing in standings if not standing.is_whole)]

    def said(self) -> dict[str, Any]:
        """Return the sweep in the form printed by `--json`."""
        standings = self.standings()
        best = next((standing for standing in standings if standing.rank == 1), None)
        return {
            "name": self.sweep.base.name,
            "protocol": self.sweep.base.protocol,
            "state": self.state,
            "metric": self.sweep.metric,
            "folds": self.sweep.settings.folds,
            "alignment": self.earlier.alignment,
            "reuse": self.earlier.reuse,
            "trials": [standing.said() for standing in standings],
            "best": None if best is None else best.said(),
            **({"fit": _fit_fields(self.best)} if self.best is not None else {}),
        }


@dataclass(frozen=True)
class TrialResult:
    """A trial with the results of its folds."""

    trial: Trial
    entries: tuple[SweepEntry, ...]  # by fold
    metric: str
    rank: int | None = None  # from 1; None where a job of it is missing

    @property
    def number(self) -> int:
        """Number of the trial."""
        return self.trial.number

    @property
    def is_whole(self) -> bool:
        """Return True if every job has finished and measured."""
        done = all(entry.state == FINISHED for entry in self.entries)
        return done and not math.isnan(self.mean)

    @property
    def mean(self) -> float:
        """Mean of the metric on held-out rows over folds; NaN where one is missing."""
        return self.mean_of(VALIDATION)

    @property
    def std(self) -> float:
        """Standard deviation over folds, as scikit-learn and xgboost.cv have it: 0 for one fold."""
        return self.std_of(VALIDATION)

    def mean_of(self, part: str) -> float:
        """Return the mean over folds, on held out or on training rows."""
        return statistics.fmean(self.values(part))

    def std_of(self, part: str) -> float:
        """Return the standard deviation over all folds (population, not sample)."""
        values = self.values(part)
        return math.nan if any(map(math.isnan, values)) else statistics.pstdev(values)

    def values(self, part: str) -> list[float]:
        """Return the values of a part of the rows, one for each fold."""
        return [entry.value(self.metric, part) for entry in self.entries]

    @property
    def seconds(self) -> float:
        """Seconds that all its jobs took."""
        return sum(entry.seconds for entry in self.entries)

    def said(self) -> dict[str, Any]:
        """Return the trial as `--json` prints it; unknown values are null."""
        return {
            "trial": self.number,
            "params": self.trial.values,
            "rank": self.rank,
            "state": next((e.state for e in self.entries if e.state != FINISHED), FINISHED),
            "mean": _number_or_null(self.mean),
            "std": _number_or_null(self.std),
            "train_mean": _number_or_null(self.mean_of(TRAIN)),
            "train_std": _number_or_null(self.std_of(TRAIN)),
            "values": [_number_or_null(value) for value in self.values(VALIDATION)],
            "seconds": self.seconds,
            "jobs": [entry.job for entry in self.entries],
            **_error_fields(self.entries),
        }


def entry_of_result(result: Mapping[str, Any], job: str) -> SweepEntry:
    """Return the entry of a finished job, from its result."""
    released = result.get("released") or {}
    return SweepEntry(
        job=job,
        state=FINISHED,
        metrics=result["metrics"],
        seconds=float(result["seconds"]["total"]),
        trees=result.get("trees", 0),
        released={host: float(numbers["counted"]) for host, numbers in released.items()},
    )


def load_record(sweep: Sweep, path: Path) -> SweepRecord:
    """Read the record in a file; return a new one if the file is missing."""
    if not path.is_file():
        return SweepRecord(sweep)
    return SweepRecord.read(sweep, path.read_bytes(), file=str(path))


def _fit_fields(entry: SweepEntry) -> dict[str, Any]:
    return {"job": entry.job, "state": entry.state, "model": entry.job, "metrics": entry.metrics}


def _error_fields(entries: tuple[SweepEntry, ...]) -> dict[str, Any]:
    errors = [entry.error for entry in entries if entry.error is not None]
    return {"errors": errors} if errors else {}


def _number_or_null(value: float) -> float | None:
    return None if math.isnan(value) else value
