"""What a job says of itself, as Python reads it: its status, its events, its metrics by round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from google.protobuf.json_format import MessageToDict

from fedboost import wire
from fedboost.errors import FedboostError, JobError
from fedboost.messages import job_pb2
from fedboost.messages.fault_pb2 import Fault
from fedboost.report import units
from fedboost.report.html import tag
from fedboost.report.seen import metric_words
from fedboost.report.story import Story, in_order
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport import faults

UNDER_WAY = (JobState.WAITING, JobState.QUEUED, JobState.RUNNING)

Metrics = dict[str, dict[str, float]]  # {"train": {"auc": 0.8}, "validation": …}


@dataclass(frozen=True)
class Waiting:
    """A party that works or has to answer, at what, since when (UTC)."""

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
        """True if it has ended, or is paused."""
        return self.state not in UNDER_WAY

    def __str__(self) -> str:
        """Return one line for people."""
        words = [f"{self.id} ({self.protocol}) is {self.state}"]
        words += [f"{self.round} {self.done} of {self.of}"] if self.of else []
        words += [f"waiting for {one.party}, {one.step}" for one in self.waiting]
        return ", ".join(words) + ("" if self.reason is None else f": {self.reason.what}")

    @classmethod
    def of_message(cls, said: job_pb2.JobStatus) -> Status:
        """Read a coordinator's message."""
        return cls(
            id=said.id,
            name=said.name,
            protocol=said.protocol,
            state=said.state,
            done=said.progress.done,
            of=said.progress.of,
            round=said.progress.round,
            attempt=said.attempt,
            submitter=said.submitter,
            created=moment(said.created),
            updated=moment(said.updated),
            waiting=tuple(Waiting(one.party, one.step, moment(one.since)) for one in said.waiting),
            warnings=tuple(said.warnings),
            reason=faults.from_message(said.reason) if said.HasField("reason") else None,
        )


@dataclass(frozen=True)
class Event:
    """An entry of a job's journal."""

    number: int  # from 1
    at: datetime  # UTC
    what: str  # state | step | round | stage | finished | lost | warned
    facts: dict[str, Any] = field(repr=False)  # what it says, by name

    @classmethod
    def of_message(cls, said: job_pb2.Event) -> Event:
        """Read a coordinator's message."""
        what = said.WhichOneof("what") or ""
        facts = _FACTS[what](getattr(said, what)) if what in _FACTS else {}
        return cls(said.number, moment(said.at), what, facts)

    def __str__(self) -> str:
        """Return one line for people."""
        words = _WORDS.get(self.what)
        return self.what if words is None else words(self.facts)


class RoundMetrics(Sequence[dict[str, Any]]):
    """A job's metrics, a row for each round: ``{"tree": 1, "seconds": 0.4, "train auc": 0.81, …}``.

    pandas.DataFrame, polars.DataFrame and pyarrow.table take it as it is.
    """

    def __init__(self, story: Story) -> None:
        name = story.round_name
        told = {key: None for one in story.rounds for key in one.metrics}
        splits = in_order({split: None for _, split in told})
        keys = sorted(told, key=lambda key: splits.index(key[1]))
        self.columns = (name, "seconds", *(f"{split} {metric}" for metric, split in keys))
        self._rows = [
            (one.done, one.seconds, *(one.metrics.get(key) for key in keys)) for one in story.rounds
        ]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        found = self._rows[place]
        if isinstance(place, slice):
            return [dict(zip(self.columns, row, strict=True)) for row in found]
        return dict(zip(self.columns, found, strict=True))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[place] for place in range(len(self)))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table as every library reads it that knows Arrow's C stream interface."""
        import pyarrow as pa

        cells = {name: [row[k] for row in self._rows] for k, name in enumerate(self.columns)}
        return pa.table(cells).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        lines = [self.columns, *(self._shown(row) for row in self._rows)]
        wide = [max(len(line[k]) for line in lines) for k in range(len(self.columns))]
        return "\n".join(
            "  ".join(cell.rjust(size) for cell, size in zip(line, wide, strict=True))
            for line in lines
        )

    def _repr_html_(self) -> str:
        heads = tag("tr", *(tag("th", name, scope="col") for name in self.columns))
        rows = [tag("tr", *(tag("td", cell) for cell in self._shown(row))) for row in self._rows]
        return tag("table", tag("thead", heads), tag("tbody", *rows))

    def _shown(self, row: tuple[Any, ...]) -> tuple[str, ...]:
        metrics = (units.NOTHING if value is None else units.measured(value) for value in row[2:])
        return (str(row[0]), units.in_seconds(row[1]), *metrics)


