"""Packed answers of whole nodes: exact sums, the draws of answers as vectors, refused when
malformed.
"""

import dataclasses
from functools import cache

import numpy as np
import pytest

from fedboost.crypto.api import Pairs
from fedboost.crypto.lattice import answers, released
from fedboost.crypto.lattice.decryption import AnsweredNode, decrypt, decrypt_packed
from fedboost.crypto.lattice.packing import add_residues
from fedboost.crypto.lattice.packing_keys import PackingKey
from fedboost.crypto.lattice.parameters import SLOTS, groups_of
from fedboost.crypto.lattice.released import AnswerShape
from fedboost.crypto.lattice.words import field_bytes, low_bits, pack_fields
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.ground.workers import Serial
from fedboost.runtime.process.threads import ThreadWorkers
from tests.support.lattices import (
    HOST,
    LATTICE,
    LATTICE_4096,
    drawn_messages,
    grown,
    integer_sums,
)
from tests.support.releases import NodeAnswers, release, release_packed

ROWS = 8192
NO_SUM = "does not decrypt"


@cache
def both_sides(own=LATTICE, outputs=2, slots=32, rows=ROWS):
    """A tree, and the packing key of both sides."""
    of = grown(drawn_messages(rows, own, outputs), own)
    packing = of.secret.packing(slots)
    held = PackingKey.received(packing.shape, of.secret.tree.packing_origin, packing.key())
    return of, packing, held


def node_of(of, rows, count, seed=0, noise=None):
    """Candidates of a node of so many rows, what its answers are released with, and the sums."""
    taken = np.sort(np.random.default_rng(seed).permutation(len(of.rows))[:rows])
    cells = np.random.default_rng(seed + 1).integers(-1, count, (rows, 1), dtype=np.int32)
    sums = of.rows.segment_sum(taken, cells, count)
    expected = integer_sums(of.messages[taken], cells, count)
    if noise is not None:
        expected = expected + noise
    released = NodeAnswers(sums, of.budget.width(rows), HOST.child("node", seed), noise)
    return released, AnsweredNode(count, rows), expected


def nodes_of(of, plan):
    """The same of each (rows, candidates) of a plan."""
    made = [node_of(of, rows, count, seed) for seed, (rows, count) in enumerate(plan)]
    return [node[0] for node in made], [node[1] for node in made], [node[2] for node in made]


PLAN = ((8192, 70), (3, 2), (1, 1), (4096, 33), (100, 0), (2000, 40), (17, 5))  # 151 candidates


def released_of(of, held, nodes, workers=None):
    return release_packed(of.key, nodes, held, workers).to_bytes()


# Exactness


@pytest.mark.some(4)
@pytest.mark.parametrize("outputs", [1, 2, 9])
@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("own", [LATTICE, LATTICE_4096], ids=lambda own: own.name)
def test_decrypted_sums_are_the_integer_sums_over_nodes_and_widths(own, slots, outputs):
    of, packing, held = both_sides(own, outputs, slots)
    nodes, asked, expected = nodes_of(of, PLAN)
    data = released_of(of, held, nodes)
    widths = [node.width for node in nodes]
    assert len({*widths}) > 4
    assert len(data) == packing.shape.answer_bytes([node.count for node in asked], widths)
    sums = decrypt_packed(of.secret, packing, data, asked)
    assert sums.dtype == np.int64
    assert (sums == np.concatenate(expected)).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_as_large_as_they_get_are_exact(sign):
    most = both_sides()[0].budget.message_most
    of = grown(np.full((ROWS, 2), sign * most))
    packing = of.secret.packing(64)
    held = PackingKey.received(packing.shape, of.secret.tree.packing_origin, packing.key())
    cells = of.cells(np.zeros((ROWS, 1), np.int32), 1)
    nodes = [NodeAnswers(cells[np.zeros(40, np.int64)], of.budget.width(ROWS), HOST)]
    data = released_of(of, held, nodes)
    sums = decrypt_packed(of.secret, packing, data, [AnsweredNode(40, ROWS)])
    assert (sums == sign * ROWS * most).all()


def test_noise_of_the_host_is_added():
    of, packing, held = both_sides()
    noise = np.random.default_rng(9).integers(-50, 51, (40, 2), dtype=np.int64)
    node, asked, expected = node_of(of, 2000, 40, noise=noise)
    sums = decrypt_packed(of.secret, packing, released_of(of, held, [node]), [asked])
    assert (sums == expected).all()


def test_pairs_that_are_not_added_up_yet_are_released():
    of, packing, held = both_sides()
    node, asked, expected = node_of(of, 2000, 40)
    order = np.arange(40)
    pairs = Pairs(node.sums, order, node.sums, np.where(order % 2, (order + 1) % 40, -1))
    data = released_of(of, held, [dataclasses.replace(node, sums=pairs)])
    sums = decrypt_packed(of.secret, packing, data, [asked])
    assert (sums == expected + np.where(order % 2, 1, 0)[:, None] * np.roll(expected, -1, 0)).all()


