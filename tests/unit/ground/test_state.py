"""States of dataclasses: whatever their fields hold comes back, and nothing else is taken."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from fedboost.ground.errors import DataError
from fedboost.ground.state import (
    Growing,
    join_state,
    load_state,
    restore_into,
    split_state,
    state_class,
)
from tests.support.states import state_dict

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Leaf:
    """A dataclass as there are everywhere."""

    node: int
    threshold: np.float32
    value: Floats
    left: bytes = b""


@state_class
class Tree:
    """Fields of every kind that a state may have."""

    name: str
    gain: float
    is_over: bool
    leaves: list[Leaf]
    totals: dict[int, NDArray[np.int64]]
    history: list[dict[str, dict[str, float]]]
    told: dict[str, set[int]]
    pairs: tuple[tuple[int, NDArray[np.bool_]], ...]
    best: float | None
    under: dict[int, NDArray[np.uint8] | None]


NUMBERS = st.integers(-(2**63), 2**63 - 1)
REALS = st.floats(allow_nan=True)
TEXTS = st.text(max_size=3)


def of_dtype(dtype):
    """Arrays of any shape."""
    return arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, min_side=0, max_side=3))


LEAVES = st.builds(
    Leaf,
    node=NUMBERS,
    threshold=st.floats(width=32).map(np.float32),
    value=of_dtype(np.float64),
    left=st.binary(max_size=4),
)
TREES = st.builds(
    Tree,
    name=TEXTS,
    gain=REALS,
    is_over=st.booleans(),
    leaves=st.lists(LEAVES, max_size=3),
    totals=st.dictionaries(NUMBERS, of_dtype(np.int64), max_size=3),
    history=st.lists(
        st.dictionaries(TEXTS, st.dictionaries(TEXTS, REALS, max_size=2), max_size=2), max_size=2
    ),
    told=st.dictionaries(TEXTS, st.sets(NUMBERS, max_size=3), max_size=2),
    pairs=st.lists(st.tuples(NUMBERS, of_dtype(np.bool_)), max_size=2).map(tuple),
    best=st.none() | REALS,
    under=st.dictionaries(NUMBERS, st.none() | of_dtype(np.uint8), max_size=3),
)


def plain(held: Any) -> Any:
    """A value as something that is equal where it is the same, type by type and bit by bit."""
    if is_dataclass(held):
        return type(held), [plain(getattr(held, one.name)) for one in fields(held)]
    if isinstance(held, np.ndarray):
        return held.dtype, held.shape, held.tobytes()
    if isinstance(held, Mapping):
        return [(plain(key), plain(value)) for key, value in held.items()]
    if isinstance(held, list | tuple):
        return type(held), [plain(one) for one in held]
    if isinstance(held, float | np.float32):
        return type(held), "nan" if math.isnan(held) else repr(held)
    return type(held), held


@given(TREES)
def test_a_state_comes_back_as_it_was(tree):
    facts, arrays = state_dict(Tree, tree)
    assert json.loads(json.dumps(facts)) == facts
    assert plain(load_state(Tree, facts, arrays)) == plain(tree)


TREE = Tree(
    name="first",
    gain=0.5,
    is_over=False,
    leaves=[Leaf(1, np.float32(2.5), np.array([0.25]), b"ab")],
    totals={0: np.array([1, 2])},
    history=[{"train": {"auc": 0.5}}],
    told={"telco": {3, 1}},
    pairs=((1, np.array([True, False])),),
    best=None,
    under={0: None, 1: np.zeros((2, 2), np.uint8)},
)
HELD = state_dict(Tree, TREE)
NAMES = [*HELD[1], *HELD[0]["texts"]]


def test_a_state_has_as_many_arrays_as_its_type_has_fields_whatever_it_holds():
    @state_class
    class Forest:
        trees: list[Tree]

    (few, one), (many, other) = (state_dict(Forest, Forest(trees=[TREE] * n)) for n in (1, 50))
    assert set(one) == set(other)
    assert set(few["texts"]) == set(many["texts"])


@state_class
class Texts:
    """A part with a list that grows."""

    texts: Growing[str]


@state_class
class Boosting:
    """A list that grows, alone and in parts of which there are several."""

    trees: Growing[Leaf]
    texts: Growing[str]
    several: list[Texts]


@given(st.lists(st.lists(LEAVES, max_size=3), max_size=4), st.lists(TEXTS, max_size=3))
def test_pieces_one_behind_the_other_are_the_list(stretches, texts):
    own = Boosting(trees=[], texts=texts, several=[Texts(texts=texts)] * 2)
    pieces = []
    for stretch in [*stretches, []]:
        start = len(own.trees)
        own.trees += stretch
        facts, arrays, grown = split_state(Boosting, own)
        assert set(grown) == {"trees", "texts"}
        pieces.append(grown["trees"].since(start))
    pieces.append(grown["texts"].since(0))
    joined = join_state(facts, arrays, pieces)
    assert plain(load_state(Boosting, *joined)) == plain(own)
    assert plain(load_state(Boosting, *state_dict(Boosting, own))) == plain(own)
    with pytest.raises(DataError, match="expected"):
        load_state(Boosting, *join_state(facts, arrays, [*pieces, ({}, {"trees": np.ones(1)})]))


def altered(change):
    """What the tree is kept as, but for what `change` does to its texts and arrays."""
    texts, arrays = dict(HELD[0]["texts"]), dict(HELD[1])
    change(texts, arrays)
    return {"texts": texts}, arrays


@pytest.mark.parametrize("name", NAMES)
def test_a_state_that_lacks_a_field_is_refused(name):
    def lose(texts, arrays):
        (texts if name in texts else arrays).pop(name)

    with pytest.raises(DataError, match="expected"):
        load_state(Tree, *altered(lose))


def test_a_state_with_a_field_that_nobody_knows_is_refused():
    with pytest.raises(DataError, match="has colour, which Tree has not"):
        load_state(Tree, *altered(lambda _, arrays: arrays.update(colour=np.zeros(1))))
    with pytest.raises(DataError, match="has colour, which Tree has not"):
        load_state(Tree, *altered(lambda texts, _: texts.update(colour=["red"])))


@pytest.mark.parametrize("name", HELD[1])
def test_a_state_of_another_dtype_or_length_is_refused(name):
    for other in (HELD[1][name].astype(np.complex64), np.repeat(HELD[1][name], 2)):
        with pytest.raises(DataError, match="expected"):
            load_state(Tree, *altered(lambda _, arrays, other=other: arrays.update({name: other})))


def test_what_is_kept_does_not_change_with_what_it_is_of():
    tree = load_state(Tree, *HELD)
    facts, arrays = state_dict(Tree, tree)
    tree.totals[0] += 1
    tree.leaves.append(tree.leaves[0])
    again = load_state(Tree, facts, arrays)
    again.totals[0] += 1
    assert plain(load_state(Tree, facts, arrays)) == plain(TREE)


@pytest.mark.parametrize(
    ("hint", "says"),
    [
        (object, "cannot keep"),
        (Any, "cannot keep"),
        (list[object], "cannot keep"),
        (dict[str, object], "cannot keep"),
        (int | str, "cannot keep"),
        (NDArray[np.generic], "one dtype, not of generic"),
    ],
)
def test_a_field_that_cannot_be_kept_is_refused_where_its_class_is_made(hint, says):
    with pytest.raises(TypeError, match=f"Rounds.done: a checkpoint .*{says}"):

        @state_class
        class Rounds:
            done: hint  # type: ignore[valid-type]


@state_class
class Part:
    """The state of a part."""

    done: int


class Working(Part):
    """A part that can do something, too."""

    def __init__(self) -> None:
        self.done, self.doing = 0, "something"


@state_class
class Whole:
    """The state of a whole that may have a part."""

    part: Part | None


def test_parts_go_on_where_they_were_and_stay_what_they_are():
    whole = Whole(part=Working())
    restore_into(whole, load_state(Whole, *state_dict(Whole, Whole(part=Part(done=3)))))
    assert isinstance(whole.part, Working)
    assert (whole.part.done, whole.part.doing) == (3, "something")


def test_a_part_that_was_not_kept_is_missed():
    with pytest.raises(DataError, match="the checkpoint has no part") as refused:
        restore_into(Whole(part=Working()), Whole(part=None))
    assert "policy" in (refused.value.todo or "")


Scalar = TypeVar("Scalar", bound=np.generic)
Array = TypeAliasType("Array", np.ndarray[Any, np.dtype[Scalar]], type_params=(Scalar,))


@dataclass
class Aliased:
    """Arrays under an alias of the language, as NumPy 2.5 writes NDArray."""

    by_leaf: dict[int, Array[np.int32]]


def test_arrays_may_be_named_by_an_alias_of_the_language():
    held = Aliased({1: np.array([3, 4], np.int32)})
    kept = state_dict(Aliased, held)
    assert plain(load_state(Aliased, *kept)) == plain(held)
