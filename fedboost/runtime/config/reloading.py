"""What a daemon takes up of a settings file that has changed, without a restart."""

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
    """Return what the settings file says now, and the keys that have changed.

    A ConfigError where there is no file or it is wrong, and where a change needs a restart or is
    one that `check` refuses.
    """
    if reread is None:
        raise ConfigError("this daemon has no settings file", todo="restart it")
    fresh = await asyncio.to_thread(reread)
    changed = changed_keys(old, fresh)
    check(fresh)
    return fresh, changed


def changed_keys(old: DaemonConfig, new: DaemonConfig) -> list[str]:
    """Return the keys in which two settings differ; a ConfigError where one needs a restart."""
    may = PARTY_KEYS if isinstance(old, PartyConfig) else COORDINATOR_KEYS
    differ = [key for key in type(old).model_fields if getattr(old, key) != getattr(new, key)]
    fixed = [key for key in differ if key not in may]
    if fixed:
        raise ConfigError(
            f"{', '.join(fixed)}: a change needs a restart, so nothing was taken up",
            todo=f"restart the daemon, or change only {', '.join(may)}",
        )
    return differ


def check_parties(old: CoordinatorConfig, new: CoordinatorConfig, needed: set[str]) -> None:
    """Refuse, by a ConfigError, settings that lack a party whom jobs that run need."""
    lost = sorted(needed & old.parties.keys() - new.parties.keys())
    if lost:
        raise ConfigError(
            f"parties.{lost[0]} takes part in a job that runs, so nothing was taken up",
            todo="wait until it is over, or cancel it",
        )


def check_datasets(old: PartyConfig, new: PartyConfig, used: set[str]) -> None:
    """Refuse, by a ConfigError, settings that change a data set which jobs that run use."""
    for name in sorted(used):
        if old.datasets.get(name) != new.datasets.get(name):
            raise ConfigError(
                f"datasets.{name} is used by a job that runs, so nothing was taken up",
                todo="wait until it is over, or deny it",
            )
