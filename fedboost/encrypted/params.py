"""What a job may say about encryption: the settings that all encrypted protocols share."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fedboost.core.fixed_point import BITS_MAX
from fedboost.core.params import TreeParams
from fedboost.crypto.schemes import SCHEMES
from fedboost.flow import Asks
from fedboost.settings import Settings


class Encryption(Settings):
    """How gradients are hidden from the hosts."""

    scheme: Literal["paillier", "okamoto-uchiyama", "iterative-affine", "plain"] = "paillier"
    key_bits: int = Field(2048, ge=1024, le=8192)  # of the modulus; policies ask for 2048 at least


class EncryptedTreeParams(TreeParams):
    """Trees, and how their gradients travel.

    The optimisations of SecureBoost+ are switches of their own; with all of them off it is
    SecureBoost. None but `goss` changes the trees.
    """

    encryption: Encryption = Encryption()
    allow_insecure: bool = False  # whether a scheme that hides nothing may be used
    gh_packing: bool = True  # g and h (and classes) share a ciphertext (section 4.2)
    histogram_subtraction: bool = True  # a node's sums are its parent's minus its sibling's (4.3)
    cipher_compressing: bool = True  # many sums in one ciphertext of an answer (4.4)
    sparse_histograms: bool = True  # a column's most frequent bin is not added up (6.2)

    @model_validator(mode="after")
    def _insecure_is_said(self) -> Self:
        scheme = self.encryption.scheme
        if not SCHEMES[scheme].secure and scheme != "plain" and not self.allow_insecure:
            raise ValueError(
                f"{scheme} is broken: a host that knows a few gradients learns all of them; "
                "set allow_insecure: true to reproduce the paper all the same"
            )
        return self


def asks(params: EncryptedTreeParams) -> Asks:
    """What the parameters ask of a party's policy."""
    scheme = SCHEMES[params.encryption.scheme]
    return Asks(
        scheme=params.encryption.scheme,
        key_bits=params.encryption.key_bits if scheme.secure else None,
        gradient_bits=params.precision_bits or BITS_MAX,
        insecure=not scheme.secure,
    )
