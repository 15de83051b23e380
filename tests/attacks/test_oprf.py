"""What a guest reads of a host's ids beyond the common ones, by what no honest guest sends."""

import numpy as np
import pytest

from fedboost.crypto.oprf import tags
from fedboost.crypto.oprf.code import code_tables
from fedboost.crypto.oprf.extension import check_seed, check_sums, check_weights
from fedboost.crypto.oprf.hints import HintGuest
from fedboost.crypto.oprf.host import OprfHost
from fedboost.crypto.oprf.ids import PartIds
from fedboost.crypto.oprf.rows import add_words
from fedboost.crypto.oprf.sizes import CODE_COLUMNS, CODE_WORD_BYTES
from fedboost.crypto.oprf.store import decode_values, encode_store
from fedboost.crypto.oprf.tags import TagGuest, TagHost
from fedboost.ground.errors import PeerError
from tests.support.oprf_pairs import (
    digests,
    numbered,
    pair,
    several,
    tags_exchanged,
)

KNOWN, GUEST_ALONE = numbered(range(1000)), numbered(range(1000, 3000))
HOST_ALONE, NOBODYS = numbered(range(5000, 6000)), numbered(range(10_000, 15_000))


class Cheat:
    """A guest that knows 1000 ids of the host and wants the others.

    At a row that only one of the known ids reads it flips one column. Whether the host's tag of
    that id changes tells the column's bit of the host's secret; another id for each bit.
    """

    def __init__(self):
        self.guest, host = pair(KNOWN + GUEST_ALONE, KNOWN + HOST_ALONE)
        self.host = TagHost(host)
        part = self.guest.ids.part(0, 3000)
        self.known = [k for k, row in enumerate(part.rows) if row < len(KNOWN)]
        self.read = part.keys(self.guest.sizes.segment)
        self.digests = part.digests
        self.rows, _ = self.guest._columns(0)
        self.errors = np.zeros((self.guest.sizes.rows, 8), np.uint64)
        self.marked: dict[int, int] = {}  # the id that each column is aimed at
        places = self.read.places[self.known]
        row, count = np.unique(places, return_counts=True)
        alone = set(row[count == 1].tolist())
        for k in self.known:
            free = [place for place in self.read.places[k].tolist() if place in alone]
            if free and len(self.marked) < CODE_COLUMNS:
                column = len(self.marked)
                self.marked[column] = k
                self.errors[free[0], column // 64] ^= np.uint64(1 << column % 64)

    def part(self):
        """The part with its errors, and an honest answer to the check that follows from them."""
        sizes = self.guest.sizes
        honest = self.guest.ask_part(0).data[: CODE_WORD_BYTES * sizes.rows]
        words = np.frombuffer(honest, np.uint8).reshape(-1, CODE_WORD_BYTES)
        errors = self.errors.view(np.uint8).reshape(-1, 64)[:, :CODE_WORD_BYTES]
        packed = (words ^ errors).tobytes()
        weights = check_weights(check_seed(self.guest.name, 0, packed), sizes.first_check_row)
        store = self.store()
        check = np.concatenate([check_sums(weights, self.rows), check_sums(weights, store)], axis=1)
        return packed + check.tobytes()

    def store(self):
        """The store that the guest's honest part holds: C(D) is what is left of it."""
        held = self.guest._drawn_values(0)
        part = self.guest.ids.part(0, 3000)
        encode_store(self.read, part.values(), held)
        return held

    def tags_of(self, read, own_digests):
        """The tags of ids that read these rows."""
        part = PartIds(np.arange(len(read), dtype=np.uint32), own_digests)
        return [out.tobytes()[:12] for out in self.guest._outputs(part, read)]

    def secret(self, sent):
        """The host's secret, as far as its tags tell it, and how many of its bits."""
        seen = {sent[at : at + 12] for at in range(0, len(sent), 12)}
        honest = decode_values(self.read, self.rows)
        bits, sure = np.zeros(512, np.uint8), 0
        for column, k in self.marked.items():
            flipped = honest[k : k + 1].copy()
            flipped[0, column // 64] ^= np.uint64(1 << column % 64)
            own = self.digests[k : k + 1]
            [same], [other] = self.tags_of(honest[k : k + 1], own), self.tags_of(flipped, own)
            sure += (same in seen) != (other in seen)
            bits[column] = other in seen
        return np.frombuffer(np.packbits(bits, bitorder="little").tobytes(), np.uint64), sure

    def dictionary(self, sent, secret, guesses):
        """Which of these ids the host has, found without asking anybody."""
        seen = {sent[at : at + 12] for at in range(0, len(sent), 12)}
        words = self.errors.copy()
        add_words(self.store(), code_tables(), words)
        rows = self.rows ^ (words & secret)
        part = digests(guesses, self.guest.session).part(0, len(guesses))
        read = decode_values(part.keys(self.guest.sizes.segment), rows)
        add_words(part.values(), code_tables() & secret, read)
        found = self.tags_of(read, part.digests)
        return {guesses[row] for row, tag in zip(part.rows, found, strict=True) if tag in seen}


def test_a_guest_that_marks_columns_of_its_part_gets_no_tags():
    cheat = Cheat()
    assert len(cheat.marked) == CODE_COLUMNS
    with pytest.raises(PeerError, match="does not pass the check"):
        cheat.host.answer(0, cheat.part())


def test_a_guest_that_marks_one_column_is_refused_or_has_guessed_its_bit():
    """Without a flip where the secret's bit is set, nothing of it is computed with."""
    cheat = Cheat()
    refused = 0
    for column in range(8):
        cheat.host.oprf._answered.clear()
        cheat.host.oprf._refused = False
        cheat.errors[:] = 0
        cheat.errors[0, 0] = np.uint64(1 << column)
        try:
            cheat.host.answer(0, cheat.part())
        except PeerError:
            refused += 1
    drawn = int(cheat.host.oprf._selection[0]) & 0xFF
    assert refused == drawn.bit_count()
    assert 0 < refused < 8


def test_a_guest_reads_a_hosts_ids_from_a_dictionary_where_nothing_is_checked(monkeypatch):
    monkeypatch.setattr(OprfHost, "_passes_check", lambda *_: True)
    cheat = Cheat()
    sent = cheat.host.answer(0, cheat.part())
    secret, sure = cheat.secret(sent)
    assert sure == CODE_COLUMNS
    assert (secret == cheat.host.oprf._selection).all()
    assert cheat.dictionary(sent, secret, HOST_ALONE + NOBODYS) == set(HOST_ALONE)


# A second set under one secret


def asked_twice():
    """A host that is asked for one set, and then under the same number for another."""
    guest, answering = pair(KNOWN, KNOWN[500:] + HOST_ALONE)
    first, host = TagGuest(guest), TagHost(answering)
    first.read_tags(0, host.answer(0, first.part(0)))
    guest.ids = digests(HOST_ALONE, guest.session)
    second = TagGuest(guest)
    return second, lambda: host.answer(0, second.part(0))


def test_a_second_set_is_not_asked_for_under_a_number_that_was_answered():
    _, ask = asked_twice()
    with pytest.raises(PeerError, match="came before with other bytes"):
        ask()


def test_a_second_set_is_asked_for_where_nobody_remembers(monkeypatch):
    monkeypatch.setattr(OprfHost, "_admit_part", lambda *_: None)
    second, ask = asked_twice()
    rows, _ = second.read_tags(0, ask())
    assert len(rows) == len(HOST_ALONE)


# Ids that the guest names and does not hold


def named_too_much():
    """A host, and marks on all tags of its ids, of which the guest holds half."""
    sides = pair(KNOWN, KNOWN[500:] + HOST_ALONE[:500])
    guest, host = TagGuest(sides[0]), TagHost(sides[1])
    [(_, data)] = tags_exchanged(guest, host)
    return host, b"\xff" * 125 + data[-32:]


def test_a_guest_does_not_name_ids_that_it_does_not_hold():
    host, data = named_too_much()
    with pytest.raises(PeerError, match="has not shown to hold"):
        host.read_named(0, data)


def test_a_guest_names_ids_that_it_does_not_hold_where_marks_need_no_proofs(monkeypatch):
    monkeypatch.setattr(tags, "_digest_of", lambda *_: bytes(32))
    host, data = named_too_much()
    assert len(host.read_named(0, data)) == 1000


# Which ids the guest shares with each host


def shared_with_one(run):
    """The ids of the guest at which the first host's hint alone reads nothing but the value."""
    first = HintGuest(run.guest.oprfs[:1])
    rows, _ = first.read_hints(0, [run.hosts[0].answer(0, first.part(0, 0))])
    return rows


SETS = [KNOWN[:600], KNOWN[400:]]


def test_a_guest_does_not_read_which_ids_one_of_several_hosts_has():
    assert not len(shared_with_one(several(KNOWN, SETS)))


def test_a_guest_reads_which_ids_each_host_has_where_hosts_share_no_keys():
    assert len(shared_with_one(several(KNOWN, SETS, shares=False))) == 600
