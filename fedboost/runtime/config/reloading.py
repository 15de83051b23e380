"""What a daemon takes up of a settings file that has changed, without a restart."""

from __future__ import annotations

from fedboost.errors import ConfigError
from fedboost.runtime.config.daemons import CoordinatorConfig, DaemonConfig, PartyConfig

# All else is read once, where the daemon starts.
PARTY_KEYS = ("policy", "peers", "datasets", "retention")
COORDINATOR_KEYS = ("parties", "users", "retention")


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
