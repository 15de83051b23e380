"""Both sides of the schemes whose ciphertexts are numbers: one key, sums packed and blinded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedboost.core import fixed_point
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.gradient_bits import BITS_MIN
from fedboost.crypto.api import Blinders, Ciphertexts, PrivateKey, PublicKey
from fedboost.crypto.layout import Layout
from fedboost.crypto.limbs import ByteArray
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.schemes import KEYED_SCHEMES
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.cells.adding import PlacedRows, PlacedTree
from fedboost.encrypted.cells.node_cells import RowSums
from fedboost.encrypted.cells.request import CandidateTerms, CellRequest
from fedboost.encrypted.scheme import keys
from fedboost.encrypted.scheme.ciphers import (
    AnswerPart,
    CipherSizes,
    GuestCipher,
    GuestRows,
    HostCipher,
    HostRows,
    NodeBounds,
    P,
    TreeScheme,
)
from fedboost.encrypted.scheme.host_noise import HostNoise, as_masks, spare_rows_added
from fedboost.encrypted.scheme.params import EncryptedContext, EncryptedTreeParams
from fedboost.ground.arrays import Floats, Indices, Sums
from fedboost.ground.errors import PeerError
from fedboost.ground.part_workers import PartWorkers
from fedboost.messages.protocol import encrypted_pb2 as pb


@dataclass(frozen=True)
class KeyedRows(RowSums[Ciphertexts]):
    """Rows under a key."""

    key: PublicKey
    gradients: Ciphertexts

    @property
    def adds(self) -> PublicKey:
        """The key, which adds up ciphertexts."""
        return self.key

    def sums(
        self, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int
    ) -> Ciphertexts:
        """See `RowSums`."""
        return self.key.segment_sum(self.gradients, rows, cells, n_cells)


@dataclass(frozen=True)
class HostKey:
    """The guest's key at a host, with the packing of sums and the host's own blinding."""

    key: PublicKey
    layout: Layout
    blinders: Blinders

    @classmethod
    def of(cls, key: PublicKey, packing: Layout, first: int) -> HostKey:
        """Return the key ready for use; blinding for an answer of this many sums is made in the
        background.
        """
        blinders = key.blinders()
        blinders.prepare(packing.package_count([first]))
        return cls(key, packing, blinders)

    @property
    def sizes(self) -> CipherSizes:
        """Return the sizes of rows under the key."""
        return sizes_of(self.layout, self.key.width)


@dataclass(frozen=True)
class PackedGuestRows(GuestRows):
    """Rows under the guest's key."""

    key: PrivateKey
    layout: Layout
    tree: int
    gh: Sums
    has_noise: bool  # whether hosts add noise to their answers
    secrets: Secrets | None  # of these rows, if they can be encrypted again

    def parts(self) -> Iterator[pb.EncryptedGradients]:
        """Yield fresh encryptions, in blocks of whole rows (Algorithms 3 and 7, signed)."""
        first = 0
        for block in self.key.encrypt(self.gh, self.layout, self.secrets):
            rows = pb.Ciphertexts(count=len(block), data=block.to_bytes())
            yield pb.EncryptedGradients(tree=self.tree, first_row=first, rows=rows)
            first += len(block) // self.sizes.per_row

    @cached_property
    def sizes(self) -> CipherSizes:
        """See `GuestRows`."""
        return sizes_of(self.layout, self.key.width)

    def read(self, answers: bytes, sums: Sequence[int], nodes: Sequence[NodeBounds]) -> Sums:
        """Decrypt sums of the declared range; with noise, of the part that a node's rows need."""
        packages = Ciphertexts.received(answers, self.count(sums), self.key.width)
        values = self.key.decrypt(packages, self.layout, sums)
        if not self.has_noise:
            return values
        assert isinstance(self.layout, GhLayout)
        of_nodes = np.split(values, np.cumsum(sums)[:-1])
        reduced = [
            self.layout.reduced(some, node.rows) for some, node in zip(of_nodes, nodes, strict=True)
        ]
        return np.concatenate([values[:0], *reduced])


