"""A random adversary of sums under masks: coordinator, aggregator and all contributors but two.

It opens the two at places of its choice, asks either for vectors when it likes, tells each what it
likes with tags that fit, begins and ends attempts, keeps or forgets, lies about who is left. What
it then knows of the two are the combinations of their masked vectors in which all streams cancel
that it does not know. None of them may be about one of the two alone.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.aggregation import standing
from fedboost.aggregation.contributor import CHECK_WORDS, Contributor
from fedboost.aggregation.recovery import Epoch, sign_of
from fedboost.aggregation.standing import TAG_WORDS
from fedboost.aggregation.statistic import Statistic
from fedboost.flow import START, MemoryNotebook, Place, StageContext
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError
from fedboost.messages.protocol.aggregation_pb2 import (
    DealtShares,
    MaskKeys,
    RevealedShares,
    Standing,
    Survivors,
    Total,
)
from tests.support.aggregation import ADDER, contexts
from tests.support.contexts import altered

WORDS = 2
STATISTICS = 3  # that recur: a model that learns nothing has the same root in every tree
STEPS_MAX = 40
SUMS = 4  # of an epoch


@dataclass(frozen=True)
class Masked:
    """A masked vector of one of the two, as an observer that knows the others' keys has it."""

    party: str
    of: tuple[int, ...]  # which function of the party's rows it is
    streams: tuple[tuple[bytes, int], ...]  # that only the two know, or the party alone