def test_no_nodes_and_no_candidates_are_no_bytes():
    of, packing, held = both_sides()
    empty = node_of(of, 100, 0)
    for nodes, asked in (([], []), ([empty[0]], [empty[1]])):
        assert released_of(of, held, nodes) == b""
        assert decrypt_packed(of.secret, packing, b"", asked).shape == (0, 2)


# The draws of answers as vectors, and asked again


def captured(of, held, nodes, monkeypatch):
    """u, b and W of all answers before they are packed."""
    taken = []

    def kept(key, vectors, slots, widths, into, place):
        taken.append((vectors.copy(), widths.copy()))
        add_residues(key, vectors, slots, widths, into, place)

    monkeypatch.setattr(answers, "add_residues", kept)
    asked = [node.randomized() for node in nodes]
    blinded = of.key.packed(asked, np.arange(sum(map(len, nodes))), held, Serial())
    return taken, blinded.scalars


@pytest.mark.parametrize("outputs", [2, 9])
def test_packed_numbers_are_those_that_would_leave_as_vectors(outputs, monkeypatch):
    """The same draws, wherever batches of packed answers are cut."""
    of, _, held = both_sides(outputs=outputs)
    nodes, _, _ = nodes_of(of, PLAN)
    taken, scalars = captured(of, held, nodes, monkeypatch)
    assert [len(widths) for _, widths in taken] == [32, 32, 32, 32, 23]
    vectors = np.concatenate([part[0] for part in taken], axis=1)
    first = 0
    for node in nodes:
        shape, own = AnswerShape(LATTICE, outputs, node.width), slice(first, first + len(node))
        data = np.zeros((len(node), shape.n_bytes), np.uint8)
        for number, (group, spans) in enumerate(zip(groups_of(outputs), shape.spans(),
                                                    strict=True)):  # fmt: skip
            rounded = (vectors[number, own] + np.uint64(2**15)) >> np.uint64(16)
            pack_fields(rounded & low_bits(shape.vector_bits), shape.vector_bits, data[:, spans[0]])
            numbers = np.ascontiguousarray(scalars[own, group]) & low_bits(node.width)
            pack_fields(numbers, node.width, data[:, spans[1]])
        as_vectors = release(of.key, node.sums, node.width, node.secrets)
        assert data.tobytes() == as_vectors.to_bytes()
        first = own.stop


@pytest.mark.parametrize("outputs", [2, 9])
@pytest.mark.parametrize("slots", [32, 128])
def test_whoever_has_some_of_the_sums_packs_them_and_nothing_changes(slots, outputs):
    """Parts with gaps, in any order; noise is added where they are joined."""
    of, _, held = both_sides(outputs=outputs, slots=slots)
    nodes, _, _ = nodes_of(of, PLAN)
    first, asked, places, noise = 0, [], [], []
    for node in nodes:
        asked.append(node.randomized())
        places.append(np.arange(first, first + len(node)))
        noise.append(np.full((len(node), outputs), first + 1))
        first += len(node)
    widths = np.repeat(np.array([n.width for n in nodes], np.uint64), [len(n) for n in nodes])
    every, shape = np.concatenate(noise), held.shape
    whole = of.key.packed(asked, np.arange(first), held, Serial())
    expected = released.release_packed(shape, widths, whole, every, Serial()).to_bytes()
    owner = np.random.default_rng(4).integers(0, 3, first)
    parts = []
    for who in (2, 0, 1):
        cuts = [np.flatnonzero(owner[own] == who) for own in places]
        mine = [(sums[cut], drawn[cut]) for (sums, drawn), cut in zip(asked, cuts, strict=True)]
        some = [own for own in mine if len(own[0])]
        parts.append(of.key.packed(some, np.flatnonzero(owner == who), held, Serial()))
    joined = parts[0].joined(parts[1]).joined(parts[2])
    found = released.release_packed(shape, widths, joined, every, Serial()).to_bytes()
    assert found == expected
    with pytest.raises(ProtocolError, match="answers have come of"):
        released.release_packed(shape, widths, parts[0].joined(parts[1]), every, Serial())
    with pytest.raises(ProtocolError, match="do not have the noise"):
        released.release_packed(shape, widths, whole, every[1:], Serial())


@pytest.mark.parametrize("slots", [32, 128])
def test_a_retry_is_byte_identical_whoever_computes_it(slots, monkeypatch):
    of, _, held = both_sides(slots=slots)
    nodes, _, _ = nodes_of(of, PLAN)
    once = released_of(of, held, nodes)
    assert released_of(of, held, nodes) == once
    for count in (1, 3):
        with ThreadWorkers(count) as workers:
            assert released_of(of, held, nodes, workers) == once
    monkeypatch.setattr(answers, "ROUND", 1)  # every batch by itself
    assert released_of(of, held, nodes) == once


def test_both_formats_say_the_same():
    of, packing, held = both_sides()
    node, asked, expected = node_of(of, 4096, 50)
    as_vectors = release(of.key, node.sums, node.width, node.secrets).to_bytes()
    sums = decrypt(of.secret, as_vectors, 50, 4096)
    data = released_of(of, held, [node])
    assert (sums == expected).all()
    assert (decrypt_packed(of.secret, packing, data, [asked]) == sums).all()


