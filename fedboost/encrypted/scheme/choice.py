"""The scheme of a job that says `encryption.scheme: auto`, chosen before anybody signs.

    lattice           if every party's policy, the job's settings and the guest's rows allow it
    lattice-large     the same, if `lattice` adds up too few rows or a policy names it
    lattice-4096, okamoto-uchiyama      the same, and only if some party's policy names them
    paillier          otherwise

The coordinator asks each party for its objections to schemes (`make_offer`), chooses by this rule
and writes the chosen and the skipped schemes into the manifest. A party judges the scheme by its
own policy alone, and checks the manifest's statements about the job's settings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeGuard

from fedboost.encrypted.scheme import loading
from fedboost.encrypted.scheme.params import EncryptedTreeParams
from fedboost.encrypted.scheme.schemes import SCHEMES
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.job import AUTO, ChosenScheme, PassedOver

ORDER = ("lattice", "lattice-4096", "lattice-large", "okamoto-uchiyama", "paillier")  # by speed
ALWAYS = ("lattice", "paillier")  # considered in every job; the others if a policy names them
MANY_ROWS = "lattice-large"  # considered, too, if rows are too many for one before it

Objection = Literal["policy", "rows"]
OBJECTIONS: tuple[Objection, ...] = ("policy", "rows")


@dataclass(frozen=True)
class SchemeOffer:
    """One party's statement about schemes for a job."""

    named: Collection[str] = ()  # by its policy
    against: Mapping[str, Objection] = field(default_factory=dict)  # by scheme


def is_open(params: object) -> TypeGuard[EncryptedTreeParams]:
    """Return whether a job leaves its scheme to the rule."""
    return isinstance(params, EncryptedTreeParams) and params.encryption.scheme == AUTO


def make_offer(
    params: EncryptedTreeParams, allowed: Collection[str] | None, rows: int | None
) -> SchemeOffer:
    """Return the offer of a party with these schemes in its policy (None: any) and so many rows in
    its table (None: they bound no sum, or are not known).

    Rows count rounded up to a power of two, so that the answer reveals no more of them.
    """
    against: dict[str, Objection] = {}
    for name in ORDER:
        if allowed is not None and name not in allowed:
            against[name] = "policy"
        elif rows is not None and not _adds_up(params, name, 1 << (rows - 1).bit_length()):
            against[name] = "rows"
    return SchemeOffer(allowed or (), against)


def choose_scheme(params: EncryptedTreeParams, offers: Mapping[str, SchemeOffer]) -> ChosenScheme:
    """Return the scheme of a job whose parties, by name, have made these offers.

    A ConfigError if none is left.
    """
    named = {name for offer in offers.values() for name in offer.named}
    passed: list[PassedOver] = []
    for name in ORDER:
        too_many = name == MANY_ROWS and any(skipped.why == "rows" for skipped in passed)
        if name not in ALWAYS and name not in named and not too_many:
            continue
        against = _against(params, name, offers)
        if against is None:
            return ChosenScheme(scheme=name, passed=tuple(passed))
        passed.append(against)
    raise ConfigError(
        "no encryption scheme suits all: "
        + "; ".join(skipped.objection_text() for skipped in passed),
        todo="change the job, or ask the owners to allow one more scheme in policy.schemes",
        key="encryption.scheme",
    )


def check_choice(params: object, chosen: ChosenScheme | None) -> None:
    """Refuse, by a PeerError, a manifest with a choice if the job's file names a scheme, without
    one if the file leaves it open, and with a choice that the rule cannot have made of the job's
    settings. `params` are those of the file.
    """
    if not is_open(params):
        if chosen is not None:
            raise PeerError("the manifest chooses an encryption scheme, but the job names one")
        return
    if chosen is None:
        raise PeerError("the manifest names no encryption scheme, and the job says auto")
    passed = {entry.scheme: entry.what for entry in chosen.passed if entry.why == "settings"}
    considered = [*(entry.scheme for entry in chosen.passed), chosen.scheme]
    true = {name: _lack_in_words(params, name) for name in considered if name in ORDER}
    if set(considered) - set(ORDER) or passed != {n: what for n, what in true.items() if what}:
        raise PeerError(
            f"the manifest's choice of {chosen.scheme} does not follow from the job's settings"
        )


def _against(
    params: EncryptedTreeParams, name: str, offers: Mapping[str, SchemeOffer]
) -> PassedOver | None:
    if what := _lack_in_words(params, name):
        return PassedOver(scheme=name, why="settings", what=what)
    for why in OBJECTIONS:
        parties = tuple(party for party, offer in offers.items() if offer.against.get(name) == why)
        if parties:
            return PassedOver(scheme=name, why=why, parties=parties)
    return None


def _lack_in_words(params: EncryptedTreeParams, name: str) -> str:
    asked, most = params.precision_bits or 0, SCHEMES[name].gradient_bits_max
    if asked > most:
        return f"precision_bits is {asked}, and {name} has {most} at most"
    return next((lack.what for lack in params.lacks(SCHEMES[name])), "")


def _adds_up(params: EncryptedTreeParams, name: str, rows: int) -> bool:
    """Return whether the scheme adds up so many rows; True if settings speak against it."""
    encryption = params.encryption.model_copy(update={"scheme": name})
    with_scheme = params.model_copy(update={"encryption": encryption})
    try:
        loading.tree_scheme(with_scheme).bits_of(with_scheme, rows)
    except ConfigError:
        return bool(_lack_in_words(params, name))
    return True