@dataclass(frozen=True)
class PackedGuest(GuestCipher):
    """The guest's key."""

    params: EncryptedTreeParams
    key: PrivateKey
    value_bits: int
    layouts: Mapping[int, Layout]  # by the most rows that a host has
    secrets: Secrets | None = None  # of an attempt that can be replayed

    def key_message(self, first_tree: int) -> pb.EncryptionKey:
        """Return the public key with its proof."""
        return pb.EncryptionKey(
            scheme=self.params.encryption.scheme,
            key=self.key.public_bytes(),
            value_bits=self.value_bits,
            first_tree=first_tree,
        )

    def rows(self, tree: int, gh: Sums, n_rows: int) -> PackedGuestRows:
        """Return rows that are encrypted when their parts are read."""
        has_noise = self.params.host_noise > 0
        secrets = None if self.secrets is None else self.secrets.child("tree", tree)
        return PackedGuestRows(self.key, self.layouts[n_rows], tree, gh, has_noise, secrets)


@dataclass(frozen=True)
class PackedHostRows(HostRows[Ciphertexts]):
    """Rows under the guest's key."""

    keys: HostKey
    gradients: Ciphertexts
    part_workers: PartWorkers
    noise: HostNoise | None = None

    @cached_property
    def row_sums(self) -> KeyedRows:
        """See `HostRows`."""
        return self._chosen_part(slice(None))

    @cached_property
    def sizes(self) -> CipherSizes:
        """See `HostRows`."""
        return self.keys.sizes

    def number_bits(self, rows: int) -> Floats:
        """See `HostRows`: the widths of fields, which are the same for every node."""
        del rows
        return self.keys.layout.field_widths

    def sums_together(self) -> Indices:
        """See `HostRows`: those of a package."""
        return self.keys.layout.sums_together

    @cached_property
    def placed_rows(self) -> PlacedRows[Ciphertexts]:
        """See `HostRows`: by rows."""
        return PlacedRows(self.part_workers, self._chosen_part, by_rows=True)

    def _chosen_part(self, chosen: slice) -> KeyedRows:
        return KeyedRows(self.keys.key, self.gradients[chosen])

    def blind(
        self, requests: Mapping[PlacedTree[Ciphertexts], CellRequest]
    ) -> Iterator[pb.Ciphertexts]:
        """Yield the compressed and blinded sums, in one part."""
        made, keys = self.sums(requests), self.keys
        counts = [len(terms) for terms, _ in made]
        sums = []
        for _, together in groupby(made, lambda node: id(node[1].a)):  # made in one go
            pairs = [pair for _, pair in together]
            first = np.concatenate([pair.first for pair in pairs])
            second = np.concatenate([pair.second for pair in pairs])
            sums.append(keys.key.sum_pairs(replace(pairs[0], first=first, second=second)))
        noise = [
            self._masked_noise(terms, terms.noise) for terms, _ in made if terms.noise is not None
        ]
        masks = as_masks(np.concatenate(noise)) if noise else None
        every = Ciphertexts.concat(sums)
        released = keys.key.release(every, keys.layout, keys.blinders, counts, masks)
        keys.blinders.prepare(2 * len(released))  # the next layer has up to twice as many nodes
        yield pb.Ciphertexts(count=len(released), data=released.to_bytes())

    def blind_signed(
        self, tree: int, sums: Ciphertexts, offsets: Sums, rows: int
    ) -> pb.Ciphertexts:
        """See `HostRows`; these sums have no noise."""
        keys = self.keys
        assert isinstance(keys.layout, GhLayout)
        layout = replace(keys.layout, has_offsets=True)
        released = keys.key.release(sums, layout, keys.blinders, [len(sums)], as_masks(offsets))
        return pb.Ciphertexts(count=len(released), data=released.to_bytes())

    def _masked_noise(self, terms: CandidateTerms, noise: Sums) -> Sums:
        """Return a node's noise with multiples that drown the bits above the node's part of a
        field.
        """
        assert self.noise is not None
        assert isinstance(self.keys.layout, GhLayout)
        words = self.noise.words(noise.shape, "multiples", terms.tree, terms.node)
        return noise + self.keys.layout.multiples(terms.rows, words)


@dataclass(frozen=True)
class PackedHost(HostCipher):
    """The guest's key at a host."""

    keys: HostKey
    part_workers: PartWorkers
    noise: HostNoise | None = None

    @cached_property
    def sizes(self) -> CipherSizes:
        """See `HostCipher`."""
        return self.keys.sizes

    def read_part(self, data: bytes, rows: int) -> ByteArray:
        """Read ciphertexts of the key's width, in range and units."""
        part = Ciphertexts.received(data, rows, self.keys.key.width, self.sizes.per_row)
        self.keys.key.check(part)
        return part.data

    def rows(self, held: ByteArray, tree: int, key: bytes) -> PackedHostRows:
        """Return all of them under the one key; a PeerError if trees have separate keys."""
        del tree
        if key:
            raise PeerError("the guest sent a key of trees, which the job's scheme has no use for")
        noise = None if self.noise is None else self.noise.bound_to(held, key)
        return PackedHostRows(self.keys, Ciphertexts(held), self.part_workers, noise)


