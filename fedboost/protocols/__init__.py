"""One folder per protocol; they do not import one another.

Whatever folder lies here is a protocol: jobs name it with `-` for `_`.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from functools import cache

from fedboost import wire
from fedboost.errors import ConfigError
from fedboost.flow import Protocol


@cache
def known() -> dict[str, Protocol]:
    """Every protocol by its name in jobs."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        protocol: Protocol = importlib.import_module(f"{__name__}.{module.name}").PROTOCOL
        assert protocol.name == module.name.replace("_", "-")
        homes = {sys.modules[s.gives.__module__] for s in protocol.flow if s.gives is not None}
        wire.hide_content(kind for home in homes for kind in wire.message_types(home))
        found[protocol.name] = protocol
    return found


def named(name: str) -> Protocol:
    """The protocol of that name; a ConfigError names the nearest one."""
    protocol = known().get(name)
    if protocol is None:
        nearest = difflib.get_close_matches(name, known(), n=1, cutoff=0.0)[0]
        raise ConfigError(f"there is no protocol {name[:64]!r}", todo=f"did you mean {nearest!r}?")
    return protocol
