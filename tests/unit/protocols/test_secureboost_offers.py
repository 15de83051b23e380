"""What a host offers of categories and what may be chosen of it: both sides of the wire, spoilt."""

import tracemalloc

import numpy as np
import pytest

from fedboost.core import binning, fixed_point, split
from fedboost.core.categories import as_set
from fedboost.core.groups import Segments
from fedboost.core.growth import best_splits
from fedboost.core.params import MAX_BIN, TreeParams
from fedboost.core.rules import Rules
from fedboost.core.split import Candidates
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.cells import candidates, shapes
from fedboost.encrypted.cells.candidates import CategoricalColumn, NodeCandidates, Shape
from fedboost.encrypted.guest import offers
from fedboost.ground import wire
from fedboost.ground.errors import PeerError
from fedboost.messages.protocol import encrypted_pb2 as pb
from tests.support.left_sums import left_sums

NODE = 4


def arranged():
    """Three candidates at thresholds, then column 5 with its missing rows, then column 2 without.

    [ 0 1 2 | 3 4 5 6 missing | 8 9 10 ]
    """
    listed = Candidates(
        np.array([0, 0, 1], np.int32), np.array([0, 1, 0], np.int16), np.array([False, True, False])
    )
    columns = (
        CategoricalColumn(2, Segments.one_per_bin(3), missing=False),
        CategoricalColumn(5, Segments.one_per_bin(4), missing=True),
    )
    order = [2, 0, 1, *(6 + np.array([2, 0, 3, 1, 4])), *(3 + np.array([1, 2, 0]))]
    return NodeCandidates(listed, columns, np.array(order))


def chosen(*choices):
    return offers.write_choices({NODE: [np.array(choice) for choice in choices]})


def read(message):
    return candidates.read_choices(message, {NODE: arranged()})[NODE]


@pytest.mark.parametrize(
    ("choice", "means"),
    [
        ([0], (1, 0, False, b"")),
        ([2], (0, 1, True, b"")),
        ([3], (5, 1, False, as_set(np.array([2])))),
        ([6, 4], (5, 2, False, as_set(np.array([0, 1])))),
        ([3, 7], (5, 1, True, as_set(np.array([2])))),
        ([3, 4, 5, 6], (5, 4, False, as_set(np.arange(4)))),  # present left, missing right
        ([3, 4, 5, 7], (5, 3, True, as_set(np.array([0, 2, 3])))),
        ([10, 8], (2, 2, False, as_set(np.array([0, 1])))),
    ],
)
def test_a_choice_means_the_split_that_was_offered(choice, means):
    assert read(chosen(choice)) == means


@pytest.mark.parametrize(
    "choice",
    [
        [-1],
        [11],
        [2**31 - 1],
        [-(2**31)],
        [0, 1],  # two candidates at thresholds
        [2, 3],  # a candidate and a category
        [3, 2],
        [3, 8],  # categories of two columns
        [8, 3],
        [7, 8],
        [3, 3],  # a category twice
        [3, 7, 7],
        [3, 11],
        [3, -1],
        [7],  # the missing rows alone
        [3, 4, 5, 6, 7],  # nothing left for the right side
        [8, 9, 10],
    ],
    ids=str,
)
def test_a_choice_that_was_not_offered_is_refused(choice):
    for others in ([], [[0]], [[3, 4]]):  # also beside lawful ones
        with pytest.raises(PeerError, match=f"a candidate of node {NODE} that was not offered"):
            read(chosen(*others, choice))


def test_of_tied_choices_the_first_in_canonical_order_is_taken():
    ordered = [[1], [2], [0], [10], [8, 9], [5], [6, 4], [6, 4, 7], [3, 4, 5, 6]]
    means = [read(chosen(choice)) for choice in ordered]
    columns = [column for column, *_ in means]
    assert columns == sorted(columns)
    for column in set(columns):  # by how many go left, then missing right first
        own = [(count, missing) for c, count, missing, _ in means if c == column]
        assert own == sorted(own)
    draw = np.random.default_rng(1)
    for _ in range(30):
        some = draw.permutation(len(ordered))[: draw.integers(1, len(ordered))]
        assert read(chosen(*(ordered[i] for i in some))) == means[some.min()]


