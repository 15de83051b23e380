"""Releases of this party's table by a job, judged together with those of all jobs.

begin        the table is read          refused if even all its rows are too few
open stage   the common rows are known  refused, warned about, or entered as expected
a message    before its row is written  charged; refused if the table has released too much
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedboost import protocols
from fedboost.flow import HOST, Charge, Releases, Spent, StageContext
from fedboost.ground.errors import ConfigError, PolicyError
from fedboost.ground.settings import Settings, parse_settings
from fedboost.messages.job_pb2 import PlacedRows, Released, StatusReport
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.ledger.rows import Noted
from fedboost.runtime.policy import account as accounts
from fedboost.runtime.policy import noisy_values
from fedboost.runtime.policy.account import Account, AccountEntry
from fedboost.runtime.policy.forecast import change_in_words, sufficient_changes
from fedboost.runtime.policy.judgement import name_party_in_refusals
from fedboost.runtime.policy.placing import Learnt
from fedboost.runtime.policy.planned import Planned
from fedboost.runtime.policy.reading import count_label_values
from fedboost.runtime.policy.same_tables import OwnTables, names_of
from fedboost.runtime.store.store import JobState, StoredJob

if TYPE_CHECKING:
    from fedboost.data.frame import Frame

log = logging.getLogger(__name__)

# Jobs in these states, without an entry in the account, have released nothing yet.
UNBEGUN = (JobState.WAITING, JobState.QUEUED, JobState.AGREED, JobState.PAUSED)


class Spending:
    """One party's judgement of releases, and its accounts of them."""

    def __init__(
        self,
        party: str,
        policy: Callable[[], Policy],
        tables: OwnTables,
        account: Account,
    ) -> None:
        self.party, self._policy, self._tables = party, policy, tables
        self.account = account
        self._jobs: dict[str, AccountEntry] = {}  # that have begun in this process
        self._held_shares: dict[str, float] = {}  # of these jobs: `SignedJob.scored_share`
        self._placed: dict[str, float] = {}  # the share of rows that each could place, at most
        self._mutex = threading.Lock()  # two jobs must not both be given the last of an account

    # Before anything leaves

    def judge_table(self, job: SignedJob, frame: Frame | None) -> None:
        """Refuse a job that the account, or all rows of the table, cannot support."""
        if frame is None:
            return
        self._jobs[job.id] = self._new_entry(job, Releases(0), 0, frame.n_rows)
        self._held_shares[job.id] = job.scored_share
        if job.role is not HOST:
            return
        try:
            self._judge_sums(job, learnt_rows(job, frame, job.held_out(frame)))
        except PolicyError as error:
            error.todo += "" if "set " not in error.todo else "; fewer rows in common allow less"
            raise

    def judge_context(
        self, job: SignedJob, stage: str, context: StageContext[Settings]
    ) -> StatusReport:
        """Judge a stage by its rows in common; return the report for the other parties.

        A PolicyError if they are too few.
        """
        report = StatusReport()
        if context.role is not HOST or context.frame is None or stage != job.protocol.name:
            return report
        table = learnt_rows(job, context.frame, context.validation)
        with self._mutex:
            planned, warns = self._judge_sums(job, table)
            entry = self._jobs[job.id] = self._new_entry(job, planned, table.columns, table.rows)
            if not entry.planned and not entry.epsilon:
                return report
            self._placed[job.id] = table.placed(planned)
            released = self._releases_of(entry)
            self.account.expect(entry)
        if entry.planned:
            if warns:
                released.warning = self._warning_text(job, released)
                log.warning("%s: %s", job.id, released.warning)
            report.released.append(released)
        return report

    # While the job runs

    def charge(self, messages: Sequence[Noted], sql: sqlite3.Connection) -> None:
        """Charge messages that are about to leave, in the transaction of their ledger's rows.

        Raise PolicyError if the table would exceed its owner's limits: then nothing is charged,
        recorded or sent.
        """
        for noted in messages:
            about, envelope = noted.about, noted.envelope
            if not about.charges:
                continue
            job, peer = envelope.job, envelope.receiver
            digest = envelope.payload_sha256.hex()
            if about.is_free_again and accounts.has_been_sent(sql, job, peer, digest):
                continue
            charges = [*about.charges, *noisy_values.charges_of_new_values(sql, about)]
            with name_party_in_refusals(self.party):
                self._charge_entry(sql, self._jobs[job], peer, charges, stage=envelope.stage)

    def charge_report(self, job: SignedJob, report: StatusReport) -> None:
        """Charge values about our labels that are about to be reported to the coordinator.

        Raise PolicyError if the table would exceed its owner's limits.
        """
        values, entry = count_label_values(report), self._jobs.get(job.id)
        if not values or entry is None:
            return
        with name_party_in_refusals(self.party), self.account.changes() as sql:
            self._charge_entry(
                sql, entry, job.manifest.coordinator, [Charge(Spent.METRICS, values)]
            )

    def _charge_entry(
        self,
        sql: sqlite3.Connection,
        entry: AccountEntry,
        peer: str,
        charges: Sequence[Charge],
        *,
        stage: str = "",
    ) -> None:
        policy, kinds = self._policy(), {charge.kind for charge in charges}
        if Spent.ROWS in kinds:
            [rows] = [charge.amount for charge in charges if charge.kind is Spent.ROWS]
            more = accounts.count_new_rows(sql, entry.job, peer, rows)
            charges = [charge for charge in charges if charge.kind is not Spent.ROWS]
            if more:
                charges = [*charges, Charge(Spent.ROWS, more)]
                if not self._holds_out_freely(entry.job, stage):
                    today = accounts.count_prediction(sql, peer, self.account.today, more)
                    policy.judge_rows(peer, more, today)
        for charge in charges:
            if charge.kind is Spent.PEER_IDS:
                self._count_ids(sql, entry, charge)
        self.account.note(sql, entry, is_new=False)
        for receiver in dict.fromkeys(charge.peer or peer for charge in charges):
            due = [charge for charge in charges if (charge.peer or peer) == receiver]
            accounts.add_charges(sql, entry.table, entry.job, receiver, due)
        totals = accounts.released_amounts(sql, entry.table, policy.together(peer))
        judge_told(policy, {kind: totals.get(kind, 0.0) for kind in kinds})

    def _holds_out_freely(self, job: str, stage: str) -> bool:
        """Return whether a stage scores only rows that any training may hold out."""
        trains = stage and protocols.load_protocol(stage).leaves == "model"
        return bool(trains) and self._policy().holds_out_freely(self._held_shares.get(job, 0.0))

    def _count_ids(self, sql: sqlite3.Connection, entry: AccountEntry, brought: Charge) -> None:
        """Count and judge the ids that a peer has brought today to a table, under all its names."""
        ids, day = int(brought.amount), self.account.today
        for name in names_of(sql, entry.table):
            today = accounts.count_peer_ids(sql, brought.peer, name, day, ids)
            self._policy().judge_peer_ids(brought.peer, ids, today - ids)

    def released_sums(self, job: str) -> list[Released]:
        """Return the releases of this party's sums in the job, for its result; may be empty."""
        entry = self.account.entry(job)
        return [] if entry is None or not entry.planned else [self._releases_of(entry)]

    # For the owner

    def said(self, job: StoredJob) -> str:
        """Describe a job's actual or possible releases in a sentence; empty without sums."""
        entry = self.account.entry(job.id)
        if entry is not None and entry.planned:
            return (
                f"released {entry.counted:.2g} sums per bin and row to {entry.guest} so far of "
                f"{entry.planned:.2g}; an attack could place {entry.placed:.0%} of the rows"
            )
        if entry is not None or job.state not in UNBEGUN:
            return ""
        planned = self.planned(job)
        if planned is None:
            return ""
        sentence, share = planned.in_words(), min(1.0, self._policy().placed_max)
        return sentence and f"{sentence}; an attack could place {share:.0%} of the rows"

    def planned(self, job: StoredJob) -> Planned | None:
        """Return the possible releases of a job that has not begun; None without sums."""
        terms = manifest.decode_manifest(job.manifest)
        table = terms.spec.parties.table()
        try:
            protocol = protocols.load_protocol(terms.spec.protocol)
            params = parse_settings(protocol.params, terms.params, section="params")
        except ConfigError:  # of another version of fedboost
            return None
        if protocol.policy.releases is None or self.party not in table.hosts:
            return None
        ours = self._tables.owned(terms.spec.data[self.party].dataset or "")
        releases = protocol.policy.releases(params, table, self.party, None)
        others = self.account.others(ours, job.id)
        policy = self._policy()
        before = accounts.sums_for_guests(others, policy.together(table.guest))
        same = [entry for entry in others if entry.guest == table.guest] or others
        rows, last = (same[-1].rows, same[-1].job) if same else (0, "")
        limits = (policy.disclosure_max, policy.disclosure_warn)
        return Planned(releases, table.guest, before, rows, last, *limits)

    # Inside

    def _judge_sums(self, job: SignedJob, table: Learnt) -> tuple[Releases, bool]:
        """Return the maximal releases of sums, and whether the owner must be warned."""
        others = self.account.others(self._jobs[job.id].table, job.id)
        with name_party_in_refusals(self.party):
            try:
                return judge_expected(self._policy(), job, table, others)
            except PolicyError as error:
                key = error.where.get("key", "").removeprefix("policy.")
                if key in ("disclosure_max", "placed_max"):
                    error.todo = self._remedy_in_words(job, table, others, key)
                raise

    def _remedy_in_words(
        self, job: SignedJob, table: Learnt, others: Sequence[AccountEntry], key: str
    ) -> str:
        """Describe settings that would make the policy allow the job."""
        policy = self._policy()
        together = policy.together(job.table.guest)
        before, placed = (
            accounts.sums_for_guests(others, together),
            accounts.share_placed_for_guests(others, together),
        )

        def is_allowed(params: Settings) -> bool:
            """Return whether the policy allows the releases of a job with these settings."""
            planned = expected_releases(job, params, table.columns)
            if not policy.allows_sums(planned.ratio(table.rows), before):
                return False
            if policy.placed_max >= 1.0:
                return True
            max_bin = job.protocol.tables.bins(params, job.role) or table.max_bin
            same = table if max_bin == table.max_bin else replace(table, max_bin=max_bin)
            return policy.allows_placed(same.share_placed_by_sums(planned), placed)

        raw = job.manifest.spec.params
        changes = sufficient_changes(job.protocol.params, raw, is_allowed)
        owner = f"{self.party}'s owner to raise {key}, or give a table with more rows"
        if not changes:
            return f"no smaller job fits either: ask {owner}"
        settings = ", or ".join(change_in_words(change, raw) for change in changes)
        return f"set {settings}; or ask {owner}"

    def _sums_before(self, entry: AccountEntry) -> float:
        others = self.account.others(entry.table, entry.job)
        return accounts.sums_for_guests(others, self._policy().together(entry.guest))

    def _placed_before(self, entry: AccountEntry) -> float:
        others = self.account.others(entry.table, entry.job)
        return accounts.share_placed_for_guests(others, self._policy().together(entry.guest))

    def _new_entry(
        self, job: SignedJob, planned: Releases, columns: int, rows: int
    ) -> AccountEntry:
        """Return the account entry of a job with its expected sums."""
        epsilon = job.protocol.policy.asks(job.params).epsilon
        return AccountEntry(
            job=job.id,
            at="",
            **vars(self._tables.owned(job.dataset)),
            guest=job.table.guest,
            protocol=job.protocol.name,
            rows=rows,
            planned=planned.ratio(rows),
            epsilon=0.0 if epsilon is None or not columns else epsilon * columns,
        )

    def _releases_of(self, entry: AccountEntry) -> Released:
        """Return the expected and actual releases of a job's sums, with our limits."""
        policy = self._policy()
        return Released(
            party=self.party,
            planned=entry.planned,
            counted=entry.counted,
            before=self._sums_before(entry),
            warn=policy.disclosure_warn,
            max=policy.disclosure_max,
            placed=PlacedRows(
                planned=self._placed.get(entry.job, 1.0),
                counted=entry.placed,
                before=self._placed_before(entry),
                max=policy.placed_max,
            ),
        )

    def _warning_text(self, job: SignedJob, released: Released) -> str:
        before, most = released.before, released.before + released.planned
        earlier = f", {before:.2g} of them by earlier jobs" if before else ""
        return (
            f"By the end, {job.table.guest} may hold {most:.2g} sums per bin and row about "
            f"{self.party}{earlier}. Above {released.warn:g}, values of single rows may be "
            "inferred."
        )


