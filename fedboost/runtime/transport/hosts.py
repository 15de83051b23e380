"""Allowed host names in HTTP requests to a daemon's own servers.

A foreign page can point its own host name at our address (DNS rebinding), so that a browser lets it
read our answers. Such a request carries the foreign host name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from fedboost.runtime.transport.addresses import is_ip, split_address

HERE = ("localhost", "127.0.0.1", "::1")  # also through a tunnel, with any port
ANYWHERE = ("0.0.0.0", "::")  # noqa: S104  addresses that a browser cannot ask for
_HEADER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")


class OwnHosts:
    """The hosts of one address that is listened on."""

    def __init__(self, listen: str, names: Collection[str], *, with_ips: bool = False) -> None:
        """Allow `names` beside the listening address and this machine's names; with `with_ips` also
        IP addresses, which DNS rebinding cannot use.
        """
        host, _ = split_address(listen)
        self._names = frozenset({*HERE, *names, *({host.lower()} - set(ANYWHERE))})
        self._with_ips = with_ips

    def is_own_host(self, header: str) -> bool:
        """Return whether a request's `Host` is one of ours."""
        match = _HEADER.fullmatch(header)
        if match is None:
            return False
        called = match[1].strip("[]")
        if is_ip(called):
            return self._with_ips or str(ipaddress.ip_address(called)) in self._names
        return called.lower() in self._names
