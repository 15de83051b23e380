"""The encryption schemes whose ciphertexts are numbers, by name.

A new one is a module beside this and an entry here: settings, keys, both sides of trees, prices and
the reference find it by that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedboost.crypto import iterative_affine, okamoto_uchiyama, paillier, plain
from fedboost.crypto.api import PrivateKey, PublicKey
from fedboost.crypto.workers import Workers
from fedboost.errors import ConfigError


@dataclass(frozen=True)
class KeyScheme:
    """How a scheme makes and reads its keys, and what its ciphertexts can do; see `api`."""

    name: str
    secure: bool  # whether it hides anything from whoever holds its ciphertexts
    multiplies: bool  # whether a host can multiply a sum by a number it knows, and add one
    key_bits: int  # where the job does not say; 0: the scheme has no key
    key_bits_min: int  # shorter keys are refused
    plaintext_bits: Callable[[int], int]  # capacity of a plaintext, by key_bits
    generate: Callable[[int, Workers], PrivateKey]  # (key_bits, workers)
    load_private: Callable[[bytes, Workers], PrivateKey]  # (from the sealed store, workers)
    load_public: Callable[[bytes, int, Workers], PublicKey]  # (from the peer, key_bits, workers)


_ALL = (
    KeyScheme(
        name="paillier",
        secure=True,
        multiplies=True,
        key_bits=paillier.KEY_BITS,
        key_bits_min=paillier.KEY_BITS_MIN,
        plaintext_bits=paillier.plaintext_bits,
        generate=paillier.generate,
        load_private=paillier.load_private,
        load_public=paillier.load_public,
    ),
    KeyScheme(
        name="okamoto-uchiyama",
        secure=True,
        multiplies=True,
        key_bits=okamoto_uchiyama.KEY_BITS,
        key_bits_min=okamoto_uchiyama.KEY_BITS_MIN,
        plaintext_bits=okamoto_uchiyama.plaintext_bits,
        generate=okamoto_uchiyama.generate,
        load_private=okamoto_uchiyama.load_private,
        load_public=okamoto_uchiyama.load_public,
    ),
    KeyScheme(
        name="iterative-affine",  # broken: see its module
        secure=False,
        multiplies=False,
        key_bits=iterative_affine.KEY_BITS,
        key_bits_min=iterative_affine.KEY_BITS_MIN,
        plaintext_bits=iterative_affine.plaintext_bits,
        generate=iterative_affine.generate,
        load_private=iterative_affine.load_private,
        load_public=iterative_affine.load_public,
    ),
    KeyScheme(
        name="plain",
        secure=False,
        multiplies=True,
        key_bits=0,
        key_bits_min=0,
        plaintext_bits=plain.plaintext_bits,
        generate=plain.generate,
        load_private=plain.load_private,
        load_public=plain.load_public,
    ),
)
SCHEMES: Mapping[str, KeyScheme] = {scheme.name: scheme for scheme in _ALL}


def scheme(name: str) -> KeyScheme:
    """The scheme with keys of that name; a ConfigError names those there are."""
    if name not in SCHEMES:
        raise ConfigError(
            f"unknown encryption scheme {name!r}", todo=f"one of {', '.join(SCHEMES)}"
        )
    return SCHEMES[name]
