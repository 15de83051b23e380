"""Both sides of every scheme: rows out in parts, sums back in parts, and nothing in between."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedboost.core import binning
from fedboost.crypto import layout
from fedboost.encrypted.cells.request import CandidateTerms
from fedboost.encrypted.lattice import answers as lattice_answers
from fedboost.encrypted.scheme import keys, loading, schemes
from fedboost.encrypted.scheme.ciphers import AnswersSeen, NodeBounds, addressed
from fedboost.ground.errors import PeerError
from tests.support.federated import GUEST, HOSTS, contexts_for, frame_of

TELCO, SHOP = HOSTS[:2]
VECTORS = ("lattice, vectors", "lattice-4096, vectors", "lattice-large, vectors")
SCHEMES = ("plain", *VECTORS, "lattice, packed", "lattice-4096, packed")


class Pair:
    """A guest and a host of one job, each with its side of the scheme."""

    def __init__(self, scheme, rows=300, outputs=1):
        scheme, _, answers = scheme.partition(", ")
        draw = np.random.default_rng(3)
        ids = [b"%06d" % i for i in range(rows)]
        values = draw.normal(size=(rows, 2)).astype(np.float32)
        frames = {GUEST: frame_of(ids, values, np.arange(rows) % 2)}
        frames |= {host: frame_of(ids, values) for host in (TELCO, SHOP)}
        said = {"answers": answers} if answers else {}
        params: dict[str, Any] = {"encryption": {"scheme": scheme, **said}, "allow_insecure": True}
        if outputs > 1:
            params |= {"objective": "multi:softprob", "num_class": outputs, "multi_output": True}
        self.contexts = contexts_for("secureboost", frames, params)
        self.params, self.n_rows = self.contexts[GUEST].params, rows
        self.bits = loading.tree_scheme(self.params).bits_of(self.params, rows)
        hosts = (TELCO, SHOP)
        nonces: tuple[bytes, ...] = ()
        if keys.takes_nonces(self.params):
            nonces = tuple(keys.own_nonce(self.contexts[party]) for party in (GUEST, *hosts))
        self.guest = keys.guest_side(self.contexts[GUEST], self.bits, [rows], nonces)
        cuts = binning.fit(values, 8, ())
        told = self.guest.key_message(0)
        self.hosts = {
            host: keys.host_side(self.contexts[host], told, rows, cuts, are_all=True)
            for host in hosts
        }
        most = min(1 << self.bits, 1 << 20) - 1
        self.gh = draw.integers(-most, most + 1, (rows, 2 * outputs))
        self.gh[:, 1::2] = np.abs(self.gh[:, 1::2])  # hessians

    def rows(self, host=SHOP, tree=0):
        """The rows at a host, and at the guest."""
        given = self.guest.rows(tree, self.gh, self.n_rows)
        side = self.hosts[host]
        parts = [
            side.read_part(part.rows.data, part.rows.count // side.sizes.per_row)
            for part in given.parts()
        ]
        return side.rows(np.concatenate(parts), tree, given.key_for(host)), given


@pytest.mark.parametrize("scheme", [*SCHEMES, *(one for one in schemes.SCHEMES if one != "plain")])
def test_a_scheme_states_the_sizes_of_its_messages(scheme, monkeypatch):
    """What an estimate reckons with, and what messages are admitted by."""
    monkeypatch.setattr(layout, "ENCRYPTED_BLOCK_BYTES", 1 << 11)
    pair = Pair(scheme)
    held, given = pair.rows()
    own = loading.tree_scheme(pair.params)
    slots = own.slots(pair.params, pair.n_rows, AnswersSeen())
    packs = schemes.SCHEMES[pair.params.encryption.scheme].packs_answers
    assert bool(slots) == (packs and "vectors" not in scheme)
    sizes, told = own.sizes(pair.params, pair.n_rows, slots), pair.guest.key_message(0)
    assert len(told.key) == own.key_bytes(pair.params)
    assert len(given.key_for(SHOP)) == sizes.tree_key_bytes
    parts = list(given.parts())
    assert sum(len(part.rows.data) for part in parts) == pair.n_rows * sizes.row_bytes
    assert len(parts) == -(-pair.n_rows // sizes.rows_each)
    assert all(part.rows.count <= sizes.rows_each * sizes.per_row for part in parts)
    sums = held.row_sums.sums(np.arange(300), np.arange(300, dtype=np.int32)[:, None] % 40, 40)
    asked = [CandidateTerms.of_cells(0, node, rows, 40) for node, rows in ((0, 300), (1, 17))]
    answered = list(held.blind_cells(sums, asked))
    stated = list(sizes.parts([(40, 300), (40, 17)]))
    assert [one.ciphertexts for one in stated] == [part.count for part in answered]
    assert [one.n_bytes for one in stated] == [len(part.data) for part in answered]


def nodes_of(rows, draw):
    """Which rows some nodes have, of all sizes."""
    return [np.sort(draw.permutation(rows)[:count]) for count in (rows, 1, 2, 17, 0, rows // 2)]


@pytest.mark.parametrize("outputs", [1, 5])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("each", [1, 3, 1024])
def test_sums_that_come_back_are_those_of_the_integers(scheme, outputs, each, monkeypatch):
    monkeypatch.setattr(lattice_answers, "ANSWERS_EACH", each)
    pair, draw = Pair(scheme, outputs=outputs), np.random.default_rng(1)
    held, given = pair.rows()
    nodes = nodes_of(pair.n_rows, draw)
    expected, sums, indices, first = [], [], [], 0
    cells = np.full((pair.n_rows, len(nodes)), -1, np.int32)
    for number, rows in enumerate(nodes):
        cells[rows, number] = first + draw.integers(0, 4, len(rows))
        own = np.zeros((4, pair.gh.shape[1]), np.int64)
        np.add.at(own, cells[rows, number] - first, pair.gh[rows])
        expected.append(NodeBounds(len(rows), np.abs(pair.gh[rows]).sum(axis=0)))
        order = draw.permutation(4)[: 4 - number % 2]
        indices.append((number, len(rows), first + order))
        sums.append(own[order])
        first += 4
    made = held.row_sums.sums(np.arange(pair.n_rows), cells, first)
    asked = [
        CandidateTerms.of_cells(0, number, rows, first)[order] for number, rows, order in indices
    ]
    parts = list(held.blind_cells(made, asked))
    data = b"".join(part.data for part in parts)
    counts = [*map(len, asked)]
    assert sum(part.count for part in parts) == given.count(counts)
    assert len(data) == given.n_bytes(counts, expected)
    found = given.read(data, counts, expected)
    assert found.tolist() == np.concatenate(sums).tolist()
    if scheme != "plain":
        assert max(part.count for part in parts) == (1 if "packed" in scheme else min(each, 4))
        again = held.blind_cells(made, asked)
        assert b"".join(part.data for part in again) == data  # a retry
        others = [replace(one, tree=1) for one in asked]
        other = b"".join(p.data for p in held.blind_cells(made, others))
        assert other != data
        assert given.read(other, counts, expected).tolist() == found.tolist()
        with pytest.raises(PeerError, match="does not decrypt"):
            pair.rows(tree=1)[1].read(data, counts, expected)


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (0, [0]),
        (1, [1]),
        (2047, [2047]),
        (2048, [2048]),
        (2049, [2048, 1]),
        (4096, [2048, 2048]),
        (5000, [2048, 2048, 904]),
    ],
)
def test_parts_are_whole_blocks_and_only_the_last_is_shorter(rows, counts, monkeypatch):
    monkeypatch.setattr(lattice_answers, "BLOCKS_EACH", 1)
    pair = Pair("lattice", max(rows, 1))
    given = pair.guest.rows(7, pair.gh[:rows], max(rows, 1))
    parts = list(given.parts())
    assert [part.rows.count for part in parts] == counts
    assert [part.first_row for part in parts] == (np.cumsum(counts) - counts).tolist()
    assert {part.tree for part in parts} == {7}
    assert all(len(part.rows.data) == part.rows.count * 2 * 7 for part in parts)
    most = pair.hosts[SHOP].sizes.bytes_max
    assert all(len(part.rows.data) + len(given.key_for(SHOP)) <= most for part in parts)


@pytest.mark.parametrize("scheme", VECTORS)
def test_parts_have_fewer_rows_and_answers_where_outputs_are_many(scheme, monkeypatch):
    monkeypatch.setattr(lattice_answers, "LATTICE_PART_BYTES_MAX", 1 << 18)
    pair = Pair(scheme, 9000, outputs=5)
    host: Any = pair.hosts[SHOP]
    own = host.budget.parameters
    held, given = pair.rows()
    block = own.ring * 10 * own.word_bytes
    each = max(1, (1 << 18) // block) * own.ring
    counts = [part.rows.count for part in given.parts()]
    assert counts[0] == min(each, 9000)
    assert sum(counts) == 9000
    most = host.sizes.bytes_max
    assert max(counts) * 10 * own.word_bytes + len(given.key_for(SHOP)) <= most
    made = held.row_sums.sums(np.arange(9000), np.arange(9000, dtype=np.int32)[:, None] % 40, 40)
    for rows in (9000, 17):
        node = [CandidateTerms.of_cells(0, 0, rows, len(made))]
        parts = list(held.blind_cells(made, node))
        data = given.n_bytes([1], [NodeBounds(rows, np.zeros(10, np.int64))])
        assert [part.count for part in parts[:-1]] == [(1 << 18) // data] * (len(parts) - 1)
        assert max(len(part.data) for part in parts) <= given.bytes_max([40])
        assert len(parts) > 1
    monkeypatch.setattr(lattice_answers, "LATTICE_PART_BYTES_MAX", 1)
    assert given.bytes_max([40]) == given.n_bytes([1], [NodeBounds(9000, np.zeros(10, np.int64))])
    assert {part.count for part in held.blind_cells(made, node)} == {1}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_host_gets_the_rows_and_its_own_key_where_there_is_one(scheme):
    pair = Pair(scheme)
    given = pair.guest.rows(0, pair.gh, pair.n_rows)
    first = next(given.parts())
    sent = addressed(first, given, (TELCO, SHOP))
    if scheme == "plain":
        assert sent is first
        assert given.key_for(SHOP) == b""
        return
    assert isinstance(sent, dict)
    assert {party: part.tree_key for party, part in sent.items()} == {
        party: given.key_for(party) for party in (TELCO, SHOP)
    }
    assert len({part.tree_key for part in sent.values()}) == 2
    assert {part.rows.data for part in sent.values()} == {first.rows.data}
    assert not first.tree_key


def test_rows_of_other_trees_have_nothing_in_common():
    pair = Pair("lattice")
    one, again, other = [pair.guest.rows(tree, pair.gh, pair.n_rows) for tree in (0, 0, 1)]
    data = [b"".join(part.rows.data for part in rows.parts()) for rows in (one, again, other)]
    assert data[0] == data[1]  # a retry
    words = [np.frombuffer(own, np.uint8).reshape(-1, 7) for own in data]
    assert (words[0] == words[2]).all(axis=1).sum() == 0
    assert one.key_for(SHOP) != other.key_for(SHOP)


@pytest.mark.parametrize("scheme", SCHEMES[1:])
def test_hosts_derive_what_the_guest_does_and_no_other_host_can_use_a_key(scheme):
    pair = Pair(scheme)
    _, given = pair.rows()
    held, _ = pair.rows(TELCO)
    swapped = pair.hosts[SHOP].rows(held.rows.encrypted.numbers, 0, given.key_for(TELCO))
    cells = np.zeros((pair.n_rows, 1), np.int32)
    expected = [NodeBounds(pair.n_rows, np.abs(pair.gh).sum(axis=0))]
    for rows, fits in ((held, True), (swapped, False)):
        sums = rows.row_sums.sums(np.arange(pair.n_rows), cells, 1)
        terms = CandidateTerms.of_cells(0, 0, pair.n_rows, len(sums))
        [part] = rows.blind_cells(sums, [terms])
        if fits:
            assert (given.read(part.data, [1], expected) == pair.gh.sum(axis=0)).all()
        else:
            with pytest.raises(PeerError, match="does not decrypt"):
                given.read(part.data, [1], [NodeBounds(pair.n_rows, np.zeros(2, np.int64))])
