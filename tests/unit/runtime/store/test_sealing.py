"""A job's secrets: sealed while it lives, gone when it ends."""

import json
import stat
import threading

import pytest

from fedboost.ground.errors import StoreError
from fedboost.runtime.store.store import FINAL, JobState, Store


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "bank", "party bank") as opened:
        yield opened


def begin(store):
    store.add_job("j1", "credit", b"", JobState.RUNNING)


def test_a_seed_is_drawn_once_per_job(store):
    seed = store.vault.seed("j1")
    assert len(seed) == 32
    assert store.vault.seed("j1") == seed
    assert store.vault.seed("j2") != seed


def test_threads_get_one_seed(store):
    seeds = []
    threads = [
        threading.Thread(target=lambda: seeds.append(store.vault.seed("j1"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seeds) == 8
    assert len(set(seeds)) == 1


def test_a_sealed_secret_does_not_lie_open(store):
    secret = b"a private key" * 10
    store.vault.seal("j1", "key", secret)
    (path,) = (store.job_folder("j1") / "secret").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"private" not in path.read_bytes()
    assert store.vault.unseal("j1", "key") == secret
    first = path.read_bytes()
    store.vault.seal("j1", "key", secret)
    assert path.read_bytes() != first  # a fresh nonce


def test_a_changed_or_misplaced_secret_is_refused(store):
    store.vault.seal("j1", "key", b"one")
    store.vault.seal("j2", "key", b"two")
    store.vault.seal("j1", "seed", b"three")
    (path,) = (store.job_folder("j1") / "secret").glob("key*")
    whole = path.read_bytes()
    others = [store.job_folder("j2") / "secret" / path.name, path.with_name("seed.sealed")]
    broken = [other.read_bytes() for other in others]
    broken += [whole[:n] for n in range(len(whole))]
    broken += [whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1 :] for n in range(len(whole))]
    for content in broken:
        path.write_bytes(content)
        with pytest.raises(StoreError):
            store.vault.unseal("j1", "key")
    path.write_bytes(whole)
    assert store.vault.unseal("j1", "key") == b"one"


def test_secrets_of_another_store_stay_closed(tmp_path):
    with Store(tmp_path / "a", "party a") as first, Store(tmp_path / "b", "party b") as second:
        first.vault.seal("j1", "key", b"one")
        second.vault.seal("j1", "key", b"two")
        blob = (first.job_folder("j1") / "secret/key.sealed").read_bytes()
        (second.job_folder("j1") / "secret/key.sealed").write_bytes(blob)
        with pytest.raises(StoreError):
            second.vault.unseal("j1", "key")


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_jobs_secrets_end_with_it(store, state):
    begin(store)
    store.vault.seed("j1")
    store.move_to_state("j1", JobState.PAUSED)
    store.move_to_state("j1", JobState.RUNNING)
    assert store.vault.has_secret("j1", "seed")
    store.move_to_state("j1", state)
    assert not store.vault.has_secret("j1", "seed")
    assert not (store.job_folder("j1") / "secret").exists()
    with pytest.raises(StoreError):
        store.vault.unseal("j1", "seed")


def test_a_failed_job_keeps_its_secrets_so_that_it_can_be_resumed(store):
    begin(store)
    seed = store.vault.seed("j1")
    store.move_to_state("j1", JobState.FAILED)
    store.move_to_state("j1", JobState.RUNNING)
    assert store.vault.seed("j1") == seed


def test_secrets_left_by_a_death_at_the_end_are_destroyed_at_the_next_start(tmp_path):
    with Store(tmp_path, "party bank") as first:
        begin(first)
        first.vault.seed("j1")
        first._connection.execute("UPDATE jobs SET state = 'finished'")
    with Store(tmp_path, "party bank") as second:
        assert not second.vault.has_secret("j1", "seed")


def test_nothing_shows_a_secret(store):
    seed = store.vault.seed("j1")
    shown = (
        repr(store.vault)
        + str(store.vault)
        + repr(store)
        + json.dumps(store.vault.has_secret("j1", "seed"))
    )
    assert repr(seed) not in shown
    assert repr(store.vault._key) not in shown
