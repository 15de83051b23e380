"""What a party can say of a model: its own columns by name, the others' as a sum."""

import ast

import numpy as np
import pytest

from fedboost.core.categories import NO_THRESHOLD, as_set
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError
from fedboost.model import vertical
from fedboost.model.vertical import LEAF, GuestNode, OwnSplit
from tests.support.models import (
    described,
    importance,
    random_model,
    shared_rules,
    tree_lines,
)
from tests.support.whole_models import model_of, table, trained


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
    assert tree_lines(bank, 5) == [
        "tree 0",
        "  income < 0.1, missing: yes (gain 3.5, cover 10)",
        "    yes: leaf 0.25 (cover 4)",
        "    no: telco's split (gain 1.5, cover 6)",
        "      yes: leaf -0.25 (cover 5)",
        "      no: leaf 0.5 (cover 1)",
    ]
    assert tree_lines(bank, 0) == []


def test_a_host_sees_its_own_splits_alone():
    _, telco = small()
    assert tree_lines(telco, 1) == ["tree 0, node 2: calls is present"]
    assert tree_lines(telco, 2)[1] == "tree 1, node 0: calls < 2.0, missing: no"
    (share,) = importance(telco)
    assert (share.party, share.column, share.splits, share.gain) == ("telco", "calls", 2, None)


def of_cities(*cities):
    """A host's shard that sends the second and the last of these cities left."""
    held = as_set(np.array([1, len(cities) - 1]))
    split = OwnSplit(0, 2, 3, NO_THRESHOLD, False, held)
    facts = random_model(0)["telco"].facts | {"categories": {"city": list(cities)}}
    return Artefact(facts, vertical.splits_to_arrays([split]))


def test_a_split_of_categories_names_those_that_go_left():
    shard = of_cities("A", "B", "C", "F")
    assert tree_lines(shard, 1) == ["tree 0, node 2: city in {'B', 'F'}, missing: no"]
    (share,) = importance(shard)
    assert (share.column, share.splits) == ("city", 1)


def test_a_guests_tree_names_its_own_categories():
    split = OwnSplit(0, 0, 2, NO_THRESHOLD, True, as_set(np.array([0, 2])))
    leaf = np.array([0.25])
    nodes = [
        GuestNode(0, 0, 0, np.zeros(1), 3.5, 10.0, split),
        GuestNode(0, 1, LEAF, leaf, 0.0, 4.0),
        GuestNode(0, 2, LEAF, -leaf, 0.0, 6.0),
    ]
    facts = random_model(0)["bank"].facts | {"trees": 1}
    bank = Artefact(facts, vertical.nodes_to_arrays(nodes, 1))
    assert tree_lines(bank, 1)[1] == (
        "  branch in {'north', 'west'}, missing: yes (gain 3.5, cover 10)"
    )


@pytest.mark.parametrize(
    "city",
    [
        "\x1b[31mred",
        "two\nlines",
        "back\rwards",
        "bell\a\x00\x7f\x9b",
        "\u202eright to left\u2066",
        "\u2028\u2029\u200b\ufeff",
        "\udc80",
        "quote ' and \"",
    ],
    ids=ascii,
)
def test_a_category_cannot_steer_the_terminal(city):
    (line,) = tree_lines(of_cities("A", city, "C"), 1)
    assert line.isprintable()
    assert line == f"tree 0, node 2: city in {{{city!r}, 'C'}}, missing: no"
    assert ast.literal_eval(line[line.index("{") : line.index("}") + 1]) == {city, "C"}


def test_importance_adds_up_the_gain_of_every_split_once():
    bank = random_model(11)["bank"]
    shares = importance(bank)
    gains = [s.gain or 0.0 for s in shares]
    assert np.isclose(sum(gains), bank.arrays["gain"].sum())
    assert sum(s.splits for s in shares) == np.count_nonzero(bank.arrays["owner"] != LEAF)
    assert gains == sorted(gains, reverse=True)
    assert {s.column for s in shares if s.party != "bank"} <= {""}
    assert all(s.column for s in shares if s.party == "bank")


