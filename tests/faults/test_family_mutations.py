"""Every message of every protocol, spoilt in every way: a typed refusal, and nothing else changes.

Forged envelopes and damaged bytes are refused at the border: they are tried one after the other
on a session that waits for the honest message, and the stage then ends as if nothing had been
there. Lies in good form reach the step that takes them, and end the stage: each is told in a stage
of its own, after which the same parties begin again and come to the undisturbed result.

On each change every kind is lied about in one conversation, in each of its fields and in each way;
with `--all` in each of its fields in every way, with `--long` in every conversation.
"""

import asyncio
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedboost import protocols
from fedboost.flow import Artefact
from fedboost.ground import wire
from fedboost.ground.errors import (
    DataError,
    FedboostError,
    PeerError,
    PolicyError,
    ProtocolError,
    UnreachableError,
)
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.party_pb2 import StepCall, Turn
from tests import tiers
from tests.faults.grounds import KINDS, lines, listed
from tests.support import conversations, mutations
from tests.support.each import each
from tests.support.federated import Room, now, resealed, type_named
from tests.tiers import Tier

# Conversations that show every kind of every protocol; the others show the same kinds once more.
NAMES = tuple(n for n in conversations.NAMES if n not in ("forest", "warm_start"))
WAIT_S = 5.0  # for a message that never comes; a test that waits so long has failed


@dataclass(frozen=True)
class Visibility:
    """The fullest message of a kind in a conversation."""

    name: str
    envelope: Envelope
    payload: bytes

    @property
    def kind(self):
        """Its type."""
        return type_named(protocols.load_protocol(self.envelope.stage), self.envelope.kind)

    @property
    def streams(self):
        """Whether it comes in parts."""
        step = protocols.load_protocol(self.envelope.stage).step(self.envelope.step)
        assert step is not None
        return step.streams

    @property
    def place(self):
        """Which message of the conversation it is."""
        return place(self.envelope)

    def __str__(self):
        return f"{self.name}-{self.envelope.kind.removeprefix('fedboost.')}"


def place(e):
    """Which message of a stage an envelope is of."""
    return e.number, e.part, e.sender, e.receiver


@functools.cache
def walked(name):
    """The undisturbed conversation, and what everybody is left with."""
    room = conversations.named(name)
    left = now(room.walk())
    return room, left


@functools.cache
def shown(name):
    """The fullest and longest message of each kind, the earliest of equals."""
    found: dict[str, Any] = {}
    for posted in sorted(walked(name)[0].posted, key=lambda p: place(p.envelope)):
        weight = len(posted.message.ListFields()), len(posted.payload)
        kind = posted.envelope.kind
        if kind not in found or weight > found[kind][0]:
            found[kind] = weight, Visibility(name, posted.envelope, posted.payload)
    return [one for _, one in found.values()]


@pytest.mark.parametrize("name", NAMES)
def test_the_list_of_kinds_is_what_a_conversation_shows(name, request):
    rows = ((name, one.envelope.stage, one.envelope.kind) for one in shown(name))
    listed(KINDS, name, rows, rewrite=request.config.getoption("--rewrite"))


def test_every_message_of_every_protocol_is_tried():
    tried = {(stage, kind) for _, stage, kind in lines(KINDS)}
    flow = {
        (name, step.gives.DESCRIPTOR.full_name)
        for name, protocol in protocols.load_all().items()
        for step in protocol.flow
        if step.gives is not None
    }
    assert flow == tried


def same(one, other):
    """Whether all parties are left with the same, but for what is drawn for every run."""
    assert one.keys() == other.keys()
    for party, left in one.items():
        assert left.facts == other[party].facts
        assert left.arrays.keys() == other[party].arrays.keys()
        for name, array in left.arrays.items():
            np.testing.assert_array_equal(array, other[party].arrays[name], strict=True)


# At the border


