"""The encryption schemes whose ciphertexts are numbers, by name.

A new one is a module beside this and an entry here: settings, keys, both sides of trees, prices and
the reference find it by that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

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


class _Module(Protocol):
    """What the module of a scheme has."""

    KEY_BITS: int
    KEY_BITS_MIN: int

    def plaintext_bits(self, key_bits: int, /) -> int: ...

    def generate(self, key_bits: int, workers: Workers, /) -> PrivateKey: ...

    def load_private(self, data: bytes, workers: Workers, /) -> PrivateKey: ...

    def load_public(self, data: bytes, key_bits: int, workers: Workers, /) -> PublicKey: ...


def _of(module: _Module, name: str, *, secure: bool, multiplies: bool) -> KeyScheme:
    return KeyScheme(
        name=name,
        secure=secure,
        multiplies=multiplies,
        key_bits=module.KEY_BITS,
        key_bits_min=module.KEY_BITS_MIN,
        plaintext_bits=module.plaintext_bits,
        generate=module.generate,
        load_private=module.load_private,
        load_public=module.load_public,
    )


_ALL = (
    _of(paillier, "paillier", secure=True, multiplies=True),
    _of(okamoto_uchiyama, "okamoto-uchiyama", secure=True, multiplies=True),
    # Broken: see its module.
    _of(iterative_affine, "iterative-affine", secure=False, multiplies=False),
    _of(plain, "plain", secure=False, multiplies=True),
)
SCHEMES: Mapping[str, KeyScheme] = {scheme.name: scheme for scheme in _ALL}


def scheme(name: str) -> KeyScheme:
    """The scheme with keys of that name; a ConfigError names those there are."""
    if name not in SCHEMES:
        raise ConfigError(
            f"unknown encryption scheme {name!r}", todo=f"one of {', '.join(SCHEMES)}"
        )
    return SCHEMES[name]