def test_the_metrics_shown_are_those_of_the_last_round_that_was_kept():
    facts = random_model(0)["bank"].facts
    found = described({**facts, "trees": 2, "forest": [1, 1]})
    assert found["metrics"] == {"train": {"auc": 0.6}}
    assert described(random_model(0)["telco"].facts)["metrics"] == {}


def test_rounds_and_trees_of_a_model_of_forests_are_both_right():
    for shard in random_model(0, trees=6).values():
        found = described({**shard.facts, "forest": [3, 2, 1]})
        assert (found["rounds"], found["trees"]) == (3, 6)
    for shard in random_model(0, "multi:softprob", trees=6, per_round=3).values():
        found = described(shard.facts)
        assert (found["rounds"], found["trees"]) == (2, 6)


def test_the_metrics_of_a_model_with_classes_are_those_of_its_last_round():
    facts = random_model(0, "multi:softprob", trees=12, per_round=3)["bank"].facts
    history = facts["history"]
    assert described(facts)["metrics"] == history[3]
    assert described({**facts, "trees": 6, "forest": [1, 1]})["metrics"] == history[1]


# Rules that trees share


def income(tree, node, threshold):
    own = OwnSplit(tree, node, 1, np.float32(threshold), False)
    return GuestNode(tree, node, 0, np.zeros(1), 1.0, 1.0, own)


def ends(tree, *nodes):
    return [GuestNode(tree, node, LEAF, np.ones(1), 0.0, 1.0) for node in nodes]


def two_trees():
    """A guest's shard: one leaf below its own split is in both trees, others below telco's."""
    by_telco = GuestNode(0, 2, 1, np.zeros(1), 1.0, 1.0)
    nodes = [income(0, 0, 3), *ends(0, 1), by_telco, *ends(0, 5, 6)]
    nodes += [income(1, 0, 7), income(1, 1, 3), *ends(1, 2, 3, 4)]
    facts = random_model(0)["bank"].facts | {"trees": 2}
    return Artefact(facts, vertical.nodes_to_arrays(nodes, 1))


def test_a_guest_knows_the_rules_of_its_own_columns_alone():
    rules, unknown = shared_rules(two_trees())
    assert [(one.rule, one.trees, one.share) for one in rules] == [
        (["income < 3.0"], [0, 1], 1.0),
        (["income >= 7.0 (or missing)"], [1], 0.5),
        (["3.0 <= income < 7.0"], [1], 0.5),
    ]
    assert {name for one in rules for name in one.columns} == {"income"}
    assert unknown == 2  # leaves below telco's split


def test_rules_are_those_of_the_columns_named():
    rules, unknown = shared_rules(two_trees(), ["income", "age"])
    assert (len(rules), unknown) == (3, 2)
    assert shared_rules(two_trees(), ["age"]) == ([], 2)
    with pytest.raises(ConfigError) as caught:
        shared_rules(two_trees(), ["income", "calls"])
    assert caught.value.where == {"column": "calls"}
    assert caught.value.what == "bank has no such column in the model"


def test_every_leaf_of_a_guests_trees_is_known_or_not():
    for seed in range(6):
        bank = random_model(seed)["bank"]
        rules, unknown = shared_rules(bank)
        leaves = np.count_nonzero(bank.arrays["owner"] == LEAF)
        alone = np.count_nonzero((bank.arrays["node"] == 0) & (bank.arrays["owner"] == LEAF))
        assert sum(len(one.trees) for one in rules) + unknown <= leaves - alone
        assert unknown > 0


def test_a_whole_model_knows_every_rule():
    frame = table(1)
    found = trained(frame)
    shard = model_of(frame, found, "telco")
    rules, unknown = shared_rules(shard)
    assert unknown == 0
    leaves = sum(int(tree.is_leaf.sum()) for (tree,) in found.rounds)
    assert sum(len(one.trees) for one in rules) == leaves
    assert rules[0].share == len(rules[0].trees) / 4
    chosen, _ = shared_rules(shard, ["city"])
    assert 0 < len(chosen) < len(rules)
    assert all("city" in one.columns and "city" in " ".join(one.rule) for one in chosen)
