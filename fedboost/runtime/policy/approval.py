"""Decisions of a party's owners about jobs, and a forecast in plain words to help them.

A decision records user, time, reason and the exact manifest. It is never changed and is not a
state: it stays valid for its manifest in every state of the job.

A forecast is not a limit. It uses only the party's own settings and store. Three facts count:

    refused   the policy refuses the job, or nothing hides the released values
    new       a line of the request (`NEWS`) that no earlier job here had; earlier jobs are jobs
              that were approved and did not fail
    share     the equations per row of an ordinary job, relative to `disclosure_max`; the number of
              common rows is taken from the last job on the same table. The guest determines the
              next one, so the maximum is given for the fewest rows that the policy accepts

    high      refused, or earlier jobs and this one together pass `disclosure_warn`
    medium    something is new, the share is over `SHARE_LOW`, or it cannot be said beforehand
    low       anything else
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from fedboost.flow import HOST
from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.policy import declared
from fedboost.runtime.policy.planned import Planned, percent_text
from fedboost.runtime.policy.spending import Spending
from fedboost.runtime.store.schema import checked_values
from fedboost.runtime.store.store import JobState, Store, StoredJob

REASON_CHARS_MAX = 500  # a sentence or two


class Verdict(StrEnum):
    """Answer of an owner."""

    APPROVED = "approved"
    DENIED = "denied"


@dataclass(frozen=True)
class Decision:
    """One decision of a person."""

    job: str
    manifest_sha256: str  # in hex
    verdict: Verdict
    user: str
    at: float  # seconds since 1970, UTC
    reason: str  # may be empty


class Decisions:
    """Decisions in one store; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def note(
        self, job: str, manifest_sha256: bytes, verdict: Verdict, user: str, reason: str
    ) -> Decision:
        """Write a decision; it is durable before this returns."""
        if len(reason) > REASON_CHARS_MAX:
            raise ConfigError(
                f"the reason has {len(reason)} characters; {REASON_CHARS_MAX} is the most",
                todo="shorten the reason",
            )
        decision = Decision(job, manifest_sha256.hex(), verdict, user, self._store.now(), reason)
        with self._store.transaction() as sql:
            sql.execute(
                "INSERT INTO decisions (job, manifest_sha256, verdict, user, at, reason)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (job, decision.manifest_sha256, verdict, user, decision.at, reason),
            )
        return decision

    def last_decision(self, job: str, manifest_sha256: bytes) -> Decision | None:
        """Return the last decision about exactly this manifest of the job, or None."""
        with self._store.transaction() as sql:
            row = sql.execute(
                "SELECT job, manifest_sha256, verdict, user, at, reason, hash FROM decisions"
                " WHERE job = ? AND manifest_sha256 = ? ORDER BY rowid DESC LIMIT 1",
                (job, manifest_sha256.hex()),
            ).fetchone()
        if row is None:
            return None
        with self._store.raise_if_damaged():
            job, digest, verdict, user, at, reason = checked_values(row)
            return Decision(job, digest, Verdict(verdict), user, at, reason)


SHARE_LOW = 0.1  # of the budget: ten such jobs, and nothing is left
NEWS = frozenset(
    ("protocol", "coordinator", "user", "role", "parties", "data set", "columns", "label",
     "weight", "categories", "noise", "predictions")
)  # fmt: skip
AGREED = (JobState.AGREED, JobState.RUNNING, JobState.PAUSED, JobState.FINISHED)
Lines = frozenset[tuple[str, str]]


class Risk(StrEnum):
    """Level of risk to consider before a job is approved."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass(frozen=True)
class JobVerdict:
    """A verdict with its reasons."""

    risk: Risk
    sentence: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class _Share:
    """Possible information about our table in a job's sums or noisy values."""

    words: str
    reasons: tuple[str, ...] = ()
    risk: Risk = Risk.LOW


