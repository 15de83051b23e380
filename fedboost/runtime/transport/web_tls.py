"""TLS of a web server by a daemon's own certificate, read again when it is another one."""

from __future__ import annotations

import ssl

from fedboost.runtime.transport.tls import ServerCertificates, TlsFiles


class WebTls:
    """The TLS context of a web server; it changes with the certificate's files."""

    def __init__(
        self,
        tls: TlsFiles,
        certificates: ServerCertificates,
        clients: ssl.VerifyMode = ssl.CERT_NONE,
    ) -> None:
        """Prepare the context; `clients` says whether callers show certificates of our CAs."""
        self._tls, self._certificates, self._clients = tls, certificates, clients
        self.context = self._fresh()

    def _fresh(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self._tls.cert, self._tls.key)
        if self._clients is not ssl.CERT_NONE:
            context.verify_mode = self._clients
            context.load_verify_locations(cadata=self._certificates.current_pems.roots.pem.decode())
        context.sni_callback = self._refresh_context
        return context

    def _refresh_context(self, socket: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        if self._certificates.reload():
            self.context = self._fresh()
        socket.context = self.context
