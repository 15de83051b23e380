"""What a job may say about secureboost."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fedboost.core.fixed_point import BITS_MAX
from fedboost.core.params import MAX_DEPTH, TreeParams
from fedboost.crypto.schemes import SCHEMES
from fedboost.data.frame import Frame
from fedboost.errors import DataError
from fedboost.flow import GUEST, Asks, Role
from fedboost.model import labels
from fedboost.model.shards import MODEL_ID
from fedboost.settings import Settings


class Encryption(Settings):
    """How gradients are hidden from the hosts."""

    scheme: Literal["paillier", "okamoto-uchiyama", "iterative-affine", "plain"] = "paillier"
    key_bits: int = Field(2048, ge=1024, le=8192)  # of the modulus; policies ask for 2048 at least


class SecureBoostParams(TreeParams):
    """Trees, whose columns they use, and how their gradients travel.

    The optimisations of SecureBoost+ are switches of their own; with all of them off it is
    SecureBoost. None but `goss` changes the trees.
    """

    mode: Literal["default", "mix", "layered"] = "default"  # whose columns a tree looks at
    trees_per_party: int = Field(1, ge=1)  # mix: rounds in a row with one party's columns
    host_depth: int = Field(3, ge=1, lt=MAX_DEPTH)  # layered: first layers, on hosts' columns
    guest_depth: int = Field(2, ge=1, lt=MAX_DEPTH)  # layered: layers below, on the guest's
    encryption: Encryption = Encryption()
    allow_insecure: bool = False  # whether a scheme that hides nothing may be used
    gh_packing: bool = True  # g and h (and classes) share a ciphertext (section 4.2)
    histogram_subtraction: bool = True  # a node's sums are its parent's minus its sibling's (4.3)
    cipher_compressing: bool = True  # many sums in one ciphertext of an answer (4.4)
    sparse_histograms: bool = True  # a column's most frequent bin is not added up (6.2)

    # The id of the job that trained the model whose rounds come first.
    warm_start: str | None = Field(None, pattern=f"^{MODEL_ID.pattern}$")

    @model_validator(mode="after")
    def _base_score_is_given_once(self) -> Self:
        if self.warm_start is not None and self.base_score is not None:
            raise ValueError("base_score is that of the model in warm_start: leave base_score out")
        return self

    @model_validator(mode="after")
    def _mode_fits(self) -> Self:
        said = self.model_fields_set
        if self.mode == "layered":
            depth = self.host_depth + self.guest_depth
            if depth > MAX_DEPTH:
                raise ValueError(
                    f"host_depth and guest_depth make {depth} layers; {MAX_DEPTH} is the most"
                )
            if "max_depth" in said and self.max_depth != depth:
                raise ValueError(
                    f"max_depth is {self.max_depth}, host_depth and guest_depth make {depth}: "
                    "leave max_depth out"
                )
        for name, mode in (
            ("trees_per_party", "mix"),
            ("host_depth", "layered"),
            ("guest_depth", "layered"),
        ):
            if name in said and self.mode != mode:
                raise ValueError(f"{name} is for mode {mode}, the job's is {self.mode}")
        return self

    @model_validator(mode="after")
    def _insecure_is_said(self) -> Self:
        scheme = self.encryption.scheme
        if not SCHEMES[scheme].secure and scheme != "plain" and not self.allow_insecure:
            raise ValueError(
                f"{scheme} is broken: a host that knows a few gradients learns all of them; "
                "set allow_insecure: true to reproduce the paper all the same"
            )
        return self


def asks(params: SecureBoostParams) -> Asks:
    """What the parameters ask of a party's policy."""
    scheme = SCHEMES[params.encryption.scheme]
    return Asks(
        scheme=params.encryption.scheme,
        key_bits=params.encryption.key_bits if scheme.secure else None,
        gradient_bits=params.precision_bits or BITS_MAX,
        insecure=not scheme.secure,
    )


def check(role: Role, params: SecureBoostParams, frame: Frame, held_out: bool) -> None:
    """Refuses what the objective cannot learn from, before anything leaves the guest."""
    if role is not GUEST:
        return
    labels.check(params, frame, held_out)
    if not frame.columns and params.mode != "default":
        raise DataError(
            f"the guest has no columns, and mode {params.mode} grows trees on them alone",
            todo="use mode: default",
        )
