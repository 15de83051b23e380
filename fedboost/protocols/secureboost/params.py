"""What a job may say about secureboost."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from fedboost.core import objectives
from fedboost.core.fixed_point import BITS_MAX
from fedboost.core.params import TreeParams
from fedboost.crypto.schemes import SCHEMES
from fedboost.data.frame import Frame
from fedboost.errors import ConfigError, DataError
from fedboost.flow import GUEST, Asks, Role
from fedboost.settings import Settings


class Encryption(Settings):
    """How gradients are hidden from the hosts."""

    scheme: Literal["paillier", "plain"] = "paillier"
    key_bits: int = Field(2048, ge=1024, le=8192)  # of the modulus; policies ask for 2048 at least


class SecureBoostParams(TreeParams):
    """Trees, and how their gradients travel."""

    objective: Literal["binary:logistic", "reg:squarederror"] = "binary:logistic"
    mode: Literal["default"] = "default"  # every layer of every tree looks at everybody's columns
    encryption: Encryption = Encryption()
    histogram_subtraction: bool = True  # a sibling's sums are the parent's minus the other child's
    cipher_compressing: bool = True  # many sums in one ciphertext of an answer

    @model_validator(mode="after")
    def _only_whole_tables(self) -> SecureBoostParams:
        for name in ("subsample", "colsample_bytree"):
            if getattr(self, name) != 1.0:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; secureboost uses all rows and columns"
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
    if params.early_stopping_rounds is not None and not held_out:
        raise ConfigError(
            "early_stopping_rounds needs validation rows and the job holds none out",
            todo="add validation: {fraction: 0.3} to the job, or leave early_stopping_rounds out",
        )
    if frame.label is None:
        raise DataError("the guest's table has no label", todo="name it in the job: label: …")
    objectives.check_labels(params, frame.label, learn=True)
