"""A job as its party's owner judges it: its user, the policy's verdict, the outgoing messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from fedboost import protocols
from fedboost.flow import AGGREGATOR, GUEST, RowsUsed
from fedboost.ground.errors import FedboostError
from fedboost.messages.reveals import REVEALS
from fedboost.report import units
from fedboost.report.tables import listed_names
from fedboost.report.terms import flat_settings
from fedboost.runtime.config.ask import Ask
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.manifest import Manifest
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.party.node.node import PartyNode
from fedboost.runtime.policy import declared
from fedboost.runtime.policy.planned import Planned
from fedboost.runtime.store.store import StoredJob


@dataclass(frozen=True)
class PolicyRule:
    """A key of the policy, beside the job's request."""

    about: str
    asked: str
    allowed: str
    key: str  # of the party's file
    is_later: bool = False  # judged when the table is read, or when the rows are known


@dataclass(frozen=True)
class Leaving:
    """A kind of message that this party would send."""

    stage: str
    name: str
    to: tuple[str, ...]
    reveals: str
    protected: str


@dataclass(frozen=True)
class Asking:
    """A job's complete request to this party."""

    terms: Manifest
    digest: str  # SHA-256 of the manifest, in hex: the approval refers to it
    role: str
    rules: Sequence[PolicyRule]
    refusal: FedboostError | None  # the policy's objection
    budget: Planned | None  # None without sums, and where no job on the table has run
    leaving: Sequence[Leaving]
    columns: Sequence[str]  # by name; empty where the table has not been read
    tells: str  # content of sums about our table; empty: none
    told: str  # messages from us to the coordinator


def read_request(node: PartyNode, job: StoredJob, columns: Sequence[str] = ()) -> Asking:
    """Return a job from the party's store; raise FedboostError if this version cannot read it.

    `columns` are all of the job's data set, if it has been read.
    """
    terms = manifest.decode_manifest(job.manifest)
    digest = job.manifest_sha256
    signed = SignedJob(node.config.name, terms, digest)
    policy, ask, refusal = node.config.policy, None, None
    try:
        ask = node.judge.ask_of_job(signed)
        node.judge.job(signed)
    except FedboostError as error:
        refusal = error
    planned = node.spending.planned(job)
    return Asking(
        terms=terms,
        digest=digest.hex(),
        role=" and ".join(signed.table.roles_of(node.config.name)),
        rules=() if ask is None else tuple(_policy_rules(node, signed, ask, policy)),
        refusal=refusal,
        budget=planned if planned is not None and planned.rows else None,
        leaving=tuple(_outgoing_messages(signed)),
        columns=tuple(_used_columns(node, terms, columns)),
        tells=node.spending.said(job),
        told=_reports_in_words(signed, policy),
    )


def _used_columns(node: PartyNode, terms: Manifest, known: Sequence[str]) -> Sequence[str]:
    """Return the features that the job uses of our data set; empty where they are not known."""
    use = terms.spec.data.get(node.config.name)
    table = None if use is None else node.config.datasets.get(use.dataset or "")
    if use is None or table is None:
        return ()
    return declared.features_of_job(table, use, known or None) or ()


def _dataset_rules(node: PartyNode, signed: SignedJob) -> Iterator[PolicyRule]:
    """Yield the job's uses of our data set, beside the declarations of its owner."""
    use = node.judge.use_of_table(signed)
    table = None if use is None else node.config.datasets.get(use.name)
    if use is None or table is None:
        return
    for wish in declared.wishes_of_job(table, use):
        key = f"datasets.{use.name}.{wish.key}"
        yield PolicyRule(wish.about.capitalize(), wish.asked, wish.allowed, key)


def _policy_rules(
    node: PartyNode, signed: SignedJob, ask: Ask, policy: Policy
) -> Iterator[PolicyRule]:
    yield PolicyRule(
        "Coordinator", ask.coordinator, _names_or_none(policy.coordinators), "policy.coordinators"
    )
    if policy.purpose_required:
        yield PolicyRule("Purpose", ask.purpose or "none", "required", "policy.purpose_required")
    yield PolicyRule(
        "Other parties", listed_names(ask.peers), _names_or_none(policy.peers), "policy.peers"
    )
    if ask.dataset is not None:
        yield PolicyRule(
            "Data set", ask.dataset, _names_or_none(policy.datasets), "policy.datasets"
        )
    yield from _dataset_rules(node, signed)
    yield PolicyRule("Protocol", ask.protocol, _names_or_none(policy.protocols), "policy.protocols")
    if ask.scheme is not None:
        because = signed.manifest.encryption.get("because", "not chosen")  # of an older version
        wish = f"{ask.scheme}: {because}"
        allowed = "any" if policy.schemes is None else _names_or_none(policy.schemes)
        yield PolicyRule("Encryption", wish, allowed, "policy.schemes")
    if ask.insecure:
        allowed = "also schemes that hide nothing" if policy.allow_insecure else "none of that kind"
        wish = f"{ask.scheme} hides nothing"
        yield PolicyRule("What encryption hides", wish, allowed, "policy.allow_insecure")
    elif ask.key_bits is not None:
        least = f"{policy.key_bits_min} bits at least"
        yield PolicyRule("Key", f"{ask.key_bits} bits", least, "policy.key_bits_min")
    if ask.gradient_bits is not None:
        most = f"{policy.gradient_bits_max} bits at most"
        yield PolicyRule(
            "Gradients", f"{ask.gradient_bits} bits each", most, "policy.gradient_bits_max"
        )
    if ask.contributors is not None:
        least = f"{policy.aggregation_parties_min} at least"
        wish = units.plural(ask.contributors, "party", "parties") + " in each sum"
        yield PolicyRule("Sums under masks", wish, least, "policy.aggregation_parties_min")
    if ask.contributors is not None and ask.dataset is not None:
        few = units.plural(policy.apart_min, "party", "parties")
        noise = f", our noise of {policy.aggregation_noise:g} rows" * (policy.aggregation_noise > 0)
        wish = f"also without one that is lost{noise}" if ask.goes_on else "over the same parties"
        allowed = f"with other jobs' sums tell of {few} together at least"
        yield PolicyRule("Sums over others", wish, allowed, "policy.aggregation_apart_min")
        most = "any number" if policy.totals_max == inf else f"{policy.totals_max:g}"
        yield PolicyRule("Totals per row", "counted", most, "policy.totals_max", is_later=True)
    yield from _rules_for_sums(ask, policy)
    if signed.scored_share:
        wish = f"{signed.scored_share:.0%} of those in common, held out"
        allowed = f"{policy.holdout_max:.0%} at most; more for guests that may ask for predictions"
        yield PolicyRule("Rows scored", wish, allowed, "policy.holdout_max")
    yield from _rules_judged_later(signed, policy)


