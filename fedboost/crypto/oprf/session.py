"""Names and keys of one pair's run, for ever: no message has a meaning in another run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedboost.crypto.oprf.sizes import OprfSizes

LABEL = b"fedboost oprf 1"


def ids_key(origin: bytes, nonces: Sequence[bytes]) -> bytes:
    """Return the key of all digests of ids, 32 bytes, fresh if any party's nonce is.

    `nonces` are the guest's and then the hosts', in an order that all know. `origin` names job and
    stage: an attempt that continues behind finished parts keeps their key.
    """
    drawn = HKDF(algorithm=SHA256(), length=32, salt=origin, info=LABEL + b" ids")
    return drawn.derive(_join_framed(*nonces))


@dataclass(frozen=True)
class OprfSession:
    """One guest and one host in one attempt at a job, with the draws of both for it."""

    attempt_digest: bytes  # of job, stage and attempt
    guest: str
    host: str
    sizes: OprfSizes
    key: bytes  # of the digests of ids, from the nonces of all parties in the comparison

    @property
    def output_key(self) -> bytes:
        """Return the key of the function's last hash."""
        return hashlib.sha256(b"out" + self.key).digest()

    @property
    def transfers(self) -> bytes:
        """Return the name of the base transfers, 32 bytes."""
        sizes = (self.sizes.guest_ids, self.sizes.host_ids)
        said = _join_framed(
            self.attempt_digest,
            self.guest.encode(),
            self.host.encode(),
            *(size.to_bytes(4, "big") for size in sizes),
            self.key,
        )
        return hashlib.sha256(LABEL + said).digest()

    def name(self, start: bytes, choice: bytes) -> bytes:
        """Return the name of the run, 32 bytes, once its base transfers are made."""
        return hashlib.sha256(LABEL + b" run" + self.transfers + start + choice).digest()


def _join_framed(*parts: bytes) -> bytes:
    """Join parts with their lengths, so that no two lists give the same bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