def sized(sizes, candidates, tied):
    return pb.WonSplits(
        nodes=wire.pack(np.array([NODE], np.int32)),
        tied=wire.pack(np.array([tied], np.int32)),
        candidates=wire.pack(np.array(candidates, np.int32)),
        sizes=wire.pack(np.array(sizes, np.int32)),
    )


@pytest.mark.parametrize(
    ("sizes", "candidates", "tied", "says"),
    [
        ([], [3], 1, "the sizes of the choices must be"),
        ([1, 1], [3, 4], 1, "the sizes of the choices must be"),
        ([2], [3, 4], 2, "the sizes of the choices must be"),
        ([2], [3], 1, "the chosen candidates must be"),
        ([1], [3, 4], 1, "the chosen candidates must be"),
        ([2**31 - 1], [3, 4], 1, "the chosen candidates must be"),
        ([0], [], 1, "no candidate at all"),
        ([0, 2], [3, 4], 2, "no candidate at all"),
        ([-1, 3], [3, 4], 2, "no candidate at all"),
        ([1], [3], 2**31 - 1, "the sizes of the choices must be"),
    ],
)
def test_sizes_that_do_not_fit_the_choices_are_refused(sizes, candidates, tied, says):
    with pytest.raises(PeerError, match=says):
        read(sized(sizes, candidates, tied))


def test_ties_that_were_only_announced_take_no_memory():
    message = pb.WonSplits(
        nodes=wire.pack(np.array([NODE], np.int32)),
        tied=wire.pack(np.array([2**31 - 1], np.int32)),
        candidates=wire.pack(np.array([0], np.int32)),
    )
    tracemalloc.start()
    try:
        with pytest.raises(PeerError, match="the chosen candidates must be"):
            read(message)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_largest_lawful_choice_fits_its_bound():
    """Every candidate tied, and every cut of every column, in the longest possible words."""
    offer = arranged()
    every = [[place] for place in range(3)]
    for first, count, missing in offer.shape.columns():
        for end in range(1, count + missing):
            left = list(range(first, first + min(end, count)))
            every += [left, [*left, first + count]] if missing and end < count else [left]
    message = chosen(*every)
    assert len(wire.encode(message)) <= candidates.choices_bytes_max({NODE: offer})


# What a host may say about its sums

SHAPES = [Shape(3, (4, 3), (True, False)), Shape(0, (255,), (True,))]  # of different trees


def spoilt(**fields):
    """The shapes' message with fields replaced; None takes one away."""
    message = shapes.write_shapes(SHAPES)
    for name, value in fields.items():
        message.ClearField(name)
        if value is not None:
            getattr(message, name).CopyFrom(value)
    return message


def ints(rows):
    return wire.pack(np.array(rows, np.int32))


def bits(count):
    return wire.pack_bits(np.zeros(count, np.bool_))


def test_shapes_survive_the_wire():
    assert shapes.shapes_of(shapes.write_shapes(SHAPES), 2, 256, "shop") == SHAPES
    assert [shape.n_sums for shape in SHAPES] == [11, 256]
    plain = [Shape(3), Shape(0)]
    message = shapes.write_shapes(plain)
    assert not message.HasField("categories")
    assert not message.HasField("missing")
    assert shapes.shapes_of(message, 2, 3, "shop") == plain


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"categories": ints([4, 0, 255])}, "cannot be"),
        ({"categories": ints([4, -1, 255])}, "cannot be"),
        ({"categories": ints([4, 3, MAX_BIN + 1])}, "cannot be"),
        ({"categories": ints([4, 3, 2**31 - 1])}, "cannot be"),
        ({"candidates": ints([3, -1])}, "cannot be"),
        ({"columns": ints([2, -1])}, "number of shop's categories must be"),
        ({"columns": ints([4, -1])}, "cannot be"),
        ({"columns": ints([1, 1])}, "number of shop's categories must be"),
        ({"columns": ints([2**31 - 1, 2**31 - 1])}, "number of shop's categories must be"),
        ({"columns": ints([3])}, "number of shop's categorical columns must be"),
        ({"columns": None}, "number of shop's categorical columns must be"),
        ({"columns": ints([1, 2]), "candidates": ints([3, 250])}, "256 is the most"),
        ({"categories": ints([[4, 3, 255]])}, "number of shop's categories must be"),
        ({"categories": ints([4, 3])}, "number of shop's categories must be"),
        ({"categories": ints([4] * 9), "columns": ints([4, 5])}, "with missing values must be"),
        ({"categories": ints([4, 3]), "columns": ints([1, 1])}, "bits set beyond the 2"),
        ({"missing": bits(9)}, "with missing values must be"),
        ({"missing": bits(0)}, "with missing values must be"),
        ({"missing": None}, "with missing values must be"),
        ({"categories": None}, "number of shop's categories must be"),
        ({"candidates": ints([4, 1])}, "257 candidates for one node; 256 is the most"),
        ({"candidates": ints([250, 0])}, "258 candidates for one node; 256 is the most"),
        ({"candidates": ints([2**31 - 1, 0])}, "256 is the most"),
    ],
)
def test_shapes_that_cannot_be_are_refused(fields, says):
    with pytest.raises(PeerError, match=says):
        shapes.shapes_of(spoilt(**fields), 2, 256, "shop")


