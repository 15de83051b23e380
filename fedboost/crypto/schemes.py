"""The encryption schemes by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedboost.crypto import paillier, plain
from fedboost.crypto.api import PrivateKey, PublicKey
from fedboost.crypto.workers import Workers
from fedboost.errors import ConfigError


@dataclass(frozen=True)
class Scheme:
    """How a scheme makes and reads its keys; what keys do is in `api`."""

    name: str
    secure: bool  # whether it hides anything from whoever holds its ciphertexts
    generate: Callable[[int, Workers], PrivateKey]  # (key_bits, workers)
    load_private: Callable[[bytes, Workers], PrivateKey]  # (from the sealed store, workers)
    load_public: Callable[[bytes, int, Workers], PublicKey]  # (from the peer, key_bits, workers)


_ALL = (
    Scheme("paillier", True, paillier.generate, paillier.load_private, paillier.load_public),
    Scheme("plain", False, plain.generate, plain.load_private, plain.load_public),
)
SCHEMES: Mapping[str, Scheme] = {scheme.name: scheme for scheme in _ALL}


def scheme(name: str) -> Scheme:
    """The scheme of that name; a ConfigError names those there are."""
    if name not in SCHEMES:
        raise ConfigError(
            f"unknown encryption scheme {name!r}", todo=f"one of {', '.join(SCHEMES)}"
        )
    return SCHEMES[name]
