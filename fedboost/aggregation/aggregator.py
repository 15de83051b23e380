"""The aggregator: adds masked vectors and sends the sum to all parties; it holds no data.

Each vector looks uniformly random to it. With `dropout: continue` it removes the remaining masks
after the survivors have sent their shares; until then it cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedboost.aggregation.contributor import PART_WORDS
from fedboost.aggregation.recovery import commitment, self_stream, share_of, sign_of, threshold
from fedboost.aggregation.sums import Aggregation
from fedboost.crypto import shamir
from fedboost.crypto.masking import MASK_KEY_BYTES, MaskKey, Pair, add_stream, is_private_of
from fedboost.crypto.shamir import SHARE_BYTES
from fedboost.flow import EVERYBODY, Artefact, Out, Place, StageContext
from fedboost.ground import wire
from fedboost.ground.arrays import Words
from fedboost.ground.errors import PeerError, UnreachableError
from fedboost.messages.array_pb2 import Array
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.protocol.aggregation_pb2 import Gathered, Masked, RevealedShares, Total


@dataclass
class Aggregator:
    """State of the aggregator between steps."""

    context: StageContext[Aggregation]
    number: int = 0  # of the sum that was added up last
    kept: dict[str, Words] = field(default_factory=dict)  # masked vectors of a sum not yet opened


def begin(context: StageContext[Aggregation]) -> Aggregator:
    """An aggregator that has added nothing."""
    return Aggregator(context)


def add_up(aggregator: Aggregator, got: Iterator[Mapping[str, Masked]]) -> Iterator[Out]:
    """Yield the sum of all vectors part by part, after every part has arrived."""
    aggregator.number += 1
    parts: list[Words] = []
    senders = None
    for masked in got:
        _members(masked)
        withheld = [party for party, part in masked.items() if part.withheld]
        if any(masked[party].HasField("words") for party in withheld):
            raise PeerError(f"{withheld[0]} sent a vector that it withholds", party=withheld[0])
        if withheld:
            yield Out(send=Total(number=aggregator.number, closed=True))
            return
        senders = senders or set(masked)
        if set(masked) != senders:
            short = min(senders - set(masked))
            raise PeerError(f"{short} sent fewer parts than others", party=short)
        words = {party: _checked_words(aggregator, party, part) for party, part in masked.items()}
        lengths = {len(vector) for vector in words.values()}
        if len(lengths) != 1:
            raise PeerError("the parties sent vectors of different lengths", todo="same versions?")
        total = np.zeros(lengths.pop(), np.uint64)
        for vector in words.values():
            total += vector
        parts.append(total)
    yield from _total_messages(aggregator.number, parts)


# With `dropout: continue`


def stand_by(_: Aggregator) -> Out:
    """Send nothing: a round that was requested early is about to begin."""
    return Out()


def gather(aggregator: Aggregator, got: Iterator[Mapping[str, Masked]]) -> Out:
    """Keep all vectors and confirm it; shares of self-masks open their sum."""
    keep_masked(aggregator, next(got))
    if next(got, None) is not None:
        raise PeerError("a vector that may go on without others came in parts")
    return Out(send=Gathered(number=aggregator.number))


def add_or_close(aggregator: Aggregator, got: Mapping[str, Masked]) -> Iterator[Out]:
    """Yield the sum of all vectors, or a closed total if a vector is missing or withheld."""
    number = aggregator.number + 1
    current = {party: masked for party, masked in got.items() if masked.number >= number}
    if _members(current) - set(current):
        aggregator.number = number
        yield Out(send=Total(number=number, closed=True))
        return
    yield from add_up(aggregator, iter([current]))


def keep_masked(aggregator: Aggregator, got: Mapping[str, Masked]) -> Out:
    """Keep the received vectors until the survivors agree; drop earlier vectors of lost parties."""
    aggregator.number += 1
    fresh = {
        party: message for party, message in got.items() if message.number >= aggregator.number
    }
    for party, masked in fresh.items():
        if masked.withheld or masked.members:
            raise PeerError(f"{party} took a fresh sum for one that may stay closed", party=party)
    aggregator.kept = {
        party: _checked_words(aggregator, party, masked) for party, masked in fresh.items()
    }
    return Out()


def open_whole(aggregator: Aggregator, got: Mapping[str, RevealedShares]) -> Iterator[Out]:
    """Remove all self-masks from the sum over all members."""
    yield from open_total(aggregator, got)


def open_total(aggregator: Aggregator, got: Mapping[str, RevealedShares]) -> Iterator[Out]:
    """Remove the survivors' masks from their sum, if they allow it to be opened."""
    current = {party: shown for party, shown in got.items() if shown.number >= aggregator.number}
    agreed = _agreed_fields(aggregator, current)
    vectors, aggregator.kept = aggregator.kept, {}
    if not all(shown.HasField("shares") for shown in current.values()):
        yield Out(send=Total(number=aggregator.number, closed=True))
        return
    survivors = tuple(agreed.survivors)
    silent = [party for party in survivors if party not in current]
    if len(current) < agreed.threshold:
        raise UnreachableError(
            f"{len(current)} parties gave shares, a sum needs {agreed.threshold} to be opened",
            party=next(iter(silent), survivors[-1]),
            todo="when the others are back: fedboost job resume",
        )
    lacking = [party for party in survivors if party not in vectors]
    if lacking or len({len(vectors[party]) for party in survivors}) != 1:
        raise PeerError("the survivors' vectors are not all here, or not of one length")
    total = np.zeros(len(vectors[survivors[0]]), np.uint64)
    for party in survivors:
        total += vectors[party]
    _remove_masks(aggregator, agreed, current, total)
    yield from _total_messages(aggregator.number, [total])


