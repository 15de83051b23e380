"""A frame keeps its rows together, tells changed tables apart and shows no content."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.data.frame import Frame


def frame(values=((1.0, 2.0), (3.0, np.nan), (5.0, 6.0)), label=(0.0, 1.0, 0.0), **changed):
    parts: dict[str, Any] = {
        "ids": [b"a", b"b", b"c"],
        "values": np.asfortranarray(values, dtype=np.float32),
        "columns": ("age", "income"),
        "label": None if label is None else np.array(label),
        "id_columns": ("id",),
    }
    return Frame(**(parts | changed))


@given(st.lists(st.integers(0, 2), max_size=8))
def test_take_moves_ids_values_and_label_together(rows):
    whole = frame()
    some = whole.take(np.array(rows, dtype=np.int64))
    assert some.ids == [whole.ids[row] for row in rows]
    assert some.values.flags.f_contiguous
    np.testing.assert_array_equal(some.values, whole.values[np.array(rows, dtype=int)])
    assert some.label.tolist() == [whole.label[row] for row in rows]


def test_take_works_without_label_and_without_columns():
    bare = frame(np.empty((3, 0)), None, columns=())
    assert bare.take([2, 0]).ids == [b"c", b"a"]
    assert bare.take([2, 0]).values.shape == (2, 0)


def test_a_frame_prints_its_shape_and_no_content():
    assert repr(frame()) == "Frame(3 rows, 2 columns, label)"
    assert repr(frame(label=None)) == "Frame(3 rows, 2 columns, no label)"


def test_the_arrays_of_a_frame_cannot_be_written():
    for array in (frame().values, frame().label):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def coded(**texts):
    """A frame whose column age is coded 1, missing, 0; `texts` say what the codes mean."""
    return frame(((1.0, 2.0), (np.nan, np.nan), (0.0, 6.0)), categories=texts)


def test_take_keeps_categories_that_the_rows_no_longer_use():
    assert coded(age=("old", "young")).take([0]).categories == {"age": ("old", "young")}


@pytest.mark.parametrize(
    "texts",
    [{"age": ("old",)}, {"age": ("old", "old")}, {"height": ("a", "b")}, {"income": ("a", "b")}],
    ids=repr,
)
def test_codes_that_do_not_fit_their_categories_are_no_frame(texts):
    with pytest.raises((AssertionError, ValueError)):
        coded(**texts)
    with pytest.raises(AssertionError):
        frame(((0.5, 0.0), (0.0, 0.0), (0.0, 0.0)), categories={"age": ("old", "young")})


def test_a_frame_without_categories_keeps_the_digest_it_had():
    known = "5179a6dfd0a8beb2459417af5a863c5f9c27affb2526bf66a004e7f96f8e8745"
    assert frame().digest().hex() == known


def test_categories_count_in_the_digest():
    frames = [
        coded(),
        coded(age=("old", "young")),
        coded(age=("old", "younger")),
        coded(age=("ol", "dyoung")),
        coded(age=("old", "young", "")),
    ]
    assert len({one.digest() for one in frames}) == len(frames)
    assert coded(age=("old", "young")).digest() == frames[1].digest()


def test_equal_tables_have_equal_digests():
    assert frame().digest() == frame().digest()
    other_nan = frame()
    bits = np.array(other_nan.values, order="F").view(np.uint32).copy(order="F")
    bits[1, 1] = 0xFFC00001  # a NaN with another sign and payload
    assert frame(bits.view(np.float32)).digest() == frame().digest()


@pytest.mark.parametrize(
    "other",
    [
        frame(((1.0, 2.0), (3.0, np.nan), (5.0, 7.0))),
        frame(((1.0, 2.0), (3.0, 0.0), (5.0, 6.0))),
        frame(label=(0.0, 1.0, 1.0)),
        frame(label=None),
        frame(columns=("income", "age")),
        frame(columns=("ageincome", "")),
        frame(ids=[b"a", b"c", b"b"]),
        frame(ids=[b"ab", b"", b"c"]),
        frame(id_columns=("key",)),
        frame().take([0, 2, 1]),
    ],
    ids=repr,
)
def test_a_changed_table_has_another_digest(other):
    assert other.digest() != frame().digest()
