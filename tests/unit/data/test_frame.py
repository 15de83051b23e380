"""A frame keeps its rows together, tells changed tables apart and shows no content."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_array

from fedboost.data.frame import Frame
from fedboost.ground.ids import EncodedIds


def frame(values=((1.0, 2.0), (3.0, np.nan), (5.0, 6.0)), label=(0.0, 1.0, 0.0), **changed):
    if not isinstance(values, csc_array):
        values = np.asfortranarray(values, dtype=np.float32)
    parts: dict[str, Any] = {
        "ids": EncodedIds.of([b"a", b"b", b"c"]),
        "values": values,
        "columns": ("age", "income"),
        "label": None if label is None else np.array(label),
        "id_columns": ("id",),
    }
    return Frame(**(parts | changed))


@given(st.lists(st.integers(0, 2), max_size=8))
def test_take_moves_ids_values_and_label_together(rows):
    whole = frame()
    some = whole.take(np.array(rows, dtype=np.int64))
    assert list(some.ids) == [whole.ids[row] for row in rows]
    assert some.values.flags.f_contiguous
    np.testing.assert_array_equal(some.values, whole.values[np.array(rows, dtype=int)])
    assert some.label.tolist() == [whole.label[row] for row in rows]


def test_take_works_without_label_and_without_columns():
    bare = frame(np.empty((3, 0)), None, columns=())
    assert list(bare.take([2, 0]).ids) == [b"c", b"a"]
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


@given(st.permutations(range(3)), st.integers(0, 3), st.booleans())
def test_a_frame_becomes_the_rows_that_it_would_take(order, count, sparse):
    rows = order[:count]
    values = csc_array(np.array([[1, 0], [0, 4], [5, 0]], np.float32)) if sparse else frame().values
    one = frame(values, weight=np.array([1.0, 2.0, 3.0]))
    taken, became = one.take(rows), one.take_in_place(np.array(rows, np.int64))
    assert became.digest() == taken.digest()
    assert not became.label.flags.writeable
    with pytest.raises(AttributeError):
        one.take([0])


def test_a_frame_whose_values_are_let_go_keeps_all_but_them():
    whole = frame()
    whole.drop_values()
    assert (whole.n_rows, whole.columns, whole.label.tolist()) == (3, frame().columns, [0, 1, 0])
    assert whole.ids_digest() == frame().ids_digest()
    with pytest.raises(AttributeError):
        whole.take([0])


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
        frame(ids=EncodedIds.of([b"a", b"c", b"b"])),
        frame(ids=EncodedIds.of([b"ab", b"", b"c"])),
        frame(id_columns=("key",)),
        frame().take([0, 2, 1]),
    ],
    ids=repr,
)
def test_a_changed_table_has_another_digest(other):
    assert other.digest() != frame().digest()


# --- sparse ---------------------------------------------------------------------------------

CELLS = ((0.0, 2.0, 0.0), (np.nan, 0.0, 0.0), (0.0, 5.0, 6.0))


def sparse(cells=CELLS, **changed):
    values = csc_array(np.array(cells, dtype=np.float32))
    return frame(columns=("a", "b", "c"), **changed | {"values": values})


def test_a_sparse_frame_says_so_and_shows_no_content():
    assert repr(sparse()) == "Frame(3 rows, 3 sparse columns, label)"
    assert sparse().is_sparse
    assert not frame().is_sparse


def test_the_arrays_of_a_sparse_frame_cannot_be_written():
    values = sparse().values
    for array in (values.data, values.indices, values.indptr):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@given(st.lists(st.integers(0, 2), max_size=8))
def test_take_of_a_sparse_frame_is_that_of_its_dense_twin(rows):
    dense = frame(CELLS, columns=("a", "b", "c")).take(rows)
    taken = sparse().take(rows)
    assert taken.is_sparse
    assert taken.ids == dense.ids
    assert taken.values.dtype == np.float32
    np.testing.assert_array_equal(taken.values.toarray(), dense.values)
    assert taken.take(range(len(rows))).digest() == taken.digest()


def test_values_that_are_not_in_canonical_form_are_no_frame():
    zero = csc_array((np.array([1, 0], np.float32), [0, 1], [0, 2]), shape=(3, 1))
    unsorted = csc_array((np.array([1, 2], np.float32), [1, 0], [0, 2]), shape=(3, 1))
    twice = csc_array((np.array([1, 2], np.float32), [1, 1], [0, 2]), shape=(3, 1))
    double = csc_array(np.eye(3, 1))
    for values in (zero, unsorted, twice, double):
        with pytest.raises(AssertionError):
            frame(values=values, columns=("a",))
    with pytest.raises(AssertionError):
        sparse(categories={"a": ("x",)})


def test_sparse_frames_have_equal_digests_if_their_dense_twins_have():
    tables = [CELLS, CELLS[::-1], ((0.0, 2.0, 0.0), *CELLS[:2]), ((2.0, 0.0, 0.0), *CELLS[1:])]
    tables += [((0.0, 2.0, np.nan), *CELLS[1:])]
    digests = {sparse(cells).digest() for cells in tables}
    assert len(digests) == len(tables)
    other_nan = csc_array(np.array(CELLS, dtype=np.float32))
    other_nan.data.view(np.uint32)[np.isnan(other_nan.data)] = 0xFFC00001
    assert sparse().digest() == frame(values=other_nan, columns=("a", "b", "c")).digest()
    assert sparse().digest() != frame(CELLS, columns=("a", "b", "c")).digest()
    assert sparse(label=None).digest() != sparse().digest()
