"""What generalised secureboost must refuse: trees out of turn, strangers, made-up categories."""

from dataclasses import replace

import numpy as np
import pytest

from fedboost.encrypted.guest import offers
from fedboost.encrypted.scheme.params import policy_demands
from fedboost.ground import wire
from fedboost.ground.errors import ConfigError, PeerError, PolicyError
from fedboost.ground.settings import parse_settings
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.protocols.secureboost import guest as guest_steps
from fedboost.protocols.secureboost import host as host_steps
from fedboost.protocols.secureboost.params import SecureBoostParams
from fedboost.runtime.config.ask import Ask
from fedboost.runtime.config.policy import Policy
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, changing, frame_of, now, room_for, with_seed
from tests.unit.protocols.test_secureboost_attacks import halted, ints, only_to, outcome

TELCO = HOSTS[0]  # has the categories of the tiny job


@pytest.mark.parametrize("tree", [1, 7, 2**32 - 1])
def test_a_tree_out_of_turn_is_refused(tree):
    def lie(part):
        part.tree = tree

    error = outcome(changing("EncryptedGradients", lie))
    assert isinstance(error, PeerError)
    assert f"began tree {tree}, expected tree 0" in error.what


@pytest.mark.parametrize("bits", [1, 17, 19, 400])
def test_rows_taking_part_must_be_as_many_as_there_are(bits):
    def lie(part):
        part.taking_part.CopyFrom(wire.pack_bits(np.ones(bits, np.bool_)))

    error = outcome(changing("EncryptedGradients", lie))
    assert isinstance(error, PeerError)
    assert error.where["step"] == "receive_gradients"


def test_rows_taking_part_are_said_once():
    def lie(part):
        part.taking_part.CopyFrom(wire.pack_bits(np.ones(18, np.bool_)))

    error = outcome(changing("EncryptedGradients", lie, 2))  # the second part
    assert isinstance(error, PeerError)


async def test_offers_of_a_host_that_takes_no_part_are_refused():
    room = await halted("choose_splits")
    me = room.state(GUEST)
    offers = {host: pb.CandidateSums() for host in (*HOSTS, "stranger")}
    with pytest.raises(PeerError, match="offered splits, expected"):
        guest_steps.choose_splits(me, iter([offers]))
    with pytest.raises(PeerError, match="sent sums of 0 nodes, 1 are open"):
        guest_steps.choose_splits(me, iter([]))


def test_a_broken_scheme_needs_the_jobs_word_and_every_policys():
    raw = {"encryption": {"scheme": "iterative-affine", "key_bits": 1024}}
    with pytest.raises(ConfigError, match="iterative-affine is broken"):
        parse_settings(SecureBoostParams, raw)
    wanted = policy_demands(parse_settings(SecureBoostParams, {**raw, "allow_insecure": True}))
    ask = Ask(
        coordinator="coord",
        peers=("telco",),
        dataset="credit",
        protocol="secureboost",
        scheme=wanted.scheme,
        key_bits=wanted.key_bits,
        gradient_bits=wanted.gradient_bits,
        insecure=wanted.insecure,
        contributors=None,
        goes_on=False,
        host_noise=wanted.host_noise,
        gradient_check=None,
        key_trees=None,
        quantile_tolerance=None,
        roles=("host",),
        purpose=None,
        guest_replayable=None,
    )
    rules = {
        "coordinators": ["coord"],
        "peers": ["telco"],
        "datasets": ["credit"],
        "protocols": ["secureboost"],
    }
    with pytest.raises(PolicyError, match="protects nothing") as refused:
        parse_settings(Policy, rules).judge(ask)
    assert refused.value.where["key"] == "policy.allow_insecure"
    parse_settings(Policy, {**rules, "allow_insecure": True}).judge(ask)


# Categories


def chosen(candidates, size):
    def lie(won):
        won.candidates.CopyFrom(ints(*candidates))
        won.sizes.CopyFrom(ints(size))

    return lie


# In the second tree telco's node 2 has seven candidates, then four categories and the missing rows.
@pytest.mark.parametrize("candidates", [[6, 7], [7, 7], [11], [7, 8, 9, 10, 11], [7, 12], [7, -1]])
def test_a_guest_that_chooses_categories_that_were_not_offered_is_refused(candidates):
    seen = []

    def look(envelope, payload):
        if envelope.kind.endswith(".WonSplits") and envelope.receiver == TELCO:
            seen.append(pb.WonSplits.FromString(payload).HasField("sizes"))
        return envelope, payload

    now(conversations.secureboost(look).walk())
    assert seen == [False, False, False, True]
    error = outcome(
        only_to(TELCO, changing("WonSplits", chosen(candidates, len(candidates)), skip=3))
    )
    assert isinstance(error, PeerError)
    assert "that was not offered" in error.what
    assert error.where == {"party": TELCO, "step": "divide_rows"}