@dataclass
class Honest:
    """One of the two: what it has kept, and its side in the attempt at hand."""

    context: StageContext[Any]
    kept: dict[Place, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    sums: Contributor | None = None
    told: tuple[int, ...] = ()  # of all totals so far: what the next vectors hang on
    asks: Statistic | None = None  # the total of which is due

    @property
    def place(self) -> Place:
        return (len(self.told),)

    def function(self) -> tuple[int, ...]:
        """Of its rows: one that recurs, or hangs on the last total."""
        return (len(self.told) % STATISTICS, *self.told[-1:])


class Schedule:
    """One run of the adversary against two contributors."""

    def __init__(self, draw: random.Random, *, goes_on: bool) -> None:
        self.draw = draw
        count = draw.randint(3, 5)
        mode: dict[str, Any] = {"dropout": "continue", "colluders": count - 2} if goes_on else {}
        self._mode, self._count, self._goes_on = mode, count, goes_on
        self.pads: dict[str, MemoryNotebook] = {}
        own = self._contexts(0)
        self.names = sorted(draw.sample(sorted(own), 2))
        self.two = {name: Honest(own[name]) for name in self.names}
        self.pads = {name: MemoryNotebook() for name in self.names}
        self.attempt = 0
        self.masked: list[Masked] = []
        self.opened: set[bytes] = set()  # streams that shares have told
        self.totals = 0

    def _contexts(self, attempt: int) -> dict[str, StageContext[Any]]:
        found = contexts(self._count, attempt=attempt, pads=self.pads, **self._mode)
        found.pop(ADDER)
        return found

    def run(self) -> None:
        """As many steps as the draw says; refusals end an attempt."""
        for _ in range(self.draw.randint(1, STEPS_MAX)):
            try:
                self._step()
            except FedboostError:
                self._end()

    def _end(self) -> None:
        for one in self.two.values():
            one.sums, one.asks = None, None

    def _step(self) -> None:
        first = self.two[self.names[0]]
        if first.sums is None or self.draw.random() < 0.06:
            self._begin()
            return
        name = self.draw.choice(self.names)
        one = self.two[name]
        assert one.sums is not None
        if one.asks is None:
            self._ask(name, one)
        elif self._goes_on and self.draw.random() < 0.7:
            self._reveal()
        else:
            self._tell(one)
        if self.draw.random() < 0.3 and one.asks is None:
            self._keep(one)

    # Attempts

    def _begin(self) -> None:
        """Opens both anywhere, mostly where both stand alike, and brings them their messages."""
        self._end()
        self.attempt += 1
        fresh = self._contexts(self.attempt)
        same = self._common() if self.draw.random() < 0.7 else None
        for name, one in self.two.items():
            indices = [START, *one.kept]
            place = same if same is not None else self.draw.choice(indices)
            kept = {at: history for at, (history, _) in one.kept.items()}
            one.context = altered(fresh[name], attempt={"place": place, "kept": kept})
            one.sums, one.told = Contributor(one.context), ()
            if place in one.kept:
                history, one.told = one.kept[place]
                one.sums.history = bytes.fromhex(history)
        self._meet(fresh)
        self._keys(fresh)

    def _common(self) -> Place:
        first, second = (one.kept for one in self.two.values())
        return max((at for at in first if second.get(at) == first[at]), default=START)

    def _keep(self, one: Honest) -> None:
        assert one.sums is not None
        kept = {at: own for at, own in one.kept.items() if at < one.place}
        one.kept = {**kept, one.place: (one.sums.history.hex(), one.told)} if one.told else kept

    def _meet(self, fresh: dict[str, StageContext[Any]]) -> None:
        """Both hear of the other what it has signed, and of accomplices what they want to hear."""
        shown = {name: self._sums(name).signed_standing() for name in self.names}
        for name, one in self.two.items():
            got: dict[str, Standing] = {p: own for p, own in shown.items() if p != name}
            if self.draw.random() < 0.1:
                got = {}  # the other's is kept back
            for other, theirs in fresh.items():
                if other not in self.two:
                    context = altered(theirs, attempt={"kept": one.context.attempt.kept})
                    key = bytes(32) if other == context.table.guest else b""
                    got[other] = standing.signed_standing(context, self._sums(name).history, key)
            self._sums(name).compare_standings(got)

    def _sums(self, name: str) -> Contributor:
        found = self.two[name].sums
        assert found is not None
        return found

    def _keys(self, fresh: dict[str, StageContext[Any]]) -> None:
        self.others = {n: Contributor(context) for n, context in fresh.items() if n not in self.two}
        everybody = {**{n: self._sums(n) for n in self.names}, **self.others}
        if not self._goes_on:
            offered = {name: own.offer_key() for name, own in everybody.items()}
            for name in self.names:
                self._sums(name).hear({p: o for p, o in offered.items() if p != name})
            return
        fresh_keys: dict[str, MaskKeys] = {n: own.offer_fresh(SUMS) for n, own in everybody.items()}
        dealt: dict[str, dict[str, DealtShares]] = {
            name: own.fresh.deal_shares({p: o for p, o in fresh_keys.items() if p != name})
            for name, own in everybody.items()
        }
        table = tuple(fresh)
        for name, own in everybody.items():
            own.hold_shares({p: shares[name] for p, shares in dealt.items() if p != name}, table)

    # Sums

    def _ask(self, name: str, one: Honest) -> None:
        """Its next vector, as it finds by its own record what that is."""
        assert one.sums is not None
        function = one.function()
        number = len(one.told)
        fresh = number if self._goes_on and self.draw.random() < 0.8 else None
        one.asks = Statistic("a sum", (number,), {"function": function}, fresh)
        list(one.sums.masked_parts(np.zeros(WORDS, np.int64), one.asks))
        other = next(p for p in self.names if p != name)
        streams = [(key, sign) for peer, key, sign in drawn(one.sums) if peer in (other, name)]
        self.masked.append(Masked(name, function, tuple(streams)))

    def _tell(self, one: Honest) -> None:
        """Any total, with digits and a tag that fit; now and then with ones that do not."""
        assert one.sums is not None
        assert one.asks is not None
        self.totals += 1
        if self._goes_on and self.draw.random() < 0.1:
            told = Total(number=one.sums.number, closed=True)
            words = np.array([-1])
        else:
            words = np.array([self.draw.randint(0, 1), 0])
            present = one.sums.members
            digits = np.sum([one.sums._check_digit(p) for p in present], axis=0)
            signed = np.concatenate([words, digits]).astype(np.int64)
            assert one.sums._tagging is not None
            tag = one.sums._tagging.of(signed, adds_pad=True)
            if self.draw.random() < 0.05:
                tag = tag + 1
            assert len(signed) + len(tag) == WORDS + CHECK_WORDS
            assert len(tag) == TAG_WORDS
            whole = np.concatenate([signed, tag])
            told = Total(number=one.sums.number, words=wire.pack(whole))
        one.asks = None
        one.sums.total(iter([told]), 1 << 62)
        one.told = (*one.told, int(words[0]))

    def _reveal(self) -> None:
        """Lists of who is left, true or not, and what shares both give for them."""
        if any(one.asks is None for one in self.two.values()):
            return
        lists: dict[str, Survivors] = {}
        for name in self.names:
            left = list(self._sums(name).members)
            if self.draw.random() < 0.3:
                left.remove(self.draw.choice(left))
            lists[name] = self._sums(name).sign(tuple(left))
        given: dict[str, RevealedShares] = {}
        for name in self.names:
            got = {p: own for p, own in lists.items() if p != name}
            for other, own in self.others.items():  # accomplices sign what each has signed
                epoch = own.fresh
                epoch.survivors = tuple(lists[name].parties)
                got[other] = epoch.sign(epoch.survivors, lists[name].number, self._bound(name))
            given[name] = self._sums(name).reveal_shares(got)
        self._opened(given)

    def _bound(self, name: str) -> bytes:
        return self._sums(name)._sum_context

    def _opened(self, given: dict[str, RevealedShares]) -> None:
        """The streams that both's shares tell with those of all accomplices: as many are needed."""
        if not all(own.HasField("shares") for own in given.values()):
            return
        for name in self.names:
            kinds = {name in own.survivors for own in given.values()}
            if len(kinds) == 1:
                own_stream, pair_stream = (
                    {key for peer, key, _ in drawn(self._sums(name)) if peer == which}
                    for which in (name, next(p for p in self.names if p != name))
                )
                self.opened |= own_stream if kinds == {True} else pair_stream

    # The observer

    def known(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Combinations of the two's vectors in which all unknown streams cancel: coefficients of
        the functions of the first one's rows, and of the other's; (combinations, functions) each.
        """
        unknown = sorted({key for one in self.masked for key, _ in one.streams} - self.opened)
        functions = sorted({one.of for one in self.masked})
        streams = np.zeros((len(self.masked), len(unknown)), np.int64)
        parts = {n: np.zeros((len(self.masked), len(functions)), np.int64) for n in self.names}
        for row, one in enumerate(self.masked):
            for key, sign in one.streams:
                if key not in self.opened:
                    streams[row, unknown.index(key)] += sign
            parts[one.party][row, functions.index(one.of)] = 1
        free = null_space(streams)
        first, second = (free @ parts[name] for name in self.names)
        return first, second


def drawn(sums: Contributor) -> list[tuple[str, bytes, int]]:
    """The streams of the vector at hand: whose pair it is of, key and sign; its own: itself."""
    own, epoch, context = sums.party, sums.epoch, sums._sum_context
    if epoch is None:
        return [
            (peer, pair.stream_key(context), sign_of(own, peer, sums.members))
            for peer, pair in sums._pairs.items()
        ]
    return [*_drawn_of(epoch, own, context)]


def _drawn_of(epoch: Epoch, own: str, context: bytes) -> list[tuple[str, bytes, int]]:
    epoch.index -= 1
    found = epoch.streams(context)
    peers = [own, *(peer for peer in epoch.members if peer != own)]
    return [(peer, key, sign) for peer, (key, sign) in zip(peers, found, strict=True)]


def null_space(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """All integer combinations of rows that are 0, by fraction-free elimination; (k, rows)."""
    count = len(rows)
    left = [[*map(int, row), *(int(i == j) for j in range(count))] for i, row in enumerate(rows)]
    width = rows.shape[1]
    for column in range(width):
        pivot = next((row for row in left if row[column]), None)
        if pivot is None:
            continue
        left.remove(pivot)
        left = [
            [pivot[column] * x - row[column] * y for x, y in zip(row, pivot, strict=True)]
            if row[column]
            else row
            for row in left
        ]
    return np.array([row[width:] for row in left], np.int64).reshape(len(left), count)


def rank(rows: NDArray[np.int64]) -> int:
    """How many rows are independent, over the integers."""
    return len(rows) - len(null_space(rows))


def isolated(first: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
    """Whether a combination is about one of the two alone: not 0 in one, 0 in the other."""
    return rank(np.hstack([first, second])) > min(rank(first), rank(second))


def run(draw: random.Random) -> Schedule:
    """One schedule, to its end."""
    schedule = Schedule(draw, goes_on=draw.random() < 0.5)
    schedule.run()
    return schedule


def carried_out(draw: random.Random) -> Schedule:
    """One schedule; an AssertionError where a combination is about one of the two alone."""
    schedule = run(draw)
    if schedule.masked:
        assert not isolated(*schedule.known()), "one of the two is read"
    return schedule
