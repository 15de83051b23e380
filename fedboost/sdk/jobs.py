"""Status, events and metrics of a job, for Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.json_format import MessageToDict

from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, JobError
from fedboost.messages import job_pb2
from fedboost.messages.fault_pb2 import Fault
from fedboost.report import units
from fedboost.report.html import tag
from fedboost.report.seen import metric_words
from fedboost.report.story import Story, ordered_splits
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport import faults

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
UNDER_WAY = (JobState.WAITING, JobState.QUEUED, JobState.RUNNING)

Metrics = dict[str, dict[str, float]]  # {"train": {"auc": 0.8}, "validation": …}


@dataclass(frozen=True)
class Waiting:
    """A party that works or must answer, with its step and the start time (UTC)."""

    party: str
    step: str
    since: datetime


@dataclass(frozen=True)
class Status:
    """A job's status; times in UTC."""

    id: str
    name: str
    protocol: str
    state: str  # waiting for approval | running | paused | failed | cancelled | finished
    done: int  # rounds of `of`, called `round`; 0 of 0 before the first
    of: int
    round: str
    attempt: int
    submitter: str
    created: datetime
    updated: datetime
    waiting: tuple[Waiting, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: FedboostError | None = None  # why it is paused, failed or cancelled

    @property
    def rests(self) -> bool:
        """Return True if the job has ended or is paused."""
        return self.state not in UNDER_WAY

    def __str__(self) -> str:
        """Return one line for people."""
        words = [f"{self.id} ({self.protocol}) is {self.state}"]
        words += [f"{self.round} {self.done} of {self.of}"] if self.of else []
        words += [f"waiting for {entry.party}, {entry.step}" for entry in self.waiting]
        return ", ".join(words) + ("" if self.reason is None else f": {self.reason.what}")

    @classmethod
    def of_message(cls, message: job_pb2.JobStatus) -> Status:
        """Read a coordinator's message."""
        return dataclass_of_message(
            cls,
            message,
            done=message.progress.done,
            of=message.progress.of,
            round=message.progress.round,
            created=utc_time(message.created),
            updated=utc_time(message.updated),
            waiting=tuple(
                Waiting(entry.party, entry.step, utc_time(entry.since)) for entry in message.waiting
            ),
            warnings=tuple(message.warnings),
            reason=faults.error_of_fault(message.reason) if message.HasField("reason") else None,
        )


@dataclass(frozen=True)
class Event:
    """An entry of a job's journal."""

    number: int  # from 1
    at: datetime  # UTC
    what: str  # state | step | round | stage | finished | lost | warned
    facts: dict[str, Any] = field(repr=False)  # the event's values, by name

    @classmethod
    def of_message(cls, message: job_pb2.Event) -> Event:
        """Read a coordinator's message."""
        what = message.WhichOneof("what") or ""
        facts = _FACTS[what](getattr(message, what)) if what in _FACTS else {}
        return cls(message.number, utc_time(message.at), what, facts)

    def __str__(self) -> str:
        """Return one line for people."""
        words = _WORDS.get(self.what)
        return self.what if words is None else words(self.facts)


class RoundMetrics(Sequence[dict[str, Any]]):
    """A job's metrics, a row for each round: ``{"tree": 1, "seconds": 0.4, "train auc": 0.81, …}``.

    pandas.DataFrame, polars.DataFrame and pyarrow.table read it directly.
    """

    def __init__(self, story: Story) -> None:
        name = story.round_name
        metrics = {key: None for summary in story.rounds for key in summary.metrics}
        splits = ordered_splits({split: None for _, split in metrics})
        keys = sorted(metrics, key=lambda key: splits.index(key[1]))
        self.columns = (name, "seconds", *(f"{split} {metric}" for metric, split in keys))
        self._rows = [
            (summary.done, summary.seconds, *(summary.metrics.get(key) for key in keys))
            for summary in story.rounds
        ]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        rows = self._rows[place]
        if isinstance(place, slice):
            return [dict(zip(self.columns, row, strict=True)) for row in rows]
        return dict(zip(self.columns, rows, strict=True))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[place] for place in range(len(self)))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the table through Arrow's C stream interface."""
        import pyarrow as pa

        cells = {name: [row[k] for row in self._rows] for k, name in enumerate(self.columns)}
        return pa.table(cells).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        lines = [self.columns, *(self._row_cells(row) for row in self._rows)]
        wide = [max(len(line[k]) for line in lines) for k in range(len(self.columns))]
        return "\n".join(
            "  ".join(cell.rjust(size) for cell, size in zip(line, wide, strict=True))
            for line in lines
        )

    def _repr_html_(self) -> str:
        heads = tag("tr", *(tag("th", name, scope="col") for name in self.columns))
        rows = [
            tag("tr", *(tag("td", cell) for cell in self._row_cells(row))) for row in self._rows
        ]
        return tag("table", tag("thead", heads), tag("tbody", *rows))

    def _row_cells(self, row: tuple[Any, ...]) -> tuple[str, ...]:
        metrics = (
            units.NOTHING if value is None else units.metric_text(value) for value in row[2:]
        )
        return (str(row[0]), units.in_seconds(row[1]), *metrics)


