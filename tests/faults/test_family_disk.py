"""Torn and bit-flipped files of a store: a typed refusal or the right result, never a wrong one."""

import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from fedboost.flow import Artefact
from fedboost.ground.errors import FedboostError, PolicyError
from fedboost.model import shards
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.policy.account import Account
from fedboost.runtime.policy.differences import count_alignment
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.store.checkpoints import Checkpoints
from fedboost.runtime.store.sealing import Vault
from fedboost.runtime.store.store import JobState, Store
from tests import tiers
from tests.support.accounts import SUMS, predict, sums, tell
from tests.support.decoders import entry
from tests.tiers import Tier

SEED, FLIPS_CHANGE, FLIPS, FLIPS_LONG = 7, 15, 40, 500  # of each kind of file, by tier
ARRAYS = {"gradient": np.arange(24.0).reshape(4, 6), "codes": np.array(["a", "b"])}
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
PEERS = ("telco", "shop")
TOLD = replace(SUMS, job="job-1")
FACTS = {"party": "bank", "base_margin": 0.25, "trees": [1, 2, 3]}


# What each kind of file holds, and how it is read


class Counter:
    """A clock that ticks when it is read."""

    seconds = 1e9

    def __call__(self):
        self.seconds += 0.25
        return self.seconds


def keep_checkpoint(folder):
    for round_ in (1, 2):
        Checkpoints().save(folder, (round_,), {**FACTS, "round": round_}, ARRAYS)


def read_checkpoint(folder):
    found = Checkpoints().load(folder, (2,))
    assert found is not None
    return {**found.state, **found.arrays}


def keep_shard(folder):
    shards.save_shard(folder / "job-1", Artefact(dict(FACTS), ARRAYS))


def read_shard(folder):
    found = shards.load_shard(folder / "job-1")
    return {**found.facts, **found.arrays}


def keep_seed(folder):
    folder.mkdir(parents=True, exist_ok=True)
    Vault(folder).seal("job-1", "seed", bytes(range(32)))


def read_seed(folder):
    return {"seed": Vault(folder).unseal("job-1", "seed")}


def keep_ledger(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with closing(Ledger(folder / "store.sqlite")) as ledger:
        ledger.record(*[entry(n) for n in range(40)])
    with closing(sqlite3.connect(folder / "store.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def read_ledger(folder):
    with closing(Ledger(folder / "store.sqlite")) as ledger:
        head = ledger.verify()
        return {"head": head, "rows": [(r.n, r.job, r.sha256, r.peer) for r in ledger.rows()]}


def keep_store(folder):
    with Store(folder, "coordinator coord", clock=Counter()) as store:
        for name in ("job-1", "job-2", "job-3"):
            store.add_job(name, name, b'{"spec": 1}', JobState.WAITING)
            store.next_attempt(name)
            store.move_to_state(name, JobState.RUNNING, event={"state": {"state": "running"}})
            store.add_event(name, *({"round": {"done": n, "auc": n / 7}} for n in range(12)))
        store.move_to_state(
            "job-2", JobState.PAUSED, reason="telco is not there", waiting_for="telco"
        )
        store.move_to_state("job-3", JobState.FINISHED, result={"metrics": {"auc": 0.75}})
        for peer in PEERS:
            predict(store, peer, 40)
        count_alignment(store, PEERS, Owned("credit", ""), 2)
        with closing(Account(store.database, clock=lambda: NOON)) as own:
            own.expect(TOLD)
            tell(own, TOLD, sums(0.03))
    alone(folder)


def read_store(folder):
    with Store(folder, "coordinator coord", clock=Counter()) as store:
        jobs = store.jobs()
        assert [store.job(job.id) for job in jobs] == jobs
        found: dict[str, object] = {job.id: (job, store.events(job.id)) for job in jobs}
        found |= {peer: predict(store, peer, 0) for peer in PEERS}
        with pytest.raises(PolicyError) as refused:
            count_alignment(store, PEERS, Owned("credit", ""), 1)
        found["alignments"] = refused.value.what
        with closing(Account(store.database)) as own:
            found["account"] = own.entries()
    alone(folder)
    return found


def alone(folder):
    """The database stands alone: nothing was sealed with the key, which is another kind's."""
    for name in ("store.key", "store.lock"):
        (folder / name).unlink()


KINDS = {
    "store": (keep_store, read_store),
    "checkpoint": (keep_checkpoint, read_checkpoint),
    "shard": (keep_shard, read_shard),
    "seed": (keep_seed, read_seed),
    "ledger": (keep_ledger, read_ledger),
}


# Faults of a disk


def flipped(data, draw):
    """One bit is another."""
    place = draw.randrange(8 * len(data))
    spoilt = bytearray(data)
    spoilt[place // 8] ^= 1 << (place % 8)
    return bytes(spoilt)


def torn(data, draw):
    """The end was never written."""
    return data[: draw.randrange(len(data))]


def unwritten(data, draw):
    """A block holds zeros, as after a power cut."""
    start = draw.randrange(len(data))
    end = min(start + 512, len(data))
    return data[:start] + bytes(end - start) + data[end:]


def stale(data, draw):
    """A block holds what another one should."""
    size = min(512, len(data) // 2)
    one, other = draw.randrange(len(data) - size + 1), draw.randrange(len(data) - size + 1)
    return data[:one] + data[other : other + size] + data[one + size :]


FAULTS = {"flipped": flipped, "torn": torn, "unwritten": unwritten, "stale": stale}


@pytest.fixture(scope="module", params=KINDS)
def kept(request, tmp_path_factory):
    """A folder with files of one kind, what they hold, and the function that reads them."""
    keep, read = KINDS[request.param]
    folder = tmp_path_factory.mktemp(request.param) / "sound"
    keep(folder)
    return folder, read(folder), read


def same(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(value, other[name])
        if isinstance(value, np.ndarray)
        else value == other[name]
        for name, value in one.items()
    )


def spoil(sound, folder, fault, draw):
    """A copy of the files, one of which has a fault; None where that changes nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    path = draw.choice(sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size))
    data = path.read_bytes()
    spoilt = FAULTS[fault](data, draw)
    path.write_bytes(spoilt)
    return None if spoilt == data else path


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "flips",
    [
        FLIPS if tiers.runs(Tier.ALL) else FLIPS_CHANGE,
        pytest.param(FLIPS_LONG, marks=pytest.mark.long),
    ],
    ids=["now", "many"],
)
def test_a_file_with_a_fault_is_refused_or_read_as_it_was_written(kept, fault, flips, tmp_path):
    sound, expected, read = kept
    seed = SEED if tiers.runs(Tier.ALL) else tiers.seed()
    draw = random.Random(f"{seed} {fault}")
    refused = 0
    for n in range(flips):
        path = spoil(sound, tmp_path / "spoilt", fault, draw)
        if path is None:
            continue
        found = outcome(read, tmp_path / "spoilt")
        if isinstance(found, FedboostError):
            refused += 1
            assert found.code != "internal", (n, found)
        else:
            assert same(found, expected), (n, path.name, fault)
    assert refused or flips < FLIPS, "few may all have hit what nobody reads"


def outcome(read, folder):
    """What is read, or the error with which it is refused."""
    try:
        return read(folder)
    except FedboostError as error:
        return error
