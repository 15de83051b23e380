"""Cells of a lattice tree that stay with workers: the answers of one process, whatever is lost."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedboost.core.partition import Partition
from fedboost.encrypted.cells.node_cells import NodeCells
from fedboost.encrypted.cells.request import CandidateTerms, CellRequest
from fedboost.encrypted.lattice import answers as lattice_answers
from fedboost.encrypted.lattice import parts as lattice_parts
from tests.support.elsewhere import Elsewhere
from tests.unit.encrypted.test_adding import ROWS, nodes_of, table
from tests.unit.encrypted.test_ciphers import SHOP, Pair


class Layers:
    """A root and its children, asked of so many workers."""

    def __init__(self, scheme, kind="dense", part_workers=None, share=1.0):
        pair = Pair(scheme, rows=ROWS)
        held, _ = pair.rows(SHOP)
        self.rows = held if part_workers is None else replace(held, part_workers=part_workers)
        cells, (place, of) = table(kind, share), nodes_of(ROWS)
        self.numbers = cells.numbers
        begins = np.ones(self.numbers.n_cells, np.bool_)
        begins[self.numbers.starts[2] + 1 : self.numbers.starts[3] - 1] = False
        self.partition, self.of = Partition.at_root(of[0]), of
        self.tree = self.rows.placed_rows.take(cells, self.partition, begins, place)

    def terms(self, node):
        """Every cell, some with another one of their column; the groups of two columns."""
        starts = self.numbers.starts
        groups = [(int(starts[c]), np.array([2, 1, 4])) for c in (1, len(starts) - 2)]
        first = np.arange(self.numbers.n_cells + 6)
        column = np.searchsorted(starts, first, "right") - 1
        last = starts[np.minimum(column + 1, len(starts) - 1)] - 1
        second = np.where(column % 2 == 0, last, -1)
        second[self.numbers.n_cells :] = -1
        every = np.arange(len(first))
        rows = len(self.of[node])
        return CandidateTerms(4, node, rows, first, second, groups, numbers=every, places=every)

    def answers(self, nodes, siblings, kept):
        """The bytes of the answers about nodes, in a shuffled order."""
        order = np.random.default_rng(1).permutation(len(self.terms(0)))
        sums = [self.terms(node)[order] for node in nodes]
        request = CellRequest(nodes, siblings, kept, sums)
        return b"".join(part.data for part in self.rows.blind({self.tree: request}))

    def root(self):
        return self.answers([0], {}, {0})

    def children(self):
        if 0 in self.partition.by_leaf:
            goes_right = np.isin(self.of[0], self.of[2])
            self.partition.divide(0, goes_right)
            self.tree.divide([(0, goes_right)])
        return self.answers([1, 2], {2: 1}, set())


SCHEMES = ["lattice, packed", "lattice, vectors", "lattice-4096, packed"]


@pytest.mark.parametrize("kind", ["dense", "frequent", "sparse"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_any_number_of_workers_gives_the_answers_of_one(scheme, kind):
    alone = Layers(scheme, kind)
    expected = [alone.root(), alone.children()]
    for count in (2, 3, 9):  # of seven columns
        layers = Layers(scheme, kind, Elsewhere(count))
        assert [layers.root(), layers.children()] == expected


@pytest.mark.parametrize("scheme", SCHEMES[:2])
def test_a_worker_that_has_lost_its_cells_makes_them_again_from_rows(scheme):
    alone = Layers(scheme)
    expected = [alone.root(), alone.children()]
    layers = Layers(scheme, part_workers=Elsewhere(3))
    assert layers.root() == expected[0]
    lose(layers, 1)
    assert layers.children() == expected[1]


def lose(layers, worker):
    """What a worker had of the tree is gone, and given again."""
    parts = layers.tree.kept[2]
    parts[worker] = pickle.loads(pickle.dumps(parts[worker]))


def test_a_layer_asked_for_again_is_not_made_again(monkeypatch):
    """As by a task that counts as lost, and is not."""
    layers = Layers(SCHEMES[0], part_workers=Elsewhere(2))
    layers.root()
    sums = NodeCells.sums

    def keeping(self, request, *rest):
        return sums(self, replace(request, kept=None), *rest)

    monkeypatch.setattr(NodeCells, "sums", keeping)
    once = layers.children()
    made = []
    monkeypatch.setattr(lattice_parts.LatticeRows, "siblings", lambda *_: made.append(1))
    assert layers.children() == once
    assert not made


def test_workers_get_no_secret_but_their_columns_of_one_tree():
    """And no row's number: what travels is pickled, which secrets refuse."""
    layers, given = Layers(SCHEMES[0], part_workers=Elsewhere(2)), []
    run = layers.rows.part_workers.run

    def noted(kernel, kept, tasks, join=None):
        given.extend(tasks)
        return run(kernel, kept, tasks, join)

    layers.rows.part_workers.run = noted
    layers.root()
    seeds = lattice_parts.seeds_of(layers.rows.secrets, 4, 7)
    assert len({row.tobytes() for row in seeds}) == len(seeds) == 7
    for share, (_, [request]) in zip(layers.tree.shares, given, strict=True):
        own = {row.tobytes() for row in seeds[share.used]}
        drawn = [row.tobytes() for terms in request.sums for row in terms.randomness.seeds]
        assert {*drawn} == own


