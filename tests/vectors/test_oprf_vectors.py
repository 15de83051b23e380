"""Digests of ids, words of the code, values and whole exchanges are stable: releases must agree.

The first lines are the specification's vectors, with its randomness: counters under SHAKE-256.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from fedboost.crypto.oprf.blake2s import digest_rows, key_state
from fedboost.crypto.oprf.code import code_tables
from fedboost.crypto.oprf.guest import OprfGuest
from fedboost.crypto.oprf.host import OprfHost
from fedboost.crypto.oprf.ids import IdDigests
from fedboost.crypto.oprf.session import OprfSession
from fedboost.crypto.oprf.sizes import CHECK_BYTES, OprfSizes
from fedboost.crypto.oprf.tags import TagGuest, TagHost
from fedboost.crypto.secrets import Secrets
from fedboost.ground.ids import EncodedIds
from fedboost.ground.workers import Serial
from tests.support.oprf_pairs import numbered, pair, session_of, several

HERE = Path(__file__).parent
KEY = bytes(range(32))
IDS = [b"\0\0\0\x08user%04d" % k for k in range(2000)]


@dataclass(frozen=True)
class WrittenSession(OprfSession):
    """A session whose names are those that the specification's vectors have."""

    transfers = bytes(32)

    def name(self, start, choice):
        return bytes(32)


class WrittenSecrets(Secrets):
    """Secrets that draw, whoever asks, what the specification's vectors draw."""

    def bytes(self, n, *purpose):
        if purpose[0] == "store":
            stream = Cipher(AES(drawn(0, 16)), CTR(b"\0" * 16)).encryptor()
            return stream.update(b"\0" * n)
        places = {("transfer", "start"): 1, ("selection",): 2, ("tags", 0): 10_000}
        for number in range(472):
            places["transfer", number, "other"] = 3 + 2 * number
            places["transfer", number, "own"] = 4 + 2 * number
        return drawn(places[purpose], n)


def drawn(counter, n):
    """The specification's random bytes number `counter`."""
    return hashlib.shake_256(b"fb-psi vector" + counter.to_bytes(4, "big")).digest(n)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def of_an_id():
    """What becomes of one id, and of a row that it reads."""
    own = IdDigests(EncodedIds.of([b"\0\0\0\x06user-1"]), KEY, 1, Serial())
    part = own.part(0, 1)
    keys, values = part.keys(1000), part.values()
    output = np.empty((1, 8), np.uint32)
    rows = np.arange(8, dtype=np.uint64).reshape(1, 8)
    state = key_state(hashlib.sha256(b"out" + KEY).digest())
    digest_rows(rows, part.digests, state, output)
    return {
        "code_tables": digest(code_tables().tobytes()),
        "word_of_1": code_tables()[0, 1].tobytes().hex(),
        "digest": part.digests.tobytes().hex(),
        "part_of_15": (int(part.digests[0, 0]) * 15) >> 32,
        "places": keys.places[0].tolist(),
        "mask": f"{keys.masks[0]:016x}",
        "value": f"{values[0, 1]:03x}{values[0, 0]:016x}",
        "output": output.tobytes().hex(),
    }


def exchange(guest, host):
    """The messages of a guest and its only host."""
    guest, host = TagGuest(guest), TagHost(host)
    part = guest.part(0)
    tags = host.answer(0, part)
    rows, named = guest.read_tags(0, tags)
    assert len(host.read_named(0, named)) == len(rows) == 400
    messages = {
        "start": guest.oprf.start,
        "choice": host.oprf.choice,
        "words": part[:-CHECK_BYTES],
        "check": part[-CHECK_BYTES:],
        "tags": tags,
        "marks": named[:-32],
        "proofs": named[-32:],
    }
    return {name: digest(data)[:32] for name, data in messages.items()}


def written():
    """The specification's exchange: 1200 ids each, 400 in common."""
    session = WrittenSession(bytes(32), "", "", OprfSizes(1200, 1200), KEY)
    secrets = WrittenSecrets(bytes(32))
    ours = IdDigests(EncodedIds.of(IDS[:1200]), KEY, 1, Serial())
    theirs = IdDigests(EncodedIds.of(IDS[800:]), KEY, 1, Serial())
    guest = OprfGuest(session, ours, secrets)
    host = OprfHost(session, theirs, secrets, guest.start)
    guest.open(host.choice)
    return exchange(guest, host)


def of_several():
    """What a guest and three hosts send after their base transfers."""
    run = several(IDS[:1200], [IDS[800:], IDS[600:1800], IDS[700:1900]])
    hints = [host.answer(0, run.guest.part(k, 0)) for k, host in enumerate(run.hosts)]
    rows, named = run.guest.read_hints(0, hints)
    assert sorted(rows.tolist()) == list(range(800, 1200))
    return {"hints": [digest(one)[:32] for one in hints], "named": [digest(n)[:32] for n in named]}


def test_ids_values_and_exchanges_are_the_same_in_every_release(golden):
    """A change here means that parties of different releases cannot align."""
    padded = session_of(1300, 1250)
    lines = {
        "id": of_an_id(),
        "specified": written(),
        "session": {"key": padded.key.hex(), "transfers": padded.transfers.hex()},
        "padded": exchange(*pair(IDS[:1200], IDS[800:], padded)),
        "several": of_several(),
        "parts": digest(
            b"".join(TagGuest(pair(numbered(range(98_304)), [])[0]).part(b) for b in range(2))
        ),
    }
    golden(HERE / "oprf.json", json.dumps(lines, indent=1) + "\n")
