"""Facts of a job for the report, from its journal, read once and checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import ConfigDict, Field, ValidationError

from fedboost import protocols
from fedboost.flow import Protocol, Role, RowsUsed
from fedboost.ground import wire
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.ground.settings import Settings, parse_settings
from fedboost.messages.fault_pb2 import Fault
from fedboost.messages.job_pb2 import Curve, Event, JobJournal, JobStatus, StatusReport, StepDone
from fedboost.report.states import person_of

CURVE_POINTS_MAX = 10_000  # of one curve; guests thin theirs out to a few hundred
COLOURS = 6  # of the style sheet, the last for all further items
SPLITS = ("train", "validation")  # order of parts of the rows

Point = tuple[float, float]


class JobRehearsal(Settings):
    """Verdict of default policies on a job, and the models without a federation."""

    model_config = ConfigDict(extra="ignore")

    metric: str | None = None
    guest_alone: float | None = None
    alone: dict[str, float | None] | None = None  # by party, of a job that all of them train
    federated: float | None = None
    accepted: bool
    refused_by: str | None = None
    jobs_left: int | None = None
    change: str | None = None
    cost: str | None = None
    group_rows_min: int | None = None


class Result(Settings):
    """The result of a job as `--json` prints it; keys we do not know are passed over."""

    model_config = ConfigDict(extra="ignore")

    rows: dict[str, int] = Field(default_factory=dict)
    ids: dict[str, dict[str, int]] = Field(default_factory=dict)  # brought and matched, by party
    alignment: str = ""  # the method that found them
    answers: str = ""  # how hosts' encrypted sums came
    metrics: dict[str, dict[str, float]] = Field(default_factory=dict)
    lost: tuple[str, ...] = Field((), strict=False)  # hosts that the job went on without
    warnings: tuple[str, ...] = Field((), strict=False)
    trees: int = 0
    rounds: int = 0  # where some of them have several trees, for classes or as a forest
    earlier_rounds: int = 0  # of the model that the job continued
    seconds: dict[str, float] = Field(default_factory=dict)
    cpu_seconds: dict[str, float] = Field(default_factory=dict)
    memory_peak_bytes: dict[str, int] = Field(default_factory=dict)
    bytes: dict[str, int] = Field(default_factory=dict)
    exchanges: int = 0
    model: str = ""
    report: str = ""
    rehearsal: JobRehearsal | None = None  # of a job whose parties all run here

    @property
    def own_rounds(self) -> int:
        """The rounds of the model that the job itself has added."""
        return max(0, (self.rounds or self.trees) - self.earlier_rounds)


@dataclass(frozen=True)
class RoundSummary:
    """An outermost round of the job's own protocol: a tree, mostly."""

    done: int  # from 1
    of: int
    seconds: float
    metrics: dict[tuple[str, str], float]  # by (name, split)
    at: float  # seconds since 1970, when it was done


@dataclass(frozen=True)
class PartyLink:
    """One direction between two parties."""

    sender: str
    receiver: str

    def __str__(self) -> str:
        return f"{self.sender} → {self.receiver}"


@dataclass
class Traffic:
    """The payloads of a link."""

    bytes: int = 0
    messages: int = 0

    def add(self, n_bytes: int, messages: int) -> None:
        """Count further payloads."""
        self.bytes += n_bytes
        self.messages += messages


@dataclass
class StepTotal:
    """A step's cost over the whole job."""

    stage: str
    step: str
    calls: int = 0
    seconds: float = 0.0  # each call until the slowest party had done it
    parties: dict[str, float] = field(default_factory=dict)  # seconds
    sent: dict[PartyLink, Traffic] = field(default_factory=dict)