def test_a_request_prints_neither_which_candidates_it_is_about_nor_their_noise():
    terms = CandidateTerms.of_cells(4, 0, ROWS, 3, np.full((3, 2), 77))
    for shown in (repr(terms), repr(CellRequest([0], {}, None, [terms]))):
        assert "first" not in shown
        assert "noise" not in shown


def test_the_part_of_a_worker_lacks_the_hosts_noise():
    terms = CandidateTerms.of_cells(4, 0, ROWS, 3, np.arange(6).reshape(3, 2))
    part = terms.part(np.array([0, 2, 3]), slice(1, 2))
    assert part.numbers.tolist() == part.places.tolist() == [2]
    assert part.first.tolist() == [0]
    assert part.noise is None
    cut = terms[1:]
    assert cut.noise is not None
    assert cut.noise.tolist() == [[2, 3], [4, 5]]


@pytest.mark.parametrize("loses", [False, True])
def test_rows_divide_at_a_worker_once_however_many_parts_leave(monkeypatch, loses):
    """Or again where it has lost its cells in between."""
    monkeypatch.setattr(lattice_answers, "ANSWERS_EACH", 20)
    alone = Layers(SCHEMES[1])
    expected = [alone.root(), alone.children()]
    layers, given = Layers(SCHEMES[1], part_workers=Elsewhere(2)), list[Any]()
    assert layers.root() == expected[0]
    run = layers.rows.part_workers.run

    def noted(kernel, kept, tasks, join=None):
        if loses and len(given) == 2:
            lose(layers, 1)
        given.append([dict(divided) for [divided], _ in tasks])
        return run(kernel, kept, tasks, join)

    layers.rows.part_workers.run = noted
    assert layers.children() == expected[1]
    assert len(given) > 4
    assert [number for number, tasks in enumerate(given) if any(tasks)] == [0]


class Noting(Elsewhere):
    """Workers that note what kinds of parts they get."""

    def __init__(self, count):
        super().__init__(count)
        self.given = []

    def keep(self, parts, make):
        made = super().keep(parts, make)
        self.given.append(type(made[0]).__name__)
        return made


def test_bins_go_to_workers_once():
    """A second tree gets its rows alone."""
    pair, cells, (place, of) = Pair(SCHEMES[0], rows=ROWS), table("dense"), nodes_of(ROWS)
    part_workers, begins = Noting(2), np.ones(cells.numbers.n_cells, np.bool_)
    for number in range(2):
        held = replace(pair.rows(SHOP, number)[0], part_workers=part_workers)
        for _ in range(2):  # trees of a forest
            held.placed_rows.take(cells, Partition.at_root(of[0]), begins, place)
    trees = ["TreePart"] * 2
    assert part_workers.given == ["LatticeRows", "BinnedPart", *trees, "LatticeRows", *trees]


def test_a_tree_of_few_columns_uses_those_that_each_worker_has():
    alone = Layers(SCHEMES[0], share=0.6)
    shared = Layers(SCHEMES[0], part_workers=Elsewhere(3), share=0.6)
    assert len(alone.numbers.n_bins) == 4
    assert [shared.root(), shared.children()] == [alone.root(), alone.children()]
