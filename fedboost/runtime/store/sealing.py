"""A job's secrets at rest: seeds and private keys, sealed in files, destroyed with the job.

Each secret is AES-256-GCM under a key derived by HKDF from the store's key (``store.key``, made
once, 0600) and bound to its job and name. It protects against three things: a copy of the jobs'
folders without ``store.key`` (a backup, a support bundle) reveals nothing; a changed or swapped
file is refused; after `destroy_secrets` the files are gone. It does not protect against a reader of
the whole store with the daemon's rights, and a disk may keep deleted data. The key is not derived
from the TLS key, which changes under a running job at each rotation.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedboost.ground.disk import (
    SECRET_MODE,
    make_folder,
    on_disk,
    read_file,
    sync_folder,
    write_file,
)
from fedboost.ground.errors import ProtocolError, StoreError

if TYPE_CHECKING:
    from fedboost.crypto.secrets import Secrets

KEY_BYTES, NONCE_BYTES, SEED_BYTES = 32, 12, 32
MAGIC = b"fedboost sealed 1\0"
SECRETS = "secret"  # the folder of a job's
SECRET_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


class Vault:
    """The sealed secrets of one store; thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        self._key = self._store_key(folder / "store.key")

    def __repr__(self) -> str:
        return f"Vault({str(self._folder)!r})"

    def seed(self, job: str, name: str = "seed") -> bytes:
        """Return the job's secret seed, 32 bytes: drawn at the first call, durable on return."""
        with self._lock:
            if not self.has_secret(job, name):
                self.seal(job, name, secrets.token_bytes(SEED_BYTES))
            return self.unseal(job, name)

    def has_secret(self, job: str, name: str) -> bool:
        """Return whether the job has a secret of that name."""
        return self._secret_path(job, name).exists()

    def seal(self, job: str, name: str, secret: bytes) -> None:
        """Store `secret`; replace an earlier one of that name."""
        path = self._secret_path(job, name)
        with self._lock:
            make_folder(path.parent)
            nonce = secrets.token_bytes(NONCE_BYTES)
            sealed = self._secret_cipher(job, name).encrypt(nonce, secret, MAGIC)
            write_file(path, MAGIC + nonce + sealed, SECRET_MODE)

    def unseal(self, job: str, name: str) -> bytes:
        """Return the secret; raise StoreError if it is absent, changed or of another job."""
        path = self._secret_path(job, name)
        blob = read_file(path)
        head, nonce = len(MAGIC), blob[len(MAGIC) : len(MAGIC) + NONCE_BYTES]
        try:
            if not blob.startswith(MAGIC) or len(nonce) < NONCE_BYTES:
                raise InvalidTag
            return self._secret_cipher(job, name).decrypt(nonce, blob[head + NONCE_BYTES :], MAGIC)
        except InvalidTag:
            raise StoreError(
                "a sealed secret is damaged or was sealed for something else",
                todo="restore the store from one backup, or start the job anew",
                private=str(path),
                file=path.name,
            ) from None

    def lasting(self, job: str) -> Secrets:
        """Return a secret that outlives the job: derived from the store's key, it lasts as long as
        the store.
        """
        from fedboost.crypto.secrets import Secrets

        return Secrets(self._key).child("what a job has told", job)

    @property
    def row_key(self) -> bytes:
        """The key of hashes of row ids that stay in the store, which lives as long as it does."""
        from fedboost.crypto.secrets import Secrets

        return Secrets(self._key).derive("hashes of row ids")

    def destroy_secrets(self, job: str) -> None:
        """Overwrite and remove every secret of the job, if it has any."""
        folder = self._secret_path(job, "seed").parent
        with self._lock, on_disk(folder):
            if not folder.exists():
                return
            for path in folder.iterdir():
                _overwrite(path)
                path.unlink()
            folder.rmdir()
            sync_folder(folder.parent)

    def _secret_path(self, job: str, name: str) -> Path:
        if not SECRET_NAME.fullmatch(name):
            raise ProtocolError("a secret's name is not one")
        return self._folder / "jobs" / job_id(job) / SECRETS / f"{name}.sealed"

    def _secret_cipher(self, job: str, name: str) -> AESGCM:
        info = b"\0".join((MAGIC, job.encode(), name.encode()))
        derive = HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=info)
        return AESGCM(derive.derive(self._key))

    def _store_key(self, path: Path) -> bytes:
        if not path.exists():
            write_file(path, secrets.token_bytes(KEY_BYTES), SECRET_MODE)
        key = read_file(path)
        if len(key) != KEY_BYTES:
            raise StoreError(
                f"the key of the store has {len(key)} bytes, expected {KEY_BYTES}",
                todo="restore it from a backup",
                private=str(path),
                file=path.name,
            )
        return key


JOB_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def job_id(text: str) -> str:
    """Return `text`; raise ProtocolError unless it can name a folder below ``jobs``."""
    if JOB_PATTERN.fullmatch(text):
        return text
    raise ProtocolError("a job's id is letters, digits, - and _, 64 at most")


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
