"""A host of secureboost is shown no more of the nodes than it can still use, or than is allowed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedboost.core.metrics import evaluate
from fedboost.core.partition import left_child, parent, right_child
from fedboost.core.purity import PurityLimit
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.model import vertical
from fedboost.protocols.secureboost.params import SecureBoostParams
from tests.support import groupings
from tests.support.federated import GUEST, HOSTS, now
from tests.support.secureboost_jobs import CLASSES, VECTORS, assert_naive, assert_pooled, made

TELCO, SHOP = HOSTS[:2]
PURE = 0.8
BOUNDED = {"label_protection": {"hide_divisions": False, "purity_max": PURE}}
HIDDEN: dict[str, Any] = {"label_protection": {}}
BOTH = {"label_protection": {"hide_divisions": True, "purity_max": PURE}}


def frontiers(room, host):
    """The divided and the open nodes of each frontier to a host."""
    own = [p.message for p in room.posted if p.envelope.receiver == host]
    own = [message for message in own if message.DESCRIPTOR.name == "Frontier"]
    return [
        tuple(np.frombuffer(array.data, np.int32).tolist() for array in (one.divided, one.open))
        for one in own
    ]


def silent(job, host=SHOP):
    """The same job, but the host's columns never vary, so that it has no split to offer."""
    nothing = np.zeros_like(job.columns[host])
    return replace(job, columns={**job.columns, host: nothing})


def sight(room, host, job):
    return groupings.of_host(room, host, len(job.y))


def pure(job, most=PURE):
    objective = job.params.get("objective", "binary:logistic")
    return PurityLimit.from_labels(objective, job.y, ~job.out, most)


# Hosts with nothing to offer


@pytest.mark.some(4)
@pytest.mark.parametrize(
    "params",
    [{}, {"forest": {"n_trees": 3}}, CLASSES, VECTORS, {"goss": {}}, {"subsample": 0.6}],
    ids=str,
)
def test_a_host_that_offers_nothing_is_told_nothing_and_the_trees_are_the_pooled_ones(params):
    done = assert_pooled(silent(made(params, missing=0.0)))
    quiet, heard = frontiers(done.room, SHOP), frontiers(done.room, TELCO)
    roots = [frontier for frontier in quiet if frontier[1]]
    assert all(not divided for divided, _ in quiet)
    assert len(roots) == len([1 for divided, _ in heard if not divided])  # one for each grove
    assert any(divided for divided, _ in heard)


@pytest.mark.parametrize("params", [{"mode": "mix"}, {"mode": "layered", "host_depth": 3}], ids=str)
def test_so_are_those_that_grow_on_hosts_columns_alone(params):
    done = assert_naive(silent(made({**params, "n_estimators": 4}, missing=0.0)))
    assert not any(divided for divided, _ in frontiers(done.room, SHOP))
    assert any(divided for divided, _ in frontiers(done.room, TELCO))


def test_a_division_is_told_to_whom_it_belongs_and_to_those_who_go_on_below_it():
    job = made({"min_child_weight": 5.0, "max_depth": 5}, rows=200)
    room = assert_pooled(job).room
    untold = 0
    for host in (TELCO, SHOP):
        for divided, opened in frontiers(room, host):
            above = {parent(node) for node in opened}
            own = set(divided) - above
            untold += len(own)
            mine = {split.node for split in room.state(host).splits}
            assert own <= mine
    told = sum(len(divided) for divided, _ in frontiers(room, TELCO))
    arrays = room.state(GUEST).nodes
    inner = [one for one in arrays if one.owner != vertical.LEAF]
    assert 0 < told < len(inner)


def test_no_host_is_told_of_divisions_of_nodes_too_small_for_two_groups():
    """A minimum group closes small nodes to hosts; the guest divides them, and nobody hears how."""
    job = made({"max_depth": 5}, rows=300, least=30)
    done = assert_pooled(job)
    training = ~job.out
    for host in (TELCO, SHOP):
        seen = sight(done.room, host, job)
        assert seen.told
        for one in seen.told:
            assert training[np.concatenate([one.left, one.right])].sum() >= 60
    own = [one for one in done.room.state(GUEST).nodes if one.owner == vertical.GUEST]
    covers = [tree.cover[tree.node == 0][0] for [tree] in done.trained.rounds]
    assert any(one.cover < 60 / training.sum() * covers[one.tree] for one in own)


# Label protection


ALL = {
    "default": {},
    "forest": {"forest": {"n_trees": 3}},
    "trees": CLASSES,
    "vectors": VECTORS,
    "rows": {"subsample": 0.6},
    "mix": {"mode": "mix", "n_estimators": 4},
    "layered": {"mode": "layered"},
    "number": {"objective": "reg:squarederror"},
    "medians": {"objective": "reg:absoluteerror"},
    "amounts": {"objective": "reg:tweedie"},
}


