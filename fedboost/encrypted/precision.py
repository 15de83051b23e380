"""How exact gradients are under each scheme, and how reals become integers.

Schemes whose ciphertexts are numbers take as many bits as sums leave room for, rounded to the
nearest. The lattice schemes have few (`crypto.lattice.budget`), and round up or down at random, so
that what many small gradients add up to is not lost (DESIGN, section 7).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedboost.core import fixed_point
from fedboost.core.fixed_point import FixedPoint, nearest
from fedboost.crypto.lattice import parameters as lattices
from fedboost.crypto.lattice.budget import MESSAGE_BITS_LEAST, MESSAGE_BITS_MOST, Budget
from fedboost.crypto.lattice.secret import rounded
from fedboost.crypto.schemes import is_lattice
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.host_noise import spare_rows, spare_rows_added
from fedboost.encrypted.params import EncryptedTreeParams
from fedboost.errors import ConfigError

BITS_LEAST = MESSAGE_BITS_LEAST - 1  # of a lattice's gradient, its sign not among them

P = TypeVar("P", bound=EncryptedTreeParams)
Rounding = Callable[[NDArray[np.float64]], NDArray[np.int64]]


def bits_of(params: EncryptedTreeParams, n_rows: int) -> int:
    """Bits of one gradient, its sign not among them, of a job with `n_rows` training rows.

    A ConfigError where `precision_bits` are more than the scheme can add up.
    """
    asked = params.precision_bits
    if not params.host_noise and not is_lattice(params.encryption.scheme):
        return fixed_point.for_rows(n_rows, asked, 1.0, 1.0).bits
    most = bits_most(params, n_rows)
    if asked is not None and asked > most:
        noise = " and their noise" if params.host_noise else ""
        raise ConfigError(
            f"precision_bits is {asked}; {params.encryption.scheme} adds up {n_rows} rows{noise} "
            f"of at most {most} bits",
            todo=f"set precision_bits to at most {most}, or leave it out",
        )
    return asked or most


def bits_most(params: EncryptedTreeParams, n_rows: int) -> int:
    """The same where the job does not say how many there are."""
    if is_lattice(params.encryption.scheme):
        return budget(params, n_rows).message_bits - 1
    return fixed_point.bits_for(n_rows + spare_rows_added(params))


def budget(params: EncryptedTreeParams, n_rows: int, value_bits: int | None = None) -> Budget:
    """What a lattice scheme can add up; `value_bits` where the job says how many there are."""
    own, spare = lattices.named(params.encryption.scheme), spare_rows(params)
    bits = MESSAGE_BITS_MOST if value_bits is None else value_bits + 1
    return Budget(own, n_rows, bits, spare)


def encoding(params: EncryptedTreeParams, n_rows: int, fixed: FixedPoint) -> FixedPoint:
    """The integers of the job, whose objective's own are `fixed`."""
    if not is_lattice(params.encryption.scheme):
        return replace(fixed, bits=bits_of(params, n_rows)) if params.host_noise else fixed
    bits = bits_of(params, n_rows)
    # A message is signed, so the greatest one is 2^bits − 1.
    stretch = 2.0**bits / (2.0**bits - 1.0)
    return replace(
        fixed, bits=bits, g_bound=stretch * fixed.g_bound, h_bound=stretch * fixed.h_bound
    )


def without_bits(params: P) -> P:
    """Parameters for the objective's own bounds, whatever precision the job says."""
    lattice = is_lattice(params.encryption.scheme)
    return params.model_copy(update={"precision_bits": None}) if lattice else params


def rounding(params: EncryptedTreeParams, bits: int, secrets: Secrets) -> Rounding:
    """How reals in units become integers; `secrets` are of one round."""
    if not is_lattice(params.encryption.scheme):
        return nearest
    most = (1 << bits) - 1

    def unbiased(values: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.clip(rounded(values, secrets), -most, most)

    return unbiased
