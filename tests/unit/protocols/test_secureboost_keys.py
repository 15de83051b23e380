"""Keys and ciphertexts that are none, or not as strong as job and policy say: refused at once."""

import gmpy2
import numpy as np
import pytest

from fedboost.core.gradient_bits import BITS_ENCRYPTED
from fedboost.crypto import modular, paillier, paillier_keys
from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.paillier_keys import PAILLIER_PROOF_ROOTS, SecretPrimes
from fedboost.ground.errors import PeerError, PolicyError
from fedboost.ground.workers import Serial
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.protocols.secureboost import host as host_steps
from fedboost.runtime.config.policy import Policy
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, contexts_for, now, room_for

HOST = HOSTS[1]  # owns the first split of the tiny job
ROWS = 18  # training rows of the tiny job


# Keys


@pytest.fixture(scope="module")
def secret():
    return paillier_keys.generate(2048)


def new_host(params, **more):
    contexts = contexts_for("secureboost", conversations.tables(), params, held=0.25, **more)
    return host_steps.begin(contexts[HOST])


PAILLIER = {"max_bin": 4, "n_estimators": 1, "encryption": {"scheme": "paillier"}}
BITS = BITS_ENCRYPTED  # of a gradient, as no job says otherwise


def key_of(raw, *, scheme="paillier", value_bits=BITS):
    return pb.EncryptionKey(scheme=scheme, key=raw, value_bits=value_bits)


def test_a_sound_key_is_accepted(secret):
    me = new_host(PAILLIER)
    host_steps.accept_key(me, key_of(paillier_keys.proved_key(secret)))
    assert type(me).side.is_set(me)


def unsound(secret):
    """Keys with what is wrong with each."""
    good = paillier_keys.proved_key(secret)
    n, roots = secret.n, good[256:]

    def modulus(number):
        return int(number).to_bytes(256, "big") + roots

    def sized(factor):
        """An odd multiple of 2048 bits."""
        return factor * ((1 << 2047) // factor + n % (1 << 2000) | 1)

    prime = gmpy2.next_prime((1 << 2047) + n % (1 << 1023))
    return {
        "empty": (b"", "expected a key of 2048 bits"),
        "plain": (b"plain", "expected a key of 2048 bits"),
        "short": (good[:-1], "expected a key of 2048 bits"),
        "long": (good + b"\0", "expected a key of 2048 bits"),
        "without proof": (good[:256], "expected a key of 2048 bits"),
        "zero": (bytes(len(good)), "has 0 bits"),
        "one": (modulus(1), "has 1 bits"),
        "2047 bits": (modulus(n >> 1 | 1), "has 2047 bits"),
        "even": (modulus(n ^ 1), "small prime factor"),
        "factor 3": (modulus(sized(3)), "small prime factor"),
        "factor 65521": (modulus(sized(65521)), "small prime factor"),
        "prime": (modulus(prime), "a prime or a power"),
        "square": (modulus(max(secret.p, secret.q) ** 2), "a prime or a power"),
        "another n": (modulus(n + 2 * 3 * 5 * 7 * 11), ""),
        "other roots": (good[:-1] + bytes([good[-1] ^ 1]), "proof"),
        "roots of 0": (good[:256] + bytes(256 * PAILLIER_PROOF_ROOTS), "proof"),
        "roots beyond n": (good[:256] + b"\xff" * (256 * PAILLIER_PROOF_ROOTS), "proof"),
    }


def test_unsound_keys_are_refused_and_leave_no_trace(secret):
    for label, (raw, says) in unsound(secret).items():
        me = new_host(PAILLIER)
        with pytest.raises(PeerError) as refused:
            host_steps.accept_key(me, key_of(raw))
        assert says in refused.value.what, (label, refused.value.what)
        assert not type(me).side.is_set(me), label


@pytest.mark.parametrize("scheme", ["plain", "", "rsa", "x" * 5000])
def test_a_key_of_another_scheme_is_refused(scheme):
    with pytest.raises(PeerError, match="the job says paillier") as refused:
        host_steps.accept_key(new_host(PAILLIER), key_of(b"plain", scheme=scheme))
    assert len(refused.value.what) < 200


@pytest.mark.parametrize("value_bits", [0, 1, BITS - 1, BITS + 1, 62, 64])
def test_other_gradient_bits_than_the_jobs_are_refused(value_bits):
    me = new_host(conversations.PARAMS)
    with pytest.raises(PeerError, match=f"declares {value_bits} bits per gradient"):
        host_steps.accept_key(me, key_of(b"plain", scheme="plain", value_bits=value_bits))


@pytest.mark.parametrize("bits", [20, 21, 53, 65, 2**32 - 1])
def test_more_gradient_bits_than_the_policy_allows_are_refused(bits):
    me = new_host(
        {**conversations.PARAMS, "precision_bits": 20}, limits=Policy(gradient_bits_max=20)
    )
    key = key_of(b"plain", scheme="plain", value_bits=bits)
    if bits == 20:
        host_steps.accept_key(me, key)
        return
    with pytest.raises(PolicyError, match="allows 20 bits per gradient") as refused:
        host_steps.accept_key(me, key)
    assert refused.value.where["key"] == "policy.gradient_bits_max"


# Ciphertexts


def test_ciphertexts_that_are_none_are_refused_by_both_sides(secret):
    """0, n², a multiple of a factor: at the host among gradients, at the guest among sums."""
    me = new_host(PAILLIER)
    host_steps.accept_key(me, key_of(paillier_keys.proved_key(secret)))
    private = modular.ModularPrivate(paillier.PaillierSecret(secret), Serial())
    keys = me.side.keys
    n, width = secret.n, keys.key.width
    numbers = np.arange(ROWS, dtype=np.int64)
    gh = np.column_stack([numbers, numbers])
    good = b"".join(b.to_bytes() for b in private.encrypt(gh, keys.layout))
    bad = {
        "zero": 0,
        "n": n,
        "n squared": n * n,
        "beyond": (1 << (8 * width)) - 1,
        "a factor": secret.p,
        "a multiple": 7 * secret.q * n,
    }
    for label, number in bad.items():
        raw = (number % (1 << (8 * width))).to_bytes(width, "big")
        for place in (0, ROWS - 1):
            data = good[: place * width] + raw + good[(place + 1) * width :]
            part = pb.EncryptedGradients(rows=pb.Ciphertexts(count=ROWS, data=data))
            with pytest.raises(PeerError):
                host_steps.receive_gradients(me, iter([part]))
            assert not type(me).gradients.is_set(me), label
            assert me.tree_batch.first == -1, label
        package = Ciphertexts.received(raw, 1, width)
        with pytest.raises(PeerError) as uniform:
            private.decrypt(package, keys.layout, [1])
        assert str(number) not in uniform.value.what
    part = pb.EncryptedGradients(rows=pb.Ciphertexts(count=ROWS, data=good))
    host_steps.receive_gradients(me, iter([part]))
    assert me.tree_batch.first == 0


def test_the_two_primes_are_not_printed(secret):
    assert str(secret.p) not in repr(secret)
    assert repr(SecretPrimes(3, 5)) == "SecretPrimes(4 bits, hidden)"


def test_room_states_print_no_table(secret):
    room = room_for("secureboost", conversations.tables(), conversations.PARAMS)
    now(room.open())
    text = repr(room.contexts[GUEST].frame)
    assert text == "Frame(24 rows, 1 columns, label)"
