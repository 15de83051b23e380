"""Cells of a lattice tree that stay with shards: the answers of one process, whoever loses what."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedboost.core.partition import left_child, right_child
from fedboost.encrypted import ring_answers, ring_shards
from fedboost.encrypted.ciphers import NodeSums
from fedboost.encrypted.node_cells import Chosen, Making, NodeCells
from tests.support.elsewhere import Elsewhere
from tests.unit.encrypted.test_adding import ROWS, nodes_of, table
from tests.unit.encrypted.test_ciphers import SHOP, Pair


class Layers:
    """A root and its children, asked of so many shards."""

    def __init__(self, scheme, kind="dense", shards=None):
        pair = Pair(scheme, rows=ROWS)
        held, _ = pair.rows(SHOP)
        self.rows = held if shards is None else replace(held, shards=shards)
        self.numbers = table(kind)
        self.place, nodes = nodes_of(ROWS)
        joined = np.sort(np.concatenate(nodes))
        self.of = {0: joined, 1: nodes[0], 2: np.sort(np.concatenate(nodes[1:]))}
        begins = np.ones(self.numbers.n_cells, np.bool_)
        begins[self.numbers.starts[2] + 1 : self.numbers.starts[3] - 1] = False
        self.tree = self.rows.tree(self.numbers, begins, self.place)

    def chosen(self):
        """Every cell, some with another one of their column; the groups of two columns."""
        starts = self.numbers.starts
        groups = [(int(starts[c]), np.array([2, 1, 4])) for c in (1, 5)]
        first = np.arange(self.numbers.n_cells + 6)
        column = np.searchsorted(starts, first, "right") - 1
        second = np.where(column % 2 == 0, starts[np.minimum(column, 6) + 1] - 1, -1)
        second[self.numbers.n_cells :] = -1
        return Chosen(first, second, groups)

    def answers(self, nodes, making):
        """The bytes of the answers about nodes, in a shuffled order."""
        sums = self.tree.sums(making, {node: self.chosen() for node in nodes})
        order = np.random.default_rng(1).permutation(len(self.chosen().first))
        asked = [NodeSums(4, node, len(self.of[node]), sums[node][order]) for node in nodes]
        return b"".join(part.data for part in self.rows.blind(asked))

    def root(self):
        return self.answers([0], Making({0: self.of[0]}, {}, {}, {0}))

    def children(self):
        left, right = left_child(0), right_child(0)
        making = Making({left: self.of[1]}, {right: left}, {right: self.of[2]}, set())
        return self.answers([left, right], making)


SCHEMES = ["lattice, packed", "lattice, vectors", "lattice-4096, packed"]


@pytest.mark.parametrize("kind", ["dense", "frequent", "sparse"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_any_number_of_shards_gives_the_answers_of_one(scheme, kind):
    alone = Layers(scheme, kind)
    expected = [alone.root(), alone.children()]
    for count in (2, 3, 9):  # of seven columns
        layers = Layers(scheme, kind, Elsewhere(count))
        assert [layers.root(), layers.children()] == expected


@pytest.mark.parametrize("scheme", SCHEMES[:2])
def test_a_shard_that_has_lost_its_cells_makes_them_again_from_rows(scheme):
    alone = Layers(scheme)
    expected = [alone.root(), alone.children()]
    layers = Layers(scheme, shards=Elsewhere(3))
    assert layers.root() == expected[0]
    layers.tree.cells[1] = type(layers.tree.cells[1])(layers.tree.cells[1]._begins)
    assert layers.children() == expected[1]


def test_a_layer_asked_for_again_is_not_made_again(monkeypatch):
    """As by a task that counts as lost, and is not."""
    layers = Layers(SCHEMES[0], shards=Elsewhere(2))
    layers.root()
    monkeypatch.setattr(NodeCells, "keep", lambda *_: None)
    once = layers.children()
    made = []
    monkeypatch.setattr(ring_shards.RingRows, "siblings", lambda *_: made.append(1))
    assert layers.children() == once
    assert not made


def test_shards_get_no_secret_but_their_columns_of_one_tree():
    """And no row's number: what travels is pickled, which secrets refuse."""
    layers, given = Layers(SCHEMES[0], shards=Elsewhere(2)), []
    run = layers.rows.shards.run

    def noted(kernel, kept, tasks, join=None):
        given.extend(tasks)
        return run(kernel, kept, tasks, join)

    layers.rows.shards.run = noted
    layers.root()
    seeds = layers.tree.seeds(4)
    assert len({row.tobytes() for row in seeds}) == len(seeds) == 7
    for shard, _, nodes in given:
        columns = layers.tree.adding.chosen[shard][1]
        own = {row.tobytes() for row in seeds[columns]}
        assert {row.tobytes() for node in nodes for row in node.draws.seeds} == own


@pytest.mark.parametrize("loses", [False, True])
def test_rows_of_nodes_go_to_a_shard_once_however_many_parts_leave(monkeypatch, loses):
    """Or again where it has lost its cells in between."""
    monkeypatch.setattr(ring_answers, "ANSWERS_EACH", 20)
    alone = Layers(SCHEMES[1])
    expected = [alone.root(), alone.children()]
    layers, given = Layers(SCHEMES[1], shards=Elsewhere(2)), list[Any]()
    assert layers.root() == expected[0]
    run = layers.rows.shards.run

    def noted(kernel, kept, tasks, join=None):
        if loses and len(given) == 2:
            cells = layers.tree.cells
            cells[1] = type(cells[1])(cells[1]._begins)
        given.append([making.rows for _, [making], _ in tasks])
        return run(kernel, kept, tasks, join)

    layers.rows.shards.run = noted
    assert layers.children() == expected[1]
    assert len(given) > 4
    with_rows = [number for number, tasks in enumerate(given) if any(tasks)]
    assert with_rows == ([0, 3] if loses else [0])
