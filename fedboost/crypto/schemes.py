"""The encryption schemes whose ciphertexts are numbers, by name.

A new scheme is a module beside this one with its `SCHEME`, and an entry here. Settings, keys,
both sides of trees, sizes, prices and the reference find it there.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedboost.crypto import iterative_affine, okamoto_uchiyama, paillier, plain
from fedboost.crypto.api import KeyScheme

KEYED_SCHEMES: Mapping[str, KeyScheme] = {
    module.SCHEME.name: module.SCHEME
    for module in (paillier, okamoto_uchiyama, iterative_affine, plain)
}
