"""Settings of hybridtree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

from pydantic import model_validator

from fedboost.core.hybrid import VALUE_MAX, HybridParams
from fedboost.data.frame import Frame
from fedboost.encrypted.host import meter
from fedboost.encrypted.number.leaf_answers import bits_most
from fedboost.encrypted.scheme.params import EncryptedTreeParams, Lack
from fedboost.encrypted.scheme.schemes import JobScheme
from fedboost.flow import GUEST, Releases, Role, Table
from fedboost.model import labels

# Settings that need a guest with sums; a host that cuts without sums cannot follow them.
_SCORED_ONLY = {
    "goss": "its factor would be missing in the counts that stand in for hessians",
    "gamma": "no gain is known",
    "max_delta_step": "a leaf value under encryption cannot be capped",
    "reg_alpha": "a sum under encryption cannot be shrunk",
    "min_child_weight": "group_rows_min of each host's policy bounds its nodes",
    "host_noise": "hosts release no sums of candidates",
    "colsample_bylevel": "a host draws a column for each random cut: use colsample_bytree",
    "label_protection": "each row's value comes from where it stands, in every bottom node",
}


class HybridTreeParams(EncryptedTreeParams, HybridParams):
    """Trees of two parts, and the encryption of gradients between them."""

    gradient_spare_bits: ClassVar[int] = int(VALUE_MAX).bit_length() - 1  # for h·w beside g

    @model_validator(mode="after")
    def _objective_has_leaf_values(self) -> Self:
        if self.record.has_median_leaves:
            raise ValueError(
                f"{self.objective} has leaves that are medians, which hybridtree cannot add to; "
                f"use {self.record.instead}"
            )
        return self

    @model_validator(mode="after")
    def _divisions_are_shown(self) -> Self:
        protection = self.label_protection
        if protection is not None and protection.hide_divisions:
            raise ValueError(
                "hybridtree's hosts begin below the guest's divisions, which it cannot hide: "
                "set label_protection.hide_divisions: false"
            )
        return self

    @model_validator(mode="after")
    def _unscored_fits(self) -> Self:
        if self.split == "scored":
            return self
        given = [name for name in _SCORED_ONLY if name in self.model_fields_set]
        if given:
            raise ValueError(
                f"split: unscored cannot use {given[0]} ({_SCORED_ONLY[given[0]]}): leave it out"
            )
        return self

    def gradient_bits(self, scheme: JobScheme) -> int:
        """Return the bits of a gradient; see `EncryptedTreeParams`."""
        return super().gradient_bits(scheme) if self.split == "scored" else bits_most(self)

    def lacks(self, scheme: JobScheme) -> Iterator[Lack]:
        """Yield the features that the scheme lacks; see `EncryptedTreeParams`."""
        yield from super().lacks(scheme)
        if self.split == "unscored" and not scheme.multiplies:
            yield Lack(
                f"split: unscored multiplies encrypted sums, which {scheme.name} cannot",
                "use another scheme, or split: scored",
            )


def check_table(role: Role, params: HybridTreeParams, frame: Frame, held_out: bool) -> None:
    """Refuse a table that the objective cannot learn from, before anything leaves the guest."""
    if role is GUEST:
        labels.check_encrypted(params, frame, held_out)


def releases(params: HybridTreeParams, table: Table, host: str, columns: int | None) -> Releases:
    """Return the releases of a host's sums, or of its unscored cuts, as many in each column."""
    each = params.trees_per_round
    if params.split == "unscored":
        layers = params.n_estimators * each * params.host_depth
        share = layers / max(1, columns or 1) / (params.max_bin - 1)
        return Releases(0, share, layers=layers)
    rounds = [range(number * each, (number + 1) * each) for number in range(params.n_estimators)]
    trees = meter.Trees(rounds, params.host_depth, roots=1 << params.guest_depth)
    return meter.forecast_releases(params, trees, table.hosts.index(host) + 1, columns)
