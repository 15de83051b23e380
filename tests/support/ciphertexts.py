"""Keys short enough for many cases a second, and the naive twins of what is done with them."""

import functools
from typing import Any

import gmpy2
import numpy as np

from fedboost.crypto import iterative_affine, okamoto_uchiyama, schemes
from fedboost.crypto.api import Ciphertexts, Outgoing, PrivateKey
from fedboost.crypto.layout import Lane, Layout
from fedboost.crypto.limbs import LIMB_BITS, rows_of
from fedboost.crypto.masking import Masks
from fedboost.crypto.modular import ModularPrivate, ModularPublic
from fedboost.crypto.modular_kernels import ModularSecret
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.paillier import PaillierSecret
from fedboost.crypto.paillier_keys import SecretPrimes
from fedboost.crypto.residues import ResiduePrivate, ResiduePublic
from fedboost.ground.workers import Serial

PRIMES = SecretPrimes(int(gmpy2.next_prime(3 << 254)), int(gmpy2.next_prime(7 << 253)))


@functools.cache
def short_keys(scheme: str) -> tuple[Any, Any]:
    """The private and the public key of the scheme, too short for any check."""
    if scheme == "plain":
        private = schemes.KEYED_SCHEMES[scheme].generate(0, Serial())
        return private, schemes.KEYED_SCHEMES[scheme].load_public(
            private.public_bytes(), 0, Serial()
        )
    if scheme == "iterative-affine":
        chain = iterative_affine.draw_secret(512, iterative_affine.ROUNDS)
        bits = iterative_affine.plaintext_bits(512)
        public = ResiduePublic(chain.modulus, bits, b"", headroom=False)
        return ResiduePrivate(chain), public
    secret: ModularSecret = PaillierSecret(PRIMES)
    if scheme == "okamoto-uchiyama":
        secret = okamoto_uchiyama.draw_secret(768)
    return ModularPrivate(secret, Serial()), ModularPublic(secret.key, Serial())


def single(each):
    """Ciphertexts in one lane, from uint8 (n, width)."""
    return Ciphertexts(each[:, None, :])


def arrived(outgoing: Outgoing, lanes=1):
    """What the other side makes of a message's ciphertexts."""
    rows, rest = divmod(len(outgoing), lanes)
    assert not rest, "a block does not hold whole rows"
    return Ciphertexts.received(outgoing.to_bytes(), rows, outgoing.width, lanes)


def encrypted(private: PrivateKey, gh, layout: Layout):
    """All rows, as the host has them."""
    return Ciphertexts.concat(
        [arrived(part, len(layout.lanes)) for part in private.encrypt(gh, layout)]
    )


def gradients(rows, outputs=1, seed=0, bits=30):
    """Random gradients and hessians, int64 (rows, 2·outputs), the extremes among them."""
    rng = np.random.default_rng(seed)
    gh = rng.integers(-(2**bits), 2**bits, (rows, 2 * outputs), endpoint=True)
    gh[0] = 2**bits
    gh[-1] = -(2**bits)
    gh[:, 1::2] = abs(gh[:, 1::2])
    return gh


def naive_sums(values, rows, cells, n_cells):
    """Python's sums of values[rows[i]] over the cells, whatever can be added to zero."""
    sums = [0] * n_cells
    for row, indices in zip(rows.tolist(), cells.tolist(), strict=True):
        for cell in indices:
            if cell >= 0:
                sums[cell] = sums[cell] + values[row]
    return sums


def pairs_in(layout: GhLayout, value, size):
    """The (G, H) of a package's plaintext; None if it is refused."""
    width = max(value.bit_length(), layout.lanes[0].package_bits) // 8 + 1
    sums = layout.unpack_sums(rows_of([value], width), [size])
    return None if sums is None else [tuple(pair) for pair in sums.tolist()]


def signed_fields(package, lane: Lane, size):
    """A package's signed numbers, [row][digit], read from Python's number, lowest first."""
    found = []
    for _ in range(size):
        row = []
        for digit in lane.digits:
            half = 1 << (digit.bits - 1)
            number = (package + half) % (2 * half) - half
            package = (package - number) >> digit.bits
            row.append(number)
        found.append(row)
    return found


def masks_of(numbers, bits, streams=1):
    """Masks that are Python's numbers, [row][output]; the topmost limb takes all above the rest."""
    top = (bits - 1) // LIMB_BITS

    def limbs(n):
        low = [abs(n) >> (LIMB_BITS * i) & (2**LIMB_BITS - 1) for i in range(top)]
        sign = -1 if n < 0 else 1
        return [sign * limb for limb in [*low, abs(n) >> (LIMB_BITS * top)]]

    signed = np.array([[limbs(n) for n in row] for row in numbers], dtype=np.int64)
    return Masks(signed, bits, streams)


def wrapped(number):
    """A number modulo 2^64, as int64 holds it."""
    return (number + 2**63) % 2**64 - 2**63