class Border(conversations.Doubting):
    """A room in which every forgery of the shown messages comes just before the honest message."""

    def forge(self, targets):
        """Which messages are forged; what comes of each forgery is kept by kind and label."""
        self.targets = {one.place: one for one in targets}
        self.outcomes = {}
        self.one_at_a_time = asyncio.Lock()
        return self

    async def deliver(self, envelope, payload):
        """Brings all forgeries, then the message; nothing else arrives meanwhile, which would count
        as left by a forgery.
        """
        async with self.one_at_a_time:
            target = self.targets.get(place(envelope))
            if target is not None:
                for label, forged in forgeries(envelope, payload):
                    self.outcomes[str(target), label] = await self.offer(envelope.receiver, *forged)
            await super().deliver(envelope, payload)

    async def offer(self, receiver, envelope, payload):
        """How a session takes a message in; and whether it has kept or noted any of it."""
        session = self.sessions[receiver]
        before = self.taken_in(receiver)
        arrived = Envelope.FromString(wire.encode(envelope))
        try:
            session.admit(arrived)
            await session.accept(arrived, payload)
        except FedboostError as error:
            return error, self.taken_in(receiver) == before
        return None, False

    def taken_in(self, receiver):
        """What a party has in its ledger and its inbox of what others have sent."""
        inbox = self.sessions[receiver]._inbox
        noted = sum(r[:2] == (receiver, "in") for r in self.recorded)
        return noted, sum(map(len, inbox._waiting.values())), len(inbox._seen)


def forgeries(envelope, payload):
    """What is refused without a look at what the message says."""
    yield from mutations.misdirected(envelope, payload, protocols.load_protocol(envelope.stage))
    yield from mutations.damaged(envelope, payload)


@functools.cache
def at_the_border(name):
    """What came of every forgery in a conversation, and what everybody was left with."""
    honest = conversations.named(name)
    room = Border(honest.protocol, honest.contexts, WAIT_S).forge(shown(name))
    left = now(room.walk())
    return room.outcomes, left


@pytest.mark.parametrize("name", NAMES)
def test_forged_messages_are_refused_at_the_border_and_leave_nothing(name):
    outcomes, left = at_the_border(name)
    forged = [(one, label) for one in shown(name) for label, _ in forged_of(one)]
    assert len(outcomes) == len(forged) > 40 * len(shown(name))

    def refused(case):
        one, label = case
        error, unchanged = outcomes[str(one), label]
        assert isinstance(error, PeerError), error
        assert unchanged
        assert len(one.payload) < 8 or one.payload.hex() not in "".join(error.lines())

    each(forged, refused)
    same(left, walked(name)[1])


def forged_of(one):
    """All forgeries of a shown message."""
    return forgeries(one.envelope, one.payload)


# At the step that takes it


def renumbered(envelope, payload):
    """Under the number of a step that is not this one."""
    for label, number in (("number 0", 0), ("a later number", envelope.number + 1000)):
        changed = Envelope()
        changed.CopyFrom(envelope)
        changed.number = number
        yield label, (changed, payload)


def tells(one, label):
    """A function that has the message of that place, and no other, tell a lie."""
    done: list[Envelope] = []

    def alter(envelope, payload):
        if done or place(envelope) != one.place:
            return envelope, payload
        sealed = dict(renumbered(envelope, payload)).get(label)
        data = mutations.lying(one.kind, label)(payload)
        if data is not None:
            sealed = resealed(envelope, data)
        if sealed is None:
            return envelope, payload
        done.append(envelope)
        return sealed

    return alter, done


def lies(one):
    """The labels of all lies about a shown message; of each field and each way on each change."""
    known = mutations.labels(one.kind.FromString(one.payload))
    return tiers.of_each(
        (*known, "number 0", "a later number"),
        lambda label: label.partition(":")[0],
        lambda label: label.rpartition(": ")[2],
    )


def told_of():
    """Each kind in the first conversation that shows it; with `--long` in every one."""
    seen: dict[str, str] = {}
    for name, _, kind in lines(KINDS):
        if tiers.runs(Tier.LONG) or seen.setdefault(kind, name) == name:
            yield name, kind


REFUSALS = PeerError | PolicyError | ProtocolError | DataError

