"""Guests and hosts of the oblivious function in one process, and naive twins of what they do."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.oprf import host as host_module
from fedboost.crypto.oprf.base_transfers import TransferSender, choose_keys
from fedboost.crypto.oprf.code import generator
from fedboost.crypto.oprf.guest import OprfGuest
from fedboost.crypto.oprf.hints import HintGuest, HintHost
from fedboost.crypto.oprf.host import OprfHost
from fedboost.crypto.oprf.ids import IdDigests
from fedboost.crypto.oprf.session import OprfSession, ids_key
from fedboost.crypto.oprf.sizes import CODE_COLUMNS, CODE_WORD_BYTES, OprfSizes
from fedboost.crypto.oprf.tags import TagGuest, TagHost
from fedboost.crypto.secrets import Secrets
from fedboost.ground.ids import EncodedIds
from fedboost.ground.workers import Serial

ATTEMPT = bytes(range(32))
GUEST, HOST = Secrets(bytes(range(32))), Secrets(bytes(range(32, 64)))
NONCES = (bytes(range(64, 96)), bytes(range(96, 128)))

Ids = Sequence[bytes]
Rows = NDArray[np.int64]


def numbered(numbers: range) -> list[bytes]:
    """Ids that differ by their number."""
    return [b"customer %d" % number for number in numbers]


def digests(ids: Ids, session: OprfSession) -> IdDigests:
    """Ids under the session's key."""
    return IdDigests(EncodedIds.of(ids), session.key, session.sizes.bins, Serial())


def session_of(guest_ids: int, host_ids: int, host: str = "shop") -> OprfSession:
    """A session for sets of these sizes."""
    sizes = OprfSizes(guest_ids, host_ids)
    return OprfSession(ATTEMPT, "bank", host, sizes, ids_key(ATTEMPT, NONCES))


def pair(
    guest_ids: Ids, host_ids: Ids, session: OprfSession | None = None
) -> tuple[OprfGuest, OprfHost]:
    """Both sides, with their base transfers made."""
    session = session or session_of(len(guest_ids), len(host_ids))
    guest = OprfGuest(session, digests(guest_ids, session), GUEST)
    host = OprfHost(session, digests(host_ids, session), HOST, guest.start)
    guest.open(host.choice)
    return guest, host


@dataclass(frozen=True)
class Hosts:
    """Several hosts with their guest."""

    guest: HintGuest
    hosts: list[HintHost]


def several(guest_ids: Ids, sets: Sequence[Ids], *, shares: bool = True) -> Hosts:
    """A guest and a host for each of the sets; without shares hosts have no keys in common."""
    sessions = [session_of(len(guest_ids), len(ids), f"host {k}") for k, ids in enumerate(sets)]
    own = digests(guest_ids, sessions[0])
    guests, hosts = [], []
    for number, (session, ids) in enumerate(zip(sessions, sets, strict=True)):
        guest = OprfGuest(session, own, GUEST)
        host = OprfHost(session, digests(ids, session), HOST, guest.start)
        host.secrets = HOST.child("hints", number)  # beside transfers that are the same for all
        guest.open(host.choice)
        guests.append(guest)
        others = [other for other in range(len(sets)) if other != number]
        hosts.append(HintHost(host, [pair_key(number, k) for k in others] if shares else []))
    return Hosts(HintGuest(guests), hosts)


def pair_key(first: int, second: int) -> bytes:
    """What two hosts share."""
    low, high = sorted((first, second))
    return hashlib.sha256(b"pair %d %d" % (low, high)).digest()


def tags_exchanged(guest: TagGuest, host: TagHost) -> Iterator[tuple[Rows, bytes]]:
    """All parts and their tags: common rows, and what names them."""
    for b in range(guest.oprf.sizes.bins):
        yield guest.read_tags(b, host.answer(b, guest.part(b)))


def hints_of(pairs: Hosts, b: int) -> list[bytes]:
    """Every host's hint of a part."""
    asked = [pairs.guest.part(number, b) for number in range(len(pairs.hosts))]
    return [host.answer(b, part) for host, part in zip(pairs.hosts, asked, strict=True)]


def hints_exchanged(pairs: Hosts) -> Iterator[tuple[Rows, list[bytes]]]:
    """All parts and their hints: common rows, and what names them to each host."""
    for b in range(pairs.hosts[0].oprf.sizes.bins):
        yield pairs.guest.read_hints(b, hints_of(pairs, b))


def met(guest_ids: Ids, host_ids: Ids, session: OprfSession | None = None) -> tuple[Rows, Rows]:
    """The common rows as a guest and its only host learn them."""
    sides = pair(guest_ids, host_ids, session)
    guest, host = TagGuest(sides[0]), TagHost(sides[1])
    both = [
        (rows, host.read_named(b, named))
        for b, (rows, named) in enumerate(tags_exchanged(guest, host))
    ]
    ours, theirs = (np.concatenate(rows) for rows in zip(*both, strict=True))
    return ours, theirs


@contextlib.contextmanager
def kept_transfers() -> Iterator[None]:
    """Base transfers that are made once for all pairs: for tests of very many of them."""
    message, keys, pairs = _transfers()
    with (
        mock.patch.object(host_module, "choose_keys", return_value=(message, keys)),
        mock.patch.object(TransferSender, "keys", return_value=pairs),
    ):
        yield


@cache
def remember_transfers() -> None:
    """Base transfers with the same secrets and messages are made once in this process."""
    made: dict[tuple[object, ...], object] = {}
    own_choose, own_keys = choose_keys, TransferSender.keys

    def choose_once(session: bytes, start: bytes, bits: Sequence[int], secrets: Secrets) -> Any:
        key = (session, start, secrets.seal())
        if key not in made:
            made[key] = own_choose(session, start, bits, secrets)
        return made[key]

    def keys_once(sender: TransferSender, session: bytes, choice: bytes) -> Any:
        key = (session, choice, sender.start)
        if key not in made:
            made[key] = own_keys(sender, session, choice)
        return made[key]

    mock.patch.object(host_module, "choose_keys", choose_once).start()
    mock.patch.object(TransferSender, "keys", keys_once).start()


@cache
def _transfers() -> tuple[bytes, list[bytes], list[tuple[bytes, bytes]]]:
    sender = TransferSender(GUEST)
    message, keys = choose_keys(bytes(32), sender.start, bits(HOST), HOST)
    return message, keys, sender.keys(bytes(32), message)


def bits(secrets: Secrets) -> list[int]:
    """The host's selection."""
    drawn = np.frombuffer(secrets.bytes(CODE_WORD_BYTES, "selection"), np.uint8)
    return [int(bit) for bit in np.unpackbits(drawn, bitorder="little")]


# Naive twins, in Python's numbers


def number(words: NDArray[np.uint64]) -> int:
    """Words as one number, the first the lowest."""
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


def naive_word(value: int) -> int:
    """The word of a value: the columns that are kept of value(x) · generator(x)."""
    product = 0
    for bit in range(value.bit_length()):
        if value >> bit & 1:
            product ^= generator() << bit
    return product & (1 << CODE_COLUMNS) - 1


def naive_read(places: Sequence[int], mask: int, sparse: int, rows: Sequence[int]) -> int:
    """What a key reads in a store of these rows."""
    read = 0
    for place in places:
        read ^= rows[place]
    for bit in range(64):
        if mask >> bit & 1:
            read ^= rows[sparse + bit]
    return read


def naive_digest(key: bytes, data: bytes) -> bytes:
    """Keyed BLAKE2s."""
    return hashlib.blake2s(data, key=key).digest()
