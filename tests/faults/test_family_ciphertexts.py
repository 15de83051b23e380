"""Ciphertexts that are none, under keys of real size: refused where they arrive."""

import functools
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest

from fedboost import protocols
from fedboost.crypto import okamoto_uchiyama, paillier_keys
from fedboost.ground.errors import FedboostError, PeerError
from tests import tiers
from tests.support import conversations
from tests.support.federated import Room, now, resealed, type_named

KEY_BITS = 2048
MAKE: dict[str, Callable[[int], Any]] = {
    "paillier": paillier_keys.generate,
    "okamoto-uchiyama": okamoto_uchiyama.draw_secret,
}
# Who is told ciphertexts in which message; `rows` come from the owner of the key.
MESSAGES = {
    "secureboost": ("EncryptedGradients", "CandidateSums"),
    "hybridtree": ("BottomRows", "CandidateSums"),
    "hybridtree_unscored": ("BottomRows", "LeafAnswers"),
}


@functools.cache
def secret(scheme):
    """One key a run; making it takes longer than using it."""
    return MAKE[scheme](KEY_BITS)


@pytest.fixture(autouse=True)
def _same_key(monkeypatch):
    monkeypatch.setattr(paillier_keys, "generate", lambda _: secret("paillier"))
    monkeypatch.setattr(okamoto_uchiyama, "draw_secret", lambda _: secret("okamoto-uchiyama"))


def numbers(scheme):
    """Numbers that no honest party sends, by name, and the modulus that ciphertexts live under."""
    own = secret(scheme)
    n = own.n if scheme == "paillier" else own.p**2 * own.q
    modulus = n * n if scheme == "paillier" else n
    return {
        "0": 0,
        "n": n,
        "the modulus": modulus,
        "one beyond the modulus": modulus + 1,
        "all bits": (1 << (8 * ((modulus.bit_length() + 7) // 8))) - 1,
        "a multiple of p": own.p * 12345,
        "a multiple of q": own.q * 12345,
        "a multiple of n": n * 3 % modulus if scheme == "paillier" else own.p * own.q,
    }


NUMBERS = (
    *("0", "n", "the modulus", "one beyond the modulus", "all bits"),
    *("a multiple of p", "a multiple of q", "a multiple of n"),
)


def planting(kind, number, place):
    """An `alter` that puts a number in the place of a ciphertext of the first message of a kind."""
    done: list[str] = []

    def alter(envelope, payload):
        if done or not envelope.kind.endswith(f".{kind}"):
            return envelope, payload
        message = type_named(protocols.load_protocol(envelope.stage), envelope.kind).FromString(
            payload
        )
        found = ciphertexts(message)
        width = len(found.data) // found.count
        each = [found.data[i : i + width] for i in range(0, len(found.data), width)]
        each[place] = number.to_bytes(width, "big")
        found.data = b"".join(each)
        done.append(kind)
        return resealed(envelope, message.SerializeToString(deterministic=True))

    return alter, done


def ciphertexts(message):
    """The field of ciphertexts in a message, however deep it lies."""
    if message.DESCRIPTOR.name == "Ciphertexts":
        return message
    inner = (v for f, v in message.ListFields() if f.message_type is not None)
    return next(filter(None, map(ciphertexts, inner)), None)


def ended(name, scheme, alter):
    """How a conversation of that name ends, with real keys."""
    honest = conversations.named(name)
    contexts = {}
    for party, context in honest.contexts.items():
        encryption = context.params.encryption.model_copy(update={"scheme": scheme})
        params = context.params.model_copy(update={"encryption": encryption, "n_estimators": 1})
        contexts[party] = replace(context, params=params)
    room = Room(honest.protocol, contexts, alter=alter)
    with pytest.raises(FedboostError) as refused:
        now(room.walk())
    return refused.value


KNOWN = [
    (name, scheme, kind, number, place)
    for name, kinds in MESSAGES.items()
    for scheme in MAKE
    for kind in kinds
    for number in NUMBERS
    for place in (0, -1)
]
# The first of a message's ciphertexts: under one scheme on each change, with `--all` under each.
FIRST = [case for case in KNOWN if not case[4] and case[0] != "hybridtree"]
SOME = tiers.of_each(FIRST, itemgetter(2, 3), itemgetter(1, 3))
CASES = [
    pytest.param(*case, marks=[] if case in SOME else [pytest.mark.long])
    for case in KNOWN
    if case in SOME or case not in FIRST
]


@pytest.mark.some(3)
@pytest.mark.parametrize(("name", "scheme", "kind", "number", "place"), CASES)
def test_a_number_that_is_no_ciphertext_is_refused_by_whoever_takes_it(
    name, scheme, kind, number, place
):
    alter, done = planting(kind, numbers(scheme)[number], place)
    error = ended(name, scheme, alter)
    assert done
    assert isinstance(error, PeerError), error.lines()
    takers = {
        step.name for step in protocols.load_protocol(name.partition("_")[0]).flow if step.takes
    }
    assert error.where["step"] in takers
    own = secret(scheme)
    assert not any(str(secret_number) in "".join(error.lines()) for secret_number in (own.p, own.q))
