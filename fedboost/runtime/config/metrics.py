"""Settings of a daemon's metrics."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from fedboost.ground.settings import Settings
from fedboost.runtime.config.fields import HostName
from fedboost.runtime.transport.addresses import Listen, is_loopback


class MetricsConfig(Settings):
    """Address at which Prometheus reads the daemon's figures, by plain HTTP and without sign-in."""

    listen: Listen
    allow_remote: bool = False  # other addresses than loopback: readable for everyone
    # Further host names for callers, beside the daemon's own name and numbers.
    names: Annotated[tuple[HostName, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _check_listen(self) -> MetricsConfig:
        if not (self.allow_remote or is_loopback(self.listen)):
            raise ValueError(f"{self.listen} is not loopback: choose 127.0.0.1, or allow_remote")
        return self
