"""The interface of all encryption schemes, on whole arrays, and the types of data on the wire.

Three types separate ciphertexts that must not be mixed:

* `Ciphertexts`: held by a party, received or computed. They cannot go on the wire.
* `Encrypted`: the key owner's own fresh encryptions, which only `PrivateKey.encrypt` makes.
* `BlindedPackages`: compressed, blinded answers of a host, which only `PublicKey.release` makes.

Messages are made of the last two, so that a sum cannot be sent unblinded by mistake (SECURITY.md,
D5).

A row, a cell or a sum takes as many ciphertexts as its layout has lanes, one after the other on
the wire (`Layout.lanes`); `Ciphertexts` keeps them together, so that it counts rows or sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.layout import Layout, Sums
from fedboost.crypto.limbs import ByteArray
from fedboost.crypto.masking import Masks
from fedboost.crypto.secrets import Secrets
from fedboost.ground.errors import PeerError
from fedboost.ground.workers import Workers

Index = slice | NDArray[np.integer] | NDArray[np.bool_]


class Held(Protocol):
    """Rows, cells or sums under one key, as a party holds them."""

    def joined(self, others: Sequence[Self]) -> Self:
        """Return these and all the others, one after the other."""

    def replaced(self, indices: NDArray[np.integer], values: Self) -> Self:
        """Return a copy with the given values at these indices."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Index) -> Self:
        """Return the items at these indices; a copy unless `index` is a slice."""


H = TypeVar("H", bound=Held)


class Adder(Protocol[H]):
    """Sums of encrypted numbers that the adder cannot read."""

    def segment_sum(
        self, held: H, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int
    ) -> H:
        """Add number `rows[i]` of `held` into each cell of `cells[i]`.

        `rows` (n,) are indices; `cells` int32 (n, columns) are cells below `n_cells`, −1 adds
        nothing. A cell without numbers is an encryption of zero.
        """

    def add(self, a: H, b: H) -> H:
        """Return a[i] + b[i]."""

    def subtract(self, a: H, b: H) -> H:
        """Return a[i] − b[i]."""

    def prefix_sums(self, cells: H, offsets: NDArray[np.integer]) -> H:
        """Return running sums within each segment cells[offsets[s]:offsets[s + 1]]; offsets span
        all.
        """

    def sum_pairs(self, pairs: Pairs[H]) -> H:
        """Return the sums of the pairs."""


@dataclass(frozen=True)
class Pairs(Generic[H]):
    """Sums to be made: a[first[i]], plus b[second[i]] unless that index is −1.

    `first`, `second` int64 (n,).
    """

    a: H
    first: NDArray[np.int64]
    b: H
    second: NDArray[np.int64]

    @classmethod
    def of(cls, held: H) -> Self:
        """Return pairs whose sums are these items themselves."""
        indices = np.arange(len(held))
        return cls(held, indices, held, np.full(len(held), -1))

    @property
    def indices_of_both(self) -> NDArray[np.int64]:
        """Indices of the pairs with a second summand."""
        return np.flatnonzero(self.second >= 0)

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, index: Index) -> Self:
        """Return the pairs at these indices."""
        return replace(self, first=self.first[index], second=self.second[index])