def judge_expected(
    policy: Policy, job: SignedJob, table: Learnt, others: Sequence[AccountEntry]
) -> tuple[Releases, bool]:
    """Return the maximal releases of a job's sums after `others`, and whether its owner must be
    warned.

    Raise PolicyError if they, or the disclosed values, exceed the policy.
    """
    epsilon = job.protocol.policy.asks(job.params).epsilon
    if epsilon is not None:
        policy.judge_disclosure(epsilon, table.columns, sum(entry.noise for entry in others))
    planned, together = (
        expected_releases(job, job.params, table.columns),
        policy.together(job.table.guest),
    )
    ratio = planned.ratio(table.rows)
    warns = bool(ratio) and policy.judge_sums(ratio, accounts.sums_for_guests(others, together))
    if ratio and policy.placed_max < 1.0:
        policy.judge_placed(
            table.share_placed_by_sums(planned), accounts.share_placed_for_guests(others, together)
        )
    return planned, warns


def learnt_rows(job: SignedJob, frame: Frame, held_out: NDArray[np.bool_]) -> Learnt:
    """Return the rows of a table that a job learns from."""
    return Learnt(frame, held_out, job.protocol.tables.bins(job.params, job.role) or 2)


def judge_told(policy: Policy, amounts: Mapping[Spent, float]) -> None:
    """Raise PolicyError if a table's releases of some kind exceed the policy."""
    judges: Mapping[Spent, Callable[[float], None]] = {
        Spent.SUMS: policy.judge_told_sums,
        Spent.PLACED: policy.judge_placed,
        Spent.TOTALS: policy.judge_told_totals,
        Spent.METRICS: policy.judge_told_metrics,
        Spent.EPSILON: policy.judge_told_noise,
    }
    for kind, judge in judges.items():
        if kind in amounts:
            judge(amounts[kind])


def expected_releases(job: SignedJob, params: Settings, columns: int) -> Releases:
    """Return the expected sums of a job; a continued model has used draws of columns before."""
    if job.protocol.policy.releases is None or job.party not in job.table.hosts:
        return Releases(0)
    known = None if job.model is not None else columns
    return job.protocol.policy.releases(params, job.table, job.party, known)