def test_a_layer_without_open_nodes_has_no_shapes():
    empty = shapes.write_shapes([])
    assert shapes.shapes_of(empty, 0, 256, "shop") == []
    more = spoilt(candidates=ints([]), columns=ints([]))
    with pytest.raises(PeerError, match="number of shop's categories must be"):
        shapes.shapes_of(more, 0, 256, "shop")


# Both sides together


@pytest.mark.parametrize("seed", range(6))
def test_what_the_guest_chooses_of_a_shuffled_offer_is_the_pooled_split(seed):
    """The guest sees sums in a secret order; the host finds in its choice what one table takes."""
    draw = np.random.default_rng(seed)
    values = np.round(draw.normal(size=(60, 2)), 1).astype(np.float32)
    codes = draw.integers(0, 5, (60, 2)).astype(np.float32)
    values = np.concatenate([values, codes], axis=1)
    values[draw.random(values.shape) < 0.1] = np.nan
    values[:, 3] = codes[:, 1]  # the last column is complete
    params = TreeParams(min_child_weight=0.0)
    cuts = binning.fit(values, 4 if seed % 2 else 8, (2, 3))
    rules = Rules(params, cuts, fixed_point.encoding_for_rows(60, 20, 1.0, 1.0))
    # Few different sums, so that there are ties.
    gh = np.column_stack([draw.integers(-2, 3, 60), np.ones(60, np.int64)]) << 18
    cells = np.zeros((4, cuts.n_cells, 2), np.int64)
    bins = cuts.transform(values)
    for column in range(4):
        np.add.at(cells[column], bins[:, column], gh)
    missing = (bins == cuts.missing).any(axis=0)
    total = gh.sum(axis=0)
    (pooled,) = best_splits(rules, cells[None], total[None], np.arange(4, dtype=np.int32))
    assert pooled is not None
    won, left = pooled

    listed = split.candidates(cuts.n_bins, missing, np.arange(2, dtype=np.int32))
    sums, columns = [left_sums(cells, listed)], []
    for column in (2, 3):
        bins_used = int(cuts.n_bins[column])
        lacks = bool(missing[column])
        columns.append(CategoricalColumn(column, Segments.one_per_bin(bins_used), lacks))
        sums += [cells[column][:bins_used], cells[column][-1:][: int(lacks)]]
    secrets = Secrets(bytes([seed]) * 32)
    offer = NodeCandidates.shuffled(listed, columns, secrets, (0, NODE))
    assert sorted(offer.order.tolist()) == list(range(offer.shape.n_sums))
    best = offers.best_of(rules, total, np.concatenate(sums)[offer.order], offer.shape)
    assert best is not None
    assert best.gain == won.gain
    message = offers.write_choices({NODE: best.choices})
    column, place, missing_left, held = candidates.read_choices(message, {NODE: offer})[NODE]
    assert (column, missing_left, held) == (won.column, won.missing_left, won.left_bins)
    assert (left == best.left).all(axis=1).any()
    if not held:
        assert place == won.bin