@dataclass(frozen=True, repr=False, eq=False)
class Ciphertexts:
    """Rows, cells or sums under one key, uint8 (n, lanes, width): big-endian numbers of fixed
    width.
    """

    data: NDArray[np.uint8]

    def __post_init__(self) -> None:
        if self.data.dtype != np.uint8 or self.data.ndim != 3:
            raise TypeError(f"ciphertexts are uint8 (n, lanes, width), not {self.data.dtype}")

    @classmethod
    def received(cls, data: bytes, count: int, width: int, lanes: int = 1) -> Ciphertexts:
        """Read a message's `count` times `lanes` ciphertexts of `width` bytes.

        A PeerError unless the size is right; `PublicKey.check` and `PrivateKey.decrypt` check the
        content.
        """
        if count < 0 or len(data) != count * lanes * width:
            raise PeerError(
                f"expected {count * lanes} ciphertexts of {width} bytes, "
                f"got {len(data)} bytes in all"
            )
        return cls(np.frombuffer(data, dtype=np.uint8).reshape(count, lanes, width))

    @classmethod
    def concat(cls, parts: Sequence[Ciphertexts]) -> Ciphertexts:
        """Join all parts, one after the other; at least one."""
        return cls(np.concatenate([part.data for part in parts]))

    def joined(self, others: Sequence[Ciphertexts]) -> Ciphertexts:
        """Return these and all the others, one after the other."""
        return Ciphertexts.concat([self, *others])

    def replaced(self, indices: NDArray[np.integer], values: Ciphertexts) -> Ciphertexts:
        """Return a copy with the given values at these indices."""
        data = self.data.copy()
        data[indices] = values.data
        return Ciphertexts(data)

    @property
    def width(self) -> int:
        """Bytes of one ciphertext."""
        return self.data.shape[2]

    @property
    def lanes(self) -> int:
        """Ciphertexts of one row, cell or sum."""
        return self.data.shape[1]

    @property
    def each(self) -> ByteArray:
        """Every single ciphertext, uint8 (n·lanes, width)."""
        return np.ascontiguousarray(self.data).reshape(-1, self.width)

    def from_single(self, each: ByteArray) -> Ciphertexts:
        """Return other single ciphertexts in as many lanes."""
        return Ciphertexts(each.reshape(-1, self.lanes, self.width))

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Index) -> Ciphertexts:
        """Return the ciphertexts at these indices; a copy unless `index` is a slice."""
        return Ciphertexts(self.data[index])

    def __repr__(self) -> str:
        return f"Ciphertexts({len(self)} × {self.lanes} × {self.width} bytes)"


def join_parts(parts: Sequence[H]) -> H:
    """Return all parts, one after the other; at least one."""
    return parts[0].joined(parts[1:]) if len(parts) > 1 else parts[0]


def sums_of_pairs(adds: Adder[H], pairs: Pairs[H]) -> H:
    """Return the sums of pairs, for schemes that add single items and arrays alike."""
    sums, both = pairs.a[pairs.first], pairs.indices_of_both
    if not len(both):
        return sums
    return sums.replaced(both, adds.add(sums[both], pairs.b[pairs.second[both]]))


_SEAL = object()


class Outgoing:
    """Ciphertexts that may leave; only `seal_released` and `seal_encrypted` make them."""

    __slots__ = ("_data",)

    def __init__(self, data: NDArray[np.uint8], seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError(f"{type(self).__name__} is made by a key's own methods only")
        self._data = np.ascontiguousarray(data)

    @property
    def width(self) -> int:
        """Bytes of one ciphertext."""
        return self._data.shape[1]

    def to_bytes(self) -> bytes:
        """Return the ciphertexts one after the other, for the wire."""
        return self._data.tobytes()

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} × {self.width} bytes)"


class Encrypted(Outgoing):
    """The key owner's fresh encryptions of consecutive rows."""

    __slots__ = ()


class BlindedPackages(Outgoing):
    """Packages of sums, each with a fresh random factor and a blinded headroom (unless the scheme
    hides nothing).
    """

    __slots__ = ()


def seal_encrypted(data: NDArray[np.uint8]) -> Encrypted:
    """Mark ciphertexts as encrypted. Only the `encrypt` of a scheme may call this; a test refuses
    other callers.
    """
    return Encrypted(data, _SEAL)


def seal_released(data: NDArray[np.uint8]) -> BlindedPackages:
    """Mark packages as blinded. Only the `release` of a scheme may call this; a test refuses other
    callers.
    """
    return BlindedPackages(data, _SEAL)


class Blinders(Protocol):
    """Random factors that hide how a ciphertext was made; each is used once."""

    def prepare(self, count: int) -> None:
        """Start making `count` factors in the background, and return at once."""

    def take(self, count: int) -> NDArray[np.uint8]:
        """Return `count` factors, uint8 (count, width), each of them for the first time; wait until
        they are made.
        """


