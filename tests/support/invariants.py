"""What is true of a job whatever has happened to it: SECURITY section 4's six, and how little is
done twice, as one check.

`check` holds what a run has left to what the same job leaves that nobody disturbed.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedboost.flow import Artefact
from fedboost.messages.exchange_pb2 import Chunk, Parcel
from fedboost.runtime.ledger.rows import Row
from fedboost.runtime.ledger.signed_heads import shared_fields
from tests.support.toys import AGGREGATOR, PARTIES, ROWS, SIZES, Left, Toy

OWN_FACTS = ("created", "arrays_sha256")  # of a shard; they differ from run to run
# Keys of all sums that are left.
OF_SUMS_TO_COME = ("fedboost.aggregation.MaskKeys", "fedboost.aggregation.DealtShares")
SEALED = ("key", "leaf_value")  # arrays of an unscored model that hold what is encrypted
LOST_LAYERS = 1  # whole layers of trees that an attempt may leave to the next one to grow again
SECONDS_MAX = 3600.0  # of mock time; every wait of a toy job is far shorter


class BrokenError(AssertionError):
    """An invariant does not hold; the text says which."""


def check(toy: Toy, left: Left, whole: Left, *, seconds_max: float = SECONDS_MAX) -> None:
    """A BrokenError names the first invariant that what a run has left breaks.

    `whole` is what the undisturbed job leaves. A job that was resumed has sent in more than one
    attempt: its messages may differ from the undisturbed ones in their randomness alone.
    """
    _ends(left, whole, seconds_max)
    if left.result.get("lost") != whole.result.get("lost"):
        _went_on(toy, left)
        _no_secret_twice(left)
        return
    _little_lost(left, whole)
    _same_model(left, whole)
    _exactly_once(toy, left)
    _no_secret_twice(left)
    _ledgers_agree(left)
    _no_more_disclosed(toy, left, whole)


def _ends(left: Left, whole: Left, seconds_max: float) -> None:
    """I5: finished, in time, and nothing remains of it but what always does."""
    _hold("I5", left.state == "finished", f"the job is {left.state}: {left.reason}")
    _hold("I5", left.seconds <= seconds_max, f"it took {left.seconds:g} s of mock time")
    _hold("I5", not left.errors, f"unexpected errors: {left.errors}")
    _hold("I5", not left.left, f"left behind: {left.left}")
    _hold("I5", left.files == whole.files, f"files left: {left.files}, expected {whole.files}")


def _little_lost(left: Left, whole: Left) -> None:
    """Lost work: no attempt leaves more to do again than it may."""
    again, ended = left.layers - whole.layers, left.attempts - 1
    fits = again <= LOST_LAYERS * ended
    _hold("lost work", fits, f"{again} layers grown again, attempts {left.attempts}")
    sys.stdout.write(f"lost layers {max(0, -(-again // max(1, ended)))}\n")


def _same_model(left: Left, whole: Left) -> None:
    """I1: each party's shard, the predictions and the metrics are those of the undisturbed job."""
    found = {party: digest(shard) for party, shard in left.shards.items()}
    expected = {party: digest(shard) for party, shard in whole.shards.items()}
    _hold("I1", found == expected, f"other shards: {_differing(found, expected)}")
    _hold("I1", left.predictions == whole.predictions, "other predictions")
    for key in ("metrics", "rows", "trees", "lost"):
        mine, theirs = left.result.get(key), whole.result.get(key)
        _hold("I1", mine == theirs, f"{key} in the result is {mine}, expected {theirs}")


def _went_on(toy: Toy, left: Left) -> None:
    """I1 of a job that has gone on without hosts, as it may: the others have one model."""
    lost = left.result["lost"]
    _hold("I1", toy.params.get("dropout") == "continue", f"the job went on without {lost}")
    _hold("I1", not set(lost) & set(left.shards), f"{lost} has a model without having been there")
    own = ("party", "role")
    found = {
        digest(replace(shard, facts={k: v for k, v in shard.facts.items() if k not in own}))
        for shard in left.shards.values()
    }
    _hold("I1", len(found) == 1, "the parties that are left have different models")


def _exactly_once(toy: Toy, left: Left) -> None:
    """I2: every party's rows count once in every sum of a tree, neither lost nor doubled."""
    for tree, found in enumerate(_digits(toy, left)):
        _hold("I2", found == [1] * len(found), f"tree {tree} has the digits {found}")


