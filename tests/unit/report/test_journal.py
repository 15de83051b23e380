"""Journals as a coordinator would keep them, for the report's tests; and what is read of them."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fedboost.core import roc_curves
from fedboost.ground import wire
from fedboost.ground.errors import PeerError
from fedboost.messages.fault_pb2 import Fault, Place
from fedboost.messages.job_pb2 import (
    Count,
    Curve,
    Event,
    Finished,
    Importance,
    JobJournal,
    JobStatus,
    LinkBytes,
    Progress,
    RoundDone,
    StageDone,
    StateChanged,
    StatusReport,
    StepCost,
    StepDone,
)
from fedboost.messages.job_pb2 import Metric as ToldMetric
from fedboost.report import states, story

START = 1_772_442_000.0  # a Monday morning in March 2026
RING = ("blind_ids", "pass_on", "close_ring")
LOST = Fault(
    code="unreachable",
    what="telco did not answer within 60 s",
    where=[Place(key="party", value="telco"), Place(key="step", value="sum_candidates")],
    todo="check that its daemon runs: fedboost doctor",
)


@dataclass
class Sample:
    """A job to tell a journal of."""

    trees: int = 25
    hosts: tuple[str, ...] = ("telco", "shop")
    objective: str = "binary:logistic"
    told: tuple[str, ...] = ("metrics", "curves")
    paused_after: int | None = 11
    failed_after: int | None = None
    kept: int | None = None
    name: str = "credit"
    columns: tuple[str, ...] = ("age", "income", "utilisation", "open_lines", "late_30", "late_90")
    rows: int = 30_000
    params: dict[str, Any] = field(default_factory=dict)  # of the job, beside the usual ones
    round_name: str = "tree"
    of_round: int = 1  # trees

    @property
    def everybody(self) -> tuple[str, ...]:
        return ("bank", *self.hosts)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("auc", "logloss") if self.objective == "binary:logistic" else ("rmse",)


class Scribe:
    """Writes events one after the other; the clock moves with what is done."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.now = START
        self.events: list[Event] = []
        self.draw = np.random.default_rng(7)
        self.sent: dict[str, int] = {}
        self.cpu = dict.fromkeys(sample.everybody, 0.0)

    def write(self, **what: Any) -> None:
        self.events.append(Event(number=len(self.events) + 1, at=self.now, **what))

    def step(self, stage: str, name: str, seconds: dict[str, float], sent=()) -> None:
        """`sent` holds (sender, receiver, bytes)."""
        jitter = float(self.draw.uniform(0.92, 1.1))
        costs = [
            StepCost(
                party=party,
                seconds=took * jitter,
                cpu_seconds=1.7 * took * jitter,
                sent=[
                    LinkBytes(peer=to, bytes=n, messages=1) for who, to, n in sent if who == party
                ],
            )
            for party, took in seconds.items()
        ]
        for cost in costs:
            self.cpu[cost.party] += cost.cpu_seconds
        for sender, receiver, n in sent:
            self.sent[f"{sender}->{receiver}"] = self.sent.get(f"{sender}->{receiver}", 0) + n
        took = max(seconds.values()) * jitter + 0.004
        self.now += took
        self.write(step=StepDone(stage=stage, step=name, seconds=took, costs=costs))


def align(scribe: Scribe) -> None:
    """The ring of a private set intersection."""
    everybody, hosts, rows = scribe.sample.everybody, scribe.sample.hosts, scribe.sample.rows
    begun = scribe.now
    after = dict(zip(everybody, everybody[1:] + everybody[:1], strict=True))
    for name in RING:
        if name == "close_ring":
            sent = [(host, "bank", 32 * rows) for host in hosts]
        else:
            sent = [(party, after[party], 33 * rows) for party in everybody]
        scribe.step("align", name, dict.fromkeys(everybody, 2.1), sent)
    scribe.step("align", "intersect", {"bank": 0.3}, [("bank", hosts[-1], 32 * rows)])
    scribe.step("align", "unblind", {hosts[-1]: 1.8}, [(hosts[-1], "bank", 32 * rows)])
    sent = [("bank", host, 16 * rows) for host in hosts]
    scribe.step("align", "name_rows", {"bank": 0.2}, sent)
    sent = [(host, "bank", 40) for host in hosts]
    scribe.step("align", "keep_rows", dict.fromkeys(hosts, 0.15), sent)
    scribe.step("align", "compare_rows", {"bank": 0.01})
    told = StatusReport(counts=[Count(name="aligned", count=rows)])
    scribe.write(stage=StageDone(stage="align", seconds=scribe.now - begun, told=told))


