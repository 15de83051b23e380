"""Several hosts: each sends a hint, and what all hold is where the hints add up to nothing.

A host's hint is a store that reads, at each of its ids, the function's value plus a share; shares
of an id are drawn by every two hosts together and add up to zero over all hosts. A guest that
knows the function's value of each host takes it off and adds: the rest is zero for ids that all
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
from fedboost.crypto.oprf.store import decode, encode
from fedboost.errors import PeerError, ProtocolError

DIGEST_BYTES = 32

Words = NDArray[np.uint64]


class HintGuest:
    """Asks every host part by part, and finds the ids that all hold."""

    def __init__(self, oprfs: Sequence[OprfGuest]) -> None:
        """`oprfs` have the same ids: one for each host, in the table's order."""
        self.oprfs = tuple(oprfs)
        self._sums = np.zeros((len(oprfs[0].ids), 2), np.uint64)
        self._outputs: list[dict[int, tuple[NDArray[np.uint32], NDArray[np.uint32]]]]
        self._outputs = [{} for _ in oprfs]  # rows and values of parts that wait for their hint
        self._proofs = [np.zeros((len(oprf.ids), 2), np.uint64) for oprf in oprfs]
        self._read: set[tuple[int, int]] = set()

    def part(self, host: int, b: int) -> bytes:
        """The message of part `b` for a host, the same bytes every time."""
        asked = self.oprfs[host].ask(b)
        self._outputs[host][b] = (asked.rows, asked.outputs)
        return asked.data

    def read_hint(self, host: int, b: int, data: bytes) -> None:
        """Adds a host's hint to the sums; a PeerError where it has not its size."""
        oprf = self.oprfs[host]
        if b not in self._outputs[host]:
            raise ProtocolError(f"a hint of part {b} came before the host was asked for it")
        if len(data) != oprf.sizes.hint_bytes:
            raise PeerError(f"a hint has {len(data)} bytes instead of {oprf.sizes.hint_bytes}")
        rows, outputs = self._outputs[host].pop(b)
        keys = oprf.ids.part(b, oprf.sizes.guest_cap).keys(oprf.sizes.hint_segment)
        values = outputs.view(np.uint64)
        read = decode(keys, np.frombuffer(data, np.uint64).reshape(-1, 2))
        self._sums[rows] ^= read ^ values[:, :2]
        self._proofs[host][rows] = values[:, 2:]
        self._read.add((host, b))

    def rows(self) -> NDArray[np.int64]:
        """The guest's rows with ids that all hosts hold, int64 (n,), ascending."""
        parts = sum(oprf.sizes.bins for oprf in self.oprfs)
        if len(self._read) != parts:
            raise ProtocolError(f"{len(self._read)} of {parts} hints have come")
        return np.flatnonzero((self._sums == 0).all(axis=1))

    def named(self, host: int) -> bytes:
        """The message that names the common ids to a host: their proofs, sorted."""
        return b"".join(sorted(_split(self._proofs[host][self.rows()].tobytes())))


class HintHost:
    """Answers parts with hints, and learns which of its ids all hold."""

    def __init__(self, oprf: OprfHost, keys: Sequence[bytes]) -> None:
        """`keys` are stream keys that it shares with each other host, in this attempt alone."""
        self.oprf = oprf
        self._states = [key_state(key) for key in keys]
        self._proofs = np.zeros((len(oprf.ids), 2), np.uint64)
        self._answered: set[int] = set()

    def answer(self, b: int, part: bytes) -> bytes:
        """The hint of part `b`, the same bytes every time; a PeerError as `OprfHost.open` has."""
        oprf = self.oprf
        opened = oprf.open(b, part)
        own = oprf.part_ids(b)
        values = oprf.outputs(opened, own).view(np.uint64)
        self._proofs[own.rows] = values[:, 2:]
        self._answered.add(b)
        hint = bytearray(oprf.secrets.bytes(oprf.sizes.hint_bytes, "hint", b))
        rows = np.frombuffer(hint, np.uint64).reshape(-1, 2)
        encode(own.keys(oprf.sizes.hint_segment), values[:, :2] ^ self._shares(own), rows)
        return rows.tobytes()

    def read_named(self, data: bytes) -> NDArray[np.int64]:
        """The host's rows with ids that all hold, int64 (n,), ascending.

        A PeerError unless the guest sends proofs of different ids of this host, ascending.
        """
        bins = self.oprf.sizes.bins
        if len(self._answered) != bins:
            raise ProtocolError(f"{len(self._answered)} of {bins} parts have been answered")
        if len(data) % PROOF_BYTES or len(data) > self._proofs.nbytes:
            raise PeerError(f"{len(data)} bytes are no proofs of ids that a party here holds")
        named = _split(data)
        if any(first >= second for first, second in pairwise(named)):
            raise PeerError("the proofs of common ids are not all different and ascending")
        row_of = {proof: row for row, proof in enumerate(_split(self._proofs.tobytes()))}
        try:
            return np.sort(np.array([row_of[proof] for proof in named], np.int64))
        except KeyError:
            raise PeerError("the guest names ids that it has not shown to hold") from None

    def _shares(self, own: PartIds) -> Words:
        """The host's share of each id, uint64 (n, 2): over all hosts they add up to zero."""
        shares = np.zeros((len(own.rows), 2), np.uint64)
        drawn = np.empty((len(own.rows), 8), np.uint32)
        offsets = np.arange(len(own.rows) + 1) * DIGEST_BYTES
        for state in self._states:
            digest_messages(offsets, own.digests.view(np.uint8).reshape(-1), state, drawn)
            shares ^= drawn.view(np.uint64)[:, :2]
        return shares


def _split(data: bytes) -> list[bytes]:
    return [data[at : at + PROOF_BYTES] for at in range(0, len(data), PROOF_BYTES)]