def _digits(toy: Toy, left: Left) -> Iterator[list[int]]:
    """Of each tree whose root counts rows: how often each party's are in it."""
    shard = left.shards.get(PARTIES[0])
    if shard is None or toy.params.get("objective") != "reg:squarederror":
        return
    if toy.is_horizontal and "cover" in shard.arrays:
        for number in _roots(shard):
            rows = round(number)
            yield [rows // size % 4 for size in SIZES] + [int(rows == sum(SIZES))]
    elif "cover" in shard.arrays and toy.rows == ROWS:
        aligned = left.result["rows"].get("train", left.result["rows"].get("aligned"))
        for number in _roots(shard):
            yield [int(round(number) == aligned)]


def _roots(shard: Artefact) -> list[float]:
    """The weight of the rows in each tree's root."""
    cover = shard.arrays["cover"]
    if "sizes" in shard.arrays:  # the nodes of each tree, one tree after the other
        first = np.cumsum(shard.arrays["sizes"]) - shard.arrays["sizes"]
    else:
        first = np.unique(shard.arrays["tree"], return_index=True)[1]
    return [float(cover[place]) for place in first.tolist()]


def _no_secret_twice(left: Left) -> None:
    """I3: a stream hides one plaintext; a place in the walk of an attempt has one message."""
    _hold("I3", left.masks_twice == 0, f"{left.masks_twice} masks hide two plaintexts each")
    placed: dict[tuple[Any, ...], set[bytes]] = {}
    for trip in left.trips:
        e = trip.envelope
        if e is None or e.job != left.job:
            continue
        key = (e.attempt, e.stage, e.step, e.number, e.part, e.sender, e.receiver)
        content = (Parcel if trip.method == "Post" else Chunk).FromString(trip.pieces[0])
        assert content.envelope == e
        placed.setdefault(key, set()).add(e.payload_sha256)
    several = [key for key, found in placed.items() if len(found) > 1]
    _hold("I3", not several, f"two messages in one place: {several[:3]}")


def _ledgers_agree(left: Left) -> None:
    """I4: every chain and signature verifies; what came was sent, entry for entry, and in one
    attempt what was sent has come.
    """
    _hold("I4", not left.broken, "; ".join(left.broken))
    parties = [party for party in (*PARTIES, AGGREGATOR) if party in left.ledgers]
    for sender in parties:
        for receiver in parties:
            sent = _told(left.ledgers[sender], "out", receiver)
            came = _told(left.ledgers[receiver], "in", sender)
            link = f"{sender} -> {receiver}"
            _hold("I4", not came - sent, f"{link}: {_named(came - sent)} came and was never sent")
            if left.attempts == 1:
                _hold("I4", not sent - came, f"{link}: {_named(sent - came)} was sent, never came")


def _told(rows: list[Row], direction: str, peer: str) -> Counter[tuple[str | int, ...]]:
    own = (row for row in rows if row.direction == direction and row.peer == peer)
    return Counter(shared_fields("", row)[2:] for row in own)


def _no_more_disclosed(toy: Toy, left: Left, whole: Left) -> None:
    """I6: nobody has told anybody anything but what the undisturbed job tells."""
    for party, rows in left.ledgers.items():
        mine, theirs = _disclosed(toy, rows, left), _disclosed(toy, whole.ledgers[party], left)
        if left.attempts == 1:
            same = mine == theirs
            _hold("I6", same, f"{party} told {_named(mine - theirs)}, not {_named(theirs - mine)}")
        else:
            more = {key for key, times in mine.items() if times > left.attempts * theirs[key]}
            _hold("I6", not more, f"{party} told more than it may: {_named(more)}")


def _disclosed(toy: Toy, rows: list[Row], left: Left) -> Counter[tuple[str, str, str]]:
    """Type, receiver and hash of what left; where chance has a part in it, its size instead."""
    exact = toy.is_drawn_again and left.attempts == 1

    def size(row: Row) -> str:
        """Return what a message is known by; nothing of keys, fewer in an attempt behind a tree."""
        return "" if left.attempts > 1 and row.kind in OF_SUMS_TO_COME else str(row.values)

    return Counter(
        (row.kind, row.peer, row.sha256 if exact else size(row))
        for row in rows
        if row.direction == "out"
    )


def digest(shard: Artefact) -> str:
    """A shard's SHA-256, without what differs from run to run."""
    hashed = hashlib.sha256()
    facts = {key: value for key, value in sorted(shard.facts.items()) if key not in OWN_FACTS}
    hashed.update(repr(facts).encode())
    arrays = dict(shard.arrays)
    if shard.facts.get("split") == "unscored":
        # Chance has a part in these; the guest's history tells what hosts' leaves add.
        arrays |= {name: np.empty_like(arrays[name][:0]) for name in SEALED if name in arrays}
    for name, array in sorted(arrays.items()):
        hashed.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return hashed.hexdigest()


def _differing(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    return [p for p in {**found, **expected} if found.get(p) != expected.get(p)]


def _named(rows: Any) -> str:
    return (
        ", ".join(sorted({next(part for part in row if "." in str(part)) for row in rows}))
        or "nothing"
    )


def _hold(name: str, holds: bool, text: str) -> None:
    if not holds:
        raise BrokenError(f"{name}: {text}")