def error_of_status(status: job_pb2.JobStatus) -> FedboostError:
    """Return the error that ended a job, or a JobError for an unfinished one."""
    if status.state in UNDER_WAY:
        return JobError(f"the job is {status.state}", todo="wait for it: job.wait()", job=status.id)
    error = faults.error_of_fault(status.reason)
    if status.state == JobState.PAUSED and not error.todo:
        error.todo = "call job.resume() when all parties are reachable"
    return error.at(job=status.id)


def utc_time(at: float) -> datetime:
    """Return seconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(at, UTC)


def dataclass_of_message(kind: type[T], message: Any, **others: Any) -> T:
    """Return the dataclass `kind` with the fields of a message, except for the `others` given."""
    names = [field.name for field in fields(kind) if field.name not in others]
    return kind(**{name: getattr(message, name) for name in names}, **others)


def metrics_of(metrics: Sequence[job_pb2.Metric]) -> Metrics:
    """Return metrics by part of the rows and name."""
    by_split: Metrics = {}
    for metric in metrics:
        by_split.setdefault(metric.split, {})[metric.name] = metric.value
    return by_split


# Content of events by kind: as names and values, and in words.


def _state_facts(change: job_pb2.StateChanged) -> dict[str, Any]:
    return {"state": change.state, "parties": list(change.parties), **_reason_facts(change.reason)}


def _reason_facts(fault: Fault) -> dict[str, Any]:
    return {"reason": faults.error_of_fault(fault)} if fault.what else {}


def _step_facts(done: job_pb2.StepDone) -> dict[str, Any]:
    sent = {f"{cost.party}->{link.peer}": link.bytes for cost in done.costs for link in cost.sent}
    cpu = {cost.party: cost.cpu_seconds for cost in done.costs}
    facts = {"stage": done.stage, "step": done.step, "seconds": done.seconds}
    return {**facts, "calls": done.calls or 1, "cpu_seconds": cpu, "bytes": sent}


def _round_facts(done: job_pb2.RoundDone) -> dict[str, Any]:
    progress = {"round": done.progress.round, "done": done.progress.done, "of": done.progress.of}
    figures = {"seconds": done.seconds, "metrics": metrics_of(done.metrics)}
    return {"stage": done.stage, **progress, **figures}


def _message_fields(message: Any) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True)


def _state_words(facts: Mapping[str, Any]) -> str:
    waits = facts["state"] == JobState.WAITING and facts["parties"]
    by = f" by {', '.join(facts['parties'])}" if waits else ""
    why = f": {facts['reason'].what}" if "reason" in facts else ""
    return f"{facts['state']}{by}{why}"


def _step_words(facts: Mapping[str, Any]) -> str:
    return f"{facts['stage']} {facts['step']} ({units.in_seconds(facts['seconds'])})"


def _round_words(facts: Mapping[str, Any]) -> str:
    count = f"{facts['round']} {facts['done']} of {facts['of']}"
    words = [count, metric_words(facts["metrics"]), units.in_seconds(facts["seconds"])]
    return ", ".join(word for word in words if word)


_FACTS: dict[str, Any] = {
    "state": _state_facts,
    "step": _step_facts,
    "round": _round_facts,
    "stage": lambda done: {"stage": done.stage, "seconds": done.seconds},
    "finished": lambda done: {"result": wire.json_object(done.result, "the job's result")},
    "lost": _message_fields,
    "warned": _message_fields,
}
_WORDS: dict[str, Any] = {
    "state": _state_words,
    "step": _step_words,
    "round": _round_words,
    "finished": lambda _: "the result is there",
    "stage": lambda facts: f"stage {facts['stage']} done in {units.in_seconds(facts['seconds'])}",
    "lost": lambda facts: f"{facts['party']} is lost; the job continues without it",
    "warned": lambda facts: f"{facts['party']} is warned: {facts['warning']}",
}
