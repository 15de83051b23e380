"""The encryption schemes whose ciphertexts are numbers, by name.

A new one is a module beside this, which states its `SCHEME`, and an entry here: settings, keys,
both sides of trees, sizes, prices and the reference find it by that.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedboost.crypto import iterative_affine, okamoto_uchiyama, paillier, plain
from fedboost.crypto.api import KeyScheme

SCHEMES: Mapping[str, KeyScheme] = {
    module.SCHEME.name: module.SCHEME
    for module in (paillier, okamoto_uchiyama, iterative_affine, plain)
}