# Refusals


def test_batches_of_another_size_are_refused():
    of, packing, held = both_sides()
    nodes, asked, _ = nodes_of(of, PLAN[:4])
    data = released_of(of, held, nodes)
    for wrong in (b"", data[:-1], data + b"\0", data + data):
        with pytest.raises(PeerError, match=NO_SUM):
            decrypt_packed(of.secret, packing, wrong, asked)
    with pytest.raises(PeerError, match=NO_SUM):
        decrypt_packed(of.secret, packing, data, [*asked, AnsweredNode(30, 100)])
    with pytest.raises(PeerError, match=NO_SUM):
        decrypt_packed(of.secret, packing, data, [AnsweredNode(-1, 100)])


def test_bits_where_none_belong_are_refused():
    of, packing, held = both_sides()
    node, asked, _ = node_of(of, 2000, 3)
    data = released_of(of, held, [node])
    width, each = LATTICE.packed_bits(node.width)[1], field_bytes(3, node.width - 18)
    assert 3 * width % 8
    decrypt_packed(of.secret, packing, data, [asked])
    for place in (len(data) - 1, len(data) - each - 1):
        stuffed = bytearray(data)
        stuffed[place] |= 0x80
        with pytest.raises(PeerError, match=NO_SUM):
            decrypt_packed(of.secret, packing, bytes(stuffed), [asked])


def test_batches_that_are_no_sums_are_refused():
    of, packing, held = both_sides()
    node, asked, _ = node_of(of, 3, 32)
    size = len(released_of(of, held, [node]))
    drawn = np.random.default_rng(3).integers(0, 256, size, np.uint8).tobytes()
    with pytest.raises(PeerError, match=NO_SUM):
        decrypt_packed(of.secret, packing, drawn, [asked])


def test_batches_under_another_trees_packing_key_are_refused():
    of, packing, _ = both_sides()
    other = both_sides(rows=100)[2]
    node, asked, _ = node_of(of, 3, 32)
    with pytest.raises(PeerError, match=NO_SUM):
        decrypt_packed(of.secret, packing, released_of(of, other, [node]), [asked])


def test_a_sum_beyond_what_its_node_has_is_refused():
    of, packing, held = both_sides()
    nodes, asked, expected = nodes_of(of, PLAN[:4])
    data = released_of(of, held, nodes)
    bounds = [np.abs(sums).max(axis=0) for sums in expected]
    exact = [dataclasses.replace(node, most=most) for node, most in zip(asked, bounds, strict=True)]
    found = decrypt_packed(of.secret, packing, data, exact)
    assert (found == np.concatenate(expected)).all()
    for place, node in enumerate(exact):
        for output in (0, 1):
            less = node.most.copy()
            less[output] -= 1
            wrong = [*exact]
            wrong[place] = dataclasses.replace(node, most=less)
            with pytest.raises(PeerError, match=NO_SUM):
                decrypt_packed(of.secret, packing, data, wrong)


def test_a_sum_below_what_its_messages_allow_is_refused():
    of, packing, held = both_sides()
    node, asked, expected = node_of(of, 2000, 40)
    data = released_of(of, held, [node])
    least = expected.min(axis=0)
    assert (least < 0).all()
    found = decrypt_packed(of.secret, packing, data, [asked], least=least)
    assert (found == expected).all()
    for output in (0, 1):
        above = least.copy()
        above[output] += 1
        with pytest.raises(PeerError, match=NO_SUM):
            decrypt_packed(of.secret, packing, data, [asked], least=above)
    # A bound that is lower than the node's own does not widen it.
    narrow = dataclasses.replace(asked, most=-least - 1)
    with pytest.raises(PeerError, match=NO_SUM):
        decrypt_packed(of.secret, packing, data, [narrow], least=least)


def test_sums_and_keys_that_do_not_go_with_the_tree_are_refused():
    of, _, held = both_sides()
    node, _, _ = node_of(of, 100, 5)
    three = both_sides(outputs=3)
    with pytest.raises(ProtocolError, match="packing key"):
        released_of(of, three[2], [node])
    with pytest.raises(ProtocolError, match="packing key"):
        released_of(of, both_sides(LATTICE_4096)[2], [node])
    with pytest.raises(ProtocolError, match="do not go with"):
        released_of(of, held, [node, node_of(three[0], 100, 5)[0]])
    with pytest.raises(ProtocolError, match="noise"):
        released_of(of, held, [dataclasses.replace(node, noise=np.zeros((4, 2), np.int64))])
    for width in (0, 24, 54):
        with pytest.raises(ProtocolError, match="hold no sums"):
            released_of(of, held, [dataclasses.replace(node, width=width)])


def test_what_holds_a_hosts_secrets_prints_nothing():
    node, _, _ = node_of(both_sides()[0], 100, 5)
    _, randomness = node.randomized()
    assert "seeds" not in repr(randomness)
