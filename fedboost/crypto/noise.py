"""Randomised response: a value of few is reported truly with a known chance, else as another one.

Local differential privacy of ε: two true values give any report with chances that differ by a
factor of e^ε at most (FederBoost, section 4.1, after Warner, 1965).
"""

from __future__ import annotations

import math

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from fedboost.crypto import id_digests
from fedboost.crypto.secrets import DrawPurpose, Secrets
from fedboost.ground.ids import EncodedIds

CodedValues = NDArray[np.uint8]
WORDS = 1 << 64


def move_chance(epsilon: float, values: int) -> float:
    """Return the chance that one of `values` values is reported as another: (values − 1) / (e^ε +
    values − 1).

    It is exact to a few units in the last place even if small, unlike 1 − its complement.
    """
    others = (values - 1) * math.exp(-epsilon)
    return others / (1.0 + others)


NO_CODE = 255  # no value has this code


class ValueNoise:
    """Noise of an id and its value, independent of other rows and of the order.

    Each id has a keyed digest of 16 bytes. The AES-256 block of digest and value, under a key of
    the purpose, is a pseudo-random function of all three that nobody else can compute: another
    value of an id gets noise that is independent of the first one's.
    """

    def __init__(self, secrets: Secrets, ids: EncodedIds) -> None:
        self._secrets = secrets
        self._digests = id_digests.digests(ids, secrets.derive("ids of noise"))

    @property
    def ids(self) -> NDArray[np.uint64]:
        """Return a keyed name of each id, uint64 (n,)."""
        return self._digests.view("<u8")[:, 0].copy()

    def randomised(
        self, true: CodedValues, values: int, epsilon: float, *purpose: DrawPurpose
    ) -> CodedValues:
        """Return noisy answers for the ids' values below `values`, uint8 (n,), each by itself.

        The same secret, id, value and purpose give the same answer: a second report reveals nothing
        more. A value moves with a chance rounded up to a multiple of 2^-64, so that a huge ε keeps
        some noise; the other values share that chance evenly, up to 2^-56 of a share.
        """
        if values < 2 or not len(true):
            return true.copy()
        words = self._random_words(purpose, true)
        moving = math.ceil(move_chance(epsilon, values) * WORDS)
        moves = words[:, 0] < np.uint64(max(1, moving))
        step = 1 + words[:, 1] % np.uint64(values - 1)
        moved = (true.astype(np.uint64) + step) % np.uint64(values)
        return np.where(moves, moved.astype(np.uint8), true)

    def codes(self, true: CodedValues, *purpose: DrawPurpose) -> CodedValues:
        """Return keyed codes of the ids' values below 255, uint8 (n,), for a record of them.

        Two values of an id have two codes; no code is `NO_CODE`. Without the secret a code reveals
        nothing of its value.
        """
        words = self._encrypt_blocks(("codes", *purpose), self._digests).view("<u8")[:, 0]
        return ((true + words % np.uint64(NO_CODE)) % np.uint64(NO_CODE)).astype(np.uint8)

    def _random_words(
        self, purpose: tuple[DrawPurpose, ...], true: CodedValues
    ) -> NDArray[np.uint64]:
        """Return two words for each id and its value, uint64 (n, 2)."""
        blocks = self._digests.copy()
        blocks[:, -1] ^= true
        return self._encrypt_blocks(purpose, blocks).view("<u8")

    def _encrypt_blocks(
        self, purpose: tuple[DrawPurpose, ...], blocks: NDArray[np.uint8]
    ) -> NDArray[np.uint8]:
        # ECB is a permutation of single blocks, so equal blocks get equal noise.
        cipher = Cipher(AES(self._secrets.derive("noise", *purpose)), ECB())  # noqa: S305
        return np.frombuffer(cipher.encryptor().update(blocks.tobytes()), np.uint8).reshape(-1, 16)
