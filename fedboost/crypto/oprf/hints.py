"""Several hosts: each sends a hint, and the hints of an id that all hold add up to zero.

A host's hint is a store that reads, at each of its ids, the function's value plus a share; shares
of an id are drawn by every two hosts together and add up to zero over all hosts. A guest that
knows the function's value of each host subtracts it and adds: the rest is zero for ids that all
hold, and random for all others, so it learns no intersection with fewer hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.oprf.blake2s import digest_messages, key_state
from fedboost.crypto.oprf.guest import OprfGuest
from fedboost.crypto.oprf.host import OprfHost
from fedboost.crypto.oprf.ids import PartIds
from fedboost.crypto.oprf.sizes import PROOF_BYTES
from fedboost.crypto.oprf.store import decode_values, encode_store
from fedboost.ground.arrays import Words
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.ground.ids import EncodedIds

HINT_DIGEST_BYTES = 32


class HintGuest:
    """Asks every host part by part, and finds the ids that all hold."""

    def __init__(self, oprfs: Sequence[OprfGuest]) -> None:
        """Begin with `oprfs` of the same ids: one for each host, in the table's order."""
        self.oprfs = tuple(oprfs)
        self._outputs: list[dict[int, Words]]  # values of parts that wait for their hint
        self._outputs = [{} for _ in oprfs]

    def part(self, host: int, b: int) -> bytes:
        """Return the message of part `b` for a host, the same bytes every time."""
        asked = self.oprfs[host].ask_part(b)
        self._outputs[host][b] = asked.outputs.view(np.uint64)
        return asked.data

    def read_hints(self, b: int, hints: Sequence[bytes]) -> tuple[NDArray[np.int64], list[bytes]]:
        """Return the guest's rows with ids of part `b` that all hosts hold, int64 (n,); and for
        each host the message that names them: their proofs, sorted.

        `hints` are those of all hosts. A PeerError for one of another size.
        """
        ids = self.oprfs[0].ids.part(b, self.oprfs[0].sizes.guest_cap)
        is_common = (self._sum_hints(b, ids, hints) == 0).all(axis=1)
        values = [outputs.pop(b) for outputs in self._outputs]
        named = [_split_proofs(host_values[is_common, 2:].tobytes()) for host_values in values]
        return ids.rows[is_common].astype(np.int64), [b"".join(sorted(proofs)) for proofs in named]

    def _sum_hints(self, b: int, ids: PartIds, hints: Sequence[bytes]) -> Words:
        """Add up the hosts' hints at each of the part's ids, without the function's values."""
        sums: Words | None = None
        for oprf, outputs, hint in zip(self.oprfs, self._outputs, hints, strict=True):
            if b not in outputs:
                raise ProtocolError(f"a hint of part {b} came before the host was asked for it")
            if len(hint) != oprf.sizes.hint_bytes:
                raise PeerError(f"a hint has {len(hint)} bytes instead of {oprf.sizes.hint_bytes}")
            keys = ids.keys(oprf.sizes.hint_segment)
            rows = np.frombuffer(bytearray(hint), np.uint64).reshape(-1, 2)
            read = decode_values(keys, rows) ^ outputs[b][:, :2]
            sums = read if sums is None else sums ^ read
        assert sums is not None  # there are two hosts at least
        return sums


class HintHost:
    """Answers parts with hints, and learns which of its ids all hold."""

    def __init__(self, oprf: OprfHost, keys: Sequence[bytes]) -> None:
        """Begin with stream `keys` shared with each other host, in this attempt alone."""
        self.oprf = oprf
        self._states = [key_state(key) for key in keys]
        self._sent: dict[int, tuple[NDArray[np.uint32], Words]] = {}  # rows and proofs

    def answer(self, b: int, part: bytes) -> bytes:
        """Return the hint of part `b`, the same every time; a PeerError as `OprfHost.open` has."""
        oprf = self.oprf
        opened = oprf.open(b, part)
        theirs = oprf.part_ids(b)
        values = oprf.outputs(opened, theirs).view(np.uint64)
        self._sent[b] = theirs.rows, values[:, 2:].copy()
        hint = bytearray(oprf.secrets.bytes(oprf.sizes.hint_bytes, "hint", b))
        rows = np.frombuffer(hint, np.uint64).reshape(-1, 2)
        encode_store(
            theirs.keys(oprf.sizes.hint_segment), values[:, :2] ^ self._draw_shares(theirs), rows
        )
        return rows.tobytes()

    def read_named(self, b: int, data: bytes) -> NDArray[np.int64]:
        """Return the host's rows with ids of part `b` that all hold, int64 (n,), ascending.

        A PeerError unless the guest sends proofs of different ids of this host, ascending.
        """
        if b not in self._sent:
            raise ProtocolError(f"ids of part {b} were named before it was answered")
        rows, proofs = self._sent[b]
        if len(data) % PROOF_BYTES or len(data) > proofs.nbytes:
            raise PeerError(f"{len(data)} bytes are no proofs of ids that a party here holds")
        named = _split_proofs(data)
        if any(first >= second for first, second in pairwise(named)):
            raise PeerError("the proofs of common ids are not all different and ascending")
        ends = np.arange(len(rows) + 1) * PROOF_BYTES
        places = EncodedIds(proofs.view(np.uint8).reshape(-1), ends).find(EncodedIds.of(named))
        if (places < 0).any():
            raise PeerError("the guest names ids that it has not shown to hold")
        del self._sent[b]
        return np.sort(rows[places]).astype(np.int64)

    def _draw_shares(self, part: PartIds) -> Words:
        """Return the host's share of each id, uint64 (n, 2): over all hosts they add up to zero."""
        shares = np.zeros((len(part.rows), 2), np.uint64)
        drawn = np.empty((len(part.rows), 8), np.uint32)
        offsets = np.arange(len(part.rows) + 1) * HINT_DIGEST_BYTES
        for state in self._states:
            digest_messages(offsets, part.digests.view(np.uint8).reshape(-1), state, drawn)
            shares ^= drawn.view(np.uint64)[:, :2]
        return shares


def _split_proofs(data: bytes) -> list[bytes]:
    return [data[at : at + PROOF_BYTES] for at in range(0, len(data), PROOF_BYTES)]
