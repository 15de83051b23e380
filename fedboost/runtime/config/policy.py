"""Rules of a party's owner: every absent key denies.

`Policy.judge` is called before a job runs, `Policy.judge_disclosure` once the table is read,
`Policy.judge_sums` once the common rows are known too, and `Policy.judge_prediction` before each
prediction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fedboost.core.gradient_bits import BITS_ENCRYPTED
from fedboost.crypto.set_sizes import SET_IDS_MAX
from fedboost.ground.errors import PolicyError
from fedboost.ground.settings import NameIn, Settings
from fedboost.job import AUTO
from fedboost.runtime.config.ask import Ask
from fedboost.runtime.config.fields import DistinctWords, Names, Ratio
from fedboost.runtime.config.refusals import (
    NOISE,
    PLACED,
    SUMS,
    check_allowed,
    epsilon_in_words,
    exceeds,
    key_refusal,
)

Tell = Literal["metrics", "curves", "figures"]
PolicyRole = Literal["guest", "host", "aggregator"]


def _checked_schemes(names: tuple[str, ...]) -> tuple[str, ...]:
    from fedboost.encrypted.scheme.schemes import SCHEMES  # only where an owner names any

    return tuple(map(NameIn("encryption scheme", SCHEMES).check, names))


class PredictPolicy(Settings):
    """Guests that may ask this party for predictions, and their limits of rows."""

    peers: Names = ()  # guests that may ask
    rows_per_day: int = Field(0, ge=0)  # rows per peer and day, UTC
    exact: Names = ()  # guests that get answers without the noise of the model's buckets


class Policy(Settings):
    """The owner's rules; everything not allowed here is refused."""

    approve: Literal["always", "never"] = "always"  # whether a person must approve each job
    purpose_required: bool = False  # whether a job must say its `purpose`
    approvers: Names = ()  # users who may list, approve and deny jobs, and fetch our models
    coordinators: Names = ()  # coordinators whose jobs may run
    peers: Names = ()  # parties that may take part in one job with us
    datasets: DistinctWords = ()  # data sets that jobs may use
    protocols: DistinctWords = ()  # protocols that may run
    # Parts that jobs may give us.
    roles: Annotated[tuple[PolicyRole, ...], Field(strict=False)] = ("guest", "host", "aggregator")
    # Encryption schemes that jobs may use; absent: all except insecure ones.
    schemes: Annotated[DistinctWords, AfterValidator(_checked_schemes)] | None = None
    allow_insecure: bool = False  # whether schemes that hide nothing (plain, broken ones) may run
    key_bits_min: int = Field(2048, ge=2048)  # bits of the modulus
    # Declared bits of one gradient: a guest that marks rows reads as many more in each sum.
    gradient_bits_max: int = Field(BITS_ENCRYPTED, ge=1)
    # Of values that we disclose with noise; absent: none may be; .inf: also without noise.
    epsilon_element_max: float | None = Field(None, gt=0.0)  # per value
    epsilon_row_max: float | None = Field(None, gt=0.0)  # per row, added up over its columns
    # Released sums for the guest: equations about a bin of a column, per training row.
    disclosure_warn: Ratio = 0.06  # above it the owner is warned
    disclosure_max: Ratio = 0.15  # above it nothing leaves; sums of all guests add up
    # Share of a column's rows whose bin an attacking guest could find exactly.
    placed_max: Ratio = 1.0  # above it nothing leaves; from 1 on nothing is refused
    # Guests that cooperate with no other: their sums are counted separately.
    disclosure_apart: Names = ()
    aggregation_parties_min: int = Field(3, ge=2)  # contributors of one secure sum
    # Parties that a difference of sums may be about, at least; absent: as for one sum; 1: any.
    aggregation_apart_min: int | None = Field(None, ge=1)
    # σ, in rows, of our noise on each sum of a job that continues without lost parties.
    aggregation_noise: float = Field(0.0, ge=0.0, le=4.0)
    totals_max: Ratio = math.inf  # values of sums under masks, by our training rows, of all jobs
    # Rows between released cuts, of each leaf (core.groups), of a host's atoms (row_sets); 1: any.
    group_rows_min: int = Field(20, ge=1)
    own_rows_min: int = Field(5, ge=1)  # our rows in each sum of a horizontal tree; 1: any number
    host_noise_min: float = Field(0.0, ge=0.0, le=64.0)  # least host_noise of jobs with us as host
    gradient_check: bool = False  # whether we check in such jobs that gradients keep to their bits
    guest_replayable: bool = False  # whether another guest must keep the data for its audit
    # Trees under one lattice secret, in jobs with us as guest; lattice.md explains the default.
    lattice_key_trees_max: int = Field(1, ge=1)
    quantile_tolerance_min: int = Field(20, ge=0)  # rows by which a job's cuts may miss a quantile
    # Labelled rows, of each class too, of a metric and of an atom (row_sets); 1: any number.
    holdout_rows_min: int = Field(20, ge=1)
    # Share of the rows in common that jobs may hold out: their scores reach the guest. Of more the
    # guest needs `predict`, and all of them count as predicted.
    holdout_max: float = Field(0.5, ge=0.0, le=1.0)
    metrics_max: int = Field(100_000, ge=0)  # reported values about labels, of all jobs
    intersection_min: int = Field(20, ge=1)  # ids in common: of fewer, none is opened
    alignments_per_day: int = Field(100, ge=0)  # per peer and data set, UTC
    # Ids that a peer may bring to alignments with a data set in a day (UTC), padding included.
    peer_ids_max: int = Field(20_000_000, ge=1)
    jobs_open_max: int = Field(32, ge=1)  # that wait, run or are paused, per coordinator
    jobs_per_day: int = Field(1000, ge=1)  # new ones, per coordinator, UTC
    ids_padded_to: int | None = Field(None, ge=1, le=SET_IDS_MAX)  # size of our set as peers see it
    predict: PredictPolicy = PredictPolicy()
    tells: Annotated[tuple[Tell, ...], Field(strict=False)] = ("metrics", "curves")
    # reports to the coordinator: a guest's metrics and curves, all figures of data errors

    def judge(self, ask: Ask) -> None:
        """Raise PolicyError for the first key that forbids the job's request."""
        check_allowed("coordinators", self.coordinators, ask.coordinator, "jobs of the coordinator")
        if self.purpose_required and not ask.purpose:
            raise key_refusal(
                "purpose_required", "requires a purpose, the job has none", "set purpose in the job"
            )
        for peer in ask.peers:
            check_allowed("peers", self.peers, peer, "jobs together with the party")
        if ask.dataset is not None:
            check_allowed("datasets", self.datasets, ask.dataset, "jobs with the data set")
        check_allowed("protocols", self.protocols, ask.protocol, "the protocol")
        for role in ask.roles:
            check_allowed("roles", self.roles, role, "jobs that make this party their")
        if self.guest_replayable and ask.guest_replayable is False:
            raise key_refusal(
                "guest_replayable",
                "requires that the guest can prove afterwards that it was honest",
                "set replayable: true in the job",
            )
        if self.gradient_check and ask.gradient_check is False:
            raise key_refusal(
                "gradient_check",
                "requires that hosts check the gradients' bits",
                "set gradient_check: true in the job's params",
            )
        self._judge_encryption(ask)
        self._judge_sums(ask)

    def _judge_encryption(self, ask: Ask) -> None:
        if ask.insecure and not self.allow_insecure:
            raise key_refusal(
                "allow_insecure",
                f"does not allow the scheme {ask.scheme}, which "
                "protects nothing against a curious peer",
            )
        if ask.scheme is not None and not self.allows_scheme(ask.scheme):
            raise key_refusal(
                "schemes",
                f"does not allow the scheme {ask.scheme}, but {', '.join(self.schemes or ())}",
                "leave encryption.scheme out of the job's params",
            )
        if ask.key_bits is not None and ask.key_bits < self.key_bits_min:
            raise key_refusal(
                "key_bits_min",
                f"asks for {self.key_bits_min} bits at least, the job has {ask.key_bits}",
            )
        if ask.gradient_bits is not None and ask.gradient_bits > self.gradient_bits_max:
            raise key_refusal(
                "gradient_bits_max",
                f"allows {self.gradient_bits_max} bits per "
                f"gradient, the job has {ask.gradient_bits}",
                f"set precision_bits of the job to at most {self.gradient_bits_max}",
                asks=f" for gradient_bits_max: {ask.gradient_bits}",
            )
        if ask.key_trees is not None and ask.key_trees > self.lattice_key_trees_max:
            raise key_refusal(
                "lattice_key_trees_max",
                f"lets at most {self.lattice_key_trees_max} trees share a lattice secret, "
                f"the job has {ask.key_trees}",
                f"set key_trees: {self.lattice_key_trees_max} in the job's encryption",
            )

    def _judge_sums(self, ask: Ask) -> None:
        if ask.contributors is not None and ask.contributors < self.aggregation_parties_min:
            raise key_refusal(
                "aggregation_parties_min",
                f"adds up over {self.aggregation_parties_min} parties at least, "
                f"the job has {ask.contributors}",
            )
        if ask.goes_on and self.apart_min > 1 and not self.aggregation_noise:
            raise key_refusal(
                "aggregation_apart_min",
                f"lets sums over fewer contributors tell of {self.apart_min} parties together at "
                "least, the job goes on without a single one",
                "set dropout: wait in the job's params",
            )
        if ask.host_noise is not None and ask.host_noise < self.host_noise_min:
            raise key_refusal(
                "host_noise_min",
                f"asks for a host_noise of {self.host_noise_min:g} at least, "
                f"the job has {ask.host_noise:g}",
                f"set host_noise: {self.host_noise_min:g} in the job's params",
            )
        tolerance = ask.quantile_tolerance
        if tolerance is not None and tolerance < self.quantile_tolerance_min:
            raise key_refusal(
                "quantile_tolerance_min",
                f"asks for a quantile_tolerance of {self.quantile_tolerance_min} rows at least, "
                f"the job has {tolerance}",
                "leave quantile_tolerance out of the job's params",
            )

    def allows_scheme(self, name: str) -> bool:
        """Return whether a job may use the scheme; `auto` is none yet, and is judged as chosen."""
        return self.schemes is None or name in self.schemes or name == AUTO

    @property
    def apart_min(self) -> int:
        """`aggregation_apart_min`, said or not."""
        return self.aggregation_apart_min or self.aggregation_parties_min

    def judge_isolated(self, parties: Collection[str] | None) -> None:
        """Raise a PolicyError where sums would tell of these few parties alone."""
        if parties is not None:
            raise key_refusal(
                "aggregation_apart_min",
                f"lets sums of several jobs tell of {self.apart_min} parties together at least; "
                f"with those of earlier jobs on the data set this one's would tell of "
                f"{', '.join(sorted(parties))} alone",
                "take part with the same parties as before, or with others",
            )

    def judge_disclosure(self, epsilon: float, columns: int, before: float = 0.0) -> None:
        """Raise PolicyError unless so many columns may be disclosed with this ε per value.

        An `epsilon` of inf asks for no noise. `before` is the ε per row of earlier jobs on the same
        data set, for any receiver.
        """
        for key, amount, earlier, what in (
            ("epsilon_element_max", epsilon, 0.0, "per value"),
            ("epsilon_row_max", epsilon * columns, before, f"per row of {columns} columns"),
        ):
            most = getattr(self, key)
            if most is None or exceeds(earlier + amount, most):
                wish = "no noise" if amount == math.inf else f"epsilon {amount:g}"
                allowed = "no disclosed values" if most is None else f"epsilon {most:g}"
                told = epsilon_in_words(earlier)
                spent = f"earlier jobs have disclosed {told}, " if earlier else ""
                raise key_refusal(
                    key,
                    f"allows {allowed} {what}, {spent}the job asks for {wish}",
                    kind=NOISE if key == "epsilon_row_max" else "",
                )

    def judge_sums(self, ratio: float, before: float) -> bool:
        """Return whether to warn the owner; a PolicyError where a job's sums would tell too much.

        `ratio`: equations about a bin by training rows, at most, of this job; `before`: of
        earlier ones on the same data set with the same guest.
        """
        if not self.allows_sums(ratio, before):
            earlier = f"earlier jobs with the guest have released {before:.2g}, " if before else ""
            raise key_refusal(
                "disclosure_max",
                f"allows {self.disclosure_max:g} released sums per bin and row, {earlier}"
                f"the job would release up to {ratio:.2g}",
                kind=SUMS,
            )
        return exceeds(before + ratio, self.disclosure_warn)

    def judge_told_sums(self, total: float) -> None:
        """Raise a PolicyError where so many equations by rows may not have left."""
        if exceeds(total, self.disclosure_max):
            raise key_refusal(
                "disclosure_max",
                f"allows {self.disclosure_max:g} released sums per bin and row, with the next "
                f"message it would be {total:.2g}",
                kind=SUMS,
            )

    def judge_placed(self, share: float, before: float = 0.0) -> None:
        """Raise a PolicyError where so many rows may not be placed, `before` by earlier jobs."""
        if not self.allows_placed(share, before):
            earlier = f"earlier jobs could place {before:.2g}, with this it" if before else "it"
            raise key_refusal(
                "placed_max",
                f"allows {self.placed_max:g} of the rows to be placed in their bins, {earlier} "
                f"could be {min(1.0, before + share):.2g}",
                kind=PLACED,
            )

    def allows_placed(self, share: float, before: float) -> bool:
        """Return whether `judge_placed` would accept this share: 1 is every row."""
        return self.placed_max >= 1.0 or not exceeds(before + share, self.placed_max)

    def judge_told_noise(self, epsilon: float) -> None:
        """Raise a PolicyError where values of this ε per row may not have left."""
        most = self.epsilon_row_max
        if most is None or exceeds(epsilon, most):
            allowed = "no disclosed values" if most is None else f"epsilon {most:g} per row"
            rest = f"with the next message it would be {epsilon_in_words(epsilon)}"
            raise key_refusal("epsilon_row_max", f"allows {allowed}, {rest}", kind=NOISE)

    def judge_holdout(self, rows: int, what: str) -> None:
        """Raise a PolicyError where a metric would be about so few rows, `what` they are."""
        if rows < self.holdout_rows_min:
            raise key_refusal(
                "holdout_rows_min",
                f"asks for {self.holdout_rows_min} {what} at least, the job has fewer",
                "hold out more rows: a larger fraction, or fewer folds",
            )

    def judge_held_share(self, share: float, guest: str) -> None:
        """Raise PolicyError if a job of `guest` holds out a larger share of the rows in common than
        the limit, and `guest` may not ask for predictions.
        """
        if self.holds_out_freely(share) or guest in self.predict.peers:
            return
        raise key_refusal(
            "holdout_max",
            f"lets jobs hold out {self.holdout_max:.0%} of the rows in common, this one holds out "
            f"{share:.0%}: that would be predictions, which predict.peers does not allow {guest}",
            "hold out fewer rows",
        )

    def holds_out_freely(self, share: float) -> bool:
        """Return whether held-out rows need no right to predictions: they are no larger a share."""
        return not exceeds(share, self.holdout_max)

    def judge_peer_ids(self, peer: str, ids: int, today: int = 0) -> None:
        """Raise PolicyError if `peer` would exceed the limit of ids brought to alignments with the
        data set `today`.
        """
        if today + ids > self.peer_ids_max:
            raise key_refusal(
                "peer_ids_max",
                f"lets a peer bring {self.peer_ids_max:,} ids a day to alignments with a data set; "
                f"{peer} has brought {today:,} today and brings {ids:,}",
                "use the rows in common of an earlier job again (aligned_by), wait for tomorrow "
                "(UTC)",
                kind="lets a peer bring fewer ids a day than the job's alignment has",
            )

    def atom_refusal(self, least: int, *, labelled: bool) -> PolicyError:
        """Return the refusal of a job that would let all jobs together reveal something about fewer
        rows.
        """
        return key_refusal(
            "holdout_rows_min" if labelled else "group_rows_min",
            f"lets all jobs on the data set together tell of {least} rows at least, of each class "
            "too; with this job it would be fewer",
            "hold out an earlier job's rows or others; if few rows changed, wait for more",
        )

    def judge_told_metrics(self, total: float) -> None:
        """Raise PolicyError if so many values about labels exceed the limit."""
        if total > self.metrics_max:
            raise key_refusal(
                "metrics_max",
                f"allows {self.metrics_max} metrics and points of curves of a data set, over all "
                "jobs, and there would be more",
                "ask for fewer metrics",
            )

    def judge_told_totals(self, total: float) -> None:
        """Raise PolicyError if so many values of sums per row exceed the limit."""
        if exceeds(total, self.totals_max):
            raise key_refusal(
                "totals_max",
                f"allows {self.totals_max:g} values of sums under masks per row, over all jobs on "
                f"the data set; with the next sum it would be {total:.3g}",
                "fewer or smaller trees or networks",
                kind="allows fewer values of sums under masks per row than the job asks for",
            )

    def judge_jobs(self, open_: int, today: int) -> None:
        """Raise a PolicyError where a coordinator has so many jobs here, the next one too."""
        for key, count, what in (
            ("jobs_open_max", open_, "jobs of a coordinator at once"),
            ("jobs_per_day", today, "new jobs of a coordinator per day"),
        ):
            if count > (most := getattr(self, key)):
                raise key_refusal(key, f"allows {most} {what}", "wait until others are over")

    def judge_rows(self, peer: str, rows: int, today: int) -> None:
        """Raise a PolicyError where `rows` more make too many that `peer` has had `today`."""
        if today > self.predict.rows_per_day:
            raise PolicyError(
                f"the policy allows {self.predict.rows_per_day} rows per day; {peer} used "
                f"{today - rows} today and asks for {rows}",
                todo="wait for tomorrow (UTC), or ask the party's owner",
                kind="the policy allows fewer rows per day than the job asks for",
                key="policy.predict.rows_per_day",
            )

    def together(self, guest: str) -> Callable[[str], bool]:
        """Return whether another guest may share its sums with this one, so that they add up."""
        if guest in self.disclosure_apart:
            return lambda other: other == guest
        return lambda other: other not in self.disclosure_apart

    def allows_sums(self, ratio: float, before: float) -> bool:
        """Return whether `judge_sums` would accept this ratio."""
        return not exceeds(before + ratio, self.disclosure_max)

    def judge_prediction(self, peer: str, rows: int) -> None:
        """Raise a PolicyError unless `peer` may ask for `rows` rows at all.

        `spending.Spending.charge` counts the rows that `peer` has used today.
        """
        check_allowed("predict.peers", self.predict.peers, peer, "predictions for the party")
        if rows > self.predict.rows_per_day:
            raise key_refusal(
                "predict.rows_per_day",
                f"allows {self.predict.rows_per_day} rows per day, {peer} asks for {rows}",
                kind="allows fewer rows per day than the job asks for",
            )

    def judge_release(self, peer: str) -> None:
        """Raise PolicyError unless our splits of a model may be released to `peer`."""
        check_allowed("peers", self.peers, peer, "releases of models to the party")

    def judge_approver(self, user: str) -> None:
        """Raise a PolicyError unless `user` may approve and deny jobs."""
        check_allowed("approvers", self.approvers, user, "approvals by the user")
