"""The scheme of a job as trees use it: its module is loaded on first use."""

from __future__ import annotations

import importlib

from fedboost.encrypted.scheme.ciphers import TreeScheme
from fedboost.encrypted.scheme.params import EncryptedTreeParams
from fedboost.encrypted.scheme.schemes import SCHEMES
from fedboost.ground.errors import ConfigError
from fedboost.job import AUTO


def tree_scheme(params: EncryptedTreeParams) -> TreeScheme:
    """Return a job's scheme as trees use it; a ConfigError if none has been chosen yet."""
    name = params.encryption.scheme
    if name == AUTO:
        raise ConfigError(
            "the job's encryption scheme has not been chosen yet",
            todo=f"name one: {', '.join(SCHEMES)}",
            key="encryption.scheme",
        )
    module = importlib.import_module(f"fedboost.encrypted.{SCHEMES[name].module}")
    scheme: TreeScheme = module.tree_scheme(name)
    return scheme