class PackedScheme(TreeScheme):
    """A scheme of numbers: as many bits as sums leave room for."""

    bits_least: ClassVar[int] = BITS_MIN
    takes_nonces: ClassVar[bool] = False

    def bits_most(self, params: EncryptedTreeParams, n_rows: int) -> int:
        """Return the bits that the rows, and the noise that hosts add, leave room for."""
        return fixed_point.bits_for_rows(n_rows + spare_rows_added(params))

    def encoding(self, params: P, n_rows: int, of: Callable[[P], FixedPoint]) -> FixedPoint:
        """Return the objective's own encoding, with fewer bits if noise needs room."""
        usual = of(params)
        return replace(usual, bits=self.bits_of(params, n_rows)) if params.host_noise else usual

    def sizes(self, params: EncryptedTreeParams, n_rows: int, slots: int = 0) -> CipherSizes:
        """Return the sizes under the job's keys."""
        del slots
        width = KEYED_SCHEMES[params.encryption.scheme].ciphertext_bytes(params.encryption.key_bits)
        return sizes_of(self._job_layout(params, n_rows), width)

    def field_of(self, params: EncryptedTreeParams, n_rows: int) -> tuple[Floats, Indices]:
        """See `TreeScheme`."""
        packing = self._job_layout(params, n_rows)
        return packing.field_widths, packing.sums_together

    def _job_layout(self, params: EncryptedTreeParams, n_rows: int) -> Layout:
        scheme, bits = KEYED_SCHEMES[params.encryption.scheme], params.encryption.key_bits
        room = scheme.plaintext_bits(bits)
        return keys.gh_layout(params, self.bits_of(params, n_rows), n_rows, room)

    def key_bytes(self, params: EncryptedTreeParams) -> int:
        """Return the size that the scheme states."""
        encryption = params.encryption
        return KEYED_SCHEMES[encryption.scheme].public_bytes(encryption.key_bits)

    def guest_side(
        self,
        context: EncryptedContext,
        value_bits: int,
        rows: Iterable[int],
        nonces: tuple[bytes, ...],
    ) -> PackedGuest:
        """Return the guest's side with a fresh key."""
        del nonces
        params, key = context.params, keys.generate(context)
        room = key.plaintext_bits
        layouts = {n: keys.gh_layout(params, value_bits, n, room) for n in set(rows)}
        of_attempt = context.secrets.attempt if context.attempt.is_replayable else None
        secrets = None if of_attempt is None else of_attempt.child("encryption")
        return PackedGuest(params, key, value_bits, layouts, secrets)

    def host_side(
        self,
        context: EncryptedContext,
        got: pb.EncryptionKey,
        n_rows: int,
        offered: int,
        noise: HostNoise | None,
    ) -> PackedHost:
        """Return the host's side with the guest's key."""
        key = keys.read_key(context, got)
        packing = keys.gh_layout(context.params, got.value_bits, n_rows, key.plaintext_bits)
        return PackedHost(HostKey.of(key, packing, offered), context.services.part_workers, noise)


def sizes_of(layout: Layout, width: int) -> CipherSizes:
    """Return the sizes of numbers of so many bytes each: an answer is one part, in packages."""

    def parts(nodes: Sequence[tuple[int, int]]) -> Iterator[AnswerPart]:
        count = layout.package_count([sums for sums, _ in nodes])  # none straddles nodes
        every = [(place, slice(None)) for place in range(len(nodes))]
        yield AnswerPart(every, count, count * width)

    each = len(layout.lanes) * width
    return CipherSizes(
        per_row=len(layout.lanes),
        row_bytes=each,
        held_bytes=each,
        cell_bytes=each,
        rows_each=layout.block_rows(width),
        parts=parts,
        answer_bytes_max=lambda sums: layout.package_count(sums) * width,
        capacity=layout.lanes[0].capacity,
    )


def tree_scheme(name: str) -> PackedScheme:
    """Return the scheme of that name, whose keys `crypto.schemes` makes."""
    del name
    return PackedScheme()