class JobVerdicts:
    """One party's forecasts of jobs that wait for approval."""

    def __init__(
        self, store: Store, spending: Spending, judge: Callable[[SignedJob], object]
    ) -> None:
        """Start without forecasts; `judge` raises the policy's objection to a job."""
        self._store, self._spending, self._judge = store, spending, judge
        self._lines: dict[str, Lines] = {}
        self._config: PartyConfig | None = None

    def of(self, config: PartyConfig, job: StoredJob) -> JobVerdict | None:
        """Return the forecast of a job that waits for approval; None for other jobs."""
        if job.state is not JobState.WAITING:
            return None
        if config is not self._config:  # other settings have other words
            self._config, self._lines = config, {}
        job_lines = self._request_lines(config, job)
        earlier = [self._request_lines(config, known) for known in self._store.jobs(*AGREED)]
        like = sum(job_lines <= lines for lines in earlier)
        new = sorted(job_lines - frozenset[tuple[str, str]]().union(*earlier))
        reasons = [f"new: {about} {says}" for about, says in new if says != declared.NONE]
        if not earlier:
            reasons = ["everything is new: no job was approved here before"]
        signed = SignedJob(config.name, manifest.decode_manifest(job.manifest), job.manifest_sha256)
        share = self._revealed_share(config, job, signed)
        risk = Risk.MEDIUM if new and share.risk is Risk.LOW else share.risk
        try:
            self._judge(signed)
        except FedboostError as error:
            reasons.insert(0, f"your policy refuses it: {error.what}")
            risk = Risk.HIGH
        jobs = "1 similar job" if like == 1 else f"{like or 'no'} similar job{'s' * (like > 1)}"
        return JobVerdict(risk, f"{jobs} ran here; {share.words}", (*reasons, *share.reasons))

    def _request_lines(self, config: PartyConfig, job: StoredJob) -> Lines:
        """Return the lines of a request that may be new; empty of another version's job."""
        if job.id not in self._lines:
            try:
                terms = manifest.decode_manifest(job.manifest)
                who = {"coordinator": terms.coordinator, "user": terms.submitter}
                lines = [*who.items(), ("protocol", terms.spec.protocol)]
                lines += declared.request_in_words(config, terms)
                self._lines[job.id] = frozenset(line for line in lines if line[0] in NEWS)
            except FedboostError:
                self._lines[job.id] = frozenset()
        return self._lines[job.id]

    def _revealed_share(self, config: PartyConfig, job: StoredJob, signed: SignedJob) -> _Share:
        unhidden = _unhidden_share(signed)
        if unhidden is not None:
            return unhidden
        planned = self._spending.planned(job)
        if planned is None or not (planned.releases.whole or planned.releases.by_row):
            return _Share("nothing about our rows could be learnt")
        attack = attack_in_words(config, signed, planned.rows)
        if not planned.rows:
            words = "the risk is known once shared rows are counted"
            return _Share(f"{words}; {attack}", risk=Risk.MEDIUM)
        ratio, most = planned.ratio, planned.limit
        words = f"{planned.guest} would get {_part_in_words(ratio, most)}"
        few = _most_sums(planned, config.policy.intersection_min)
        words += (
            f", with fewer shared rows up to {_part_in_words(few, most)}" if few > ratio else ""
        )
        words = f"{words}; {attack}"
        reasons = [f"this assumes {planned.rows:,} shared rows, as in {planned.last}"]
        if planned.before:
            earlier = percent_text(planned.before, most)
            reasons.append(f"earlier jobs used {earlier} of the budget")
        risk = Risk.MEDIUM if ratio > SHARE_LOW * most else Risk.LOW
        is_high = planned.total > planned.warning
        return _Share(words, tuple(reasons), Risk.HIGH if is_high else risk)


def attack_in_words(config: PartyConfig, job: SignedJob, rows: int = 0) -> str:
    """Describe the power of a guest that breaks the protocol, with so many rows in common."""
    allowed = min(1.0, config.policy.placed_max)
    share = "all" if allowed >= 1.0 else f"{allowed:.0%}"
    people = f" {rows:,}" * (rows > 0)
    bins = job.protocol.tables.bins(job.params, HOST)
    table = config.datasets.get(job.dataset)
    finest = None if table is None else table.groups_at_most
    known = [most for most in (bins, finest) if most is not None]
    groups = f"one of {min(known)} groups" if known else "its group"
    return f"a cheating guest could place {share} of the{people} rows, each in {groups}"


def _most_sums(planned: Planned, rows_min: int) -> float:
    """Return the releases of a job's sums with the fewest rows that pass the policy."""
    releases, left = planned.releases, planned.limit - planned.before
    room, fewest = left - releases.by_row, rows_min
    if releases.whole and 0.0 < room < math.inf:
        fewest = max(fewest, math.ceil(releases.whole / room))
    return min(left, releases.ratio(fewest)) if left > 0.0 else 0.0


def _part_in_words(ratio: float, most: float) -> str:
    """Say how many sums by row, and which part of the budget that is."""
    share = "" if most == math.inf else f" ({percent_text(ratio, most)} of the budget)"
    return f"{ratio:.2g} sums per bin and row{share}"


def _unhidden_share(job: SignedJob) -> _Share | None:
    """Return the share of unhidden values in sums; None if all that leaves is hidden."""
    asks = job.protocol.policy.asks(job.params)
    if asks.insecure:
        words = "its scheme hides nothing: all that leaves can be read"
        return _Share(words, risk=Risk.HIGH)
    if asks.epsilon == math.inf and job.role is HOST:
        return _Share("our values leave without noise", risk=Risk.HIGH)
    if asks.epsilon is not None and job.role is HOST:
        words = f"each value leaves with noise of ε {asks.epsilon:g}"
        return _Share(words, risk=Risk.MEDIUM)
    if job.contributors is not None:
        words = "only sums over several parties leave"
        return _Share(words, risk=Risk.MEDIUM)
    return None