@dataclass(frozen=True)
class Moment:
    """Something that happened to the job as a whole."""

    at: float  # seconds since 1970
    what: str
    tone: str = ""  # good | bad | wait
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drawn:
    """A curve of a prediction."""

    name: str  # roc | pr | ks
    split: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Story:
    """All facts of a job for the report."""

    status: JobStatus
    state: str  # state of the last event, if the status is older
    spec: dict[str, Any]
    roles: dict[str, str]  # of every party, guest first
    protocol: Protocol[Settings] | None  # None where this version does not know it
    rounds: tuple[RoundSummary, ...]
    steps: tuple[StepTotal, ...]
    moments: tuple[Moment, ...]
    result: Result | None  # None until the job has finished
    told: StatusReport
    curves: tuple[Drawn, ...]

    @property
    def guest(self) -> str:
        """The guest's name; `the guest` where the job's file does not say."""
        return next((p for p, role in self.roles.items() if role == Role.GUEST), "the guest")

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Return the metrics of the rounds and of the result, in order of appearance."""
        names = [name for summary in self.rounds for name, _ in summary.metrics]
        final = self.result.metrics if self.result is not None else {}
        return tuple(dict.fromkeys([*names, *(name for part in final.values() for name in part)]))

    @property
    def is_whole(self) -> bool:
        """True if every party ends with the whole model, whose columns all of them have."""
        return self.protocol is not None and self.protocol.tables.rows is RowsUsed.OWN

    @property
    def round_name(self) -> str:
        """Word for the job's rounds."""
        return self.status.progress.round or "tree"

    @property
    def said_params(self) -> dict[str, Any]:
        """The parameters as the job's file has them."""
        params = self.spec.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def params(self) -> Settings | None:
        """The job's parameters; None where this version cannot read them."""
        if self.protocol is None:
            return None
        try:
            params: Settings = parse_settings(self.protocol.params, self.said_params)
        except ConfigError:
            return None
        return params

    @property
    def hides_nothing(self) -> bool:
        """Return True if the job's scheme hides nothing from a receiver of ciphertexts."""
        if self.protocol is None or self.params is None:
            return False
        return self.protocol.policy.asks(self.params).insecure

    def colour_of(self, party: str) -> int:
        """Return a colour of the charts: one for each of the first parties, the last for all
        others.
        """
        place = list(self.roles).index(party) + 1 if party in self.roles else COLOURS
        return min(place, COLOURS)

    def metric_curve(self, metric: str, split: str) -> tuple[Point, ...]:
        """Return a metric by round, without rounds that reported none."""
        values = ((summary.done, summary.metrics.get((metric, split))) for summary in self.rounds)
        return tuple((float(d), v) for d, v in values if v is not None and math.isfinite(v))

    def final_metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by split: the result's, or those of the last round without a result."""
        if self.result is not None:
            return self.result.metrics
        last: dict[str, dict[str, float]] = {}
        for (name, split), value in (self.rounds[-1].metrics if self.rounds else {}).items():
            last.setdefault(split, {})[name] = value
        return last


def read_story(journal: JobJournal) -> Story:
    """Return the journal's facts; raise PeerError if its spec, result or curves are malformed."""
    status = journal.status
    events = list(journal.events)
    finished = next((e.finished for e in reversed(events) if e.HasField("finished")), None)
    states = [e.state.state for e in events if e.HasField("state")]
    reports = finished.told if finished is not None else _merged_stage_reports(events)
    spec = wire.json_object(journal.spec, "the job's settings in the journal")
    steps = _step_totals(events)
    return Story(
        status=status,
        state="finished" if finished is not None else status.state or (states or [""])[-1],
        spec=spec,
        roles=_roles_by_party(spec, steps),
        protocol=known_protocol(status.protocol),
        rounds=_rounds_of_stage(events, status.protocol),
        steps=steps,
        moments=tuple(_moments(status, events)),
        result=None if finished is None else _read_result(finished.result),
        told=reports,
        curves=tuple(_read_curve(curve) for curve in reports.curves),
    )


def known_protocol(name: str) -> Protocol[Settings] | None:
    """The protocol of that name, or None: a journal may come from another version."""
    try:
        return protocols.load_protocol(name)
    except ConfigError:
        return None


def fault_lines(fault: Fault) -> tuple[str, ...]:
    """Return the non-empty lines among what, where and what to do."""
    place = ", ".join(f"{spot.key} {spot.value}" for spot in fault.where)
    where = f"Where: {place}" if place else ""
    todo = f"To do: {fault.todo}" if fault.todo else ""
    return tuple(line for line in (fault.what, where, todo) if line)


def ordered_splits(splits: Mapping[str, object]) -> list[str]:
    """Return parts of the rows: train, validation, then any others."""
    return sorted(splits, key=lambda name: SPLITS.index(name) if name in SPLITS else len(SPLITS))


def _merged_stage_reports(events: list[Event]) -> StatusReport:
    """Merge the reports of finished stages of a job that has not finished."""
    last = {e.stage.stage: e.stage.told for e in events if e.HasField("stage")}
    merged = StatusReport()
    for report in last.values():  # a repeated stage counts once
        merged.MergeFrom(report)
    return merged


def _read_result(raw: bytes) -> Result:
    try:
        return Result.model_validate(wire.json_object(raw, "the result in the journal"))
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise PeerError(f"the result in the journal is malformed at {place!r}") from None