def snapshot(_: Aggregator, __: Place) -> Artefact:
    """Return an empty artefact: every attempt has its own keys and sums."""
    return Artefact()


def restore(_: Aggregator, __: Artefact) -> StatusReport:
    """Restore nothing."""
    return StatusReport()


def finish(_: Aggregator) -> Artefact:
    """Return an empty artefact."""
    return Artefact()


def bytes_max(_: Aggregator, __: str) -> int:
    """Return the most bytes of a message; the length of a vector is the parties' affair."""
    return wire.MESSAGE_BYTES_MAX


# Inside


def _members(got: Mapping[str, Masked]) -> set[str]:
    """Return the parties masked against in the vectors that are not withheld; raise PeerError if
    they differ.
    """
    members = {tuple(masked.members) for masked in got.values() if not masked.withheld}
    if len(members) > 1:
        raise PeerError("the parties' vectors are masked among different sets of parties")
    return set(next(iter(members), ()))


def _checked_words(aggregator: Aggregator, party: str, masked: Masked) -> Words:
    if masked.number != aggregator.number:
        raise PeerError(f"{party} sent a vector of sum {masked.number}, {aggregator.number} is due")
    return wire.unpack(masked.words, "i8", (None,), f"a vector of {party}").view(np.uint64)


def _total_messages(number: int, parts: list[Words]) -> Iterator[Out]:
    """Yield the sum as messages of at most `PART_WORDS` words."""
    for words in parts:
        for start in range(0, max(1, len(words)), PART_WORDS):
            part_words = words[start : start + PART_WORDS].view(np.int64)
            yield Out(send=Total(number=number, words=wire.pack(part_words)))


def _agreed_fields(aggregator: Aggregator, got: Mapping[str, RevealedShares]) -> RevealedShares:
    """Return the fields that all survivors must send alike; raise PeerError if they differ.

    Some survivors may want the sum closed: they know what an earlier attempt opened.
    """
    if not got:
        raise PeerError("no party sent shares to open the sum")
    first = next(iter(got.values()))
    for name in ("number", "survivors", "members", "context", "threshold"):
        if any(getattr(shown, name) != getattr(first, name) for shown in got.values()):
            raise PeerError("the parties do not agree on the sum to open")
    opening = [shown for shown in got.values() if shown.HasField("shares")]
    for shown in opening:
        if shown.keys != opening[0].keys or shown.commitments != opening[0].commitments:
            raise PeerError("the parties do not agree on the keys that open the sum")
    _check_named(aggregator, first, got)
    return next(iter(opening), first)


