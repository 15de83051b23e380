"""Keys and encryptions of a job that can be replayed: a secret gives them, the same each time."""

import numpy as np
import pytest

from fedboost.crypto import paillier, schemes
from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.secrets import Secrets, SecretSource
from fedboost.ground.workers import Serial
from fedboost.runtime.process.workers import ProcessWorkers
from tests.support.ciphertexts import arrived, gradients

DRAWN = [name for name, scheme in schemes.KEYED_SCHEMES.items() if scheme.generate_from is not None]
ROWS = 40


def secret(*purpose):
    return Secrets(bytes(range(32))).child(*purpose)


@pytest.fixture(scope="module", params=DRAWN)
def made(request):
    """A scheme, a key of it and one like it, and how rows are packed."""
    scheme = schemes.KEYED_SCHEMES[request.param]
    assert scheme.generate_from is not None
    keys = [scheme.generate_from(2048, Serial(), secret("key")) for _ in range(2)]
    return scheme, keys, GhLayout(40, ROWS, keys[0].plaintext_bits, 1)


def rows_of(key, layout, gh, secrets):
    return b"".join(part.to_bytes() for part in key.encrypt(gh, layout, secrets))


def test_a_secret_gives_one_sound_key_and_another_secret_another(made):
    scheme, (first, again), _ = made
    assert first.to_bytes() == again.to_bytes()
    assert first.public_bytes() == again.public_bytes()
    scheme.load_public(first.public_bytes(), 2048, Serial())
    other = scheme.generate_from(2048, Serial(), secret("another key"))
    assert other.to_bytes() != first.to_bytes()


def test_rows_have_the_same_encryptions_whatever_a_process_has_made_before(made):
    _, (first, again), layout = made
    gh = gradients(ROWS, 1, 3, 40)
    once = rows_of(first, layout, gh, secret("rows"))
    list(again.encrypt(gradients(ROWS, 1, 4, 40), layout))  # from the system
    assert rows_of(again, layout, gh, secret("rows")) == once
    assert rows_of(first, layout, gh, None) != once


def test_rows_have_the_same_encryptions_however_many_workers_there_are(made):
    scheme, (first, _), layout = made
    gh = gradients(ROWS, 1, 3, 40)
    with ProcessWorkers(3) as workers:
        elsewhere = scheme.generate_from(2048, workers, secret("key"))
        assert rows_of(elsewhere, layout, gh, secret("rows")) == rows_of(
            first, layout, gh, secret("rows")
        )


def test_other_rows_and_other_secrets_meet_other_randomness(made):
    """Two plaintexts under one r would tell their difference: c/c' = (1 + n)^(m − m')."""
    _, (key, _), layout = made
    gh = gradients(ROWS, 1, 3, 40)
    moved = gh.copy()
    moved[5, 0] += 1
    taken = [
        rows_of(key, layout, *given)
        for given in ((gh, secret("a")), (gh, secret("b")), (moved, secret("a")))
    ]
    width = key.width
    shown = [{one[at : at + width] for at in range(0, len(one), width)} for one in taken]
    assert not shown[0] & shown[1]
    assert not shown[0] & shown[2]  # rows that are the same, too: their block is another


def test_drawn_encryptions_are_decrypted_as_any(made):
    scheme, (key, _), layout = made
    public = scheme.load_public(key.public_bytes(), 2048, Serial())
    gh = gradients(ROWS, 1, 3, 40)
    held = list(key.encrypt(gh, layout, secret("rows")))
    data = np.concatenate([np.frombuffer(part.to_bytes(), np.uint8) for part in held])
    rows = Ciphertexts.received(data.tobytes(), ROWS, key.width, len(layout.lanes))
    cells = np.zeros((ROWS, 1), np.int32)
    total = public.segment_sum(rows, np.arange(ROWS), cells, 1)
    released = public.release(total, layout, public.blinders(), [1])
    assert key.decrypt(arrived(released), layout, [1]).tolist() == [gh.sum(axis=0).tolist()]


def test_randomness_of_a_secret_covers_the_whole_group():
    """The n-th powers of a key of small primes that rows draw are all there are of order p − 1."""
    from fedboost.crypto.fixed_base import PrimePowers

    powers = PrimePowers(1009)  # of 16 bits and less, all factors of 1008 are tried
    drawn = powers.draw(20_000, SecretSource(bytes(32)))
    values = {(int(z) + 1009 * int(w)) % 1009**2 for z, w in drawn}
    assert len(values) == 1008
    assert all(pow(value, 1008, 1009**2) == 1 for value in values)


def test_a_paillier_key_that_is_drawn_has_its_length():
    key = paillier.generate_from(2048, Serial(), secret("x"))
    assert key.width == 512
