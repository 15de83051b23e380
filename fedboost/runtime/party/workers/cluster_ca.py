"""Whose certificates a Dask cluster takes: never those of a federation.

Dask runs code for whoever has a certificate of the cluster, and gives parts to whoever joins it as
a worker. Under the federation's CA every peer, user and coordinator has one; naming the scheduler's
certificate would not help, since they would call the scheduler as it calls its workers.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedboost.ground.errors import ConfigError
from fedboost.runtime.transport.identity import read_certificate, read_roots
from fedboost.runtime.transport.tls import TlsFiles


def check_own_ca(cluster: TlsFiles, federation: TlsFiles | None) -> None:
    """Refuse, by a ConfigError, a cluster that trusts a CA of the federation, now or retired, or
    takes a certificate that one has signed.
    """
    ours = cluster.read()
    if federation is None:  # on one machine, without certificates
        return
    theirs = read_roots(federation.read().ca + federation.read_retired())
    keys = {_key(root) for root in theirs}
    trusts = any(_key(root) in keys for root in read_roots(ours.ca))
    if trusts or _is_signed_by(read_certificate(ours.cert), theirs):
        raise ConfigError(
            "the Dask cluster takes certificates of the federation's CA, so that everybody who has "
            "one can run code on the workers and here",
            todo="give the cluster a CA of its own, and name its files in workers.tls",
            key="workers.tls",
        )


def _key(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _is_signed_by(certificate: x509.Certificate, roots: Sequence[x509.Certificate]) -> bool:
    for root in roots:
        try:
            certificate.verify_directly_issued_by(root)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False
