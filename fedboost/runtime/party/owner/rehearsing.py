"""A trial's forecast: the verdict of a party's policy on the same job between organisations.

The trial runs without limits. Afterwards it is judged under the default limits, by its settings,
its rows and its charges: the same rules that judge a job as it runs. A trial that would be refused
uses up nothing of the limits for later ones.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedboost import flow
from fedboost.core.metrics import METRICS
from fedboost.core.params import BoostingParams
from fedboost.crypto.set_sizes import check_common
from fedboost.flow import AGGREGATOR, HOST
from fedboost.ground.disk import PUBLIC_MODE, write_file
from fedboost.ground.errors import ConfigError, PolicyError
from fedboost.ground.settings import Settings, parse_settings
from fedboost.job import AUTO
from fedboost.messages.job_pb2 import JobJournal
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.party.job.job import PartyJob
from fedboost.runtime.policy import account as accounts
from fedboost.runtime.policy.account import Account, AccountEntry
from fedboost.runtime.policy.differences import Summed, alignments_today, peer_ids_today
from fedboost.runtime.policy.forecast import (
    Change,
    Forecast,
    greatest_fitting,
    joint_verdict,
    sufficient_changes,
    with_default_limits,
)
from fedboost.runtime.policy.judgement import Judge
from fedboost.runtime.policy.placing import Learnt
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.policy.spending import (
    expected_releases,
    judge_expected,
    judge_told,
    learnt_rows,
)
from fedboost.runtime.store.store import Store

if TYPE_CHECKING:
    from fedboost.data.frame import Frame

log = logging.getLogger(__name__)

REFUSED_FILE = "refused-trials.json"  # in the store: jobs that use up nothing
LEFT_MAX = 1000  # limit for the number of further jobs
NO_TREES = {"encryption", "dropout"}  # settings that leave trees as they are
# Changes of a job that satisfy these keys, besides smaller trees.
INSTEAD: Mapping[str, Change] = {
    "policy.allow_insecure": {"encryption": {"scheme": AUTO}},
    "policy.aggregation_apart_min": {"dropout": "wait"},
}


class Rehearsing:
    """The trials of one party."""

    def __init__(self, judge: Judge, store: Store, account: Account) -> None:
        policy = with_default_limits(judge.config.policy)
        config = judge.config.model_copy(update={"policy": policy})
        self.judge, self.policy = Judge(config, judge.trust, store), policy
        self.judge.tables, self._open = judge.tables, judge.config.policy
        self.store, self.account = store, account

    def forecast(self, job: PartyJob) -> Forecast:
        """Return the verdict of the party's policy on a job that has just been tried."""
        if job.signed.protocol.leaves != "model":
            return Forecast(party=job.signed.party)
        try:
            return _Trial(self, job).forecast()
        except Exception:  # the job has its model, whatever is wrong with what is said of it
            log.exception("%s: the rehearsal failed", job.id)
            return Forecast(party=job.signed.party, failed=True)

    def compare(self, job: PartyJob, told: Sequence[bytes], journal: JobJournal) -> dict[str, Any]:
        """Return the guest's `rehearsal` for the result, from the forecasts of all parties.

        It is empty where one of them, or this, failed.
        """
        forecasts = [parse_settings(Forecast, json.loads(text)) for text in told]
        if any(forecast.failed for forecast in forecasts):
            return {}
        try:
            return self._compared(job, forecasts, journal)
        except Exception:  # as in `forecast`
            log.exception("%s: the rehearsal failed", job.id)
            return {}

    def _compared(
        self, job: PartyJob, forecasts: Sequence[Forecast], journal: JobJournal
    ) -> dict[str, Any]:
        """Return what all parties' forecasts come to."""
        trial = _Trial(self, job)
        curve = Curve.of(journal, trial.metric)
        alone = {
            forecast.party: forecast.alone for forecast in forecasts if forecast.alone is not None
        }
        of_guest = alone.get(job.signed.party)
        return {
            "metric": trial.metric or None,
            "guest_alone": of_guest,
            **({"alone": alone} if len(alone) > 1 else {}),
            "federated": curve.best,
            **self._other_trees(job),
            "placed": {one.party: one.placed for one in forecasts if one.placed is not None},
            **joint_verdict(
                forecasts, job.signed.manifest.spec.params, trial.cost_function(curve, of_guest)
            ),
        }

    def _other_trees(self, job: PartyJob) -> dict[str, int]:
        """Return the policies' minimum of rows between cuts, where the trial's trees had another
        and hosts' sums follow it.
        """
        has_sums = job.signed.protocol.policy.releases is not None
        default, tried = self.policy.group_rows_min, self._open.group_rows_min
        return {"group_rows_min": default} if has_sums and default != tried else {}

    @property
    def refused(self) -> list[str]:
        """The jobs that would have been refused."""
        path = self.store.folder / REFUSED_FILE
        names: list[str] = json.loads(path.read_text()) if path.is_file() else []
        return names

    def note(self, job: PartyJob, *, refused: bool) -> None:
        """Record that a job would have been refused, or else the rows that it used."""
        if refused:
            text = json.dumps([*self.refused, job.id])
            write_file(self.store.folder / REFUSED_FILE, text.encode(), PUBLIC_MODE)
        elif job.keep_row_sets is not None:
            job.keep_row_sets()