def ended(said: job_pb2.JobStatus) -> FedboostError:
    """Why a job has no result, as the error that ended it."""
    if said.state in UNDER_WAY:
        return JobError(f"the job is {said.state}", todo="wait for it: job.wait()", job=said.id)
    error = faults.from_message(said.reason)
    if said.state == JobState.PAUSED and not error.todo:
        error.todo = "job.resume(), once everybody is there"
    return error.at(job=said.id)


def moment(at: float) -> datetime:
    """Seconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(at, UTC)


def metrics_of(metrics: Sequence[job_pb2.Metric]) -> Metrics:
    """Return metrics by part of the rows and name."""
    found: Metrics = {}
    for metric in metrics:
        found.setdefault(metric.split, {})[metric.name] = metric.value
    return found


# What the events say, by kind: as names and values, and in words.


def _state(said: job_pb2.StateChanged) -> dict[str, Any]:
    return {"state": said.state, "parties": list(said.parties), **_reason(said.reason)}


def _reason(fault: Fault) -> dict[str, Any]:
    return {"reason": faults.from_message(fault)} if fault.what else {}


def _step(said: job_pb2.StepDone) -> dict[str, Any]:
    sent = {f"{cost.party}->{link.peer}": link.bytes for cost in said.costs for link in cost.sent}
    cpu = {cost.party: cost.cpu_seconds for cost in said.costs}
    told = {"stage": said.stage, "step": said.step, "seconds": said.seconds}
    return {**told, "calls": said.calls or 1, "cpu_seconds": cpu, "bytes": sent}


def _round(said: job_pb2.RoundDone) -> dict[str, Any]:
    progress = {"round": said.progress.round, "done": said.progress.done, "of": said.progress.of}
    own = {"seconds": said.seconds, "metrics": metrics_of(said.metrics)}
    return {"stage": said.stage, **progress, **own}


def _stage(said: job_pb2.StageDone) -> dict[str, Any]:
    return {"stage": said.stage, "seconds": said.seconds}


def _finished(said: job_pb2.Finished) -> dict[str, Any]:
    return {"result": wire.json_object(said.result, "the job's result")}


def _fields(said: Any) -> dict[str, Any]:
    found: dict[str, Any] = MessageToDict(said, preserving_proto_field_name=True)
    return found


def _state_words(facts: Mapping[str, Any]) -> str:
    asked = facts["state"] == JobState.WAITING and facts["parties"]
    by = f" by {', '.join(facts['parties'])}" if asked else ""
    why = f": {facts['reason'].what}" if "reason" in facts else ""
    return f"{facts['state']}{by}{why}"


def _step_words(facts: Mapping[str, Any]) -> str:
    return f"{facts['stage']} {facts['step']} ({units.in_seconds(facts['seconds'])})"


def _round_words(facts: Mapping[str, Any]) -> str:
    count = f"{facts['round']} {facts['done']} of {facts['of']}"
    words = [count, metric_words(facts["metrics"]), units.in_seconds(facts["seconds"])]
    return ", ".join(word for word in words if word)


_FACTS: dict[str, Any] = {
    "state": _state,
    "step": _step,
    "round": _round,
    "stage": _stage,
    "finished": _finished,
    "lost": _fields,
    "warned": _fields,
}
_WORDS: dict[str, Any] = {
    "state": _state_words,
    "step": _step_words,
    "round": _round_words,
    "finished": lambda _: "the result is there",
    "stage": lambda facts: f"stage {facts['stage']} done in {units.in_seconds(facts['seconds'])}",
    "lost": lambda facts: f"{facts['party']} is lost, the job goes on without it",
    "warned": lambda facts: f"{facts['party']} is warned: {facts['warning']}",
}
