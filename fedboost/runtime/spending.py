"""What a job may tell of this party's table: judged together with what earlier jobs have told.

begin        the table is read          refused where even all its rows were too few
open stage   the common rows are known  refused, warned of, or reserved in the account
a message    before it leaves           the job has told something
a round      is kept                    counted
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedboost import protocols
from fedboost.errors import ConfigError, PolicyError
from fedboost.flow import HOST, Artefact, Asks, Releases, Seat
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.job_pb2 import Released, Told
from fedboost.runtime import manifest
from fedboost.runtime.account import Account, Entry
from fedboost.runtime.policy import Policy
from fedboost.runtime.remedies import in_words, remedies
from fedboost.runtime.store import Job, JobState
from fedboost.runtime.work import Work
from fedboost.settings import Settings, parse

log = logging.getLogger(__name__)

UNBEGUN = (JobState.WAITING, JobState.PAUSED)  # agreed to, perhaps not begun


@dataclass
class Reserved:
    """A job that may tell something from now on."""

    stage: str
    rows: int
    is_silent: bool = True  # in this process: nothing has left yet


class Spending:
    """One party's judgement of what jobs tell, and its accounts of it."""

    def __init__(self, party: str, policy: Callable[[], Policy], account: Account) -> None:
        self._party, self._policy, self.account = party, policy, account
        self._reserved: dict[str, Reserved] = {}
        self._mutex = threading.Lock()  # two jobs must not both be given the last of an account

    # Before anything leaves

    def judge_table(self, work: Work) -> None:
        """Refuses what the account or all rows of the table are too few for."""
        if work.role is not HOST or work.frame is None:
            return
        training = int(np.count_nonzero(~work.validation(work.frame)))
        try:
            self._judge(work, len(work.frame.columns), training)
        except PolicyError as error:
            error.todo += "" if "set " not in error.todo else "; fewer rows in common allow less"
            raise

    def judge_seat(self, work: Work, stage: str, seat: Seat) -> Told:
        """Refuses what the rows in common are too few for; gives what the others are told.

        What the job may tell is reserved from here on, in every attempt.
        """
        told = Told()
        if seat.role is not HOST or seat.frame is None or stage != work.protocol.name:
            return told
        columns, rows = len(seat.frame.columns), int(np.count_nonzero(~seat.validation))
        with self._mutex:
            planned, warns = self._judge(work, columns, rows)
            entry = _entry(work, planned, columns, rows)
            if not entry.planned and not entry.epsilon:
                return told
            before = self._before(work)
            self.account.open(entry)
        self._reserved[work.id] = Reserved(stage, rows)
        if entry.planned:
            released = told.released.add(before=before, planned=entry.planned)
            self._limits(released)
            if warns:
                released.warning = self._warning(work, entry.planned, before)
                log.warning("%s: %s", work.id, released.warning)
        return told

    # While the job runs

    def passes(self, direction: str, envelope: Envelope) -> None:
        """Notes, before a job's first message of its own stage leaves, that it tells something."""
        own = self._reserved.get(envelope.job) if direction == "out" else None
        if own is not None and own.is_silent and envelope.stage == own.stage:
            self.account.tell(envelope.job)
            own.is_silent = False

    def count(self, work: Work, left: Artefact, *, is_all: bool = False) -> None:
        """Counts what a checkpoint, or what a stage leaves, says of sums."""
        own = self._reserved.get(work.id)
        if own is not None and left.released is not None:
            self.account.count(work.id, left.released / max(1, own.rows), is_all=is_all)
            if is_all:
                del self._reserved[work.id]

    def share(self, work: Work) -> list[Released]:
        """What this party's sums have told in the job, for its result; none where it has none."""
        entry = self.account.entry(work.id)
        if entry is None or not entry.planned:
            return []
        released = Released(planned=entry.planned, counted=entry.counted, before=self._before(work))
        self._limits(released)
        return [released]

    # For the owner

    def said(self, job: Job) -> str:
        """What a job has told or could tell, in a sentence; empty where sums tell nothing."""
        entry = self.account.entry(job.id)
        if entry is not None and entry.planned:
            return (
                f"released {entry.counted:.2g} sums per bin and row to {entry.guest} so far, "
                f"{entry.planned:.2g} at most"
            )
        terms = manifest.decode(job.manifest) if job.state in UNBEGUN else None
        if entry is not None or terms is None:
            return ""
        table = terms.spec.parties.table()
        try:
            protocol = protocols.named(terms.spec.protocol)
            params = parse(protocol.params, terms.spec.params, section="params")
        except ConfigError:  # of another version of fedboost
            return ""
        if protocol.releases is None or self._party not in table.hosts:
            return ""
        whole = protocol.releases(params, table, self._party, None).whole
        dataset = terms.spec.data[self._party].dataset or ""
        before = self.account.sums(dataset, table.guest, besides=job.id)
        return _unbegun(whole, table.guest, before, self._policy())

    # Inside

    def _judge(self, work: Work, columns: int, rows: int) -> tuple[Releases, bool]:
        """The most that sums can tell, and whether the owner must be warned."""
        policy = self._policy()
        planned = _bound(work, work.params, columns)
        try:
            epsilon = _asks(work).epsilon
            if epsilon is not None:
                noise = self.account.noise(_dataset(work), besides=work.id)
                policy.judge_disclosure(epsilon, columns, noise)
            if not planned.whole:
                return planned, False
            ratio = planned.whole / max(1, rows)
            return planned, policy.judge_sums(ratio, self._before(work))
        except PolicyError as error:
            if error.where.get("key") == "policy.disclosure_max":
                error.todo = self._remedy(work, columns, rows)
            raise error.at(party=self._party) from None

    def _remedy(self, work: Work, columns: int, rows: int) -> str:
        """Settings with which the job would be allowed, as words."""
        before, policy = self._before(work), self._policy()

        def fits(params: Settings) -> bool:
            whole = _bound(work, params, columns).whole
            return policy.allows_sums(whole / max(1, rows), before)

        raw = work.terms.spec.params
        found = remedies(work.protocol.params, raw, fits)
        owner = f"{self._party}'s owner to raise disclosure_max, or give a table with more rows"
        if not found:
            return f"no smaller job fits either: ask {owner}"
        return f"set {', or '.join(in_words(one, raw) for one in found)}; or ask {owner}"

    def _before(self, work: Work) -> float:
        return self.account.sums(_dataset(work), work.table.guest, besides=work.id)

    def _limits(self, released: Released) -> None:
        policy = self._policy()
        released.party = self._party
        released.warn, released.max = policy.disclosure_warn, policy.disclosure_max

    def _warning(self, work: Work, planned: float, before: float) -> str:
        earlier = f", {before:.2g} of them by earlier jobs" if before else ""
        return (
            f"{self._party} will have released up to {before + planned:.2g} sums per bin and row "
            f"to {work.table.guest}{earlier}; its policy warns above "
            f"{self._policy().disclosure_warn:g}: who is in a bin could begin to show"
        )


