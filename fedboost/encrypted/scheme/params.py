"""The settings of a job about encryption, which all encrypted protocols share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, NamedTuple, Self, TypeAlias

from pydantic import Field, model_validator

from fedboost.core.gradient_bits import BITS_ENCRYPTED, BITS_MAX, BITS_MIN
from fedboost.core.params import MAX_DEPTH, ROUNDS_MAX, TreeParams
from fedboost.encrypted.scheme.schemes import SCHEMES, JobScheme
from fedboost.flow import Asks, StageContext
from fedboost.ground.settings import NameIn, Settings
from fedboost.job import AUTO


class Encryption(Settings):
    """How gradients are hidden from the hosts."""

    # auto: lattice, lattice-large of many rows, if all policies allow it, otherwise paillier
    scheme: Annotated[str, NameIn("encryption scheme", SCHEMES, also=AUTO)] = AUTO
    key_bits: int = Field(2048, ge=1024, le=8192)  # of the modulus; policies ask for 2048 at least
    # Of the lattice schemes: one vector a sum, or many sums in one ciphertext (lattice.md).
    answers: Literal["auto", "packed", "vectors"] = "auto"
    key_trees: int = Field(1, ge=1, le=ROUNDS_MAX)  # of the lattice schemes: trees under one secret

    @property
    def named_scheme(self) -> JobScheme | None:
        """The scheme; None for `auto`."""
        return SCHEMES.get(self.scheme)


class Lack(NamedTuple):
    """A job's demand that a scheme cannot meet, and the advice to the job's author."""

    what: str
    todo: str


class LabelProtection(Settings):
    """Limits on the view that hosts get of labels in nodes; these cost
    accuracy, unlike encryption.
    """

    hide_divisions: bool = True  # whether a host hears of no division but its own
    # Highest purity of both sides of a division that hosts divide further (core.purity); None: any.
    purity_max: float | None = Field(None, gt=0.5, lt=1.0)


class EncryptedTreeParams(TreeParams):
    """Settings of trees, and of the encryption of their gradients.

    Each optimisation of SecureBoost+ has its own switch; with all of them off it is SecureBoost.
    None but `goss` and `label_protection` changes the trees.
    """

    # XGBoost's 100 trees of 6 layers reveal 15 times as much (docs/benchmarks/privacy.md).
    n_estimators: int = Field(25, ge=1, le=ROUNDS_MAX)  # rounds
    max_depth: int = Field(3, ge=1, le=MAX_DEPTH)  # layers below the root
    # Bits of a gradient that hosts add up (docs/benchmarks/widths.md); None: most that fit.
    precision_bits: int | None = Field(BITS_ENCRYPTED, ge=BITS_MIN, le=BITS_MAX)
    encryption: Encryption = Encryption()
    allow_insecure: bool = False  # whether a scheme that hides nothing may be used
    label_protection: LabelProtection | None = None  # absent: hosts see all nodes they can use
    gh_packing: bool = True  # g and h (and classes) share a ciphertext (section 4.2)
    histogram_subtraction: bool = True  # a node's sums are its parent's minus its sibling's (4.3)
    cipher_compressing: bool = True  # many sums in one ciphertext of an answer (4.4)
    sparse_histograms: bool = True  # a column's most frequent bin is not added up (6.2)
    # σ of a host's noise on every sum, in rows with the greatest gradient and hessian of the job.
    host_noise: float = Field(0.0, ge=0.0, le=64.0)
    gradient_check: bool = False  # whether hosts check that gradients keep to their bits

    # Bits of a gradient above those of the objective's own, for other values of a row.
    gradient_spare_bits: ClassVar[int] = 0

    @model_validator(mode="after")
    def _goss_protects_no_label(self) -> Self:
        if self.label_protection is not None and self.goss is not None:
            raise ValueError(
                "goss tells the hosts which rows have large gradients, and by that their labels: "
                "leave goss or label_protection out; subsample draws rows without regard to them"
            )
        return self

    def gradient_bits(self, scheme: JobScheme) -> int:
        """Return the most bits of a gradient that hosts will add up."""
        return self.precision_bits or scheme.gradient_bits_max

    def lacks(self, scheme: JobScheme) -> Iterator[Lack]:
        """Yield the demands of these settings that a scheme cannot meet."""
        if not scheme.has_modulus and "key_bits" in self.encryption.model_fields_set:
            yield Lack(
                f"key_bits is of a modulus, and {scheme.name} has no modulus", "leave key_bits out"
            )
        said = {"answers", "key_trees"} & self.encryption.model_fields_set
        if scheme.has_modulus and said:
            names = " and ".join(sorted(said))
            yield Lack(f"{scheme.name} is not a lattice scheme", f"leave {names} out")
        elif self.encryption.answers == "packed" and not scheme.packs_answers:
            yield Lack(f"answers of {scheme.name} cannot be packed", "leave answers out")
        if self.host_noise and not scheme.adds_noise:
            yield Lack(
                "host_noise adds numbers that a host knows to encrypted sums, which "
                f"{scheme.name} cannot",
                "use another scheme, or leave host_noise out",
            )
        if self.gradient_check and not scheme.adds_noise:
            yield Lack(
                "gradient_check adds numbers that a host knows to encrypted sums, which "
                f"{scheme.name} cannot",
                "use another scheme, or leave gradient_check out",
            )

    @model_validator(mode="after")
    def _noise_hides_no_reaction(self) -> Self:
        if self.host_noise and self.encryption.key_trees > 1:
            raise ValueError(
                "key_trees above 1 and host_noise do not go together: noise would hide from the "
                "guest what a host alters to learn its secret; leave one of them out"
            )
        return self

    @model_validator(mode="after")
    def _scheme_can(self) -> Self:
        scheme = self.encryption.named_scheme
        if scheme is None:
            return self
        if not scheme.secure and scheme.name != "plain" and not self.allow_insecure:
            raise ValueError(
                f"{scheme.name} is broken: a host that knows a few gradients learns all of them; "
                "set allow_insecure: true to reproduce the paper all the same"
            )
        for lack in self.lacks(scheme):
            raise ValueError(f"{lack.what}: {lack.todo}")
        return self


EncryptedContext: TypeAlias = StageContext[EncryptedTreeParams]


def policy_demands(params: EncryptedTreeParams) -> Asks:
    """Return the demands on a party's policy; for `auto`, those of any scheme."""
    scheme = params.encryption.named_scheme
    if scheme is None:
        return Asks(scheme=AUTO, host_noise=params.host_noise, gradient_check=params.gradient_check)
    return Asks(
        scheme=scheme.name,
        key_bits=params.encryption.key_bits if scheme.has_modulus and scheme.secure else None,
        gradient_bits=params.gradient_bits(scheme),
        insecure=not scheme.secure,
        host_noise=params.host_noise,
        gradient_check=params.gradient_check,
        key_trees=None if scheme.has_modulus else params.encryption.key_trees,
    )