def _check_named(
    aggregator: Aggregator, agreed: RevealedShares, got: Mapping[str, RevealedShares]
) -> None:
    """Refuse impossible members and survivors, and a threshold that is too low."""
    table = aggregator.context.table.of(EVERYBODY)
    members, survivors = tuple(agreed.members), tuple(agreed.survivors)
    for named, among in ((members, table), (survivors, members)):
        if not named or named != tuple(party for party in among if party in named):
            raise PeerError("the parties name others than the sum's members, or out of order")
    if agreed.number != aggregator.number:
        raise PeerError(f"the parties open sum {agreed.number}, {aggregator.number} is due")
    if not set(got) <= set(survivors):
        raise PeerError("shares came from a party whose vector is not in the sum")
    if agreed.threshold < threshold(len(members), aggregator.context.params.colluders):
        raise PeerError(f"the parties would open a sum with {agreed.threshold} shares")


def _remove_masks(
    aggregator: Aggregator, agreed: RevealedShares, got: Mapping[str, RevealedShares], total: Words
) -> None:
    """Remove the self-masks of survivors and the pair masks of lost parties from the total."""
    members, survivors = tuple(agreed.members), set(agreed.survivors)
    keys = _checked_bytes(agreed.keys, len(members), MASK_KEY_BYTES, "the mask keys of a sum")
    committed = _checked_bytes(
        agreed.commitments, len(members), MASK_KEY_BYTES, "the commitments of a sum"
    )
    table = aggregator.context.table.of(EVERYBODY)
    salt, context = aggregator.context.attempt.digest, agreed.context
    for place, party in enumerate(members):
        if party in survivors:
            fits = partial(_matches_commitment, committed[place].tobytes())
            secret = _opened_secret(got, agreed, place, fits, table)
            add_stream(total, self_stream(secret, salt, context), -1)
            continue
        public = keys[place].tobytes()
        lost = MaskKey(_opened_secret(got, agreed, place, partial(_is_key, public), table))
        for other, peer in enumerate(members):
            if peer in survivors:
                stream = Pair(lost.shared(keys[other].tobytes()), salt).stream_key(context)
                add_stream(total, stream, -sign_of(peer, party, table))


def _opened_secret(
    got: Mapping[str, RevealedShares],
    agreed: RevealedShares,
    place: int,
    fits: partial[bool],
    table: tuple[str, ...],
) -> bytes:
    """Return one member's secret from the survivors' shares; PeerError names the senders of wrong
    ones.
    """
    shares = []
    for party, shown in got.items():
        rows = _checked_bytes(
            shown.shares, len(agreed.members), SHARE_BYTES, f"the shares of {party}"
        )
        share = share_of(rows[place], party)
        if share.x != table.index(party) + 1:
            raise PeerError(f"{party} gave another party's share")
        shares.append(share)
    try:
        secret = shamir.combine(shares, agreed.threshold)
    except PeerError:
        secret = b""
    if secret and fits(secret):
        return secret
    wrong = [table[x - 1] for x in shamir.wrong_shares(shares, agreed.threshold, fits)]
    raise PeerError(f"{', '.join(wrong)} gave a wrong share", party=wrong[0])


def _matches_commitment(committed: bytes, secret: bytes) -> bool:
    return commitment(secret) == committed


def _is_key(public: bytes, secret: bytes) -> bool:
    return is_private_of(secret, public)


def _checked_bytes(array: Array, rows: int, width: int, what: str) -> NDArray[np.uint8]:
    return wire.unpack(array, "u1", (rows, width), what).view(np.uint8)
