"""Chance, replaced: what daemons draw at random is the same in every run."""

import hashlib
import json
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from fedboost.runtime.jobs import submitted
from fedboost.runtime.store.sealing import SEED_BYTES, Vault
from fedboost.runtime.transport.identity import Identity
from tests.simulator.processes import PROCESS, Process

_signed: dict[tuple[bytes, bytes], bytes] = {}  # signatures are random; here each text has one

BEGUN = int(time.time())  # what submissions of all runs are signed at


def _seed_of_job(self: Vault, job: str, name: str = "seed") -> bytes:
    """A party's seed of a job that is the same in every run."""
    if not self.has_secret(job, name):
        process = PROCESS.get()
        assert process is not None
        told = json.dumps([process.name, job, name]).encode()
        self.seal(job, name, hashlib.sha256(told).digest()[:SEED_BYTES])
    return self.unseal(job, name)


def _signing(real: Callable[[Identity, bytes], bytes]) -> Callable[[Identity, bytes], bytes]:
    def sign(self: Identity, data: bytes) -> bytes:
        key = (self.certificate_pem, data)
        if key not in _signed:
            _signed[key] = real(self, data)
        return _signed[key]

    return sign


@contextmanager
def replaced(next_job: Callable[[], int]) -> Iterator[None]:
    """Inside, what the system draws is a process's own sequence; `next_job` numbers jobs."""

    def n_bytes(count: int) -> bytes:
        process = PROCESS.get()
        if process is None:
            process = nobody
        process.drawn += 1
        named = json.dumps([process.name, process.life, process.drawn]).encode()
        return hashlib.shake_256(named).digest(count)

    def bits(count: int) -> int:
        return int.from_bytes(n_bytes(-(-count // 8)), "big") >> (-count % 8)

    def below(most: int) -> int:
        return int.from_bytes(n_bytes(most.bit_length() // 8 + 16), "big") % most

    nobody = Process("nobody")
    with (
        mock.patch.object(Vault, "seed", _seed_of_job),
        mock.patch.object(submitted, "signing_time", return_value=BEGUN),
        mock.patch.object(Identity, "sign", _signing(Identity.sign)),
        mock.patch.object(os, "urandom", n_bytes),
        mock.patch.object(random, "_urandom", n_bytes),  # of SystemRandom
        mock.patch.object(secrets, "token_bytes", lambda n=32: n_bytes(n)),
        mock.patch.object(secrets, "token_hex", lambda n=32: f"{next_job():0{2 * n}x}"),
        mock.patch.object(secrets, "randbits", bits),
        mock.patch.object(secrets, "randbelow", below),
    ):
        yield
