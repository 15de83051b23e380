"""Answers of a host under a lattice scheme: one vector a sum, or many sums in a packed ciphertext.

    vectors   an answer a sum: ready at once, kilobytes each
    packed    a batch of K sums in one ciphertext, tens of bytes each, under a key that the guest
              sends first; its size grows with K

The guest chooses K for every tree by the requests of the trees before it (`best_slots`); the host
reads it off the key's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.packing_keys import PackingKey, PackingSecret, PackingShape
from fedboost.crypto.lattice.parameters import SLOTS, LatticeParameters
from fedboost.crypto.lattice.released import AnswerShape
from fedboost.encrypted.scheme.ciphers import AnswerPart, AnswersSeen, CipherSizes
from fedboost.encrypted.scheme.params import EncryptedTreeParams

VECTORS = 0  # the number of slots that stands for answers as vectors
BLOCKS_EACH = 16  # blocks of N rows in one part of the stream of gradients
ANSWERS_EACH = 1024  # answers in one part of a host's, but at least a batch
LATTICE_PART_BYTES_MAX = 1 << 24  # of either part if outputs are many, but at least one; of a key
# A host before any of its answers has been seen; candidates leave by groups of rows (policies).
COLUMNS_GUESSED, ROWS_EACH_GUESSED = 10, 20

# Costs that choose the number of slots, beside bytes: processor seconds on both sides.
LINK_BYTES_S = 2.5e6  # of a connection between companies, 20 Mbit/s
VECTOR_S = 25e-6  # to round, write, hash and read a vector
BATCH_S = 0.2e-3  # to pack a batch and open it, with any number of slots
SLOT_S = 12e-6  # and by slot, full or not
KEY_SLOT_S = 0.3e-3  # to make a key and take it in, by slot

Cut = tuple[int, slice]  # index of a node, and a slice of its sums


def slots_possible(params: EncryptedTreeParams, lattice: LatticeParameters) -> list[int]:
    """Return the numbers of slots that a job allows, `VECTORS` among them if it allows vectors."""
    said, fit = params.encryption.answers, _slots_that_fit(params, lattice)
    if said == "vectors" or not fit:
        return [VECTORS]
    return fit if said == "packed" else [VECTORS, *fit]


def _slots_that_fit(params: EncryptedTreeParams, lattice: LatticeParameters) -> list[int]:
    if not lattice.can_pack:
        return []
    shapes = [PackingShape(lattice, columns_of(params), slots) for slots in SLOTS]
    return [shape.slots for shape in shapes if shape.key_bytes <= LATTICE_PART_BYTES_MAX]


@dataclass(frozen=True)
class AnswersCost:
    """The cost of the answers to a tree, including the keys for them."""

    n_bytes: float
    cpu_seconds: float

    @property
    def seconds(self) -> float:
        """The time over a connection between companies."""
        return self.n_bytes / LINK_BYTES_S + self.cpu_seconds


def cost_of(
    params: EncryptedTreeParams, budget: Budget, seen: AnswersSeen, slots: int
) -> AnswersCost:
    """Return the cost of the answers to a tree like the last one, with so many slots; before any
    tree, to one with a small host. A key serves `key_trees` trees.
    """
    bins = min(params.max_bin, budget.rows // ROWS_EACH_GUESSED)
    hosts, asked = seen.last or (1, [COLUMNS_GUESSED * bins] * params.max_depth)
    sizes = sizes_of(budget, columns_of(params), slots)
    parts = [part for sums in asked for part in sizes.parts([(sums, budget.rows)])]
    n_bytes = sum(part.n_bytes for part in parts)
    if slots == VECTORS:
        return AnswersCost(n_bytes, VECTOR_S * sum(asked))
    batches = sum(part.ciphertexts for part in parts)
    packing = PackingShape(budget.parameters, columns_of(params), slots)
    keys_each = hosts / params.encryption.key_trees
    return AnswersCost(
        n_bytes + keys_each * packing.key_bytes,
        batches * (BATCH_S + SLOT_S * slots) + keys_each * KEY_SLOT_S * slots,
    )


def best_slots(params: EncryptedTreeParams, budget: Budget, seen: AnswersSeen) -> int:
    """Return the number of slots that takes the least time for the next trees."""
    return _fastest_slots(slots_possible(params, budget.parameters), params, budget, seen)


def _fastest_slots(
    among: Sequence[int], params: EncryptedTreeParams, budget: Budget, seen: AnswersSeen
) -> int:
    return min(among, key=lambda slots: cost_of(params, budget, seen, slots).seconds)


def in_words(params: EncryptedTreeParams, budget: Budget, seen: AnswersSeen) -> str:
    """Describe the form of the answers to the last tree, and their size in the other form."""
    slots, packed = best_slots(params, budget, seen), _slots_that_fit(params, budget.parameters)
    other = _fastest_slots(packed, params, budget, seen) if packed and slots == VECTORS else VECTORS
    chosen, beside = (cost_of(params, budget, seen, kind).n_bytes / 1e6 for kind in (slots, other))
    if slots == VECTORS:
        return f"vectors: {chosen:.1f} MB a tree" + (f", packed {beside:.1f}" if packed else "")
    return f"packed, {slots} sums in a ciphertext: {chosen:.1f} MB a tree, as vectors {beside:.1f}"


def epoch_of(params: EncryptedTreeParams, tree: int) -> int | None:
    """Return the number of the epoch whose trees share secrets with this one; None if no tree does.

    The first tree has its own: the number of requested sums is unknown before it.
    """
    each = params.encryption.key_trees
    return -(-tree // each) if each > 1 else None


def columns_of(params: EncryptedTreeParams) -> int:
    """Return the number of values of a row."""
    return 2 * params.n_outputs // params.trees_per_round


def tree_key_bytes(lattice: LatticeParameters, columns: int, slots: int) -> int:
    """Return the size of a host's key for a tree: b' of each number, and the packing key."""
    public = lattice.ring * columns * lattice.word_bytes
    return public if slots == VECTORS else public + PackingShape(lattice, columns, slots).key_bytes


def sizes_of(budget: Budget, columns: int, slots: int) -> CipherSizes:
    """Return the sizes of rows with so many numbers, which travel together, and of answers as wide
    as each node's rows make them.
    """
    lattice = budget.parameters

    def width(rows: int) -> int:
        return budget.width(max(1, min(budget.rows, rows)))

    def vectors(nodes: Sequence[tuple[int, int]]) -> Iterator[AnswerPart]:
        for place, (sums, rows) in enumerate(nodes):
            n_bytes = AnswerShape(lattice, columns, width(rows)).n_bytes
            for cut in answer_parts(sums, n_bytes):
                count = cut.stop - cut.start
                yield AnswerPart([(place, cut)], count, count * n_bytes)

    def packed(nodes: Sequence[tuple[int, int]]) -> Iterator[AnswerPart]:
        shape = PackingShape(lattice, columns, slots)
        together = batches_each(shape, budget)
        for group in cut_into_runs([sums for sums, _ in nodes], slots * together):
            counts = [cut.stop - cut.start for _, cut in group]
            n_bytes = shape.answer_bytes(counts, [width(nodes[place][1]) for place, _ in group])
            yield AnswerPart(group, -(-sum(counts) // slots), n_bytes)

    def answer_bytes_max(sums: Sequence[int]) -> int:
        if slots != VECTORS:
            shape = PackingShape(lattice, columns, slots)
            return batches_each(shape, budget) * shape.batch_bytes(slots, width(budget.rows))
        widest = AnswerShape(lattice, columns, width(budget.rows)).n_bytes
        return max(widest, min(LATTICE_PART_BYTES_MAX, min(sum(sums), ANSWERS_EACH) * widest))

    return CipherSizes(
        per_row=1,
        row_bytes=columns * lattice.word_bytes,
        held_bytes=2 * columns * lattice.word_bytes,  # with the windows of the host's derivation
        cell_bytes=8 * (lattice.ring + columns),
        rows_each=lattice.ring * blocks_each(lattice, columns),
        parts=vectors if slots == VECTORS else packed,
        answer_bytes_max=answer_bytes_max,
        tree_key_bytes=tree_key_bytes(lattice, columns, slots),
    )


def cut_into_runs(counts: Sequence[int], size: int) -> Iterator[list[Cut]]:
    """Yield the sums of all nodes, one after the other, `size` at a time; the last may be fewer."""
    cuts: list[Cut] = []
    room = size
    for place, count in enumerate(counts):
        start = 0
        while start < count:
            taken = min(room, count - start)
            cuts.append((place, slice(start, start + taken)))
            start, room = start + taken, room - taken
            if not room:
                yield cuts
                cuts, room = [], size
    if cuts:
        yield cuts


def batches_each(shape: PackingShape, budget: Budget) -> int:
    """Return the number of batches in a part of an answer."""
    widest = shape.batch_bytes(shape.slots, budget.width(budget.rows))
    return max(1, min(ANSWERS_EACH // shape.slots, LATTICE_PART_BYTES_MAX // widest))


def blocks_each(lattice: LatticeParameters, columns: int) -> int:
    """Return the number of blocks of N rows in a part."""
    return max(
        1, min(BLOCKS_EACH, LATTICE_PART_BYTES_MAX // (lattice.ring * columns * lattice.word_bytes))
    )


def answer_parts(sums: int, n_bytes: int) -> Iterator[slice]:
    """Yield the slice of a node's sums in each part of an answer; a sum takes `n_bytes` bytes."""
    each = max(1, min(ANSWERS_EACH, LATTICE_PART_BYTES_MAX // n_bytes))
    for start in range(0, sums, each):
        yield slice(start, min(start + each, sums))


def slots_of(packing: PackingSecret | PackingKey | None) -> int:
    """Return the number of sums that share a ciphertext under a key; `VECTORS` without one."""
    return VECTORS if packing is None else packing.shape.slots
