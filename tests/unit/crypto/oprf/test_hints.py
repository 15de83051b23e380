"""Several hosts: the ids that all hold, and what either side refuses."""

import random

import numpy as np
import pytest

from fedboost.ground.errors import PeerError, ProtocolError
from tests.support.oprf_pairs import (
    hints_exchanged,
    hints_of,
    kept_transfers,
    numbered,
    pair_key,
    several,
)

GUEST_IDS = numbered(range(200))
SETS = [numbered(range(50, 250)), numbered(range(100, 180)), numbered(range(0, 150))]


@pytest.fixture(autouse=True)
def _transfers():
    with kept_transfers():
        yield


def is_right(guest_ids, sets):
    run = several(guest_ids, sets)
    common = set(guest_ids).intersection(*map(set, sets))
    found = list(hints_exchanged(run))
    assert sorted(guest_ids[row] for rows, _ in found for row in rows) == sorted(common)
    for number, (host, ids) in enumerate(zip(run.hosts, sets, strict=True)):
        theirs = [host.read_named(b, named[number]) for b, (_, named) in enumerate(found)]
        assert sorted(ids[row] for rows in theirs for row in rows) == sorted(common)
    return True


@pytest.mark.some(2)
@pytest.mark.parametrize("seed", range(20))
def test_the_ids_that_all_hold_are_those_of_a_naive_intersection(seed):
    rng = random.Random(seed)
    for _ in range(10):
        pool = numbered(range(rng.choice([1, 10, 200])))
        sets = [rng.sample(pool, rng.randint(0, len(pool))) for _ in range(rng.randint(2, 4))]
        assert is_right(rng.sample(pool, rng.randint(0, len(pool))), sets)


@pytest.mark.full
def test_the_ids_that_all_hold_are_found_in_several_parts():
    sets = [numbered(range(k * 10_000, k * 10_000 + 120_000)) for k in range(3)]
    assert is_right(numbered(range(100_000)), sets)


def test_hints_are_the_same_bytes_however_often_they_are_made():
    runs = []
    for _ in range(2):
        run = several(GUEST_IDS, SETS)
        part = run.guest.part(1, 0)
        hint = run.hosts[1].answer(0, part)
        assert hint == run.hosts[1].answer(0, part)
        assert len(hint) == run.hosts[1].oprf.sizes.hint_bytes
        runs.append((part, hint))
    assert runs[0] == runs[1]


def test_ids_of_fewer_than_all_hosts_add_up_to_noise():
    run = several(GUEST_IDS, SETS)
    oprf = run.guest.oprfs[0]
    sums = run.guest._sum_hints(0, oprf.ids.part(0, oprf.sizes.guest_cap), hints_of(run, 0))
    others = sums[(sums != 0).any(axis=1)]
    assert len(others) == len(set(GUEST_IDS) - set(SETS[0]).intersection(*SETS[1:]))
    ones = np.bitwise_count(others).sum() / (128 * len(others))
    assert 0.48 < ones < 0.52


def test_hosts_without_the_same_keys_find_nothing():
    run = several(GUEST_IDS, SETS)
    run.hosts[0]._states = several(GUEST_IDS, SETS).hosts[1]._states
    [(rows, _)] = hints_exchanged(run)
    assert not len(rows)
    assert pair_key(0, 1) == pair_key(1, 0) != pair_key(0, 2)


def test_a_part_that_does_not_pass_the_check_gets_no_hint():
    run = several(GUEST_IDS, SETS)
    part = bytearray(run.guest.part(0, 0))
    part[5] ^= 1
    with pytest.raises(PeerError, match="does not pass the check"):
        run.hosts[0].answer(0, bytes(part))


def test_a_hint_of_another_size_is_refused():
    run = several(GUEST_IDS, SETS)
    hint, *others = hints_of(run, 0)
    for changed in (hint[:-1], hint + bytes(16), b""):
        with pytest.raises(PeerError, match="a hint has"):
            run.guest.read_hints(0, [changed, *others])


def proofs():
    run = several(GUEST_IDS, SETS)
    [(_, named)] = hints_exchanged(run)
    return run.hosts[0], named[0]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda data: bytes(16) + data[16:], "has not shown to hold"),
        (lambda data: data[:16] + data, "not all different and ascending"),
        (lambda data: data[16:32] + data[:16] + data[32:], "not all different and ascending"),
        (lambda data: data[:-1], "are no proofs"),
        (lambda data: data * 100, "are no proofs"),
    ],
)
def test_proofs_of_what_the_guest_does_not_hold_are_refused(change, match):
    host, data = proofs()
    with pytest.raises(PeerError, match=match):
        host.read_named(0, change(data))


def test_steps_out_of_order_are_refused():
    run = several(GUEST_IDS, SETS)
    with pytest.raises(ProtocolError, match="before it was answered"):
        run.hosts[0].read_named(0, b"")
    with pytest.raises(ProtocolError, match="came before the host was asked"):
        run.guest.read_hints(0, [b""] * len(SETS))
