"""A tree's picture shows what its viewer may know, all of that, and survives odd names."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner

from fedboost.cli.groups import model_group
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError
from fedboost.model import branches, hybrid, kinds, shards, vertical
from fedboost.model.vertical import LEAF, GuestNode, OwnSplit
from fedboost.report import trees
from fedboost.report.pictures import shortened
from tests.support.models import COLUMNS, MODEL, PARTIES, random_model, whole
from tests.support.whole_models import CLASSES, model_of, table, trained

SVG = "{http://www.w3.org/2000/svg}"


def of_shard(shard, tree):
    return kinds.kind_of(shard.facts).picture(shard, tree)


def drawn(picture, **how):
    """The picture's lines of text, and the titles that a pointer shows, once it parses."""
    page = ET.fromstring(trees.tree_svg(picture, MODEL, **how))
    texts = ["".join(one.itertext()) for one in page.iter(f"{SVG}text")]
    titles = ["".join(one.itertext()) for one in page.iter(f"{SVG}title")]
    return texts, titles


def everything(picture):
    return trees.tree_svg(picture, MODEL, depth=14) + trees.tree_dot(picture, MODEL)


@pytest.fixture
def made():
    return random_model(21)


@pytest.mark.parametrize("seed", range(6))
def test_a_guest_sees_every_node_and_only_its_own_columns(seed):
    bank = random_model(seed)["bank"]
    for tree in range(4):
        picture = of_shard(bank, tree)
        texts, _ = drawn(picture, depth=14)
        own = [n for n in vertical.arrays_to_nodes(bank.arrays) if n.tree == tree]
        for owner, party in enumerate(PARTIES[1:], start=1):
            count = sum(node.owner == owner for node in own)
            assert texts.count(f"split of {party}") == count
        leaves = [n for n in own if n.owner == LEAF]
        assert [t for t in texts if re.fullmatch(r"[+−][\d.e−+]+", t)] == [
            f"{leaf.value[0]:+.4g}".replace("-", "−") for leaf in _in_order(leaves, own)
        ]
        assert not any(
            name in everything(picture) for name in ("calls", "odd ", "spent", "city in")
        )


def _in_order(leaves, nodes):
    """From the top of the picture to its bottom."""
    deepest = max(node.node for node in nodes).bit_length()
    return sorted(leaves, key=lambda n: (n.node + 1) << (deepest - (n.node + 1).bit_length() + 1))


def test_a_host_sees_its_own_splits_in_their_places_and_nothing_of_others(made):
    telco = made["telco"]
    picture = of_shard(telco, 0)
    texts, _ = drawn(picture, depth=14)
    own = [s for s in vertical.arrays_to_splits(telco.arrays) if s.tree == 0]
    asked = [branches.question(s, COLUMNS["telco"][s.feature],
                               telco.facts["categories"].get(COLUMNS["telco"][s.feature], ()))
             for s in own]  # fmt: skip
    for words in asked:
        assert shortened(words, trees.BROAD) in texts
    assert "not known here" in texts
    assert not any("gain" in text or "cover" in text for text in texts)
    assert not any(name in everything(picture) for name in ("income", "branch", "spent"))


def test_with_all_consents_every_split_says_what_it_asks(made):
    model = whole(made)
    picture = branches.picture_of_whole(model, 0)
    texts, titles = drawn(picture, depth=14)
    assert not [text for text in texts if text.startswith("split of")]
    inner = sum(
        tree == 0 and owner >= 0
        for tree, owner in zip(model.arrays["tree"], model.arrays["owner"], strict=True)
    )
    assert sum(" < " in t or " in {" in t or "is present" in t for t in titles[1:]) == inner


def test_the_first_answer_goes_to_rows_below_the_threshold_and_missing_ones_where_they_belong():
    split = OwnSplit(0, 0, 0, np.float32(41.5), True)
    nodes = [
        GuestNode(0, 0, 0, np.zeros(1), 3.5, 10.0, split),
        GuestNode(0, 1, LEAF, np.array([0.25]), 0.0, 4.0),
        GuestNode(0, 2, LEAF, np.array([-0.5]), 0.0, 6.0),
    ]
    facts = random_model(0)["bank"].facts | {"trees": 1}
    picture = of_shard(Artefact(facts, vertical.nodes_to_arrays(nodes, 1)), 0)
    text = trees.tree_dot(picture, MODEL)
    assert 'n [label="age < 41.5\\ngain 3.5 · cover 10"];' in text
    assert 'n -> n0 [label="yes, missing"];\n  n0 [label="+0.25\\ncover 4", shape=ellipse];' in text
    assert 'n -> n1 [label="no"];\n  n1 [label="−0.5\\ncover 6", shape=ellipse];' in text


