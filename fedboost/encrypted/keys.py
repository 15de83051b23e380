"""The beginning of an encrypted job: the guest's key, and how gradients are packed under it."""

from __future__ import annotations

from dataclasses import dataclass

from fedboost.core import fixed_point
from fedboost.core.binning import Binning
from fedboost.crypto.api import Blinders, PrivateKey, PublicKey
from fedboost.crypto.layout import Layout
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.schemes import SCHEMES
from fedboost.encrypted.params import EncryptedTreeParams
from fedboost.errors import PeerError, PolicyError
from fedboost.flow import Seat
from fedboost.messages.protocol.encrypted_pb2 import EncryptionKey


@dataclass(frozen=True)
class HostKey:
    """What a host works with: the guest's key, how sums are packed, and its own blinding."""

    key: PublicKey
    layout: Layout
    blinders: Blinders


def generate(seat: Seat) -> PrivateKey:
    """A fresh key, as the job says."""
    encryption = seat.params.encryption
    return SCHEMES[encryption.scheme].generate(encryption.key_bits, seat.workers)


def layout(
    params: EncryptedTreeParams, value_bits: int, n_rows: int, plaintext_bits: int
) -> GhLayout:
    """How gradients of `value_bits` bits of at most `n_rows` rows are packed (section 4.2)."""
    return GhLayout(
        value_bits=value_bits,
        n_rows=n_rows,
        plaintext_bits=plaintext_bits,
        outputs=params.n_outputs // params.trees_per_round,
        pack=params.gh_packing,
        compress=params.cipher_compressing,
    )


def share(
    params: EncryptedTreeParams, key: PrivateKey, value_bits: int, first_tree: int = 0
) -> EncryptionKey:
    """What the hosts are told of the key, and of the model that the job continues."""
    return EncryptionKey(
        scheme=params.encryption.scheme,
        key=key.public_bytes(),
        value_bits=value_bits,
        first_tree=first_tree,
    )


def accept(seat: Seat, got: EncryptionKey) -> PublicKey:
    """The guest's key; a PeerError unless it is sound and the one that the job says.

    A PolicyError where it declares more bits of a gradient than our policy allows.
    """
    asked, limits = seat.params.encryption, seat.limits
    if got.scheme != asked.scheme:
        raise PeerError(f"the guest sent a {got.scheme[:32]!r} key, the job says {asked.scheme}")
    if got.value_bits > limits.gradient_bits_max:
        raise PolicyError(
            f"the policy allows {limits.gradient_bits_max} bits per gradient, "
            f"the guest declares {got.value_bits}",
            todo="lower precision_bits, or ask the party's owner",
            key="policy.gradient_bits_max",
        )
    return SCHEMES[asked.scheme].load_public(got.key, asked.key_bits, seat.workers)


def check_value_bits(seat: Seat, got: EncryptionKey, n_rows: int) -> None:
    """Refuses, by a PeerError, another precision than that of a job with `n_rows` training rows."""
    bits = fixed_point.for_rows(n_rows, seat.params.precision_bits, 1.0, 1.0).bits
    if got.value_bits != bits:
        raise PeerError(
            f"the guest declares {got.value_bits} bits per gradient, the job has {bits}"
        )


def check_value_bits_fit(seat: Seat, got: EncryptionKey, n_rows: int) -> None:
    """Refuses, by a PeerError, a precision that no job has of whose training rows we have `n_rows`,
    perhaps not all.
    """
    own, most = seat.params.precision_bits, fixed_point.bits_for(n_rows)
    if not (own or fixed_point.BITS_MIN) <= got.value_bits <= (own or most):
        expected = str(own) if own else f"{fixed_point.BITS_MIN} to {most}"
        raise PeerError(
            f"the guest declares {got.value_bits} bits per gradient, the job has {expected}"
        )


def host_key(key: PublicKey, packing: Layout, first: int) -> HostKey:
    """The key at work; blinding for a first answer of so many sums is made in the background."""
    blinders = key.blinders()
    blinders.prepare(packing.package_count([first]))
    return HostKey(key, packing, blinders)


def first_sums(binning: Binning) -> int:
    """About how many sums a host offers for one node."""
    return 2 * int(binning.n_bins.sum())