def tree(scribe: Scribe, number: int) -> None:
    """One tree of five layers, and its metrics."""
    sample, begun = scribe.sample, scribe.now
    rows, hosts = int(0.7 * sample.rows), sample.hosts
    slow = {host: 1.0 if place == 0 else 0.6 for place, host in enumerate(hosts)}
    give = [("bank", host, rows * 514) for host in hosts]
    scribe.step("secureboost", "encrypt_gradients", {"bank": 1.9}, give)
    scribe.step("secureboost", "receive_gradients", dict.fromkeys(hosts, 0.2))
    for layer in range(5):
        sent = [("bank", host, rows // 8 + 8 * 2**layer) for host in hosts]
        scribe.step("secureboost", "open_layer", {"bank": 0.03}, sent)
        sent = [(host, "bank", int(2**layer * 9_000 * slow[host])) for host in hosts]
        took = {host: 0.55 * slow[host] for host in hosts}
        scribe.step("secureboost", "sum_candidates", took, sent)
        sent = [("bank", host, 60 * 2**layer) for host in hosts]
        scribe.step("secureboost", "choose_splits", {"bank": 0.12 * 1.5**layer}, sent)
        sent = [(host, "bank", rows // 16) for host in hosts]
        scribe.step("secureboost", "divide_rows", dict.fromkeys(hosts, 0.02), sent)
        scribe.step("secureboost", "grow_nodes", {"bank": 0.015})
    scribe.step("secureboost", "close_trees", {"bank": 0.05})
    told = measured(sample, number) if "metrics" in sample.told else []
    progress = Progress(round=sample.round_name, done=number, of=sample.trees)
    done = RoundDone(
        stage="secureboost", progress=progress, seconds=scribe.now - begun, metrics=told
    )
    scribe.write(round=done)


def measured(sample: Sample, number: int) -> list[ToldMetric]:
    """Metrics that get better, on training rows longer than on validation rows."""
    told = []
    for split, floor in (("train", 0.0), ("validation", 0.35)):
        gap = floor + (1.0 - floor) * float(np.exp(-number / 7.0))
        noise = 0.004 * float(np.sin(3.0 * number)) if split == "validation" else 0.0
        for name in sample.metric_names:
            value = 0.86 - 0.13 * gap + noise if name == "auc" else 0.31 + 0.2 * gap - noise
            told.append(ToldMetric(split=split, name=name, value=value))
    return told


def curves(sample: Sample) -> list[Curve]:
    """Real curves of scores drawn for two classes."""
    if sample.objective != "binary:logistic" or "curves" not in sample.told:
        return []
    drawn = []
    for split, apart in (("train", 1.55), ("validation", 1.15)):
        draw = np.random.default_rng(3)
        y = (draw.random(3000) < 0.22).astype(np.float64)
        found = roc_curves.curves(y, draw.normal(size=3000) + apart * y)
        for name, x, height in (
            ("roc", found.false_positive_rate, found.true_positive_rate),
            ("pr", found.true_positive_rate, found.precision),
            ("ks", found.share, found.true_positive_rate - found.false_positive_rate),
        ):
            drawn.append(Curve(name=name, split=split, x=wire.pack(x), y=wire.pack(height)))
    return drawn


def told_at_the_end(sample: Sample) -> StatusReport:
    kept = sample.kept or sample.trees
    best = measured(sample, kept) if "metrics" in sample.told else []
    told = StatusReport(best=best, curves=curves(sample))
    counts = {"aligned": 1.0, "train": 0.7, "validation": 0.3}
    for name, part in counts.items():
        told.counts.add(name=name, count=int(part * sample.rows))
    told.counts.add(name="trees", count=kept)
    for place, column in enumerate(sample.columns):
        gain = 4000.0 / (place + 1) ** 1.4
        told.importance.append(
            Importance(party="bank", feature=column, gain=gain, splits=90 // (place + 1))
        )
    for place, host in enumerate(sample.hosts):
        told.importance.append(Importance(party=host, gain=2600.0 / (place + 1), splits=120))
    return told


def result(sample: Sample, scribe: Scribe, told: StatusReport) -> dict[str, Any]:
    best: dict[str, dict[str, float]] = {}
    for metric in told.best:
        best.setdefault(metric.split, {})[metric.name] = metric.value
    kept = sample.kept or sample.trees
    rounds = sorted(e.round.seconds for e in scribe.events if e.HasField("round"))
    total = scribe.now - START
    return {
        "job": "credit-1f2e3d4c",
        "name": sample.name,
        "state": "finished",
        "protocol": "secureboost",
        "rows": {count.name: count.count for count in told.counts if count.name != "trees"},
        "metrics": best,
        "trees": kept * sample.of_round,
        **({"rounds": kept} if sample.of_round > 1 else {}),
        "seconds": {
            "total": total,
            "align": 8.4,
            "train": total - 9.0,
            "per_tree": rounds[len(rounds) // 2] / sample.of_round,
        },
        "cpu_seconds": scribe.cpu,
        "memory_peak_bytes": {p: 310_000_000 + 9_000_000 * len(p) for p in sample.everybody},
        "bytes": scribe.sent,
        "exchanges": 412,
        "model": "credit-1f2e3d4c",
        "report": "fedboost job report credit-1f2e3d4c",
    }


def spec(sample: Sample) -> dict[str, Any]:
    data = {party: {"dataset": "credit", "id": ["id"], "label": None} for party in sample.everybody}
    data["bank"]["label"] = "y"
    return {
        "name": sample.name,
        "protocol": "secureboost",
        "parties": {"guest": "bank", "hosts": list(sample.hosts), "aggregator": None},
        "data": data,
        "validation": {"fraction": 0.3, "seed": 7},
        "params": {
            "objective": sample.objective,
            "n_estimators": sample.trees,
            "max_depth": 5,
            "learning_rate": 0.3,
            "eval_metric": list(sample.metric_names),
            "encryption": {"scheme": "paillier", "key_bits": 2048},
            **sample.params,
        },
    }


def journal(sample: Sample | None = None, **changes) -> JobJournal:
    """The journal of a job; `changes` are fields of Sample."""
    sample = sample or Sample(**changes)
    scribe = Scribe(sample)
    scribe.now += 0.4
    scribe.write(state=StateChanged(state="waiting for approval", parties=[sample.hosts[0]]))
    scribe.now += 41.0
    scribe.write(state=StateChanged(state="running", parties=sample.everybody))
    align(scribe)
    give = [("bank", host, 280) for host in sample.hosts]
    scribe.step("secureboost", "share_key", {"bank": 0.6}, give)
    scribe.step("secureboost", "accept_key", dict.fromkeys(sample.hosts, 0.001))
    state, last, attempt = "finished", sample.trees, 1
    if sample.failed_after is not None:
        state, last = "failed", sample.failed_after
    for number in range(1, last + 1):
        tree(scribe, number)
        if number == sample.paused_after:
            scribe.now += 61.0
            scribe.write(state=StateChanged(state="paused", reason=LOST))
            scribe.now += 312.0
            scribe.write(state=StateChanged(state="running", parties=sample.everybody))
            attempt = 2
    status = JobStatus(
        id="credit-1f2e3d4c",
        name=sample.name,
        protocol="secureboost",
        state="running",
        progress=Progress(round=sample.round_name, done=last, of=sample.trees),
        attempt=attempt,
        created=START,
        updated=scribe.now,
        submitter="ana",
    )
    if state == "failed":
        reason = Fault(
            code="peer",
            what="telco sent 31 packages, its counts need 32",
            where=[Place(key="party", value="bank"), Place(key="step", value="choose_splits")],
            todo="ask telco's operators for their log",
        )
        scribe.write(state=StateChanged(state="failed", reason=reason))
        status.state = "failed"
        status.reason.CopyFrom(reason)
    else:
        scribe.step("secureboost", "close_model", {"bank": 0.3})
        scribe.write(stage=StageDone(stage="secureboost", seconds=scribe.now - START - 50.0))
        told = told_at_the_end(sample)
        text = json.dumps(result(sample, scribe, told)).encode()
        scribe.write(finished=Finished(result=text, told=told))
    return JobJournal(status=status, spec=json.dumps(spec(sample)).encode(), events=scribe.events)


def test_a_finished_job_is_finished_although_the_status_was_taken_before():
    told = story.read_story(journal())
    assert told.status.state == "running"
    assert told.state == "finished"


def test_rounds_done_again_after_a_resume_count_once_and_the_last_one_counts():
    kept = journal(trees=3, paused_after=None)
    again = Event(
        round=RoundDone(stage="secureboost", progress=Progress(done=3, of=3), seconds=99.0)
    )
    kept.events.append(again)
    rounds = story.read_story(kept).rounds
    assert [one.done for one in rounds] == [1, 2, 3]
    assert rounds[-1].seconds == 99.0


def test_steps_add_up_to_what_the_journal_holds():
    kept = journal(trees=4)
    told = story.read_story(kept)
    costs = [cost for event in kept.events for cost in event.step.costs]
    bytes_sent = sum(link.bytes for cost in costs for link in cost.sent)
    messages = sum(link.messages for cost in costs for link in cost.sent)
    totals = [sent for step in told.steps for sent in step.sent.values()]
    assert sum(sent.bytes for sent in totals) == bytes_sent
    assert sum(sent.messages for sent in totals) == messages
    of_bank = sum(cost.seconds for cost in costs if cost.party == "bank")
    assert sum(step.parties.get("bank", 0.0) for step in told.steps) == pytest.approx(of_bank)
    assert sum(step.calls for step in told.steps) == sum(e.HasField("step") for e in kept.events)


def test_roles_come_from_the_spec_guest_first():
    assert story.read_story(journal()).roles == {"bank": "guest", "telco": "host", "shop": "host"}


def test_a_round_of_another_stage_is_no_round_of_the_job():
    kept = journal(trees=2, paused_after=None)
    kept.events.append(Event(round=RoundDone(stage="align", progress=Progress(done=9, of=9))))
    assert [one.done for one in story.read_story(kept).rounds] == [1, 2]


def test_the_timeline_names_pauses_resumes_and_the_end_once():
    kept = journal()
    kept.events.append(Event(at=kept.events[-1].at, state=StateChanged(state="finished")))
    moments = story.read_story(kept).moments
    said = [moment.what for moment in moments]
    assert said == [
        "Submitted",
        "Waiting for approval",
        "Running",
        "Stage align done",
        "Paused",
        "Resumed",
        "Stage secureboost done",
        "Finished",
    ]
    assert moments[4].details[0] == "telco did not answer within 60 s"
    assert moments[4].details[1] == "Where: party telco, step sum_candidates"


def test_a_failed_job_has_told_what_its_finished_stages_told():
    told = story.read_story(journal(failed_after=1)).told
    assert [(count.name, count.count) for count in told.counts] == [("aligned", 30_000)]


@pytest.mark.parametrize("raw", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_settings_that_are_no_json_object_are_refused(raw):
    kept = journal(trees=1)
    kept.spec = raw
    with pytest.raises(PeerError, match="the job's settings in the journal"):
        story.read_story(kept)


def test_a_malformed_result_is_refused_with_its_place():
    kept = journal(trees=1)
    kept.events[-1].finished.result = b'{"metrics": {"train": {"auc": "high"}}}'
    with pytest.raises(PeerError, match=r"metrics\.train\.auc"):
        story.read_story(kept)


def test_curves_of_unequal_length_or_without_end_are_refused():
    kept = journal(trees=1)
    told = kept.events[-1].finished.told
    told.curves[0].y.CopyFrom(wire.pack(np.zeros(2)))
    with pytest.raises(PeerError, match="y of the 'roc' curve must be f8"):
        story.read_story(kept)
    told.curves[0].x.CopyFrom(wire.pack(np.array([0.0, np.inf])))
    with pytest.raises(PeerError, match="not finite"):
        story.read_story(kept)


def test_a_curve_has_a_limit():
    kept = journal(trees=1)
    points = wire.pack(np.zeros(story.CURVE_POINTS_MAX + 1))
    kept.events[-1].finished.told.curves[0].x.CopyFrom(points)
    kept.events[-1].finished.told.curves[0].y.CopyFrom(points)
    with pytest.raises(PeerError, match="10000 is the most"):
        story.read_story(kept)


@pytest.mark.parametrize("submitter", ["ana", "ana via coordinator hq"])
def test_a_person_is_named_wherever_the_job_was_submitted(submitter):
    assert states.person_of(submitter) == "ana"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("running", "is running"),
        ("waiting for approval", "is waiting for approval"),
        ("failed", "failed"),
        ("cancelled", "was cancelled"),
        ("finished", "finished"),
    ],
)
def test_a_state_is_said_with_its_own_verb(state, words):
    assert states.state_in_words(state) == words
