"""Certificate signing requests (PKCS#10, RFC 2986) for a CA that is not ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from fedboost.ground.disk import PUBLIC_MODE, SECRET_MODE, make_folder, read_file, write_file
from fedboost.ground.errors import ConfigError
from fedboost.runtime.transport.certificates import Leaf, certificate_purposes, key_pem, new_key
from fedboost.runtime.transport.identity import (
    CertificateFaultError,
    CertificateKey,
    check_name,
    general_name,
    own_names,
    read_key,
)


def write_request(folder: Path, leaf: Leaf, hosts: Sequence[str] = ()) -> Path:
    """Write NAME.csr into a folder and return its path; NAME.key is made if it is missing.

    A key that is there is kept, so that a daemon runs on until its next certificate is there. A
    ConfigError refuses a bad name or host, and a key file that is none.
    """
    check_name(leaf.name)
    if leaf.name == "ca":
        raise ConfigError("ca.key is the CA's own file", todo="choose another name than ca")
    names = [*own_names(*leaf), *(general_name(host) for host in hosts)]
    make_folder(folder)
    key = _read_or_create_key(folder / f"{leaf.name}.key")
    asked = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, leaf.name)]))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(certificate_purposes(leaf.role)), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{leaf.name}.csr"
    write_file(path, asked.public_bytes(serialization.Encoding.PEM), PUBLIC_MODE)
    return path


def _read_or_create_key(path: Path) -> CertificateKey:
    if not path.exists():
        made = new_key()
        write_file(path, key_pem(made), SECRET_MODE)
        return made
    try:
        return read_key(read_file(path))
    except CertificateFaultError as fault:
        raise ConfigError(
            f"the request {fault}", file=str(path), todo="remove the file: another key is made"
        ) from None
