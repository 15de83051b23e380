"""What generalised secureboost must refuse: trees out of turn, rows that are none, strangers."""

import numpy as np
import pytest

from fedboost import wire
from fedboost.errors import ConfigError, PeerError, PolicyError
from fedboost.messages.protocol import secureboost_pb2 as pb
from fedboost.protocols.secureboost import guest as guest_steps
from fedboost.protocols.secureboost.params import SecureBoostParams, asks
from fedboost.runtime.policy import Ask, Policy
from fedboost.settings import parse
from tests.federated import GUEST, HOSTS, changing, now
from tests.unit.test_secureboost_attacks import halted, outcome


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


def test_offers_of_a_host_that_takes_no_part_are_refused():
    async def run():
        room = await halted("choose_splits")
        me = room.state(GUEST)
        offers = {host: pb.CandidateSums() for host in (*HOSTS, "stranger")}
        with pytest.raises(PeerError, match="offered splits, expected"):
            guest_steps.choose_splits(me, offers)
        with pytest.raises(PeerError, match="offered splits, expected"):
            guest_steps.choose_splits(me, {})

    now(run())


def test_a_broken_scheme_needs_the_jobs_word_and_every_policys():
    raw = {"encryption": {"scheme": "iterative-affine", "key_bits": 1024}}
    with pytest.raises(ConfigError, match="iterative-affine is broken"):
        parse(SecureBoostParams, raw)
    wanted = asks(parse(SecureBoostParams, {**raw, "allow_insecure": True}))
    ask = Ask(
        coordinator="coord",
        peers=("telco",),
        dataset="credit",
        protocol="secureboost",
        scheme=wanted.scheme,
        key_bits=wanted.key_bits,
        gradient_bits=wanted.gradient_bits,
        insecure=wanted.insecure,
    )
    rules = {
        "coordinators": ["coord"],
        "peers": ["telco"],
        "datasets": ["credit"],
        "protocols": ["secureboost"],
    }
    with pytest.raises(PolicyError, match="protects nothing") as refused:
        parse(Policy, rules).judge(ask)
    assert refused.value.where["key"] == "policy.allow_insecure"
    parse(Policy, {**rules, "allow_insecure": True}).judge(ask)
