"""Requests of a job for a party's data set, in words, beside the declarations of its owner.

`judge_use` is called before a job is signed; the owner's approval page shows the same words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedboost import protocols
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.flow import Protocol, Role
from fedboost.ground.errors import PolicyError
from fedboost.ground.settings import Settings, parse_settings
from fedboost.job import Validation
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.jobs.manifest import Manifest
from fedboost.runtime.jobs.signed import SignedJob

NONE = "none"


@dataclass(frozen=True)
class Use:
    """Request of a job for a data set."""

    name: str  # name in the party's settings
    selection: Selection
    role: Role
    peers: tuple[str, ...]


@dataclass(frozen=True)
class Wish:
    """One request of a job, in words, with the choices that the owner allows."""

    about: str
    asked: str
    allowed: str
    key: str  # of the data set's declaration
    is_allowed: bool


def judge_use(table: SourceSpec, use: Use) -> None:
    """Raise PolicyError for the first key of the data set that forbids the job's request."""
    for wish in wishes_of_job(table, use):
        if not wish.is_allowed:
            raise PolicyError(
                f"the job asks for the {wish.about} {wish.asked!r} of {use.name}, but its owner "
                f"allows {wish.allowed}",
                todo="change the job, or ask the party's owner",
                key=f"datasets.{use.name}.{wish.key}",
            )


def wishes_of_job(table: SourceSpec, use: Use) -> Iterator[Wish]:
    """Yield every request of the job for the data set."""
    selection = use.selection
    yield Wish(
        "id columns",
        names_in_words(selection.id),
        names_in_words(table.id),
        "id",
        selection.id == table.id,
    )
    features = {*(selection.columns or ()), *selection.categorical}
    if table.columns is None:
        usable, fits = f"all but {_excluded_columns(table)}", not features & {*table.kept_back}
    else:
        usable, fits = names_in_words(table.columns), features <= {*table.columns}
    yield Wish("columns", _features_in_words(table, selection), usable, "columns", fits)
    yield _choice_wish("label", selection.label, table.labels, "labels")
    yield _choice_wish("weight", selection.weight, table.weights, "weights")
    if selection.missing is not None:
        # A job that could choose the value could find the rows of every value.
        is_bounded = table.bins_max is not None or table.column_bins_max
        is_open = table.missing is None and not is_bounded
        declared = selection.missing if is_open else table.missing
        allowed = NONE if declared is None else f"{declared:g}"
        fits = selection.missing == declared
        yield Wish("missing value", f"{selection.missing:g}", allowed, "missing", fits)
    yield Wish("role", use.role, names_in_words(table.roles), "roles", use.role in table.roles)
    peers = use.peers if table.peers is None else table.peers
    allowed = "those of the policy" if table.peers is None else names_in_words(peers)
    yield Wish("parties", names_in_words(use.peers), allowed, "peers", {*use.peers} <= {*peers})


def names_in_words(names: Sequence[str]) -> str:
    """Format names for people; "none" for an empty list."""
    return ", ".join(names) or NONE


def _choice_wish(about: str, column: str | None, allowed: Sequence[str], key: str) -> Wish:
    fits = column is None or column in allowed
    return Wish(about, column or NONE, names_in_words(allowed), key, fits)


def features_of_job(
    table: SourceSpec, selection: Selection, known: Sequence[str] | None
) -> list[str] | None:
    """Return the features that a job uses of a declared data set; None where neither names them.

    `known` are all columns of the table, if it has been read.
    """
    if selection.columns is not None:
        return selection.columns
    other = {selection.label, selection.weight, *selection.ignore}
    if table.columns is not None:
        return [name for name in table.columns if name not in other]
    if known is None:
        return None
    return [name for name in known if name not in {*other, *table.kept_back}]


def _features_in_words(table: SourceSpec, selection: Selection) -> str:
    features = features_of_job(table, selection, None)
    if features is not None:
        return names_in_words(features)
    return f"all but {_excluded_columns(table, *selection.ignore)}"


def _excluded_columns(table: SourceSpec, *ignored: str) -> str:
    return names_in_words(list(dict.fromkeys((*table.kept_back, *ignored))))


def request_in_words(config: PartyConfig, terms: Manifest) -> list[tuple[str, str]]:
    """Return a job's requests to this party for its owner: each item with the choice."""
    spec, party = terms.spec, config.name
    protocol, table = protocols.load_protocol(spec.protocol), spec.parties.table()
    params = parse_settings(protocol.params, terms.params, section="params")
    members = table.of(tuple(Role))
    lines = [("role", " and ".join(table.roles_of(party)))]
    if spec.purpose:
        lines.insert(0, ("purpose", spec.purpose))
    others = [f"{p} ({' and '.join(table.roles_of(p))})" for p in members if p != party]
    lines.append(("parties", names_in_words(others)))
    selection, model = spec.data.get(party), protocol.used_model(params)
    if selection is not None:
        lines += _table_in_words(config, selection, None if protocol.leaves == "model" else model)
    if spec.validation is not None:
        lines.append(("rows held out", _held_out_in_words(spec.validation)))
    if terms.encryption:
        lines.append(("encryption", "{scheme}: {because}".format_map(terms.encryption)))
    lines.append(("noise", _noise_in_words(protocol, params, table.roles_of(party)[0])))
    return [*lines, ("predictions", _scored_rows_in_words(terms, party, model))]


def _scored_rows_in_words(terms: Manifest, party: str, model: str | None) -> str:
    """Describe our rows that the guest gets scores for, besides training rows."""
    if model is not None:
        return f"of all rows in common, by the model {model}"
    if SignedJob(party, terms, b"").scored_share:
        return "of the rows held out, by this job's model"
    return "none in this job"


def _table_in_words(
    config: PartyConfig, selection: Selection, model: str | None
) -> Iterator[tuple[str, str]]:
    name = selection.dataset or NONE
    declared = config.datasets.get(name) or SourceSpec(path=name)
    yield "data set", name
    for wish in wishes_of_job(declared, Use(name, selection, Role.HOST, ())):
        if wish.about in ("role", "parties") or (wish.about == "weight" and wish.asked == NONE):
            continue
        is_models = wish.about == "columns" and model is not None and selection.columns is None
        yield wish.about, f"those of the model {model}" if is_models else wish.asked
    if selection.categorical:
        yield "categories", names_in_words(selection.categorical)


def _held_out_in_words(held: Validation) -> str:
    if held.fraction is not None:
        return f"{held.fraction:.3g} of them"
    return f"part {held.fold} of {held.folds}"


def _noise_in_words(protocol: Protocol[Settings], params: Any, role: Role) -> str:
    """Describe the noise on values that leave us, besides encryption and masks."""
    asks = protocol.policy.asks(params)
    if asks.insecure:
        return f"none, and the scheme {asks.scheme} hides nothing"
    if role is Role.GUEST or (asks.epsilon is None and asks.host_noise is None):
        return NONE
    if asks.epsilon == math.inf:
        return "none: our values leave as they are"
    if asks.epsilon is not None:
        return f"ε {asks.epsilon:g} on each value"
    noise = asks.host_noise
    return f"{noise:g} on our sums (host_noise)" if noise else "none on our sums"