class PublicKey(Adder[Ciphertexts], Protocol):
    """A host's side of the schemes whose ciphertexts are numbers."""

    @property
    def width(self) -> int:
        """Bytes of one ciphertext."""

    @property
    def plaintext_bits(self) -> int:
        """Bits of a plaintext: any number below 2^plaintext_bits can be encrypted."""

    def to_bytes(self) -> bytes:
        """Return the key as the scheme's `load_public` reads it."""

    def check(self, ciphertexts: Ciphertexts) -> None:
        """Raise a PeerError unless every one is of this key's width, in range and a unit."""

    def scale(self, ciphertexts: Ciphertexts, factors: NDArray[np.int64]) -> Ciphertexts:
        """Return factors[i] · ciphertexts[i], in all lanes, for positive int64 (n,).

        A ConfigError from schemes that cannot (`KeyScheme.multiplies`).
        """

    def blinders(self) -> Blinders:
        """Return a new pool of blinding factors for this key."""

    def release(
        self,
        ciphertexts: Ciphertexts,
        layout: Layout,
        blinders: Blinders,
        counts: Sequence[int] | None = None,
        masks: Masks | None = None,
    ) -> BlindedPackages:
        """Return blinded packages of the ciphertexts, the only way out of a host.

        `counts` are the sums in each of the consecutive groups (None: one group), whose packages
        `layout.packages` lists; a group's last package in a lane may be part full. `masks` or
        noise, for a layout that takes them (`Layout.takes`), are added to the sums; a ConfigError
        from schemes that cannot (`KeyScheme.multiplies`).
        """


class PrivateKey(Protocol):
    """The guest's side: the key's owner."""

    @property
    def width(self) -> int:
        """Bytes of one ciphertext."""

    @property
    def plaintext_bits(self) -> int:
        """Bits of a plaintext: any number below 2^plaintext_bits can be encrypted."""

    def public_bytes(self) -> bytes:
        """Return the public key, with its proof, as the scheme's `load_public` reads it."""

    def encrypt(
        self, gh: Sums, layout: Layout, secrets: Secrets | None = None
    ) -> Iterator[Encrypted]:
        """Yield fresh encryptions of rows, int64 (n, columns) in the layout's order, row after row.

        With `secrets`, which are for these rows alone, the same rows have the same encryptions. In
        blocks of whole rows; an `Encrypted` counts its single ciphertexts, rows · lanes.
        """

    def decrypt(self, packages: Ciphertexts, layout: Layout, counts: Sequence[int]) -> Sums:
        """Return the sums in a host's packages, int64 (sum(counts), columns); see
        `PublicKey.release`.

        With masks they are the sums and their masks modulo 2^64: values from all holders of the
        masks are exact when added up modulo 2^64. One and the same PeerError for all packages that
        do not decrypt into the declared range.
        """

    def to_bytes(self) -> bytes:
        """Return the secret key, for the party's own sealed store."""


@dataclass(frozen=True)
class KeyScheme:
    """A scheme as its module states it: its keys, their sizes, and its
    operations on ciphertexts.
    """

    name: str
    secure: bool  # whether it hides anything from the holder of its ciphertexts
    multiplies: bool  # whether a host can multiply a sum by a number it knows, and add one
    key_bits: int  # the default of jobs; 0: the scheme has no key
    key_bits_min: int  # shorter keys are refused
    plaintext_bits: Callable[[int], int]  # capacity of a plaintext, by key_bits
    ciphertext_bytes: Callable[[int], int]  # width of a ciphertext, by key_bits
    public_bytes: Callable[[int], int]  # of a public key with its proof, by key_bits
    generate: Callable[[int, Workers], PrivateKey]  # (key_bits, workers)
    load_private: Callable[[bytes, Workers], PrivateKey]  # (from the sealed store, workers)
    load_public: Callable[[bytes, int, Workers], PublicKey]  # (from the peer, key_bits, workers)
    # The same key whenever the secret is the same; None: keys come from the system alone.
    generate_from: Callable[[int, Workers, Secrets], PrivateKey] | None = None