@dataclass(frozen=True)
class Curve:
    """A metric of the federated model after each round, on the rows that decide the best round."""

    by_round: Mapping[int, float]
    best: float | None

    @classmethod
    def of(cls, journal: JobJournal, metric: str) -> Curve:
        """Return the curve of a journal."""
        rounds: dict[str, dict[int, float]] = {}
        best: dict[str, float] = {}
        for event in journal.events:
            for value in event.round.metrics:
                if value.name == metric:
                    rounds.setdefault(value.split, {})[event.round.progress.done] = value.value
            best |= {m.split: m.value for m in event.stage.told.best if m.name == metric}
        split = "validation" if "validation" in best else "train"
        return cls(rounds.get(split, {}), best.get(split))


class _Trial:
    """One job at one party, with its table."""

    def __init__(self, home: Rehearsing, job: PartyJob) -> None:
        self.home, self.policy, self.job, self.signed = home, home.policy, job, job.signed
        params = self.signed.params
        self.metric = params.metrics[0] if isinstance(params, BoostingParams) else ""

    @cached_property
    def frame(self) -> Frame | None:
        """The rows that took part."""
        if self.job.table.frame is None or self.signed.role is AGGREGATOR:
            return None
        return self.job.table.unchecked_frame(self.signed.protocol.name, {})

    @cached_property
    def held(self) -> Any:
        return self.signed.held_out(self.frame)

    @cached_property
    def training_rows(self) -> Learnt:
        """The rows that a model is trained on here."""
        assert self.frame is not None
        return learnt_rows(self.signed, self.frame, self.held)

    @cached_property
    def owned(self) -> Owned:
        return self.home.judge.tables.owned(self.signed.dataset)

    @cached_property
    def entries(self) -> list[AccountEntry]:
        """The accounts of earlier jobs, without jobs that would have been refused."""
        refused = self.home.refused
        others = self.home.account.others(self.owned, self.signed.id)
        return [entry for entry in others if entry.job not in refused]

    @cached_property
    def entry(self) -> AccountEntry | None:
        """This job's account; nothing is expected of the job any more."""
        account = self.home.account.entry(self.signed.id)
        return None if account is None else replace(account, state="")

    def forecast(self) -> Forecast:
        """Return the forecast of the default policy."""
        said: dict[str, Any] = {"party": self.signed.party}
        for place, check in enumerate(self.policy_checks()):
            try:
                check()
            except PolicyError as error:
                key = error.where.get("key", "policy")
                changes = tuple(self.changes(key))
                said |= {"place": place, "refused_by": key, "jobs_left": 0, "changes": changes}
                break
        else:
            said["jobs_left"] = self.left()
        if self.entry is not None and self.entry.placed:
            said["placed"] = self.entry.placed
        if self.metric and self.frame is not None and self.signed.role in self.labelled_roles:
            said |= {"metric": self.metric, "alone": self.metric_alone({})}
        return Forecast(**said)

    @property
    def labelled_roles(self) -> tuple[flow.Role, ...]:
        """The roles whose parties have labels."""
        return self.signed.protocol.tables.labelled

    def metric_alone(self, change: Change) -> float | None:
        """Return the metric of a model of this party alone, with a change of settings."""
        from fedboost.runtime.party.owner import alone

        assert self.frame is not None
        return alone.own_model_metric(self.frame, self.held, self._job_with_change(change).params)

    # Checks that refuse a job, in the order of a real one

    def policy_checks(self) -> Iterator[Callable[[], object]]:
        """Yield the checks of the policy in the order of a real job."""
        yield lambda: self.home.judge.job(self.signed)
        if self.frame is None:
            return
        yield self._judge_alignment
        yield self._judge_holdout
        yield self._judge_contributors
        yield lambda: self._judge_sums(self.signed)
        yield self._judge_charges
        yield self._judge_row_sets

    def _judge_alignment(self) -> None:
        rows = self.job.table.aligned_rows()
        if rows is None or self.signed.alignment_job is not None:
            return
        most = self.policy.alignments_per_day
        for peer in self.signed.table.of(flow.EVERYBODY):
            if alignments_today(self.home.store, peer, self.owned) > most:
                raise PolicyError(
                    "too many alignments",
                    key="policy.alignments_per_day",
                    todo="use an alignment again",
                )
            ids = peer_ids_today(self.home.store, peer, self.owned)
            self.policy.judge_peer_ids(peer, ids)
        check_common(len(rows), self.policy.intersection_min)

    def _judge_holdout(self) -> None:
        if self.signed.role in self.labelled_roles:
            stage = self.signed.protocol.name
            self.home.judge.judge_row_counts(self.signed, stage, self.frame, self.held)

    def _judge_row_sets(self) -> None:
        stage = self.signed.protocol.name
        judge = self.home.judge
        self.job.keep_row_sets = judge.judge_row_sets(self.signed, stage, self.frame, self.held)

    def _judge_contributors(self) -> None:
        if AGGREGATOR not in self.signed.protocol.modules or self.frame is None:
            return
        least = self.policy.apart_min
        self.policy.judge_isolated(Summed(self.home.store).isolated_parties(self.owned, least))
        if 0 < self.training_rows.rows < self.policy.own_rows_min:
            raise PolicyError(
                "too few training rows", key="policy.own_rows_min", todo="hold out fewer rows"
            )

    def _judge_sums(self, signed: SignedJob, jobs: int = 0) -> None:
        """Judge the expected sums of a job after so many more jobs like this one."""
        if signed.role is HOST and self.frame is not None:
            judge_expected(self.policy, signed, self.training_rows, self._entries_with(jobs))

    def _judge_charges(self, jobs: int = 1) -> None:
        """Judge the charges of this job, or of so many of them, together with earlier ones."""
        together = self.policy.together(self.signed.table.guest)
        judge_told(self.policy, accounts.amounts_of_table(self._entries_with(jobs), together))
        rows = 0 if self.entry is None else self.entry.scored
        freely = self.policy.holds_out_freely(self.signed.scored_share)
        if rows > (np.count_nonzero(self.held) if freely else 0):
            self.policy.judge_rows(self.signed.table.guest, rows, rows)

    def _judge_as_charged(self, signed: SignedJob) -> None:
        """Judge another job's sums, scaled by this job's charge relative to its forecast."""
        if signed.role is not HOST or self.frame is None or self.entry is None:
            return
        if self.entry.counted <= self.entry.planned or not self.entry.planned:
            return
        table = self.training_rows
        planned = expected_releases(signed, signed.params, table.columns).ratio(table.rows)
        told = accounts.sums_for_guests(self.entries, self.policy.together(signed.table.guest))
        self.policy.judge_told_sums(told + planned * self.entry.counted / self.entry.planned)

    def _entries_with(self, jobs: int) -> list[AccountEntry]:
        """Return the accounts of earlier jobs, and this job's as often as given."""
        return self.entries + ([] if self.entry is None else [self.entry] * jobs)

    def left(self) -> int | None:
        """Return how many such jobs would be accepted after this one; None means any number."""

        def is_allowed(more: int) -> bool:
            try:
                self._judge_sums(self.signed, more)
                self._judge_charges(more + 1)
            except PolicyError:
                return False
            return True

        if self.frame is None or is_allowed(LEFT_MAX):
            return None
        return greatest_fitting(LEFT_MAX - 1, is_allowed)

    # Changes that would be accepted

    def changes(self, key: str) -> list[Change]:
        """Return changes of settings that would make this party accept the job.

        There are none where rows decide.
        """
        if self._is_accepted(self.signed.params):
            return []
        first = INSTEAD.get(key, {})
        if key == "policy.quantile_tolerance_min":
            first = {"quantile_tolerance": self.policy.quantile_tolerance_min}
        raw = {**self.signed.manifest.spec.params, **first}
        if first and self._is_accepted(self._job_with_change(first).params):
            return [dict(first)]
        try:
            possible = sufficient_changes(self.signed.protocol.params, raw, self._is_accepted)
        except (ConfigError, AttributeError):  # a protocol without trees
            return []
        return [{**first, **change} for change in possible]

    def _is_accepted(self, params: Settings) -> bool:
        signed = self._job_with_params(params.model_dump(mode="json", exclude_unset=True))
        try:
            self.home.judge.job(signed)
            self._judge_sums(signed)
            self._judge_as_charged(signed)
        except PolicyError:
            return False
        return True

    def _job_with_change(self, change: Change) -> SignedJob:
        return self._job_with_params({**self.signed.manifest.spec.params, **change})

    def _job_with_params(self, raw: Mapping[str, Any]) -> SignedJob:
        spec = self.signed.manifest.spec.model_copy(update={"params": raw})
        manifest = self.signed.manifest.model_copy(update={"spec": spec})
        return SignedJob(self.signed.party, manifest, self.signed.manifest_sha256)

    def cost_function(
        self, curve: Curve, alone: float | None
    ) -> Callable[[Change], tuple[float, str]]:
        """Return a function that gives the cost of a change, as a number and in words.

        Fewer rounds cost as much as this job has shown. Other changes cost as much as for the party
        alone, whose metric without a change is `metric_alone`.
        """
        sign = -1.0 if self.metric and _bigger_is_better(self.metric) else 1.0

        def cost_of_change(change: Change) -> tuple[float, str]:
            """Return the cost of one change, to compare, and in words."""
            matters = set(change) - NO_TREES
            if matters == {"n_estimators"} and change["n_estimators"] in curve.by_round:
                value = curve.by_round[change["n_estimators"]]
                loss = sign * (value - (curve.best or value))
                return loss, f"{self.metric} {value:.4f}, as measured after so many rounds"
            if not matters:
                return 0.0, "none: other ciphers, the same trees"
            try:
                other = None if alone is None else self.metric_alone(change)
            except ConfigError:  # of changes that single parties accept, but no job has together
                other = None
            if alone is None or other is None:
                return float("inf"), "not known: try it"
            return sign * (other - alone), (
                f"expected {self.metric} change {other - alone:+.3f}, estimated on "
                f"{self.signed.party}'s data"
            )

        return cost_of_change


def _bigger_is_better(metric: str) -> bool:
    return METRICS[metric].bigger_is_better
