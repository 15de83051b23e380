"""A stand-in for a job's encryption scheme, for the rehearsal of an estimate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self, TypeVar

from fedboost.encrypted.scheme.ciphers import GuestCipher, HostCipher
from fedboost.flow import StageContext
from fedboost.ground.settings import Settings
from fedboost.messages.protocol import encrypted_pb2 as pb

P_co = TypeVar("P_co", bound=Settings, covariant=True)


class Cipher(ABC):
    """Both sides of the stand-in for a job's scheme in an estimate."""

    @abstractmethod
    def guest(self, value_bits: int, nonces: tuple[bytes, ...]) -> GuestCipher:
        """See `keys.guest_side`."""

    @abstractmethod
    def host_cipher(self, got: pb.EncryptionKey, n_rows: int) -> HostCipher:
        """See `keys.host_side`."""


@dataclass(frozen=True, kw_only=True)
class RehearsedContext(StageContext[P_co]):
    """A context of an estimate, which has a stand-in for the job's scheme."""

    cipher: Cipher

    @classmethod
    def of(cls, context: StageContext[P_co], cipher: Cipher) -> Self:
        """Return the context with that stand-in."""
        return cls(**vars(context), cipher=cipher)