@pytest.mark.some(4)
@pytest.mark.parametrize("params", ALL.values(), ids=ALL)
@pytest.mark.parametrize("protection", [BOUNDED, HIDDEN, BOTH], ids=str)
def test_all_kinds_of_trees_grow_under_it(params, protection):
    job = made({**params, **protection}, rows=200)
    room = job.room()
    shards = now(room.walk())
    assert shards[GUEST].facts["trees"] > 0
    assert max(one.node for one in room.state(GUEST).nodes) > 2


def too_pure(job, room, host):
    """The divisions that a host was told although a side is purer than PURE, each with whether
    the host owns it.
    """
    limit = pure(job)
    mine = {(split.tree, split.node) for split in room.state(host).splits}
    return [
        (one, (one.tree, one.node) in mine)
        for one in sight(room, host, job).told
        if any(limit.is_exceeded(side.astype(np.int32)) for side in (one.left, one.right))
    ]


@pytest.mark.some(1)
@pytest.mark.parametrize("params", [{}, CLASSES, {"objective": "reg:squarederror"}], ids=str)
def test_no_host_is_told_of_others_divisions_with_a_side_purer_than_it_may_be(params):
    plain, bound = (made({**params, **more, "max_depth": 5}, rows=300) for more in ({}, BOUNDED))
    found = []
    for job in (plain, bound):
        room = job.room()
        now(room.walk())
        found.append([one for host in (TELCO, SHOP) for one in too_pure(job, room, host)])
    assert not all(is_own for _, is_own in found[0])  # without it, hosts are
    assert all(is_own for _, is_own in found[1])
    for one, _ in found[1]:
        assert not {left_child(one.node), right_child(one.node)} & one.open


def test_the_guest_goes_on_alone_where_hosts_see_nothing():
    job = made({**BOUNDED, "max_depth": 5}, rows=300)
    room = job.room()
    now(room.walk())
    told = {(one.tree, one.node) for one in sight(room, TELCO, job).told}
    told |= {(split.tree, split.node) for split in room.state(TELCO).splits}
    own = [one for one in room.state(GUEST).nodes if one.owner == vertical.GUEST]
    alone = [one for one in own if one.node and (one.tree, parent(one.node)) not in told]
    assert alone


def test_a_host_hears_of_its_own_divisions_alone_and_goes_on_below_them():
    job = made({**HIDDEN, "max_depth": 5}, rows=300)
    room = job.room()
    now(room.walk())
    for host in (TELCO, SHOP):
        mine = {(split.tree, split.node) for split in room.state(host).splits}
        told = {(one.tree, one.node) for one in sight(room, host, job).told}
        assert told <= mine
        assert all((tree, parent(node)) in told for tree, node in mine if node)
        assert any(node for _, node in mine)
    plain = made({"max_depth": 5}, rows=300)  # the control
    room = plain.room()
    now(room.walk())
    told = {(one.tree, one.node) for one in sight(room, SHOP, plain).told}
    assert told - {(split.tree, split.node) for split in room.state(SHOP).splits}


def test_a_host_ranks_the_labels_of_others_worse_under_it():
    """20 known labels, and which rows share nodes (SECURITY, section 2, item 2)."""
    found = []
    for more in ({}, HIDDEN):
        job = made({**more, "n_estimators": 10, "max_depth": 4}, rows=600, held=None)
        room = job.room()
        now(room.walk())
        positive = job.y > 0
        known = [*np.flatnonzero(positive)[:10], *np.flatnonzero(~positive)[:10]]
        nodes = sight(room, SHOP, job).nodes
        found.append(groupings.label_auc(nodes, positive, known))
    assert found[0] > 0.8
    assert found[1] < found[0] - 0.1


def test_goss_tells_labels_by_itself_so_it_is_refused_beside_protection():
    """Where ones are rare: a host that counts how often a row takes part ranks all labels and
    needs to know none.
    """
    job = made({"goss": {}, "n_estimators": 5}, rows=600, held=None)
    pull = np.nansum(job.values, axis=1)
    job = replace(job, y=(pull > np.quantile(pull, 0.85)).astype(np.float64))
    room = job.room()
    now(room.walk())
    taken = np.zeros(len(job.y))
    for posted in room.posted:
        message = posted.message
        is_first = message.DESCRIPTOR.name == "EncryptedGradients" and not message.first_row
        if is_first and posted.envelope.receiver == SHOP:
            bits = np.frombuffer(message.taking_part.data, np.uint8)
            taken += np.unpackbits(bits)[: len(job.y)]
    assert evaluate("auc", job.y, taken) > 0.9
    with pytest.raises(ConfigError, match="which rows have large gradients"):
        parse_settings(SecureBoostParams, {"goss": {}, "label_protection": {}})


@pytest.mark.parametrize("most", [0.5, 1.0, 0.2])
def test_a_purity_that_bounds_nothing_or_everything_is_refused(most):
    with pytest.raises(ConfigError, match=r"label_protection\.purity_max"):
        parse_settings(SecureBoostParams, {"label_protection": {"purity_max": most}})
