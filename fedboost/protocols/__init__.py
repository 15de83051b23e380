"""One folder per protocol; they do not import one another.

Every folder here is a protocol: jobs name it with `-` for `_`.

Modules:
    align                  rows that all parties share
    align_pairs            rows that the guest shares with each host
    echo                   the smallest protocol, for tests
    federboost_horizontal  horizontal boosting by sums under masks
    federboost_vertical    vertical boosting on noisy buckets
    gbun                   boosting of untrained networks
    hybridtree             trees with a guest's and hosts' parts
    predict                predictions with a vertical model
    predict_hybrid         predictions with a model of hybridtree
    secureboost            vertical boosting under encryption
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from functools import cache
from typing import Any

from fedboost.flow import Protocol
from fedboost.ground import wire
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import Settings
from fedboost.job import JobSpec

_loaded: dict[str, Protocol[Settings]] = {}

OTHER = "other"  # in figures and spans: any name that is not in our files


@cache
def _folders() -> tuple[str, ...]:
    return tuple(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def all_names() -> tuple[str, ...]:
    """Return the names of the protocols in jobs, without loading any."""
    return tuple(dict.fromkeys((*_folders(), *_loaded)))


def load_all() -> dict[str, Protocol[Settings]]:
    """Return every protocol by its name in jobs."""
    for name in all_names():
        load_protocol(name)
    return _loaded


def shown_step(stage: str, step: str = "") -> tuple[str, str]:
    """Return the names of a stage and a step as daemons show them; unknown ones are OTHER."""
    if stage not in all_names():
        return OTHER, OTHER
    return stage, OTHER if step and load_protocol(stage).step(step) is None else step


def stages_of_job(spec: JobSpec, params: Any) -> tuple[str, ...]:
    """Return the stages of a job, in order; no alignment if it uses an earlier job's rows."""
    names = load_protocol(spec.protocol).stages(params)
    if spec.alignment_job is None:
        return names
    return tuple(name for name in names if load_protocol(name).leaves != "rows")


def aligning_stage(spec: JobSpec, params: Any) -> str | None:
    """Return the stage of a job that finds the common rows, or would but for `alignment`."""
    names = load_protocol(spec.protocol).stages(params)
    return next((name for name in names if load_protocol(name).leaves == "rows"), None)


def load_protocol(name: str) -> Protocol[Settings]:
    """Return the protocol of that name; a ConfigError names the nearest one."""
    if name in _loaded:
        return _loaded[name]
    if name not in all_names():
        nearest = difflib.get_close_matches(name, all_names(), n=1, cutoff=0.0)[0]
        raise ConfigError(f"there is no protocol {name[:64]!r}", todo=f"did you mean {nearest!r}?")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    protocol: Protocol[Settings] = module.PROTOCOL
    assert protocol.name == name
    homes = {sys.modules[s.gives.__module__] for s in protocol.flow if s.gives is not None}
    wire.hide_content(kind for home in homes for kind in wire.message_types(home))
    _loaded[name] = protocol
    return protocol