async def test_a_refused_choice_of_categories_changes_nothing():
    room = await halted("divide_rows", 4)
    me = room.state(TELCO)
    last = next(p for p in reversed(room.posted) if p.envelope.receiver == TELCO)
    before = list(me.splits)
    for candidates, size in (([7, 7], 2), ([11], 1), ([7, 8], 1), ([7], 0), ([7], -1)):
        bad = pb.WonSplits()
        bad.CopyFrom(last.message)
        chosen(candidates, size)(bad)
        with pytest.raises(PeerError):
            host_steps.divide_rows(me, bad)
        assert (me.splits, me.divided) == (before, {})
    assert isinstance(host_steps.divide_rows(me, last.message).send, pb.RowDivisions)
    assert len(me.splits) == len(before) + 1


def grouped(categories=None, missing=None, columns=None):
    def lie(sums):
        if columns is not None:
            sums.columns.CopyFrom(wire.pack(np.array(columns, np.int32)))
        if categories is not None:
            sums.categories.CopyFrom(wire.pack(np.array(categories, np.int32)))
        if missing is not None:
            sums.missing.CopyFrom(wire.pack_bits(np.array(missing, np.bool_)))

    return lie


@pytest.mark.parametrize(
    "lie",
    [
        grouped([0]),
        grouped([-1]),
        grouped([256]),
        grouped([255], [True]),  # in bounds, and more sums than came
        grouped([5]),
        grouped([3]),
        grouped([4, 1]),
        grouped([[4], [4]]),
        grouped(columns=[0]),
        grouped(columns=[2]),
        grouped(columns=[-1]),
        grouped(columns=[2**31 - 1]),
        grouped([4, 1], columns=[2]),
        grouped([]),
        grouped(missing=[False]),
        grouped(missing=[True, True]),
        grouped(missing=[True] * 9),
        grouped(missing=[]),
        lambda sums: sums.ClearField("missing"),
        lambda sums: sums.ClearField("categories"),
        lambda sums: sums.ClearField("columns"),
        lambda sums: (sums.ClearField("categories"), sums.ClearField("missing")),
    ],
)
def test_a_host_whose_categories_do_not_fit_its_sums_is_refused(lie):
    def alter(envelope, payload):
        return change(envelope, payload) if envelope.sender == TELCO else (envelope, payload)

    change = changing("CandidateSums", lie)
    error = outcome(alter)
    assert isinstance(error, PeerError)
    assert error.where["step"] == "choose_splits"


async def test_more_sums_than_a_host_may_send_are_refused_before_they_are_decrypted():
    room = await halted("choose_splits")
    me = room.state(GUEST)
    most = offers.HOST_COLUMNS_MAX * 2 * me.rules.params.max_bin
    flood = pb.CandidateSums(
        candidates=wire.pack(np.array([most], np.int32)),
        columns=wire.pack(np.array([1], np.int32)),
        categories=wire.pack(np.array([1], np.int32)),
        missing=wire.pack_bits(np.array([False])),
    )
    with pytest.raises(PeerError, match=f"{most} is the most"):
        guest_steps.choose_splits(me, iter([dict.fromkeys(HOSTS[:2], flood)]))


def many_categories():
    """A host of six columns with eight categories each, so that equal orders would show."""
    draw = np.random.default_rng(2)
    ids = [b"%02d" % i for i in range(48)]
    codes = draw.permuted(np.tile(np.arange(8.0), (6, 6)), axis=1).T.astype(np.float32)
    label = (codes[:, 0] > 3).astype(np.float64)
    texts = {f"c{i}": tuple("ABCDEFGH") for i in range(6)}
    guest = frame_of(ids, draw.normal(size=(48, 1)).astype(np.float32), label)
    frames = {GUEST: guest, TELCO: replace(frame_of(ids, codes), categories=texts)}
    return room_for("secureboost", frames, {**conversations.PARAMS, "max_bin": 8})


def orders_of(made):
    """Of each node of two trees the order of its columns, and of each column's categories."""

    async def run():
        columns, bins = {}, {}
        for layer in range(1, 5):
            room = await made().until("divide_rows", layer)
            me = room.state(TELCO)
            for node, offer in me.tree_batch.offered.items():
                sent = offer.order.tolist()  # eight categories of each of six columns
                columns[me.tree_batch.first, node] = tuple(
                    dict.fromkeys(place // 8 for place in sent)
                )
                for column in range(6):
                    own = tuple(place % 8 for place in sent if place // 8 == column)
                    bins[me.tree_batch.first, node, column] = own
        return columns, bins

    return now(run())


def test_columns_and_categories_stand_in_another_order_in_every_node_and_job():
    columns, bins = orders_of(many_categories)
    other_columns, other_bins = orders_of(lambda: with_seed(many_categories(), b"another"))
    assert {tree for tree, _ in columns} == {0, 1}
    assert len(columns) >= 4
    for mine, other in ((columns, other_columns), (bins, other_bins)):
        assert mine.keys() == other.keys()
        every = [*mine.values(), *other.values()]
        assert len(set(every)) == len(every)
        assert all(sorted(order) == list(range(len(order))) for order in every)
        assert tuple(sorted(every[0])) not in every
