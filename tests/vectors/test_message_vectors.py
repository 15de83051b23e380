"""Bytes of every message are stable, and each spoilt one is refused where it is taken."""

import functools
import hashlib
import json
from pathlib import Path

import pytest

from fedboost import protocols
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
from tests import tiers
from tests.support import conversations
from tests.support.each import each
from tests.support.federated import Posted, now, resealed, type_named
from tests.support.mutations import spoilt_forms

FILE = Path(__file__).parent / "messages.json"
NAMES = (
    *("echo", "align", "align_pairs", "secureboost", "federboost_vertical", "predict"),
    *("federboost_horizontal", "gbun", "hybridtree", "aggregation", "encrypted"),
    *("predict_hybrid", "answers", "lattice_job", "oblivious", "align_hints", "checks"),
)
# Packages of messages that several protocols send: whose conversation shows them.
SHOWN_BY = {
    "aggregation": "federboost_horizontal",
    "oblivious": "align",
    "align_hints": "align",
    "encrypted": "secureboost",
    "answers": "hybridtree",
    "lattice_job": "secureboost",
    "checks": "secureboost",
}
ANSWERS = ("AnswerKey", "SharedRows", "LeafAnswers")  # of `encrypted`, with unscored splits alone
# What the lattice scheme says otherwise, or alone, of `encrypted`.
LATTICE = ("Nonce", "EncryptionKey", "EncryptedGradients", "CandidateSums")
CHECKS = ("SignedSums", "SumsCommitment", "SignSeed", "OpenedSums")  # of gradients
HINTS = ("PairKey", "Hint")  # of `align`, with several hosts
LONG = 1 << 14  # bytes of a message that is written down by its digest
COLUMNS = ("federboost_horizontal", "gbun")  # ask for columns that a table may not have


def protocol_of(name):
    """The protocol whose messages are in the package `name`."""
    return protocols.load_protocol(SHOWN_BY.get(name, name).replace("_", "-"))


def package(kind):
    """Where a message is written down."""
    _, name, message = kind.split(".")
    if message == "Nonce":
        return "lattice_job"
    if message in HINTS:
        return "align_hints"
    if message in CHECKS:
        return "checks"
    return "answers" if message in ANSWERS else name


def belongs(kind, name):
    """Whether a conversation shows messages of a kind for a package `name`."""
    return kind.split(".")[2] in LATTICE if name == "lattice_job" else package(kind) == name


KINDS = sorted(
    {
        step.gives.DESCRIPTOR.full_name
        for name in NAMES
        for step in protocol_of(name).flow
        if step.gives and package(step.gives.DESCRIPTOR.full_name) == name
    }
)


@functools.cache
def model(trained="secureboost"):
    """The shards of the tiny secureboost job, or of another."""
    return now(getattr(conversations, trained)().walk())


def room_of(name, alter=None):
    if name == "predict":
        return conversations.predict(model(), alter)
    if name == "predict_hybrid":
        return conversations.predict_hybrid(model("hybridtree"), alter)
    if name == "answers":
        return conversations.hybridtree_unscored(alter)
    if name == "oblivious":
        return conversations.align_tags(alter)
    if name == "aggregation":
        return conversations.dropout(alter)
    if name == "encrypted":
        return conversations.secureboost(alter)
    if name == "lattice_job":
        return conversations.lattice(alter)
    if name == "checks":
        return conversations.checked(alter)
    return getattr(conversations, name)(alter)


def recorded(name):
    """The conversation's fullest and longest message of each kind, as (envelope, payload).

    Of the package's own kinds; others' are shown in a conversation of theirs.
    """
    room = room_of(name)
    now(room.walk())
    found: dict[str, Posted] = {}
    for posted in sorted(room.posted, key=place):
        kind = posted.envelope.kind
        if not belongs(kind, name):
            continue
        if kind not in found or fullness(posted) > fullness(found[kind]):
            found[kind] = posted
    return {kind: (posted.envelope, posted.payload) for kind, posted in found.items()}


def written(payload):
    """A message in a golden file."""
    if len(payload) > LONG:
        return {"n_bytes": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}
    return {"bytes": payload.hex()}


def place(posted):
    e = posted.envelope
    return e.number, e.receiver, e.sender


def fullness(posted):
    return len(posted.message.ListFields()), len(posted.payload)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_of_every_message_are_stable(name, monkeypatch, golden):
    """One vector a kind; a change here is a change of WIRE_VERSION."""
    for trained in ("secureboost", "hybridtree"):
        model(trained)  # with its own randomness, which no message of a prediction depends on
    conversations.fix_randomness(monkeypatch)
    own = {}
    for kind, (envelope, payload) in sorted(recorded(name).items()):
        own[kind] = {"step": envelope.step, "part": envelope.part, **written(payload)}
        message = wire.decode(type_named(protocol_of(name), kind), payload, "a peer")
        assert wire.encode(message) == payload
    assert {k for k in KINDS if belongs(k, name)} == set(own)
    golden(FILE.with_name(f"{name}.json"), json.dumps(own, indent=1) + "\n")