def _roles_by_party(spec: Mapping[str, Any], steps: tuple[StepTotal, ...]) -> dict[str, str]:
    """Return every party's role from the spec; parties named only by steps come last."""
    named = spec.get("parties")
    named = named if isinstance(named, dict) else {}
    hosts = named.get("hosts")
    roles: dict[str, str] = {}
    for role, parties in (
        (Role.GUEST, [named.get("guest")]),
        (Role.HOST, hosts if isinstance(hosts, list) else []),
        (Role.AGGREGATOR, [named.get("aggregator")]),
    ):
        for party in parties:
            if isinstance(party, str):
                roles.setdefault(party, str(role))
    for step in steps:
        for party in step.parties:
            roles.setdefault(party, "party")
    return roles


def _rounds_of_stage(events: list[Event], stage: str) -> tuple[RoundSummary, ...]:
    """Return the rounds of the job's own stage; a round repeated after a resume counts once."""
    by_number = {}
    for event in events:
        if not event.HasField("round") or event.round.stage != stage:
            continue
        done = event.round
        metrics = {(metric.name, metric.split): metric.value for metric in done.metrics}
        by_number[done.progress.done] = RoundSummary(
            done.progress.done, done.progress.of, done.seconds, metrics, event.at
        )
    return tuple(by_number[done] for done in sorted(by_number))


def _step_totals(events: list[Event]) -> tuple[StepTotal, ...]:
    """Return every step in order of first appearance; steps repeated after a resume count too."""
    totals: dict[tuple[str, str], StepTotal] = {}
    for event in events:
        if event.HasField("step"):
            key = event.step.stage, event.step.step
            _add_step(totals.setdefault(key, StepTotal(*key)), event.step)
    return tuple(totals.values())


def _add_step(total: StepTotal, done: StepDone) -> None:
    total.calls += done.calls or 1
    total.seconds += done.seconds
    for cost in done.costs:
        total.parties[cost.party] = total.parties.get(cost.party, 0.0) + cost.seconds
        for link in cost.sent:
            sent = total.sent.setdefault(PartyLink(cost.party, link.peer), Traffic())
            sent.add(link.bytes, link.messages)


_STATES = {
    "waiting for approval": ("Waiting for approval", "wait"),
    "queued": ("Queued", "wait"),
    "running": ("Running", ""),
    "paused": ("Paused", "wait"),
    "failed": ("Failed", "bad"),
    "cancelled": ("Cancelled", "bad"),
    "finished": ("Finished", "good"),
}


def tone_of(state: str) -> str:
    """Return the tone of a job's state: good, bad or wait; empty for one that is none of these."""
    return _STATES.get(state, ("", ""))[1]


def _moments(status: JobStatus, events: list[Event]) -> Iterator[Moment]:
    by = f"by {person_of(status.submitter)}" if status.submitter else ""
    yield Moment(status.created, "Submitted", details=(by,) if by else ())
    rested = ended = False
    for event in events:
        if event.HasField("state"):
            what, tone = _STATES.get(event.state.state, (event.state.state, ""))
            if event.state.state == "finished":
                if ended:
                    continue
                ended = True
            details = fault_lines(event.state.reason)
            if event.state.state == "waiting for approval" and event.state.parties:
                details = ("by the owners of " + ", ".join(event.state.parties), *details)
            if event.state.state == "running" and rested:
                what = "Resumed"
            rested = rested or event.state.state in ("paused", "failed")
            yield Moment(event.at, what, tone, details)
        elif event.HasField("finished") and not ended:
            ended = True
            yield Moment(event.at, "Finished", "good")
        else:
            yield from _passing_moments(event)


def _passing_moments(event: Event) -> Iterator[Moment]:
    """Yield events that do not change the job's state."""
    if event.HasField("stage"):
        yield Moment(event.at, f"Stage {event.stage.stage} done", details=())
    elif event.HasField("lost"):
        yield Moment(event.at, f"Lost {event.lost.party}, continued without it", "wait")
    elif event.HasField("warned"):
        yield Moment(
            event.at, f"Warning about {event.warned.party}", "wait", (event.warned.warning,)
        )


def _read_curve(curve: Curve) -> Drawn:
    what = f"the {curve.name[:32]!r} curve"
    x = wire.unpack(curve.x, "f8", (None,), f"x of {what}").astype(np.float64)
    y = wire.unpack(curve.y, "f8", (len(x),), f"y of {what}").astype(np.float64)
    if len(x) > CURVE_POINTS_MAX:
        raise PeerError(f"{what} has {len(x)} points; {CURVE_POINTS_MAX} is the most")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise PeerError(f"{what} holds values that are not finite")
    return Drawn(curve.name, curve.split, tuple(zip(x.tolist(), y.tolist(), strict=True)))
