"""TLS of a web server by a daemon's own certificate, read again when it is another one."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable

from fedboost.ground.errors import FedboostError
from fedboost.runtime.transport.tls import ServerCertificates, TlsFiles

log = logging.getLogger(__name__)


class WebTls:
    """The TLS context of a web server; new connections follow the certificate's files."""

    def __init__(
        self,
        tls: TlsFiles,
        certificates: ServerCertificates,
        clients: Callable[[], ssl.VerifyMode] = lambda: ssl.CERT_NONE,
    ) -> None:
        """Prepare the context; `clients` says whether callers show certificates of our CAs."""
        self._tls, self._certificates, self._clients = tls, certificates, clients
        self._pems = certificates.current_pems
        self.context = self._current = self._fresh()

    def _fresh(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self._tls.cert, self._tls.key)
        context.verify_mode = self._clients()
        if context.verify_mode is not ssl.CERT_NONE:
            context.load_verify_locations(cadata=self._pems.roots.pem.decode())
        context.sni_callback = self._refresh_context
        return context

    def _refresh_context(self, socket: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        # A connection takes its certificate from the current context, `verify_mode` from the first.
        self.context.verify_mode = self._clients()
        pems = self._certificates.fresh_pems()
        if pems is not self._pems:  # others reload these certificates, too
            before, self._pems = self._pems, pems
            try:
                self._current = self._fresh()
            except (OSError, FedboostError) as error:  # half replaced: the next connection looks
                log.warning("keeping the old certificate: %s", error)
                self._pems = before
        socket.context = self._current
