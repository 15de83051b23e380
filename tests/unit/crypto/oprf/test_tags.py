"""One host: exactly the common ids, in one order on both sides, and what either side refuses."""

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fedboost.crypto.oprf.sizes import CHECK_BYTES, CODE_WORD_BYTES, OprfSizes
from fedboost.crypto.oprf.tags import TagGuest, TagHost
from fedboost.ground.errors import PeerError, ProtocolError
from tests.support.oprf_pairs import (
    kept_transfers,
    met,
    naive_digest,
    naive_read,
    naive_word,
    number,
    numbered,
    pair,
    session_of,
    tags_exchanged,
)

GUEST_IDS, HOST_IDS = numbered(range(300)), numbered(range(200, 450))
NAIVE = 100  # of ids that the common ones are compared with


@pytest.fixture(autouse=True)
def _transfers():
    with kept_transfers():
        yield


def fresh(guest_ids=GUEST_IDS, host_ids=HOST_IDS, session=None):
    guest, host = pair(guest_ids, host_ids, session)
    return TagGuest(guest), TagHost(host)


def is_right(guest_ids, host_ids, session=None):
    """Whether both find the common ids, each once, row by row the same."""
    ours, theirs = met(guest_ids, host_ids, session)
    named = [guest_ids[row] for row in ours]
    assert named == [host_ids[row] for row in theirs]
    return len(named) == len(set(named)) and set(named) == set(guest_ids) & set(host_ids)


def flipped(data, at, bit=1):
    changed = bytearray(data)
    changed[at] ^= bit
    return bytes(changed)


