"""One host: it sends tags of its ids, and the guest marks the tags of its own ids.

Tags of a part are sorted and filled up with random ones to the part's cap. Marks come with a digest
over the marked ids' proofs, other bytes of the function's values: a party without an id cannot
name it.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.oprf.guest import OprfGuest
from fedboost.crypto.oprf.host import OprfHost
from fedboost.crypto.oprf.sizes import PROOF_BYTES, TAG_BYTES
from fedboost.ground.arrays import Words
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.ground.kernels import kernel

FILLER = np.uint32(0xFFFFFFFF)  # the row of a tag without an id
TAG_WORDS, PROOF_WORDS = TAG_BYTES // 4, PROOF_BYTES // 4


@dataclass(frozen=True, repr=False, eq=False)
class _KnownTags:
    """The guest's ids of a part, with the function's values as far as tags and proofs need them."""

    rows: NDArray[np.uint32]
    outputs: NDArray[np.uint32]  # (n, 7)


@dataclass(frozen=True, repr=False, eq=False)
class _SentTags:
    """Rows and proofs of the tags that the host sent, in their order."""

    rows: NDArray[np.uint32]  # FILLER for a tag without an id
    proofs: NDArray[np.uint32]  # (cap, 4)


class TagGuest:
    """Asks part by part, finds the common ids, and names them."""

    def __init__(self, oprf: OprfGuest) -> None:
        self.oprf = oprf
        self._asked: dict[int, _KnownTags] = {}

    def part(self, b: int) -> bytes:
        """Return the message of part `b`, the same bytes every time."""
        asked = self.oprf.ask_part(b)
        self._asked[b] = _KnownTags(asked.rows, asked.outputs[:, : TAG_WORDS + PROOF_WORDS].copy())
        return asked.data

    def read_tags(self, b: int, data: bytes) -> tuple[NDArray[np.int64], bytes]:
        """Return the guest's common rows of part `b`, int64 (n,), in their tags' order; and the
        message that names them to the host: marks on all tags, a digest of the proofs.

        A PeerError unless there are as many tags as a part has, ascending and all different.
        """
        if b not in self._asked:
            raise ProtocolError(f"tags of part {b} came before the host was asked for them")
        sizes = self.oprf.sizes
        if len(data) != sizes.tags_bytes:
            raise PeerError(f"tags have {len(data)} bytes instead of {sizes.tags_bytes}")
        tags = np.frombuffer(data, np.uint32).reshape(-1, TAG_WORDS)
        low, high = _low_words(tags), tags[:, 2].copy()
        if not ((low[1:] > low[:-1]) | ((low[1:] == low[:-1]) & (high[1:] > high[:-1]))).all():
            raise PeerError("tags of a part are not all different and ascending")
        asked = self._asked[b]
        row_of = np.empty(len(tags), np.int64)
        _match_tags(_low_words(asked.outputs), asked.outputs[:, 2].copy(), low, high, row_of)
        is_known = row_of >= 0
        rows, proofs = asked.rows[row_of[is_known]], asked.outputs[row_of[is_known], TAG_WORDS:]
        del self._asked[b]
        named = np.packbits(is_known).tobytes() + _digest_of(self.oprf.name, b, proofs)
        return rows.astype(np.int64), named


class TagHost:
    """Answers parts with tags, and learns which of its ids the guest has."""

    def __init__(self, oprf: OprfHost) -> None:
        self.oprf = oprf
        self._sent: dict[int, _SentTags] = {}

    def answer(self, b: int, part: bytes) -> bytes:
        """Return the tags of part `b`, the same every time; a PeerError as `OprfHost.open` has."""
        oprf = self.oprf
        opened = oprf.open(b, part)
        theirs = oprf.part_ids(b)
        outputs = oprf.outputs(opened, theirs)
        fill = oprf.sizes.host_cap - len(theirs.rows)
        drawn = np.frombuffer(oprf.secrets.bytes(TAG_BYTES * fill, "tags", b), np.uint32)
        tags = np.concatenate([outputs[:, :TAG_WORDS], drawn.reshape(-1, TAG_WORDS)])
        order = _ascending(tags)
        proofs = outputs[:, TAG_WORDS : TAG_WORDS + PROOF_WORDS]
        self._sent[b] = _SentTags(
            np.concatenate([theirs.rows, np.full(fill, FILLER)])[order],
            np.concatenate([proofs, np.zeros((fill, PROOF_WORDS), np.uint32)])[order],
        )
        return tags[order].tobytes()

    def read_named(self, b: int, data: bytes) -> NDArray[np.int64]:
        """Return the host's rows with common ids of part `b`, int64 (n,), in the guest's order.

        A PeerError if the guest names ids that it does not hold, or sends malformed bytes.
        """
        sizes = self.oprf.sizes
        if b not in self._sent:
            raise ProtocolError(f"ids of part {b} were named before it was answered")
        if len(data) != sizes.named_tags_bytes:
            raise PeerError(f"marks have {len(data)} bytes instead of {sizes.named_tags_bytes}")
        bits = np.unpackbits(np.frombuffer(data, np.uint8, sizes.marks_bytes)).astype(np.bool_)
        if bits[sizes.host_cap :].any():
            raise PeerError("marks are set behind the last tag of a part")
        sent, marked = self._sent[b], bits[: sizes.host_cap]
        common, proofs = sent.rows[marked], sent.proofs[marked]
        is_held = hmac.compare_digest(_digest_of(self.oprf.name, b, proofs), data[-32:])
        if (common == FILLER).any() or not is_held:
            raise PeerError("the guest names ids that it has not shown to hold")
        del self._sent[b]
        return common.astype(np.int64)


def _digest_of(name: bytes, b: int, proofs: NDArray[np.uint32]) -> bytes:
    """Return the digest of the proofs of a part's common ids."""
    number = b.to_bytes(4, "big")
    return hashlib.sha256(b"proof" + name + number + proofs.tobytes()).digest()


def _low_words(tags: NDArray[np.uint32]) -> Words:
    """Return the first 8 of each tag's 12 bytes."""
    return np.ascontiguousarray(tags[:, :2]).view(np.uint64)[:, 0]


def _ascending(tags: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the order that sorts tags by their first 8 bytes, then by their last 4, as numbers."""
    low = _low_words(tags)
    order = np.argsort(low)
    if (low[order[1:]] == low[order[:-1]]).any():
        order = np.lexsort((tags[:, 2], low))
    return order


@kernel
def _match_tags(
    wanted: Words,
    wanted_high: NDArray[np.uint32],
    tags: Words,
    tags_high: NDArray[np.uint32],
    row_of: NDArray[np.int64],
) -> None:
    """Write the index among the own tags of each of the host's, −1 if it is none of them."""
    bits = 4
    while (1 << bits) < 2 * len(wanted):
        bits += 1
    mask = (1 << bits) - 1
    table = np.full(1 << bits, -1, np.int32)
    for i in range(len(wanted)):
        at = np.int64(wanted[i] & np.uint64(mask))
        while table[at] >= 0:
            at = (at + 1) & mask
        table[at] = i
    for j in range(len(tags)):
        at = np.int64(tags[j] & np.uint64(mask))
        row_of[j] = -1
        while table[at] >= 0:
            i = table[at]
            if wanted[i] == tags[j] and wanted_high[i] == tags_high[j]:
                row_of[j] = i
                break
            at = (at + 1) & mask