# What a taker cannot tell from an honest message, by the beginning of its label.
FREE = {
    "align.RowsDigest": (
        "rows",
    ),  # for the ledger alone; the digest says whether they are the same
    # Points that nobody multiplies any more: whoever wishes a row away may send any other point.
    "align.FullSet": ("data: point of small order",),
    "align_pairs.ReturnedSet": ("data: point of small order",),
    "align_pairs.HostSet": ("nothing said",),  # a host without rows
    # What a guest counts of a sample, and a host's answers: it is free to hide an id.
    "oblivious.Greeting": ("least",),
    "oblivious.SampleCount": ("ids",),
    "oblivious.Tags": ("data",),
    "align.Hint": ("data",),
    # Sums and gradients in the plain scheme, which hides and protects nothing.
    "encrypted.CandidateSums": ("packages.data",),
    "hybridtree.BottomRows": ("gradients.rows.data",),
    "encrypted.EncryptionKey": ("value_bits: more",),  # a policy bounds it
    # Noisy buckets, sides of splits and places: any of them may be a row's.
    "federboost_vertical.BucketIds": ("missing: zeros", "ids: zeros"),
    "federboost_vertical.OwnSplits": ("missing_left: zeros", "sets"),
    "predict.Directions": ("goes_right",),
    "predict_hybrid.BottomPlaces": ("slots",),
}
# Lists and shares that are none of this sum count as absent: then too few are left.
ABSENT = ("aggregation.Survivors", "aggregation.RevealedShares")


@dataclass(frozen=True)
class Ended:
    """How a stage ended in which a lie was told, and the next one of the same parties."""

    error: FedboostError | None
    room: Room
    left: dict[str, Artefact]


def told(one, label):
    """The stage in which the lie is told."""
    alter, done = tells(one, label)
    honest = conversations.named(one.name)
    room = type(honest)(honest.protocol, honest.contexts, WAIT_S, alter)
    try:
        left, error = now(room.walk()), None
    except FedboostError as refused:
        left, error = {}, refused
    assert done, "the lie was never told"
    return Ended(error, room, left)


def is_free(one, label):
    """Whether an honest message may say the same."""
    kind = one.envelope.kind.removeprefix("fedboost.")
    return label.startswith(FREE.get(kind, ())) if kind in FREE else False


def assert_refused(one, ended):
    """The error is typed, short, and names the party that refused and the step."""
    error, kind = ended.error, one.envelope.kind
    absent = isinstance(error, UnreachableError) and kind.endswith(ABSENT)
    late = isinstance(error, UnreachableError) and "waited" in error.what and one.streams
    assert absent or late or isinstance(error, REFUSALS), error
    step = error.where.get("step")  # None: the session itself has refused it
    assert step is None or ended.room.protocol.step(step), error.lines()
    assert error.where.get("party") in ended.room.contexts
    assert max(map(len, error.lines())) < 400


async def again(room):
    """The same parties begin the stage once more; a stopped session takes no part in it."""
    for session in room.sessions.values():
        with pytest.raises(FedboostError):
            await session.run_step(step_call(room))
    return await Room(room.protocol, room.contexts, WAIT_S).walk()


def step_call(room):
    """The first step of a protocol."""
    return StepCall(turns=[Turn(step=room.protocol.flow[0].name, number=1 << 20)])


@pytest.mark.some(7)
@pytest.mark.parametrize(("name", "kind"), list(told_of()))
def test_a_lie_ends_the_stage_with_a_typed_refusal_and_the_next_one_ends_well(name, kind):
    one = next(one for one in shown(name) if one.envelope.kind == kind)
    refused: list[Ended] = []

    def is_refused(label):
        ended = told(one, label)
        if ended.error is None:
            assert is_free(one, label), "the lie was believed"
            return
        assert_refused(one, ended)
        refused.append(ended)
        if tiers.runs(Tier.ALL):
            same(now(again(ended.room)), walked(name)[1])

    each(lies(one), is_refused)
    same(now(again(refused[-1].room)), walked(name)[1])