# Spoilt on the way: bytes that are no longer this message


def spoilt(name, kind, spoil):
    """How a conversation ends in which the first long enough message of a kind is spoilt."""
    done: list[Envelope] = []

    def alter(envelope, payload):
        if envelope.kind != kind or done:
            return envelope, payload
        changed = spoil(payload)
        if changed is None:
            return envelope, payload
        done.append(envelope)
        return resealed(envelope, changed)

    room = room_of(name, alter)
    room.wait_s = 5.0
    try:
        now(room.walk())
    except FedboostError as error:
        assert done
        return error
    return None if done else "never"


SPOILS = {
    "truncated": lambda data: data[:-1] if len(data) > 1 else None,
    "extended": lambda data: data + b"\xff",
    "an unknown field": lambda data: data + b"\xfa\x01\x01x",
    "an endless length": lambda data: data + b"\x12\xff\xff\xff\xff\x07",
    "a broken varint": lambda data: data + b"\x08" + b"\xff" * 11,
}


@pytest.mark.once
@pytest.mark.parametrize("how", SPOILS)
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_no_such_message_are_refused(kind, how):
    error = spoilt(package(kind), kind, SPOILS[how])
    assert isinstance(error, PeerError), error
    assert "sent" in error.what


# Spoilt content: a message of the right form that says what cannot be


# What a taker cannot know: a host's digest tells whether rows are the same, and the number beside
# it is for the ledger alone. A party that gives no shares keeps a sum closed.
FREE = {
    ("fedboost.align.RowsDigest", "rows"),
    ("fedboost.aggregation.RevealedShares", "shares: absent"),
    # A guest counts a sample, and a host is free to hide an id; what it asks for, it checks itself.
    ("fedboost.oblivious.Greeting", "least"),
    ("fedboost.oblivious.SampleCount", "ids: more"),
    ("fedboost.oblivious.Tags", "data"),
    ("fedboost.align.Hint", "data"),
}


# What shows to be untrue only by a later message: the size of a set.
LATE = {("fedboost.oblivious.Greeting", "ids"), ("fedboost.oblivious.Start", "ids")}

# Of which kinds which conversation shows the fullest message.
TAKEN = [(name, kind) for name in NAMES for kind in KINDS if belongs(kind, name)]
shown = functools.cache(recorded)


def lies(name, kind):
    """What the shown message of a kind may be made to say: label, bytes; each field and way."""
    payload = shown(name)[kind][1]
    message = type_named(protocol_of(name), kind).FromString(payload)
    known = [(label, wire.encode(changed)) for label, changed in spoilt_forms(message)]
    told = [
        (label, data)
        for label, data in known
        if data != payload and not {(kind, label), (kind, label.partition(":")[0])} & FREE
    ]
    return tiers.of_each(
        told, lambda lie: lie[0].partition(":")[0], lambda lie: lie[0].rpartition(": ")[2]
    )


@pytest.mark.some(8)
@pytest.mark.parametrize(("name", "kind"), TAKEN)
def test_a_message_that_says_what_cannot_be_is_refused_where_it_is_taken(name, kind):
    size = len(shown(name)[kind][1])
    # A policy bounds the declared bits of a gradient; a table may lack a column that is asked for.
    refusals = PeerError | PolicyError | (DataError if package(kind) in COLUMNS else PeerError)
    takers = {s.name for s in protocol_of(name).steps_taking(kind)}

    def is_refused(lie):
        label, data = lie
        error = spoilt(name, kind, lambda payload: data if len(payload) == size else None)
        assert isinstance(error, refusals), (label, error and error.lines())
        step = error.where.get("step")
        # None: refused before any step took it.
        assert step is None or step in takers or (kind, label.partition(":")[0]) in LATE
        assert len(data) < 4 or data.hex() not in "".join(error.lines())

    told = lies(name, kind)
    assert told
    each(told, is_refused)


BITS = (0, 3, 9, 17, 26, 40, -1, -8, -20, -60)  # flipped; from the start or the end


def bits(kind, place):
    """Flips one bit of a message, counted from its start or its end."""

    def spoil(payload):
        if len(payload) < 2:
            return None
        data = bytearray(payload)
        data[place // 8 % len(data)] ^= 1 << (place % 8)
        return bytes(data)

    return spoil


@pytest.mark.some(12)
@pytest.mark.parametrize("kind", KINDS)
def test_whichever_bit_flips_the_end_is_a_result_or_a_typed_refusal(kind):
    """Never another exception, never a wait: a flipped id or sum may still be a lawful one."""
    name = package(kind)
    for place in tiers.sampled(BITS, 4):
        error = spoilt(name, kind, bits(kind, place))
        kinds = PeerError | ProtocolError | (DataError if name in COLUMNS else PeerError)
        # A list or a share that is none of this sum counts as absent.
        too_few = isinstance(error, UnreachableError) and "waited" not in error.what
        assert error is None or too_few or isinstance(error, kinds), (place, error)
