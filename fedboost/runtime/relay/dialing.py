"""Links out of a daemon or client, through a relay where its settings name one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedboost.runtime.transport.addresses import Reach, RelayAddress, Timers
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.tls import TlsFiles

if TYPE_CHECKING:
    from fedboost.runtime.relay.lines import RelayLink


def relay_link(tls: TlsFiles | None, timers: Timers, relay: RelayAddress) -> RelayLink:
    """Return the link to a relay; import its code only now."""
    from fedboost.runtime.relay.lines import RelayLink

    assert tls is not None, "settings with a relay have certificates"
    return RelayLink(relay, tls, timers)


def open_dialer(
    tls: TlsFiles | None,
    timers: Timers,
    claim: str,
    relay: RelayAddress | None = None,
    reach: Reach = "direct",
    *,
    checks_callees: bool = False,
) -> Dialer:
    """Return the links out of a daemon or client; see `Dialer` for `claim` and `checks_callees`."""
    if relay is None:
        return Dialer(tls, timers, claim, checks_callees=checks_callees)
    from fedboost.runtime.relay.routes import RelayRoutes

    routes = RelayRoutes(relay_link(tls, timers, relay), reach, claim.rpartition(":")[2])
    return Dialer(tls, timers, claim, routes=routes, checks_callees=checks_callees)
