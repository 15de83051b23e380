"""How large a job's scheme makes rows, cells and answers: what an estimate asks of a scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fedboost.crypto.lattice.answers import AnswerShape
from fedboost.crypto.modular import ENCRYPT_MAX
from fedboost.crypto.schemes import SCHEMES
from fedboost.encrypted import keys, ring, schemes
from fedboost.encrypted.params import EncryptedTreeParams

PLAIN_BYTES = 32
# Bytes of a public key with its proof, for each bit of its modulus.
PUBLIC_BYTES = {"paillier": 9 / 8, "okamoto-uchiyama": 5.6, "iterative-affine": 1 / 8}
PRICED_CAPACITY = 16  # sums in a package where operations are timed


@dataclass(frozen=True)
class AnswerPart:
    """A part of an answer: places of nodes, and which of their sums; how large it is."""

    sums: Sequence[tuple[int, slice]]
    ciphertexts: int
    n_bytes: int


@dataclass(frozen=True)
class Sizes:
    """Sizes under one scheme, for so many rows and outputs."""

    lanes: int  # ciphertexts of a row, a cell or a sum
    row_bytes: int  # of a row's gradients on the wire
    held_bytes: int  # and at a host
    cell_bytes: int  # of a cell in memory
    rows_each: int  # in a part of the stream of gradients
    tree_key_bytes: int  # of a host's key for some trees
    answers: Callable[[Sequence[int]], int]  # ciphertexts about nodes with so many sums
    # An answer about nodes, by their sums and rows.
    parts: Callable[[Sequence[tuple[int, int]]], Iterator[AnswerPart]]
    crowding: float = 1.0  # sums in a package where operations were timed, for each in one of ours

    def releases(self, sums: int) -> float:
        """Answers as they are priced: packages that hold fewer take longer for each sum."""
        return sums * self.lanes * min(3.0, self.crowding**0.5)

    def decryptions(self, sums: int) -> float:
        """Decryptions as they are priced, in as many packages."""
        return sums * self.lanes * self.crowding


def cipher_name(params: EncryptedTreeParams) -> str:
    """The scheme and, where it has one, its key's bits."""
    own = params.encryption
    return f"{own.scheme}-{own.key_bits}" if own.scheme in PUBLIC_BYTES else own.scheme


def needs_tables(cipher: str) -> bool:
    """Return whether workers hold tables of a key: not of a lattice scheme."""
    return cipher not in schemes.SCHEMES or schemes.SCHEMES[cipher].has_modulus


def public_bytes(params: EncryptedTreeParams) -> int:
    """Bytes of a public key with its proof."""
    own = params.encryption
    return round(PUBLIC_BYTES.get(own.scheme, 0.0) * own.key_bits)


def sizes_of(params: EncryptedTreeParams, n_rows: int) -> Sizes:
    """Sizes in a job whose hosts have at most so many training rows."""
    scheme = schemes.of(params)
    if isinstance(scheme, ring.RingScheme):
        return _of_ring(params, scheme, n_rows)
    return _of_packages(params, n_rows)


def _of_packages(params: EncryptedTreeParams, n_rows: int) -> Sizes:
    """Return the sizes of a scheme whose ciphertexts are numbers."""
    own = params.encryption
    room = SCHEMES[own.scheme].plaintext_bits(own.key_bits)
    layout = keys.layout(params, schemes.of(params).bits_of(params, n_rows), n_rows, room)
    widths = {"plain": PLAIN_BYTES, "paillier": own.key_bits // 4}  # modulo n²
    width, lanes = widths.get(own.scheme, own.key_bits // 8), len(layout.lanes)

    def parts(nodes: Sequence[tuple[int, int]]) -> Iterator[AnswerPart]:
        count = layout.package_count([sums for sums, _ in nodes])
        yield AnswerPart([(n, slice(None)) for n in range(len(nodes))], count, count * width)

    return Sizes(
        lanes=lanes,
        row_bytes=lanes * width,
        held_bytes=lanes * width,
        cell_bytes=lanes * width,
        rows_each=max(1, ENCRYPT_MAX // lanes),
        tree_key_bytes=0,
        answers=layout.package_count,
        parts=parts,
        crowding=PRICED_CAPACITY / layout.lanes[0].capacity,
    )


def _of_ring(params: EncryptedTreeParams, scheme: ring.RingScheme, n_rows: int) -> Sizes:
    """Return the sizes of a lattice scheme, a row's numbers side by side."""
    budget, columns = scheme.budget(params, n_rows), 2 * params.n_outputs
    columns //= params.trees_per_round
    own = budget.parameters

    def parts(nodes: Sequence[tuple[int, int]]) -> Iterator[AnswerPart]:
        for number, (sums, rows) in enumerate(nodes):
            n_bytes = AnswerShape(own, columns, budget.width(max(1, min(n_rows, rows)))).n_bytes
            for cut in ring.answer_parts(sums, n_bytes):
                count = cut.stop - cut.start
                yield AnswerPart([(number, cut)], count, count * n_bytes)

    return Sizes(
        lanes=1,
        row_bytes=columns * own.word_bytes,
        held_bytes=2 * columns * own.word_bytes,  # with the windows of the host's derivation
        cell_bytes=8 * (own.ring + columns),
        rows_each=own.ring * ring.blocks_each(own, columns),
        tree_key_bytes=own.ring * columns * own.word_bytes,
        answers=sum,
        parts=parts,
    )
