"""What a party can say of a model: its own columns by name, the others' as a sum."""

import numpy as np

from fedboost.flow import Artefact
from fedboost.model import inspection, vertical
from fedboost.model.vertical import LEAF, GuestNode, OwnSplit
from tests.models import random_model


def small():
    """One tree: the guest's split, below it telco's; and telco's own shard."""
    own = OwnSplit(0, 0, 1, np.float32(0.1), True)
    zero, leaf = np.zeros(1), np.array([0.25])
    nodes = [
        GuestNode(0, 0, 0, zero, 3.5, 10.0, own),
        GuestNode(0, 1, LEAF, leaf, 0.0, 4.0),
        GuestNode(0, 2, 1, zero, 1.5, 6.0),
        GuestNode(0, 5, LEAF, -leaf, 0.0, 5.0),
        GuestNode(0, 6, LEAF, 2 * leaf, 0.0, 1.0),
    ]
    facts = random_model(0)["bank"].facts | {"trees": 1}
    bank = Artefact(facts, vertical.nodes_to_arrays(nodes, 1))
    hosts = [OwnSplit(0, 2, 0, np.float32(np.inf), False), OwnSplit(1, 0, 0, np.float32(2), False)]
    telco = Artefact(random_model(0)["telco"].facts, vertical.splits_to_arrays(hosts))
    return bank, telco


def test_a_guests_tree_names_its_own_columns_and_the_others_owners():
    bank, _ = small()
    assert inspection.tree_lines(bank, 5) == [
        "tree 0",
        "  income < 0.1, missing: yes (gain 3.5, cover 10)",
        "    yes: leaf 0.25 (cover 4)",
        "    no: telco's split (gain 1.5, cover 6)",
        "      yes: leaf -0.25 (cover 5)",
        "      no: leaf 0.5 (cover 1)",
    ]
    assert inspection.tree_lines(bank, 0) == []


def test_a_host_sees_its_own_splits_alone():
    _, telco = small()
    assert inspection.tree_lines(telco, 1) == ["tree 0, node 2: calls is present"]
    assert inspection.tree_lines(telco, 2)[1] == "tree 1, node 0: calls < 2.0, missing: no"
    (share,) = inspection.importance(telco)
    assert (share.party, share.column, share.splits, share.gain) == ("telco", "calls", 2, None)


def test_importance_adds_up_the_gain_of_every_split_once():
    bank = random_model(11)["bank"]
    shares = inspection.importance(bank)
    gains = [s.gain or 0.0 for s in shares]
    assert np.isclose(sum(gains), bank.arrays["gain"].sum())
    assert sum(s.splits for s in shares) == np.count_nonzero(bank.arrays["owner"] != LEAF)
    assert gains == sorted(gains, reverse=True)
    assert {s.column for s in shares if s.party != "bank"} <= {""}
    assert all(s.column for s in shares if s.party == "bank")


def test_the_metrics_shown_are_those_of_the_last_round_that_was_kept():
    facts = random_model(0)["bank"].facts
    found = inspection.facts({**facts, "trees": 2})
    assert found["metrics"] == {"train": {"auc": 0.6}}
    assert inspection.facts(random_model(0)["telco"].facts)["metrics"] == {}


def test_the_metrics_of_a_model_with_classes_are_those_of_its_last_round():
    facts = random_model(0, "multi:softprob", trees=12, per_round=3)["bank"].facts
    history = facts["history"]
    assert inspection.facts(facts)["metrics"] == history[3]
    assert inspection.facts({**facts, "trees": 6})["metrics"] == history[1]
