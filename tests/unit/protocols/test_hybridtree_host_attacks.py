"""What a cheating host of a hybridtree job cannot do, and what leaves an honest one."""

import ast
import inspect

import numpy as np
import pytest

from fedboost.crypto import residues
from fedboost.crypto.api import BlindedPackages
from fedboost.encrypted.cells import adding, candidates, row_cells
from fedboost.encrypted.guest import offers
from fedboost.encrypted.host import answers as host_answers
from fedboost.encrypted.host import release
from fedboost.encrypted.host import tree as host_tree
from fedboost.encrypted.lattice import host as lattice_host
from fedboost.encrypted.number.packed import PackedHost, PackedHostRows
from fedboost.encrypted.tree import batch, growth
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, PeerError
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.hybridtree_pb2 import BottomRows
from fedboost.model.hybrid import first_number
from fedboost.protocols.hybridtree import guest as guest_steps
from fedboost.protocols.hybridtree import host as host_steps
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, changing, now, with_seed
from tests.support.hybrid_jobs import made
from tests.unit.protocols.test_secureboost_attacks import ints, values_of

TELCO, SHOP = HOSTS[:2]
ROWS = 27  # of the second host in the tiny job
MODULES = (adding, host_answers, candidates, row_cells, growth, batch, host_tree, release)


def only_from(sender, alter):
    """Changes what one sender says and leaves the others alone."""
    return lambda e, payload: alter(e, payload) if e.sender == sender else (e, payload)


def lied(sender, kind, lie, skip=0):
    """The error that ends the tiny job in which a host lies once."""
    with pytest.raises(FedboostError) as ended:
        now(conversations.hybridtree(only_from(sender, changing(kind, lie, skip))).walk())
    assert isinstance(ended.value, PeerError)
    assert ended.value.where["party"] in (sender, GUEST)
    return ended.value


# How rows divide: in the first layer SHOP divides the 27 rows of nodes 3 and 4