def _asks(work: Work) -> Asks:
    return work.protocol.asks(work.params) if work.protocol.asks else Asks()


def _entry(work: Work, planned: Releases, columns: int, rows: int) -> Entry:
    """What a job may tell from now on."""
    epsilon = _asks(work).epsilon
    return Entry(
        job=work.id,
        at="",
        dataset=_dataset(work),
        guest=work.table.guest,
        protocol=work.protocol.name,
        rows=rows,
        planned=planned.whole / max(1, rows),
        round=planned.round / max(1, rows),
        counted=0.0,
        epsilon=0.0 if epsilon is None else epsilon * columns,
        told=0,
        state="",
    )


def _dataset(work: Work) -> str:
    return work.terms.spec.data[work.party].dataset or ""


def _bound(work: Work, params: Settings, columns: int) -> Releases:
    """The most that sums can tell; a model that is continued has used draws of columns before."""
    if work.protocol.releases is None or not work.table.hosts:
        return Releases(whole=0, round=0)
    known = None if work.model is not None else columns
    return work.protocol.releases(params, work.table, work.party, known)


def _unbegun(whole: int, guest: str, before: float, policy: Policy) -> str:
    """What a job that waits could tell, before anybody knows how many rows are common."""
    if not whole:
        return ""
    said = f"would release up to {whole:,} sums for each bin of a column to {guest}"
    if before:
        said += f", after {before:.2g} per row by earlier jobs"
    left = policy.disclosure_max - before
    if left <= 0.0:
        return f"{said}: the policy allows none any more"
    margin, below = policy.disclosure_warn - before, []
    if left < math.inf:
        below.append(f"refused below {math.ceil(whole / left):,}")
    if 0.0 < margin < math.inf:
        below.append(f"with a warning below {math.ceil(whole / margin):,}")
    return f"{said}: {', '.join(below)} rows in common" if below else said
