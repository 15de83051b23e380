"""How a hybridtree job may begin: keys that no job has, and hosts without rows, are refused."""

import numpy as np
import pytest

from fedboost.ground.errors import DataError, PeerError, PolicyError
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.protocols.hybridtree import host as host_steps
from fedboost.runtime.config.policy import Policy
from tests.support import conversations
from tests.support.federated import HOSTS, contexts_for, now
from tests.support.hybrid_jobs import made

SHOP = HOSTS[1]
BITS = 53  # of a gradient, as the guest's rows allow


def new_host(params, **more):
    contexts = contexts_for(
        "hybridtree", conversations.tables(36), {**conversations.PARAMS, **params}, **more
    )
    return host_steps.begin(contexts[SHOP])


def key_of(value_bits, first_tree=0):
    return pb.EncryptionKey(
        scheme="plain", key=b"plain", value_bits=value_bits, first_tree=first_tree
    )


DEPTHS = {"max_depth": 4, "guest_depth": 2, "host_depth": 2, "precision_bits": None}


@pytest.mark.parametrize("bits", [0, 1, 3, 58, 62, 63, 64])
def test_gradient_bits_that_no_job_has_are_refused(bits):
    me = new_host(DEPTHS)
    with pytest.raises(PeerError, match=f"declares {bits} bits per gradient"):
        host_steps.accept_key(me, key_of(bits))
    assert not type(me).side.is_set(me)


@pytest.mark.parametrize("bits", [8, 19, 21, 53])
def test_other_gradient_bits_than_the_jobs_are_refused(bits):
    me = new_host({**DEPTHS, "precision_bits": 20})
    with pytest.raises(PeerError, match=f"declares {bits} bits per gradient, the job has 20"):
        host_steps.accept_key(me, key_of(bits))
    host_steps.accept_key(me, key_of(20))
    assert type(me).side.is_set(me)


def test_more_gradient_bits_than_the_policy_allows_are_refused():
    me = new_host(DEPTHS, limits=Policy(gradient_bits_max=20))
    with pytest.raises(PolicyError, match="allows 20 bits per gradient"):
        host_steps.accept_key(me, key_of(21))
    host_steps.accept_key(me, key_of(20))  # of more rows than ours there may be fewer


@pytest.mark.parametrize("tree", [1, 2**32 - 1])
def test_a_guest_that_begins_behind_the_first_tree_is_refused(tree):
    me = new_host(DEPTHS)
    with pytest.raises(PeerError, match=f"begins at tree {tree}"):
        host_steps.accept_key(me, key_of(BITS, tree))
    assert not type(me).side.is_set(me)


@pytest.mark.parametrize("rows", [[], [1], [1, 3]])
def test_a_host_without_rows_to_learn_from_is_refused_by_name_before_anything_leaves(rows):
    job = made({}, (2, 2, 2), shares=[range(40), []])
    held_out = np.flatnonzero(job.out)
    job.rows[SHOP] = held_out[rows].astype(np.int32)
    job.columns[SHOP] = np.zeros((len(rows), 2), np.float32)
    room = job.room()
    with pytest.raises(DataError) as ended:
        now(room.walk())
    learn = int((~job.out).sum())
    assert ended.value.what == f"{SHOP} has none of the {learn} rows to learn from"
    assert ended.value.where["party"] == SHOP
    assert room.recorded == []