def flipped(row):
    def flip(division):
        data = bytearray(division.goes_right.data)
        data[row // 8] ^= 0x80 >> (row % 8)
        division.goes_right.data = bytes(data)

    return flip


def test_a_host_that_divides_otherwise_than_it_offered_is_refused():
    room = conversations.hybridtree()
    now(room.walk())
    own = [posted.message for posted in room.posted if posted.envelope.receiver == SHOP]
    at = np.array(values_of(next(m for m in own if isinstance(m, BottomRows)).at))
    bits = [(row, node) for node in (3, 4) for row in np.flatnonzero(at == node)]
    learns = [
        (i, node) for i, (row, node) in enumerate(bits) if not room.contexts[SHOP].validation[row]
    ]
    assert len(learns) == 20
    for bit, node in learns:
        error = lied(SHOP, "RowDivisions", flipped(bit))
        assert error.what == f"{SHOP} divided the rows of node {node} otherwise than it offered"
        assert error.where["step"] == "grow_nodes"


def test_where_rows_that_are_held_out_go_is_the_hosts_word_and_moves_no_tree(monkeypatch):
    """No sum has these rows; their margins believe the host, and nothing else does."""
    honest = conversations.hybridtree()
    expected = now(honest.walk())
    room, divisions = conversations.hybridtree(), host_answers.divisions
    held = room.contexts[SHOP].validation

    def lying(growing, won, binning, bins):
        found = divisions(growing, won, binning, bins)
        if len(bins) != ROWS:
            return found
        placed = {number: growing.at(number) for number in found}
        rows = {number: tree.growth.everyone.rows(node) for number, (tree, node) in placed.items()}
        return {number: right ^ held[rows[number]] for number, right in found.items()}

    monkeypatch.setattr(host_answers, "divisions", lying)
    found = now(room.walk())
    for party, shard in expected.items():
        assert {n: a.tobytes() for n, a in shard.arrays.items()} == {
            n: a.tobytes() for n, a in found[party].arrays.items()
        }
    moved = (room.state(GUEST).margin != honest.state(GUEST).margin)[:, 0]
    assert moved.any()
    assert room.contexts[GUEST].validation[moved].all()


def test_a_host_that_swaps_left_and_right_is_refused():
    def swap(division):
        data = np.frombuffer(division.goes_right.data, np.uint8)
        bits = ~np.unpackbits(data, count=ROWS).astype(bool)
        division.goes_right.CopyFrom(wire.pack_bits(bits))

    error = lied(SHOP, "RowDivisions", swap)
    assert error.what == f"{SHOP} divided the rows of node 3 otherwise than it offered"


@pytest.mark.parametrize("nodes", [(), (3,), (4, 3), (3, 5), (3, 4, 5), (7, 8), (-1, 4)])
def test_a_host_that_divides_other_nodes_is_refused(nodes):
    error = lied(SHOP, "RowDivisions", lambda said: said.nodes.CopyFrom(ints(*nodes)))
    assert SHOP in error.what
    assert error.where["step"] == "grow_nodes"


@pytest.mark.parametrize("count", [0, 19, 33, 400])
def test_a_host_that_divides_more_or_fewer_rows_is_refused(count):
    bits = wire.pack_bits(np.zeros(count, np.bool_))
    error = lied(SHOP, "RowDivisions", lambda said: said.goes_right.CopyFrom(bits))
    assert f"the rows that {SHOP} divides" in error.what


# What a host offers: in the first layer SHOP 13 sums below each of two nodes


@pytest.mark.parametrize(
    "counts",
    [[13], [13, 13, 0], [], [-1, 27], [13, 14], [26, 1], [2**31 - 1, 13], [0, 0], [6, 6]],
    ids=str,
)
def test_a_host_whose_counts_do_not_fit_its_sums_is_refused(counts):
    error = lied(SHOP, "CandidateSums", lambda said: said.candidates.CopyFrom(ints(*counts)))
    assert error.where["step"] == "choose_splits"


def test_sums_of_one_node_told_as_anothers_are_refused():
    """As many in all; what the guest then chooses of node 4 is not what its rows come to."""
    for counts in ((12, 14), (14, 12)):
        lie = lambda said, counts=counts: said.candidates.CopyFrom(ints(*counts))  # noqa: E731
        error = lied(SHOP, "CandidateSums", lie)
        assert error.what == f"{SHOP} divided the rows of node 4 otherwise than it offered"


def grouped(**fields):
    def lie(said):
        for name, value in fields.items():
            said.ClearField(name)
            if value is not None:
                getattr(said, name).CopyFrom(value)

    return lie


@pytest.mark.parametrize(
    "lie",
    [
        grouped(categories=ints(0, 4)),
        grouped(categories=ints(4, -4)),
        grouped(categories=ints(256, 4)),
        grouped(categories=ints(4, 5)),
        grouped(categories=ints(4)),
        grouped(categories=None),
        grouped(columns=ints(2, 1)),
        grouped(columns=ints(0, 1)),
        grouped(columns=ints(-1, 3)),
        grouped(columns=ints(2**31 - 1, 2**31 - 1)),
        grouped(columns=None),
        grouped(missing=wire.pack_bits(np.array([True, True]))),
        grouped(missing=wire.pack_bits(np.zeros(9, np.bool_))),
        grouped(missing=None),
    ],
)
def test_a_host_whose_categories_do_not_fit_its_sums_is_refused(lie):
    error = lied(TELCO, "CandidateSums", lie)
    assert error.where["step"] == "choose_splits"


def packed(count, data):
    return lambda said: said.packages.CopyFrom(pb.Ciphertexts(count=count, data=bytes(data)))


@pytest.mark.parametrize(
    "lie",
    [packed(0, 0), packed(25, 32 * 25), packed(26, 32 * 25), packed(27, 32 * 27)],
    ids=["none", "one less", "less bytes", "one more"],
)
def test_a_host_that_sends_more_or_fewer_packages_is_refused(lie):
    assert lied(SHOP, "CandidateSums", lie).where["step"] == "choose_splits"


def test_a_sum_outside_the_declared_range_is_refused():
    def overflow(said):
        data = bytearray(said.packages.data)
        data[-20:] = b"\x7f" * 20
        said.packages.data = bytes(data)

    says = "a number does not unpack into the declared range"
    assert lied(SHOP, "CandidateSums", overflow).what == says


async def test_more_sums_than_a_host_may_send_are_refused_before_they_are_decrypted():
    room = await conversations.hybridtree().until("choose_splits")
    me = room.state(GUEST)
    most = offers.HOST_COLUMNS_MAX * 2 * me.params.max_bin
    flood = pb.CandidateSums(candidates=ints(most + 1, 0))
    with pytest.raises(PeerError, match=f"{most} is the most"):
        guest_steps.choose_splits(me, iter([dict.fromkeys((TELCO, SHOP), flood)]))


def test_a_host_without_open_nodes_that_offers_sums_all_the_same_is_refused():
    few = made({}, (2, 2, 2), shares=[range(100), [7, 8]])
    room = few.room()

    def offering(envelope, payload):
        if envelope.sender == SHOP and envelope.kind.endswith("CandidateSums"):
            said = pb.CandidateSums.FromString(payload)
            assert not values_of(said.candidates)
            return changing("CandidateSums", packed(1, 32))(envelope, payload)
        return envelope, payload

    room.alter = offering
    with pytest.raises(PeerError, match="sent 1 packages, its counts need 0"):
        now(room.walk())


# Numbers of bottom nodes


def numbers_of(seed=b"", trees=200):
    """How each host knows the eight bottom nodes of one top in many trees, (hosts, trees, 8)."""

    async def run():
        job = made({"guest_depth": 3, "min_child_weight": 0.0}, rows=400)
        room = await (with_seed(job.room(), seed) if seed else job.room()).until("start_round")
        me = room.state(GUEST)
        guest_steps.start_round(me)
        found: list[list[list[int]]] = [[], []]
        for tree in range(trees):
            me.trees_closed = tree
            guest_steps.grow_top(me)
            for k, view in enumerate(me.views.values()):
                slots = {heap: number for number, heap in view.under.items()}
                found[k].append([slots[heap] for heap in sorted(slots)])
        return np.array(found) - first_number(3)

    return now(run())


def test_a_hosts_numbers_of_bottom_nodes_are_a_fresh_order_for_every_tree():
    found = numbers_of()
    assert found.shape == (2, 200, 8)
    for orders in found:
        assert (np.sort(orders, axis=1) == np.arange(8)).all()
        assert len({tuple(order) for order in orders.tolist()}) > 190
        counts = np.array([np.bincount(slots, minlength=8) for slots in orders.T])
        chi_square = ((counts - 25) ** 2 / 25).sum()
        assert chi_square < 49 + 6 * np.sqrt(2 * 49)  # six deviations above what chance brings
        again = (orders[1:] == orders[:-1]).mean()
        assert abs(again - 1 / 8) < 0.05


def test_two_hosts_numbers_of_the_same_bottom_node_have_nothing_to_do_with_each_other():
    one, other = numbers_of()
    assert abs((one == other).mean() - 1 / 8) < 0.05
    pairs = np.zeros((8, 8))
    np.add.at(pairs, (one.ravel(), other.ravel()), 1)
    expected = one.size / 64
    assert ((pairs - expected) ** 2 / expected).sum() < 49 + 6 * np.sqrt(2 * 49)


def test_another_attempt_numbers_bottom_nodes_as_before():
    """A tree that is grown again has the same rows in them: it shows nothing new."""
    assert (numbers_of(b"first", 50) == numbers_of(b"second", 50)).all()


# What leaves a host


def test_nothing_leaves_a_host_but_released_sums_and_divisions(monkeypatch):
    released = []
    release = residues.ResiduePublic.release

    def watched(self, *args):
        out = release(self, *args)
        assert isinstance(out, BlindedPackages)
        released.append(out.to_bytes())
        return out

    monkeypatch.setattr(residues.ResiduePublic, "release", watched)
    room = conversations.hybridtree()
    now(room.walk())
    sent = [posted.message for posted in room.posted if posted.envelope.sender in HOSTS]
    sums = [message for message in sent if isinstance(message, pb.CandidateSums)]
    divisions = [message for message in sent if isinstance(message, pb.RowDivisions)]
    assert len(sums) + len(divisions) == len(sent)
    assert sorted(message.packages.data for message in sums) == sorted(released)


def bytes_made(code):
    """Where a module or class turns something into bytes: what, and in which function."""
    tree = ast.parse(inspect.getsource(code))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {
        (function.name, ast.unparse(node.func.value))
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("to_bytes", "tobytes")
    }


def test_a_hosts_code_turns_nothing_but_released_sums_into_bytes():
    """Beside the guest's public key, which a host of unscored trees keeps in its checkpoints."""
    assert not set().union(*map(bytes_made, MODULES))
    for side in (
        PackedHostRows,
        PackedHost,
        lattice_host.LatticeHostRows,
        lattice_host.LatticeHost,
    ):
        made = ("blind", "blind_signed", "_packed_parts", "_vector_parts")
        assert bytes_made(side) <= {(name, "released") for name in made}
    assert {name for name, _ in bytes_made(host_steps)} <= {"_shard_arrays", "snapshot"}
    for keeping in (host_steps._shard_arrays, host_steps.snapshot):
        assert "Out(" not in inspect.getsource(keeping)


def test_the_same_sums_are_never_sent_as_the_same_bytes():
    packages = []
    for _ in range(2):
        room = conversations.hybridtree()
        now(room.walk())
        sums = [p.message for p in room.posted if isinstance(p.message, pb.CandidateSums)]
        data = b"".join(message.packages.data for message in sums)
        packages.append({data[i : i + 32] for i in range(0, len(data), 32)})
    assert len(packages[0]) > 50
    assert not packages[0] & packages[1]


async def test_candidates_stand_in_another_order_below_every_node_and_tree():
    found: dict[tuple[int, int], list[int]] = {}
    for layer in (1, 3):  # the first below each of two trees
        room = await conversations.hybridtree().until("divide_rows", layer)
        me = room.state(SHOP)
        offered = me.tree_batch.offered.items()
        found |= {(me.tree_batch.first, node): own.order.tolist() for node, own in offered}
    orders = found
    assert {tree for tree, _ in orders} == {0, 1}
    same = [tuple(order) for order in orders.values() if len(order) == 13]
    assert len(same) == 4
    assert len(set(same)) == 4
    assert tuple(range(13)) not in same
