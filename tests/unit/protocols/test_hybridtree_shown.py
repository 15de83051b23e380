"""A host of hybridtree tells its rows' bottom nodes apart only where it may divide them."""

import numpy as np
import pytest

from fedboost.core.purity import PurityLimit
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.ground.settings import parse_settings
from fedboost.messages.protocol.hybridtree_pb2 import BottomRows
from fedboost.messages.protocol.predict_hybrid_pb2 import BottomPlaces
from fedboost.model.hybrid import NO_BOTTOM, first_number
from fedboost.protocols.hybridtree.params import HybridTreeParams
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, changing, now
from tests.support.hybrid_jobs import made
from tests.unit.protocols.test_hybridtree_attacks import stand
from tests.unit.protocols.test_secureboost_attacks import only_to, values_of

TELCO, SHOP = HOSTS[:2]
PURE = 0.7
BOUNDED = {"label_protection": {"hide_divisions": False, "purity_max": PURE}}
DEPTHS = {"guest_depth": 3, "host_depth": 2, "n_estimators": 3}


def told(room, host):
    """Where the host's rows stand, and which bottom nodes are open, tree by tree."""
    own = [p.message for p in room.posted if p.envelope.receiver == host]
    first = [m for m in own if isinstance(m, BottomRows) and m.HasField("at")]
    return [(np.array(values_of(m.at)), values_of(m.open)) for m in first]


def walked(params, **how):
    job = made({**DEPTHS, **params}, rows=300, **how)
    room = job.room()
    return job, room, now(room.walk())


@pytest.mark.parametrize("params", [{"min_child_weight": 3.0}, BOUNDED], ids=str)
def test_rows_of_nodes_that_are_not_open_stand_nowhere(params):
    _, room, _ = walked(params)
    closed = 0
    for host in (TELCO, SHOP):
        for at, opened in told(room, host):
            assert set(at.tolist()) <= {NO_BOTTOM, *opened}
            closed += int((at == NO_BOTTOM).sum())
    assert closed


@pytest.mark.parametrize("params", [BOUNDED, {}], ids=["bounded", "control"])
def test_no_bottom_node_that_is_open_is_purer_than_it_may_be(params):
    job, room, _ = walked(params)
    limit = PurityLimit.from_labels("binary:logistic", job.y, ~job.out, PURE)
    found = [
        limit.is_exceeded(job.rows[host][at == node])
        for host in (TELCO, SHOP)
        for at, opened in told(room, host)
        for node in opened
    ]
    assert any(found) == (params == {})
    assert len(found) > 3


@pytest.mark.parametrize(
    "params",
    [{"subsample": 0.7}, {"objective": "reg:squarederror"}, {"objective": "count:poisson"}],
    ids=str,
)
def test_other_trees_grow_under_it(params):
    _, _, shards = walked({**BOUNDED, **params})
    assert shards[GUEST].facts["trees"] == 3


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"label_protection": {}}, "which it cannot hide"),
        ({**BOUNDED, "split": "unscored"}, "cannot use label_protection"),
    ],
    ids=["divisions", "unscored"],
)
def test_what_it_cannot_protect_is_refused(params, says):
    with pytest.raises(ConfigError, match=says):
        parse_settings(HybridTreeParams, params)


def test_rows_that_stand_nowhere_are_refused_with_unscored_splits():
    lie = only_to(SHOP, changing("BottomRows", stand({0: NO_BOTTOM})))
    with pytest.raises(PeerError, match="below nodes that no tree of the job has"):
        now(conversations.hybridtree_unscored(lie).walk())


def test_a_prediction_places_rows_only_where_the_host_has_divided():
    room = conversations.named("predict_hybrid")
    now(room.walk())
    hidden = 0
    for host in (TELCO, SHOP):
        arrays = room.contexts[host].artefacts["model"].arrays
        divided = {
            (int(tree), int(node))
            for tree, node in zip(arrays["tree"], arrays["node"], strict=True)
        }
        own = [p.message for p in room.posted if p.envelope.receiver == host]
        for message in [m for m in own if isinstance(m, BottomPlaces) and m.rows]:
            slots = np.frombuffer(message.slots.data, np.uint8).reshape(message.rows, -1)
            for tree, column in enumerate(slots.T):
                shown = set(column[column != 255].tolist())
                assert {(tree, slot + first_number(2)) for slot in shown} <= divided
                hidden += int((column == 255).sum())
    assert hidden
