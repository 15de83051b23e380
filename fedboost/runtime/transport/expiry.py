"""End of certificates: warnings before it, and the error after it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from fedboost.ground.errors import UnreachableError

if TYPE_CHECKING:
    from fedboost.runtime.transport.identity import Peer

EXPIRY_WARNED = timedelta(days=14)  # before a certificate ends
EXPIRY_FAILED = timedelta(hours=1)  # a job that begins now may not finish before the end
EXPIRED_REMEDY = "ask the CA's operator for a new one: fedboost certs rotate"


def expired_error(peer: Peer, not_after: datetime) -> UnreachableError:
    """Return the error of a daemon whose certificate has ended: jobs wait for its next one."""
    return UnreachableError(
        f"the certificate of {peer} expired on {time_text(not_after)}",
        todo=EXPIRED_REMEDY,
        **({"party": peer.name} if peer.role == "party" else {}),
    )


def expiry_warning(not_after: datetime, now: datetime) -> str:
    """Return the end of a sentence about a certificate that ends soon, "" if it does not."""
    left = not_after - now
    if left > EXPIRY_WARNED:
        return ""
    if left <= timedelta():
        return f"expired on {time_text(not_after)}: fedboost certs rotate"
    return f"ends in {remaining_text(left)}, on {time_text(not_after)}: fedboost certs rotate"


def remaining_text(left: timedelta) -> str:
    """Return a time for people, rounded, in days, hours, minutes or seconds."""
    for unit_s, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if left >= timedelta(seconds=2 * unit_s):
            return f"{left / timedelta(seconds=unit_s):.0f} {unit}"
    return f"{left.total_seconds():.0f} seconds"


def time_text(moment: datetime) -> str:
    """Return a moment for people, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
