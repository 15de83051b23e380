"""Settings of secureboost."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fedboost.core.params import MAX_DEPTH
from fedboost.data.frame import Frame
from fedboost.encrypted.scheme.params import EncryptedTreeParams
from fedboost.flow import GUEST, Role
from fedboost.ground.errors import DataError
from fedboost.model import columns, labels
from fedboost.model.shards import MODEL_ID


class SecureBoostParams(EncryptedTreeParams):
    """Trees, the owners of their columns, and the encryption of their gradients."""

    mode: Literal["default", "mix", "layered"] = "default"  # the parties whose columns trees use
    trees_per_party: int = Field(1, ge=1)  # mix: rounds in a row with one party's columns
    host_depth: int = Field(3, ge=1, lt=MAX_DEPTH)  # layered: first layers, on hosts' columns
    guest_depth: int = Field(2, ge=1, lt=MAX_DEPTH)  # layered: layers below, on the guest's

    # The id of the job with the earlier model, whose rounds come first.
    warm_start: str | None = Field(None, pattern=f"^{MODEL_ID.pattern}$")

    @model_validator(mode="after")
    def _base_score_is_given_once(self) -> Self:
        if self.warm_start is not None and self.base_score is not None:
            raise ValueError("base_score is that of the model in warm_start: leave base_score out")
        return self

    @model_validator(mode="after")
    def _mode_fits(self) -> Self:
        given = self.model_fields_set
        if self.mode == "layered":
            depth = self.host_depth + self.guest_depth
            if depth > MAX_DEPTH:
                raise ValueError(
                    f"host_depth and guest_depth make {depth} layers; {MAX_DEPTH} is the most"
                )
            if "max_depth" in given and self.max_depth != depth:
                raise ValueError(
                    f"max_depth is {self.max_depth}, host_depth and guest_depth make {depth}: "
                    "leave max_depth out"
                )
        for name, mode in (
            ("trees_per_party", "mix"),
            ("host_depth", "layered"),
            ("guest_depth", "layered"),
        ):
            if name in given and self.mode != mode:
                raise ValueError(f"{name} is for mode {mode}, the job's is {self.mode}")
        return self


def check_table(role: Role, params: SecureBoostParams, frame: Frame, held_out: bool) -> None:
    """Refuse a table that the objective cannot learn from, before anything leaves the guest."""
    if role is not GUEST:
        return
    labels.check_encrypted(params, frame, held_out)
    columns.directions(params.monotone_constraints, frame.columns, frame.categories)
    if not frame.columns and params.mode != "default":
        raise DataError(
            f"the guest has no columns, and mode {params.mode} grows trees on them alone",
            todo="use mode: default",
        )
