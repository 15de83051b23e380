"""Checks the CA of a Dask cluster: it must not be that of a federation.

Dask runs code of every owner of a certificate of the cluster, and gives parts to every worker that
joins it. Under the federation's CA all peers, users and coordinators have a certificate. Naming the
scheduler's certificate would not help, since they would call the scheduler as it calls its workers.
"""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedboost.ground.errors import ConfigError
from fedboost.runtime.transport.identity import is_issuer, read_certificate, read_roots
from fedboost.runtime.transport.tls import TlsFiles


def check_own_ca(cluster: TlsFiles, federation: TlsFiles | None) -> None:
    """Raise a ConfigError if a cluster shares a CA with the federation.

    It shares one if it trusts a CA of the federation, current or retired, or if such a CA has
    signed its certificate.
    """
    ours = cluster.read()
    if federation is None:  # on one machine, without certificates
        return
    theirs = read_roots(federation.read_all_roots().pem)
    keys = {_public_key_bytes(root) for root in theirs}
    trusts = any(_public_key_bytes(root) in keys for root in read_roots(ours.ca))
    certificate = read_certificate(ours.cert)
    if trusts or any(is_issuer(root, certificate) for root in theirs):
        raise ConfigError(
            "the Dask cluster takes certificates of the federation's CA, so that every owner of "
            "one can run code on the workers and here",
            todo="give the cluster a CA of its own, and name its files in workers.tls",
            key="workers.tls",
        )


def _public_key_bytes(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