def _rules_for_sums(ask: Ask, policy: Policy) -> Iterator[PolicyRule]:
    """Yield rules for sums of our columns."""
    if ask.host_noise is not None:
        least = f"{policy.host_noise_min:g} at least"
        yield PolicyRule("Noise on our sums", f"{ask.host_noise:g}", least, "policy.host_noise_min")
    if ask.gradient_check is not None:
        wish = "checked by us" if ask.gradient_check else "not checked"
        allowed = "only if we check them" if policy.gradient_check else "checked or not"
        yield PolicyRule("The gradients' bits", wish, allowed, "policy.gradient_check")


def _rules_judged_later(signed: SignedJob, policy: Policy) -> Iterator[PolicyRule]:
    """Yield rules that are judged only once the table, or the rows in common, are known."""
    rule = partial(PolicyRule, is_later=True)
    asks = signed.protocol.policy.asks(signed.params)
    if asks.epsilon is not None and signed.role is not GUEST:
        wish = "without noise" if asks.epsilon == inf else f"ε {asks.epsilon:g}"
        element, row = (
            _epsilon_limit(policy.epsilon_element_max),
            _epsilon_limit(policy.epsilon_row_max),
        )
        yield rule("Noise per value", wish, element, "policy.epsilon_element_max")
        yield rule("Noise per row", f"{wish} for each column", row, "policy.epsilon_row_max")
    if signed.protocol.policy.releases is not None and signed.role is not GUEST:
        most = "any number" if policy.disclosure_max == inf else f"{policy.disclosure_max:g}"
        wish = "as said below"
        yield rule("Sums per bin and row", wish, most, "policy.disclosure_max")
        most = "all" if policy.placed_max >= 1.0 else f"{policy.placed_max:.0%} of them"
        yield rule("Rows an attack could place", wish, most, "policy.placed_max")
        least = f"{policy.group_rows_min} at least"
        yield rule("Rows between cuts", "as our policy has it", least, "policy.group_rows_min")
    if asks.own_cells and signed.role is not AGGREGATOR:
        least = f"{policy.own_rows_min} at least, or none"
        wish = "as our policy has it"
        yield rule("Our rows in a sum", wish, least, "policy.own_rows_min")
    if signed.model is not None and signed.role is not GUEST:
        most = f"{units.in_count(policy.predict.rows_per_day)} a day"
        yield rule("Rows to score", "all in common", most, "policy.predict.rows_per_day")


def _outgoing_messages(signed: SignedJob) -> Iterator[Leaving]:
    """Yield every kind of message that this party sends in the job's stages, once a stage."""
    roles = signed.table.roles_of(signed.party)
    for stage in signed.stages:
        protocol = protocols.load_protocol(stage)
        given = [s for s in protocol.flow if s.gives is not None and set(s.roles) & set(roles)]
        for kind in dict.fromkeys(step.gives for step in given):
            assert kind is not None
            name = kind.DESCRIPTOR.full_name
            takers = [role for step in protocol.steps_taking(name) for role in step.roles]
            to = tuple(p for p in signed.table.of(tuple(takers)) if p != signed.party)
            if to:
                yield Leaving(stage, kind.DESCRIPTOR.name, to, *REVEALS[name])


def _reports_in_words(signed: SignedJob, policy: Policy) -> str:
    """Describe in a sentence the reports from this party to the coordinator."""
    always = "when steps finish, how long they took, and how many bytes went to whom"
    if "figures" in policy.tells:
        always += "; of an error in our table also rows and columns"
    if signed.role is not GUEST and signed.protocol.tables.rows is not RowsUsed.OWN:
        return f"The coordinator learns {always}."
    words = {"metrics": "the metrics of every round", "curves": "curves and importance at the end"}
    more = [words[tell] for tell in words if tell in policy.tells]
    return f"The coordinator learns {', '.join(['row counts', *more, always])}."


def settings_in_words(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield settings as texts, nested ones, three deep at most, under names with dots."""
    for key, value in flat_settings(settings, deepest=3):
        yield key, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _names_or_none(allowed: Sequence[str]) -> str:
    return ", ".join(allowed) or "none"


def _epsilon_limit(limit: float | None) -> str:
    return "none may leave" if limit is None else "any" if limit == inf else f"ε {limit:g} at most"
