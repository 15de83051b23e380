"""State of a job from its events so far, with its description for displays of progress."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedboost.ground.printable import printable
from fedboost.messages.job_pb2 import Event, RoundDone, StateChanged, Waiting
from fedboost.report import units
from fedboost.report.steps import step_title
from fedboost.report.story import fault_lines, ordered_splits

RECENT_ROUNDS = 5  # that the estimate of the time left is taken from
WAIT_SHOWN_S = 3.0  # a shorter wait is not shown

ENDS = ("failed", "cancelled", "finished")
RESTING_STATES = ("paused", *ENDS)  # states in which nothing happens

Metrics = dict[str, dict[str, float]]  # by part of the rows and name


@dataclass
class JobProgress:
    """A job's status, derived from its events; times in seconds since 1970."""

    state: str = ""
    parties: list[str] = field(default_factory=list)  # parties whose approval is awaited
    reason: tuple[str, ...] = ()
    stage: str = ""
    step: str = ""
    round_name: str = "tree"
    batch_rows: int = 0  # of a prediction, if known
    done: int = 0
    of: int = 0
    metrics: Metrics = field(default_factory=dict)
    rounds: dict[int, Metrics] = field(default_factory=dict)  # reported metrics by round
    warnings: list[str] = field(default_factory=list)
    took: list[float] = field(default_factory=list)  # seconds of the rounds since the last start
    bytes: int = 0
    began: float = 0.0
    at: float = 0.0  # of the last event
    round_at: float = 0.0  # of the last round

    def event(self, event: Event) -> None:
        """Handle an event."""
        self.at = max(self.at, event.at)
        self.began = self.began or event.at
        what = event.WhichOneof("what")
        if what == "state":
            self._take_state(event.state)
        elif what == "step":
            self.stage, self.step = printable(event.step.stage), printable(event.step.step)
            self.bytes += sum(link.bytes for cost in event.step.costs for link in cost.sent)
        elif what == "round":
            self._take_round(event.round)
        elif what == "lost":
            lost = f"{printable(event.lost.party)} is lost; the job continues without it"
            self.warnings.append(lost)
        elif what == "warned":
            self.warnings.append(printable(event.warned.warning))

    def _take_state(self, changed: StateChanged) -> None:
        self.state = printable(changed.state)
        self.parties = [printable(party) for party in changed.parties]
        self.reason = tuple(printable(line) for line in fault_lines(changed.reason))
        self.took = []

    def _take_round(self, done: RoundDone) -> None:
        name = printable(done.progress.round) or "tree"
        if name != self.round_name:  # another stage: its rounds are counted anew
            self.took, self.rounds = [], {}
        self.round_name = name
        self.done, self.of = done.progress.done, done.progress.of
        self.took.append(done.seconds)
        self.round_at = self.at
        if done.metrics:
            self.metrics = {}
            for metric in done.metrics:
                by_name = self.metrics.setdefault(printable(metric.split), {})
                by_name[printable(metric.name)] = metric.value
            self.rounds[self.done] = self.metrics

    @property
    def _is_scoring(self) -> bool:
        return bool(self.batch_rows) and self.round_name == "batch"

    @property
    def rests(self) -> bool:
        """Return True if nothing happens any more, or only after a pause ends."""
        return self.state in RESTING_STATES

    @property
    def state_words(self) -> str:
        """Return the state, with the parties that must approve a waiting job."""
        waits = self.state == "waiting for approval" and self.parties
        return f"{self.state} by {', '.join(self.parties)}" if waits else self.state

    @property
    def count_words(self) -> str:
        """``tree 3 of 25``, or the step at hand where there are no rounds yet."""
        if self.of:
            return f"{self.round_name} {self.done} of {self.of}"
        if self._is_scoring:
            return f"{self.round_name} {self.done}"
        at = ": ".join(part for part in (self.stage, step_title(self.step)) if part)
        return at or self.state or "starting"

    @property
    def per_round(self) -> float | None:
        """Median seconds of the last rounds."""
        return statistics.median(self.took[-RECENT_ROUNDS:]) if self.took else None

    def left(self, now: float) -> float | None:
        """Return seconds until the last round ends, if the next rounds are like the last ones."""
        per_round = self.per_round
        if per_round is None or not self.of:
            return None
        return max(0.0, (self.of - self.done) * per_round - max(0.0, now - self.round_at))

    def pace_words(self, now: float) -> str:
        """Return seconds a round, bytes so far, time so far and left; empty before anything is
        known.
        """
        words = []
        if self.per_round is not None:
            words.append(f"{units.in_seconds(self.per_round)} a {self.round_name}")
            if (
                self._is_scoring and self.per_round and self.done != self.of
            ):  # the last has fewer rows
                rate = round(self.batch_rows / self.per_round)
                words.append(f"{units.in_count(rate)} rows a second")
        if self.bytes:
            words.append(f"{units.in_bytes(self.bytes)} sent")
        if self.began:
            took = units.in_seconds(float(round(max(0.0, now - self.began))))
            words.append(f"{took} in all" if self.state in ENDS else f"{took} so far")
        left = self.left(now)
        if left is not None and self.done < self.of:
            words.append(f"about {units.in_seconds(float(round(left)))} left")
        return ", ".join(words)


def waiting_words(waiting: Sequence[Waiting], now: float) -> str:
    """Return the step and parties with the longest wait; empty if the wait is short."""
    if not waiting:
        return ""
    first = min(waiting, key=lambda entry: entry.since)
    since = max(0.0, now - first.since)
    if since < WAIT_SHOWN_S:
        return ""
    parties = ", ".join(printable(entry.party) for entry in waiting if entry.step == first.step)
    step = step_title(printable(first.step))
    return f"waiting for {parties}, {step}, {units.in_seconds(float(round(since)))}"


def metric_words(metrics: Mapping[str, Mapping[str, float]]) -> str:
    """Return ``train auc 0.8431, validation auc 0.8012``; empty without metrics."""
    return ", ".join(
        f"{split} {name} {units.metric_text(value)}"
        for split in ordered_splits(metrics)
        for name, value in metrics[split].items()
    )
