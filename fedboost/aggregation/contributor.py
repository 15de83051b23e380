"""A party's side of sums under masks: keys, masked vectors, totals that must fit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from fedboost.aggregation import standing
from fedboost.aggregation.opened import OpenedSums
from fedboost.aggregation.recovery import Epoch, keys_of, pair_of, sign_of, threshold
from fedboost.aggregation.standing import TAG_WORDS, Tagging
from fedboost.aggregation.statistic import Statistic
from fedboost.aggregation.sums import Aggregation
from fedboost.crypto.gaussian import discrete_gaussian
from fedboost.crypto.masking import MaskKey, Pair, add_stream
from fedboost.crypto.shamir import HOLDERS_MAX
from fedboost.flow import EVERYBODY, GUEST, StageContext
from fedboost.ground import wire
from fedboost.ground.errors import (
    ConfigError,
    PeerError,
    PolicyError,
    ProtocolError,
    UnreachableError,
)
from fedboost.messages.protocol.aggregation_pb2 import (
    DealtShares,
    Gathered,
    Masked,
    MaskKeys,
    RevealedShares,
    Standing,
    Survivors,
    Total,
)

Vector = NDArray[np.int64]

PART_WORDS = 1 << 19  # of a vector in one message: 4 MiB
DIGIT_WORDS = 2  # behind a vector: a count of each party's contributions
CHECK_WORDS = DIGIT_WORDS + TAG_WORDS  # and behind these the tag of both
_DIGITS = 33  # contributors that one check word counts, each by its own bit


class Contributor:
    """One party in the sums of one stage; its repr shows no keys.

    `history` is a hash of the job, its contributors, and the subject and result of each sum so far.
    Masks cancel only among parties with equal histories.
    """

    def __init__(self, context: StageContext[Aggregation]) -> None:
        """A PolicyError where the table has fewer contributors than our owner asks for, or so few
        rows of ours to learn from that every sum would be about them.

        Raise PolicyError if the table has too few contributors, or if we have some training rows
        but fewer than the policy's minimum. Raise ConfigError if `dropout` and `colluders` do not
        fit the number of parties.
        """
        self.party = context.party
        self.members = context.table.of(EVERYBODY)
        self.number = 0  # of the sum that was masked last
        self.epoch: Epoch | None = None  # of fresh keys, with `dropout: continue`
        self.begun: tuple[str, ...] = ()  # parties of an earlier attempt's sum that continues here
        self.rows = 0 if context.frame is None else len(context.parts["train"])  # training rows
        self._context = context
        self._key = MaskKey(context.secrets.attempt.derive("mask key"))
        self._pairs: dict[str, Pair] = {}
        self.history = standing.first_history(context, self.members)
        self._keys = b""  # a digest of the keys that all parties sent in this attempt
        self._tag_key: bytes | None = None  # of this attempt; the aggregator has none
        self._tagging: Tagging | None = None  # of the sum at hand
        self._opened = OpenedSums(context.services.notebook)
        self._has_met = False
        self._what = b""  # digest of the current sum's statistic, which its masks are bound to
        self._sum_context = b""
        self._awaits = 0  # words of the total that is due
        self._fresh: int | None = None
        # σ, in rows, of what our owner adds to sums that go on without lost parties.
        self._noise = (
            context.limits.aggregation_noise if context.params.dropout == "continue" else 0.0
        )
        self._is_exact = False  # the vector at hand, though its owner wants noise
        self._withholds = False  # it, as its sum would be over others than before
        least, count = context.limits.aggregation_parties_min, len(self.members)
        if count < least:
            raise PolicyError(
                f"the policy adds up over {least} parties at least, there are {count}",
                todo="more parties, or ask the party's owner",
                party=self.party,
                key="policy.aggregation_parties_min",
            )
        if 0 < self.rows < context.limits.own_rows_min:
            raise PolicyError(
                f"the policy adds up {context.limits.own_rows_min} training rows of ours at least, "
                f"or none; there are {self.rows}",
                todo="more rows, or ask the party's owner",
                kind="the policy adds up more training rows than the party has",
                party=self.party,
                key="policy.own_rows_min",
            )
        if context.params.dropout == "continue":
            self._check_shares(count, context.params.colluders)

    def _check_shares(self, count: int, colluders: int) -> None:
        """Raise ConfigError if no shares can be dealt among so many parties that open a sum."""
        if count > HOLDERS_MAX:
            raise ConfigError(
                f"dropout: continue shares keys among {HOLDERS_MAX} parties at most, "
                f"there are {count}",
                todo="dropout: wait, or fewer parties",
            )
        if threshold(count, colluders) > count:
            raise ConfigError(
                f"colluders is {colluders} and there are {count} parties",
                todo=f"colluders: {count - 1} at most, or more parties",
            )

    # Where the others stand

    def signed_standing(self) -> Standing:
        """Return our signed history of sums; at the start the guest adds the key for tags."""
        key = b""
        if self._context.role is GUEST and self._tag_key is None:
            key = self._tag_key = self._context.secrets.attempt.derive("tag key")
        return standing.signed_standing(self._context, self.history, key)

    def compare_standings(self, got: Mapping[str, Standing]) -> None:
        """Compare the records of all remaining parties with ours; without agreement no sum begins.

        The second comparison, after the last sum, requires equal histories.
        """
        standing.check_signed(self._context, got)
        if not self._has_met:
            key = standing.agreed_tag_key(self._context, got)
            if self._context.role is not GUEST:
                self._tag_key = key
        standing.check_same_history(self.history, got)
        self._has_met = True

    @property
    def over(self) -> tuple[str, ...]:
        """Return the members of the current epoch; empty without an epoch."""
        return () if self.epoch is None else self.epoch.members

    # Keys of the stage

    def offer_key(self) -> MaskKeys:
        """Return our public key, signed."""
        public = np.frombuffer(self._key.public, np.uint8)[None, :]
        offered = MaskKeys(keys=wire.pack(public))
        offered.signature = self._context.services.signer.sign(
            self._text_to_sign(self.party, offered)
        )
        return offered

    def hear(self, got: Mapping[str, MaskKeys]) -> None:
        """The others' public keys; from here on we can mask. A PeerError for a forged one."""
        offered, signer = {**got, self.party: self.offer_key()}, self._context.services.signer
        for party, theirs in got.items():
            signer.check(party, self._text_to_sign(party, theirs), theirs.signature)
            if theirs.epoch or theirs.HasField("commitments"):
                raise PeerError(f"{party} offered keys of an epoch for the stage")
            [public] = keys_of(theirs, 1, party)
            self._pairs[party] = pair_of(self._key, public, self._context.attempt.digest, party)
        if set(offered) != set(self.members):
            raise ProtocolError("mask keys came from others than the job's contributors")
        self._bind_keys(*(offered[party].keys.data for party in self.members))

    def _bind_keys(self, *keys: bytes) -> None:
        """Bind keys that all parties have sent in this attempt to all later masks."""
        self._keys = _history_hash(self._keys, *keys)

    def _text_to_sign(self, party: str, offered: MaskKeys) -> bytes:
        return (
            b"fedboost mask key 1"
            + self._context.attempt.digest
            + party.encode()
            + offered.keys.data
        )

    # Sums

    def masked_parts(self, vector: Vector, what: Statistic) -> Iterator[Masked]:
        """Yield the next vector under its masks part by part, int64 (n,); at least one part.

        The masks of a sum are used once; no second vector can be masked with them. A statistic that
        is not fresh is withheld unless every party of the last sum is present: otherwise the
        difference would reveal what the missing parties had added.
        """
        self._fresh = what.fresh
        if what.fresh is not None:
            self.begun = ()
        if self._awaits:
            raise ProtocolError("the next vector came before the sum of the last one")
        self.number += 1
        self._what = what.digest(len(vector))
        self._sum_context = self._mask_context(self._what)
        signed = np.concatenate([vector + self._noise_of(vector, what), self._check_digit()])
        if self._tag_key is None:
            raise ProtocolError("there is no key for tags yet")
        self._tagging = Tagging(self._tag_key, self._sum_context, len(signed))
        tag = self._tagging.of(signed, adds_pad=self._context.role is GUEST)
        masked = np.concatenate([signed, tag]).view(np.uint64)
        self._awaits = len(masked)
        whole = () if self.epoch is None or what.fresh is not None else self.epoch.members
        self._withholds = bool(whole) and not self._is_over_all(whole)
        if self._withholds:
            yield Masked(number=self.number, withheld=True)
            return
        streams = self._streams()
        step = len(masked) if self.epoch is not None else PART_WORDS  # a lost one sends all or none
        for start in range(0, len(masked), step):
            part = masked[start : start + step]
            for key, sign in streams:
                add_stream(part, key, sign, start)
            yield Masked(number=self.number, words=wire.pack(part.view(np.int64)), members=whole)

    def total(self, got: Iterator[Total], most: int) -> Vector | None:
        """Return the sum over all contributors, int64 (n,), each word within ±`most`.

        Return None if the sum stays closed because a party is missing. Raise PeerError if the total
        cannot be the sum: a contribution is missing or doubled, or parties received different
        totals.
        """
        whole = self._joined_total(got)
        if whole is None:
            return None
        values, digits, tag = np.split(whole, [-CHECK_WORDS, -TAG_WORDS])
        present = self.members
        if self.epoch is not None:
            if self._fresh is not None:
                self.epoch.opened()
            present = self.epoch.members
        self.add_to_history(self._what, whole.tobytes(), *(party.encode() for party in present))
        if not np.array_equal(digits, sum(self._check_digit(party) for party in present)):
            raise PeerError(
                "a total is not the sum of one vector from each contributor",
                todo="the masks or the broadcasts of a party were changed on the way",
            )
        assert self._tagging is not None  # as words are due
        if not self._tagging.fits_total(whole[:-TAG_WORDS], tag):
            adder = self._context.table.aggregator or ""
            raise PeerError(
                f"{adder} sent a total that is not the sum of the parties' vectors",
                party=adder,
                todo="do not run jobs with it until its owner has explained this; a "
                "contributor with a wrong tag causes the same error",
            )
        if len(values) and (values.min() < -most or values.max() > most):
            raise PeerError("a total is outside the range of sums of its parts")
        return values

    def total_before_rounds(self, got: Iterator[Total], most: int) -> Vector:
        """Return the total of a sum before the rounds; raise PeerError if it was closed."""
        total = self.total(got, most)
        if total is None:
            raise PeerError("a total was closed in front of the rounds")
        return total

    def _joined_total(self, got: Iterator[Total]) -> Vector | None:
        """Return all words of the total from its parts; None if the sum stays closed."""
        parts: list[Vector] = []
        for part in got:
            if part.number != self.number or not self._awaits:
                raise PeerError(f"a total of sum {part.number} came, {self.number} is due")
            if part.closed:
                if self.epoch is None or parts:
                    raise PeerError("a total was closed that no party asked to keep closed")
                self._awaits = 0
                self.add_to_history(self._what, b"closed")
                return None
            if self._withholds:
                raise PeerError("a total came of a sum that we keep closed")
            left = self._awaits - sum(len(part) for part in parts)
            words = wire.unpack(part.words, "i8", (None,), "a total").astype(np.int64, copy=False)
            if len(words) > left:
                raise PeerError(f"a total has more than {self._awaits} words")
            parts.append(words)
        whole = np.concatenate([np.empty(0, np.int64), *parts])
        if len(whole) != self._awaits:
            raise PeerError(f"a total has {len(whole)} words, expected {self._awaits}")
        self._awaits = 0
        return whole

    def add_to_history(self, *said: bytes) -> None:
        """Add to the history data that every party received or computed."""
        self.history = _history_hash(self.history, *said)

    # With `dropout: continue`

    def offer_fresh(self, sums: int) -> MaskKeys:
        """Return our public keys: one for each of the next `sums` fresh sums, and one for other
        sums.
        """
        number = 1 if self.epoch is None else self.epoch.number + 1
        self.epoch = Epoch(self._context, number, sums)
        return self.epoch.offer_keys()

    def hold_shares(self, got: Mapping[str, DealtShares], present: tuple[str, ...]) -> None:
        """Store the other parties' shares; the masks of the next sums are among the `present`."""
        self._bind_keys(self.fresh.hold_shares(got, present), *(p.encode() for p in present))

    def sign(self, present: tuple[str, ...]) -> Survivors:
        """Sign the list of parties over which the current sum may be opened."""
        return self.fresh.sign(present, self.number, self._sum_context)

    def reveal_shares(self, got: Mapping[str, Survivors]) -> RevealedShares:
        """Return our shares that open the sum, after all remaining parties signed the same list."""
        self.fresh.check_agreement(got, self.number, self._sum_context)
        return self._shares_to_reveal()

    def reveal_whole(self, got: Gathered) -> RevealedShares:
        """Return our shares after the aggregator reported that all vectors arrived.

        No party has to sign that. The threshold prevents a party named present here from being
        opened as lost: each of us gives shares for one list, and of two lists for one statistic
        only one can collect enough shares.
        """
        if got.number != self.number:
            raise PeerError(f"the vectors of sum {got.number} are there, {self.number} is due")
        self.fresh.note_all_sent()
        return self._shares_to_reveal()

    def _shares_to_reveal(self) -> RevealedShares:
        epoch = self.fresh
        if self._fresh is None:
            raise ProtocolError("only a fresh sum is opened by shares")
        exact = self._is_exact and epoch.survivors != self.members
        opens = not exact and self._opened.note(self._fresh, epoch.survivors)
        return epoch.reveal_shares(self.number, self._sum_context, opens=opens)

    def _is_over_all(self, members: tuple[str, ...]) -> bool:
        """Return whether a statistic that is not fresh may be opened over an epoch's members."""
        return members == (self.begun or members) and not (
            self._is_exact and members != self.members
        )

    def check_begun(self, statistic: int, present: tuple[str, ...], what: str) -> None:
        """Refuse to begin without a party whose vector an earlier attempt may have opened.

        A refused list loses no party for good: the job pauses and continues with the party.
        """
        gone = [party for party in self._opened.parties_of(statistic) if party not in present]
        if gone:
            raise UnreachableError(
                f"{what} was begun with {', '.join(gone)} and cannot be begun without",
                party=gone[0],
                todo="when it is back: fedboost job resume",
            )

    @property
    def fresh(self) -> Epoch:
        """The epoch at hand; a ProtocolError before there is one."""
        if self.epoch is None:
            raise ProtocolError("there are no fresh keys yet")
        return self.epoch

    def _streams(self) -> list[tuple[bytes, int]]:
        """Return the stream keys of this sum with the sign of each."""
        if self.epoch is not None:
            fresh = self._fresh is not None
            streams = self.epoch.streams if fresh else self.epoch.whole_streams
            return streams(self._sum_context)
        return [
            (pair.stream_key(self._sum_context), sign_of(self.party, peer, self.members))
            for peer, pair in self._pairs.items()
        ]

    def _noise_of(self, vector: Vector, what: Statistic) -> Vector | int:
        """Return what our owner adds to a vector that may be summed over fewer parties than others
        were.

        The same in every round and attempt, so that none tells more than the first.
        """
        self._is_exact = bool(self._noise) and self.epoch is not None and what.unit is None
        if not self._noise or self.epoch is None or what.unit is None:
            return 0
        sigmas = np.rint(self._noise * np.broadcast_to(what.unit, vector.shape)).astype(np.int64)
        within = what.place[1:]
        return discrete_gaussian(sigmas, self._context.secrets.job, "of sums", what.name, *within)

    def _mask_context(self, what: bytes) -> bytes:
        """Return the context of the masks, 32 bytes: the history, this sum's statistic and the
        keys.
        """
        return hashlib.sha256(b"fedboost sum 2" + self.history + what + self._keys).digest()

    def _check_digit(self, party: str | None = None) -> Vector:
        """Return a party's addition to the check words: a bit of its own."""
        place = self.members.index(party or self.party)
        words = np.zeros(DIGIT_WORDS, np.int64)
        words[place // _DIGITS] = 1 << (place % _DIGITS)
        return words


def _history_hash(history: bytes, *said: bytes) -> bytes:
    digest = hashlib.sha256(history)
    for reply in said:
        digest.update(hashlib.sha256(reply).digest())
    return digest.digest()
