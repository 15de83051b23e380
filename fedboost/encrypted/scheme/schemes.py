"""The encryption schemes that a job may name, and their properties that settings depend on.

Schemes whose ciphertexts are numbers are those of `crypto.schemes`, and lattices those of
`crypto.lattice.parameters`. One of another kind is its mathematics in `crypto`, a module below
`encrypted` with its `tree_scheme`, and an entry here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedboost.core.gradient_bits import BITS_MAX
from fedboost.crypto.api import KeyScheme
from fedboost.crypto.lattice import parameters
from fedboost.crypto.lattice.budget import MESSAGE_BITS_MOST
from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.crypto.schemes import KEYED_SCHEMES as KEYED


@dataclass(frozen=True)
class JobScheme:
    """Properties of a scheme that settings and policies depend on."""

    name: str
    secure: bool  # whether it hides anything from the holder of its ciphertexts
    multiplies: bool  # whether a host can multiply a sum by a number it knows
    adds_noise: bool  # whether a host can add a number that it knows to a sum
    has_modulus: bool  # whether a job may say its bits
    packs_answers: bool  # whether a job may ask for packed answers (Encryption.answers)
    gradient_bits_max: int  # without the sign, in a job of few rows
    replays: bool  # whether a guest draws all of its randomness from its job's sealed secret
    module: str  # below `encrypted`, with its `tree_scheme`


def of_numbers(scheme: KeyScheme) -> JobScheme:
    """Return a scheme whose ciphertexts are numbers."""
    return JobScheme(
        name=scheme.name,
        secure=scheme.secure,
        multiplies=scheme.multiplies,
        adds_noise=scheme.multiplies,
        has_modulus=True,
        packs_answers=False,
        gradient_bits_max=BITS_MAX,
        replays=scheme.generate_from is not None,
        module="number.packed",
    )


def of_lattice(lattice: LatticeParameters) -> JobScheme:
    """Return a lattice scheme: both sides derive public polynomials."""
    return JobScheme(
        name=lattice.name,
        secure=True,
        multiplies=False,
        adds_noise=True,
        has_modulus=False,
        packs_answers=lattice.can_pack,
        gradient_bits_max=MESSAGE_BITS_MOST - 1,
        replays=True,
        module="lattice.guest",
    )


_ALL = (*map(of_numbers, KEYED.values()), *map(of_lattice, parameters.BY_NAME.values()))
SCHEMES: Mapping[str, JobScheme] = {
    scheme.name: scheme for scheme in sorted(_ALL, key=lambda scheme: not scheme.secure)
}