def test_what_lies_too_deep_is_told_in_one_node():
    frame = table(4, rows=600)
    shard = model_of(frame, trained(frame, max_depth=8, max_bin=32))
    picture = of_shard(shard, 0)
    assert picture.root.depth > 3
    shallow, _ = drawn(picture, depth=2)
    deep, _ = drawn(picture, depth=14)
    told = sum(int(t.split()[0]) for t in shallow if t.endswith(("leaf below", "leaves below")))
    leaves = sum(t.startswith(("+", "−")) for t in shallow)
    assert told + leaves == sum(t.startswith(("+", "−")) for t in deep)
    assert len(shallow) < len(deep)
    assert "below" in trees.tree_dot(picture, MODEL, 2)


def test_every_class_has_its_value_and_a_tree_says_which_class_it_is_for():
    frame = table(4, rows=300)
    one = model_of(frame, trained(frame, **CLASSES))
    assert [branches.title_of(one.facts, k) for k in (0, 4)] == [
        "tree 0 of round 1, for class 0",
        "tree 4 of round 2, for class 1",
    ]
    several = model_of(frame, trained(frame, multi_output=True, **CLASSES))
    picture = of_shard(several, 1)
    assert picture.title == "tree 1 of round 2"
    texts, _ = drawn(picture)
    assert all(len(leaf.value) == 3 for leaf in picture.root.leaves)
    assert sum(text.count(", ") == 2 and text[0] in "+−" for text in texts) == len(
        picture.root.leaves
    )


@pytest.mark.parametrize("name", ["<b>&\"'", "a\x1b[2J\nb", "x" * 400, '"];evil [label="', "\\"])
def test_no_name_breaks_a_picture(made, name):
    bank = made["bank"]
    facts = {**bank.facts, "columns": [name, name + "1", name + "2"], "categories": {}}
    arrays = {**bank.arrays, "left_bins": np.zeros_like(bank.arrays["left_bins"])}
    picture = of_shard(Artefact(facts, arrays), 0)
    texts, _ = drawn(picture)
    assert max(map(len, texts)) < 120
    text = trees.tree_dot(picture, MODEL)
    assert "\x1b" not in text
    for line in text.splitlines()[2:-1]:  # every quoted text ends on its own line
        assert re.fullmatch(r'(?:[^"\\]|"(?:[^"\\]|\\.)*")*', line), line


def test_a_picture_draws_without_anything_from_outside_and_by_day_and_night(made):
    text = trees.tree_svg(of_shard(made["bank"], 0), MODEL)
    assert "prefers-color-scheme: dark" in text
    assert text.count("http") == 1  # the name space
    assert "<script" not in text
    assert "var(" not in text  # not every viewer knows variables


def test_a_tree_that_is_not_there_is_refused(made):
    for tree in (-1, 4):
        with pytest.raises(ConfigError, match="no tree"):
            of_shard(made["bank"], tree)


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    for party in PARTIES:
        shards.save_shard(tmp_path / "var" / party / "models" / MODEL, made[party])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def picture(*args):
    words = ["picture", MODEL, "--cluster", ".", *map(str, args)]
    return CliRunner().invoke(model_group, words, catch_exceptions=False, standalone_mode=False)


def test_the_command_writes_a_file_named_after_model_and_tree(made, folder):
    assert picture("--tree", 2).stdout == f"{MODEL}-tree2.svg\n"
    written = (folder / f"{MODEL}-tree2.svg").read_text()
    assert written == trees.tree_svg(of_shard(made["bank"], 2), MODEL)
    picture("--party", "telco", "--out", "t.svg")
    expected = trees.tree_svg(of_shard(made["telco"], 0), MODEL)
    assert (folder / "t.svg").read_text() == expected
    picture("--whole", "--out", "w.dot")
    assert (folder / "w.dot").read_text() == trees.tree_dot(
        branches.picture_of_whole(whole(made), 0), MODEL, 6
    )


def test_dot_goes_to_the_terminal_where_no_file_is_named(made, folder):
    assert picture("--format", "dot").stdout.startswith(f'digraph "{MODEL}, tree 0 of round 1"')


def test_a_tree_of_two_parts_says_which_hosts_go_on_below_a_leaf():
    split = OwnSplit(0, 0, 0, np.float32(41.5), True)
    tops = [
        GuestNode(0, 0, 0, np.zeros(1), 3.5, 10.0, split),
        GuestNode(0, 1, LEAF, np.array([0.25]), 0.0, 4.0),
        GuestNode(0, 2, LEAF, np.array([-0.5]), 0.0, 6.0),
    ]
    below = [
        hybrid.Below(host, GuestNode(0, 1, LEAF, np.array([0.1]), 0.0, 2.0), under=2)
        for host in (1, 2)
    ]
    facts = random_model(0)["bank"].facts | {"trees": 1, "kind": "hybrid", "split": "scored"}
    shard = Artefact(facts, hybrid.to_arrays(tops, below, 1))
    leaves = of_shard(shard, 0).root.leaves
    assert [leaf.note for leaf in leaves] == ["", "plus the mean of telco, shop"]
    _, titles = drawn(of_shard(shard, 0))
    assert "−0.5. cover 6 · plus the mean of telco, shop" in titles
