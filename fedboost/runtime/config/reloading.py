"""Changes of a settings file that a daemon accepts without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from fedboost.ground.errors import ConfigError
from fedboost.runtime.config.daemons import CoordinatorConfig, DaemonConfig, PartyConfig

# All else is read once, where the daemon starts.
PARTY_KEYS = ("policy", "peers", "datasets", "retention")
COORDINATOR_KEYS = ("parties", "users", "retention")

Config = TypeVar("Config", bound=DaemonConfig)


async def fresh_settings(
    reread: Callable[[], Config] | None, old: Config, check: Callable[[Config], None]
) -> tuple[Config, list[str]]:
    """Return the current settings of the file, and the changed keys.

    Raise ConfigError for a missing or invalid file, and for a change that needs a restart or that
    `check` refuses.
    """
    if reread is None:
        raise ConfigError("this daemon has no settings file", todo="restart it")
    fresh = await asyncio.to_thread(reread)
    changed = changed_keys(old, fresh)
    check(fresh)
    return fresh, changed


def changed_keys(old: DaemonConfig, new: DaemonConfig) -> list[str]:
    """Return the keys that differ between two settings; a ConfigError if one needs a restart."""
    may = PARTY_KEYS if isinstance(old, PartyConfig) else COORDINATOR_KEYS
    differ = [key for key in type(old).model_fields if getattr(old, key) != getattr(new, key)]
    fixed = [key for key in differ if key not in may]
    if "tls" in fixed and old.pinned_authorities() != new.pinned_authorities():
        fixed[fixed.index("tls")] = "a pinned `ca`"
    if fixed:
        raise ConfigError(
            f"{', '.join(fixed)}: a change needs a restart, so nothing was reloaded",
            todo=f"restart the daemon, or change only {', '.join(may)}",
        )
    return differ


def check_parties(old: CoordinatorConfig, new: CoordinatorConfig, needed: set[str]) -> None:
    """Refuse, by a ConfigError, settings without a party of a running job."""
    lost = sorted(needed & old.parties.keys() - new.parties.keys())
    if lost:
        raise ConfigError(
            f"parties.{lost[0]} takes part in a running job, so nothing was reloaded",
            todo="wait until it has ended, or cancel it",
        )


def check_datasets(old: PartyConfig, new: PartyConfig, used: set[str]) -> None:
    """Refuse, by a ConfigError, settings that change a data set which jobs that run use."""
    for name in sorted(used):
        if old.datasets.get(name) != new.datasets.get(name):
            raise ConfigError(
                f"datasets.{name} is used by a running job, so nothing was reloaded",
                todo="wait until it has ended, or deny it",
            )
