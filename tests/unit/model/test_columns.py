"""Which way predictions may move with a party's columns, and whose columns that can be said of."""

import numpy as np
import pytest

from fedboost.flow import Role
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.model.columns import directions
from fedboost.protocols import load_protocol
from tests.support.federated import frame_of

NAMES = ("age", "town", "income")


def test_directions_stand_by_column_and_hosts_behind_have_none():
    found = directions({"income": -1, "age": 1}, NAMES, ["town"], others=2)
    assert found is not None
    assert found.tolist() == [1, 0, -1, 0, 0]
    assert directions({}, NAMES, []) is None
    assert directions({"age": 0, "town": 0}, NAMES, ["town"]) is None


@pytest.mark.parametrize(
    ("said", "text"),
    [({"debt": 1}, "column that the guest does not have"), ({"town": 1}, "have no order")],
)
def test_a_column_without_a_direction_is_refused(said, text):
    with pytest.raises(ConfigError, match=text) as refused:
        directions(said, NAMES, ["town"])
    assert refused.value.todo
    assert refused.value.where["column"] in said


@pytest.mark.parametrize(
    "protocol", ["secureboost", "federboost-vertical", "federboost-horizontal"]
)
def test_a_job_that_orders_a_hosts_column_is_refused_before_anything_leaves(protocol):
    kind = load_protocol(protocol)
    check = kind.tables.check
    assert check is not None
    frame = frame_of([b"1", b"2"], np.zeros((2, 2), np.float32), [0.0, 1.0])
    check(
        Role.GUEST, parse_settings(kind.params, {"monotone_constraints": {"c1": 1}}), frame, False
    )
    with pytest.raises(ConfigError, match="column that the guest does not have"):
        check(
            Role.GUEST,
            parse_settings(kind.params, {"monotone_constraints": {"c2": 1}}),
            frame,
            False,
        )