def case(rng):
    """Two random sets: their sizes, what they share, and how long their ids are."""
    size = rng.choice([0, 1, 2, 5, 30, 100])
    pool = list({rng.randbytes(rng.randint(1, rng.choice([3, 20, 200]))) for _ in range(2 * size)})
    ours = rng.sample(pool, rng.randint(0, len(pool)))
    theirs = rng.choice(
        [pool, ours, sorted(set(pool) - set(ours)), rng.sample(pool, len(pool) // 2)]
    )
    return ours, rng.sample(theirs, len(theirs))


@pytest.mark.some(2)
@pytest.mark.parametrize("block", range(20))
def test_the_common_ids_of_random_sets_are_those_of_a_naive_intersection(block):
    rng = random.Random(block)
    for _ in range(50):
        ours, theirs = case(rng)
        padded = session_of(len(ours) + rng.choice([0, 40]), len(theirs) + rng.choice([0, 40]))
        assert is_right(ours, theirs, padded)


@pytest.mark.some(2)
@pytest.mark.parametrize("count", [19_999, 20_000, 98_303, 98_304, 200_000])
@pytest.mark.parametrize("shared", ["none", "half", "all"])
def test_the_common_ids_of_large_sets_are_found(count, shared):
    start = {"none": count, "half": count // 2, "all": 0}[shared]
    assert is_right(numbered(range(count)), numbered(range(start, start + count))[::-1])


@pytest.mark.full
def test_a_host_with_many_more_ids_than_the_guest_works_in_blocks():
    assert is_right(numbered(range(1000)), numbered(range(500, 300_500)))


def test_the_value_of_an_id_is_what_both_sides_naive_twins_compute():
    guest, host = pair(GUEST_IDS, HOST_IDS)
    asked = guest.ask_part(0)
    rows = [number(row) for row in host.open(0, asked.data)]
    own = host.part_ids(0)
    outputs = host.outputs(host.open(0, asked.data), own)
    keys, values = own.keys(host.sizes.segment), own.values()
    selection = number(host._selection)
    of_guest = {GUEST_IDS[row]: out for row, out in zip(asked.rows, asked.outputs, strict=True)}
    for k in range(NAIVE):
        id_ = HOST_IDS[own.rows[k]]
        read = naive_read(keys.places[k], int(keys.masks[k]), keys.sparse_rows, rows)
        read ^= naive_word(number(values[k])) & selection
        digest = naive_digest(host.session.key, id_)
        output_key = hashlib.sha256(b"out" + host.session.key).digest()
        expected = naive_digest(output_key, read.to_bytes(64, "little") + digest)
        assert outputs[k].tobytes() == expected
        assert id_ not in of_guest or of_guest[id_].tobytes() == expected


def test_messages_have_the_sizes_that_follow_from_the_padded_sets():
    session = session_of(1000, 2000)
    guest, host = fresh(session=session)
    part = guest.part(0)
    tags = host.answer(0, part)
    _, named = guest.read_tags(0, tags)
    sizes = OprfSizes(1000, 2000)
    assert (len(part), len(tags)) == (sizes.part_bytes, sizes.tags_bytes)
    assert len(named) == sizes.named_tags_bytes


def test_messages_are_the_same_bytes_however_often_they_are_made():
    session = session_of(400, 500)
    runs = []
    for _ in range(2):
        guest, host = fresh(session=session)
        part = guest.part(0)
        assert guest.part(0) == part
        tags = host.answer(0, part)
        assert host.answer(0, part) == tags
        _, named = guest.read_tags(0, tags)
        runs.append((guest.oprf.start, host.oprf.choice, part, tags, named))
    assert runs[0] == runs[1]


def test_parts_at_work_at_once_are_those_that_are_done_one_by_one():
    ids, others = numbered(range(200_000)), numbered(range(100_000, 400_000))
    one_by_one, at_once = fresh(ids, others), fresh(ids, others)
    bins = one_by_one[0].oprf.sizes.bins
    assert bins == 3
    with ThreadPoolExecutor(bins) as pool:
        parts = list(pool.map(at_once[0].part, range(bins)))
        answers = list(pool.map(at_once[1].answer, range(bins), parts))
    assert parts == [one_by_one[0].part(b) for b in range(bins)]
    assert answers == [one_by_one[1].answer(b, parts[b]) for b in range(bins)]


def test_tags_tell_nothing_of_how_many_the_ids_are():
    guest, host = fresh(session=session_of(300, 1000))
    tags = host.answer(0, guest.part(0))
    assert len({tags[at : at + 12] for at in range(0, len(tags), 12)}) == 1000


def refused_by_the_host(change, match):
    guest, host = fresh()
    part = guest.part(0)
    with pytest.raises(PeerError, match=match):
        host.answer(0, change(part))
    return part, host


@pytest.mark.parametrize("at", [0, 58, 59 * 200 + 7, -CHECK_BYTES - 1, -CHECK_BYTES, -17, -80])
def test_a_part_with_one_bit_changed_does_not_pass_the_check(at):
    part, host = refused_by_the_host(lambda part: flipped(part, at), "does not pass the check")
    with pytest.raises(PeerError, match="answers no others"):
        host.answer(0, part)


def test_sums_of_more_bits_than_values_have_do_not_pass_the_check():
    refused_by_the_host(lambda part: flipped(part, -1, 0x80), "does not pass the check")
    refused_by_the_host(lambda part: flipped(part, -7, 0x10), "does not pass the check")


def test_a_part_under_the_check_of_another_run_is_refused():
    guest, _ = fresh()
    _, other = fresh(session=session_of(300, 250, "another shop"))
    with pytest.raises(PeerError, match="does not pass the check"):
        other.answer(0, guest.part(0))


@pytest.mark.parametrize(
    "change", [lambda p: p[:-1], lambda p: p[CODE_WORD_BYTES:], lambda p: p + p]
)
def test_a_part_of_another_size_is_refused(change):
    refused_by_the_host(change, "a part has")


@pytest.mark.parametrize("b", [-1, 1, 2**40])
def test_a_part_that_there_is_not_is_refused(b):
    guest, host = fresh()
    with pytest.raises(PeerError, match="there is no part"):
        host.answer(b, guest.part(0))
    with pytest.raises(ProtocolError, match="there is no part"):
        guest.part(b)


def test_another_part_for_an_answered_number_is_refused():
    guest, host = fresh()
    host.answer(0, guest.part(0))
    other, _ = fresh(GUEST_IDS[1:], session=guest.oprf.session)
    with pytest.raises(PeerError, match="came before with other bytes"):
        host.answer(0, other.part(0))
    host.answer(0, guest.part(0))


def asked():
    guest, host = fresh()
    return guest, host.answer(0, guest.part(0))


@pytest.mark.parametrize(
    "change",
    [
        lambda tags: tags[12:] + tags[:12],  # not ascending
        lambda tags: tags[:12] + tags[:-12],  # the first twice
    ],
)
def test_tags_out_of_order_or_twice_are_refused(change):
    guest, tags = asked()
    with pytest.raises(PeerError, match="not all different and ascending"):
        guest.read_tags(0, change(tags))


@pytest.mark.parametrize(
    "change", [lambda tags: tags[:-1], lambda tags: tags[12:], lambda tags: b""]
)
def test_tags_of_another_size_are_refused(change):
    guest, tags = asked()
    with pytest.raises(PeerError, match="tags have"):
        guest.read_tags(0, change(tags))


def named():
    """A guest and a host behind all tags; of the host's ids 250 are real, 150 are fillers."""
    guest, host = fresh(session=session_of(300, 401))
    [(_, data)] = tags_exchanged(guest, host)
    return host, data


def marked(host, is_filler):
    """The first unmarked tag that is or is not of an id."""
    rows = host._sent[0].rows
    bits = np.unpackbits(np.frombuffer(named()[1], np.uint8))
    return next(
        place for place in range(401) if not bits[place] and (rows[place] > 2**30) == is_filler
    )


@pytest.mark.parametrize("is_filler", [True, False])
def test_a_mark_on_what_the_guest_does_not_hold_is_refused(is_filler):
    host, data = named()
    place = marked(host, is_filler)
    with pytest.raises(PeerError, match="has not shown to hold"):
        host.read_named(0, flipped(data, place // 8, 0x80 >> place % 8))


def test_a_mark_left_out_or_another_digest_is_refused():
    host, data = named()
    bits = np.unpackbits(np.frombuffer(data, np.uint8))
    place = int(np.flatnonzero(bits)[0])
    for changed in (flipped(data, place // 8, 0x80 >> place % 8), flipped(data, -1)):
        with pytest.raises(PeerError, match="has not shown to hold"):
            host.read_named(0, changed)


def test_marks_behind_the_last_tag_or_of_another_size_are_refused():
    host, data = named()
    with pytest.raises(PeerError, match="behind the last tag"):
        host.read_named(0, flipped(data, 50))
    for changed in (data[1:], data + b"\0", b""):
        with pytest.raises(PeerError, match="marks have"):
            host.read_named(0, changed)


def test_steps_out_of_order_are_refused():
    guest, host = fresh()
    with pytest.raises(ProtocolError, match="before the host was asked"):
        guest.read_tags(0, b"")
    with pytest.raises(ProtocolError, match="before it was answered"):
        host.read_named(0, b"")


def test_what_is_known_of_a_part_is_forgotten_behind_it():
    guest, host = fresh()
    [(_, data)] = tags_exchanged(guest, host)
    assert host.read_named(0, data).size == 100
    assert not guest._asked
    assert not host._sent
    with pytest.raises(ProtocolError, match="before it was answered"):
        host.read_named(0, data)


def test_errors_say_nothing_of_the_selection():
    """Whatever fails the check fails it with the same words."""
    said = set()
    for at in range(0, 59 * 40, 59):
        guest, host = fresh()
        with pytest.raises(PeerError) as error:
            host.answer(0, flipped(guest.part(0), at))
        said.add(str(error.value))
    assert len(said) == 1


@pytest.mark.parametrize("exponent", [20, 24])
def test_false_matches_are_as_rare_as_their_bound(exponent):
    """Tags of 12 bytes: a host's id that the guest lacks looks like one of its n with n · 2^−96.

    With tags cut to `exponent` bits there are as many as the formula says.
    """
    guest, host = fresh(numbered(range(4000)), numbered(range(10**6, 10**6 + 60_000)))
    part = guest.part(0)
    mask = 2**exponent - 1
    ours = {int(word) & mask for word in guest._asked[0].outputs[:, 0]}
    tags = np.frombuffer(host.answer(0, part), np.uint32).reshape(-1, 3)
    assert not guest.read_tags(0, tags.tobytes())[0].size
    hits = sum(int(word) & mask in ours for word in tags[:, 0])
    expected = len(tags) * len(ours) / 2**exponent
    assert abs(hits - expected) < 6 * expected**0.5 + 1
