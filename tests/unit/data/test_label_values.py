"""Labels such as −1 and 1 or no and yes are numbered as the job lists them, or refused with the
key to write.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedboost.core import objectives, weight_checks
from fedboost.core.params import TreeParams
from fedboost.data.loading import load_frame
from fedboost.data.selection import Selection
from fedboost.data.sheet import Sheet
from fedboost.data.sources import SourceSpec
from fedboost.data.survey import survey_sheet
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.settings import parse_settings, parse_yaml
from fedboost.job import JobSpec

SPELLINGS = {  # of the label no, yes, no, yes, yes
    "[no, yes]": ["no", "Yes", "no", "yes", "yes"],
    "['n', 'y']": ["n", "y", " n", "y ", "y"],
    "[-1, 1]": [-1, 1, -1, 1, 1],
    "[-1.0, 1.0]": [-1, 1, -1, 1, 1],
    "[-1, +1]": ["-1", "+1", "-1.0", "1", "1"],
    "[1, 2]": [1.0, 2.0, 1.0, 2.0, 2.0],
    "[false, true]": [False, True, False, True, True],
    "[bad, good]": ["bad", "good", "bad", "good", "good"],
    "[paid back, not paid]": ["paid back", "not paid", "paid back", "not paid", "not paid"],
}


def listing(classes: str) -> dict[str, Any]:
    """What a job that lists these classes, in YAML, says of the label y."""
    said = parse_yaml(f"{{label: y, label_values: {classes}}}".encode())
    assert isinstance(said, dict)
    return said


def loaded(folder, y: Any, selection: dict[str, Any], **declared: Any):
    path = folder / "t.parquet"
    pq.write_table(pa.table({"id": list(range(len(y))), "y": y, "a": [1.0] * len(y)}), path)
    source = SourceSpec(path=str(path), **declared)
    return load_frame(
        source, parse_settings(Selection, selection), party="bank", needs_label=True
    ).label


@pytest.mark.parametrize("listed", SPELLINGS)
def test_listed_classes_are_numbered_in_their_order(listed, tmp_path):
    said = listing(listed)
    label = loaded(tmp_path, SPELLINGS[listed], said)
    assert label.tolist() == [0.0, 1.0, 0.0, 1.0, 1.0]
    said["label_values"].reverse()
    assert loaded(tmp_path, SPELLINGS[listed], said).tolist() == [1.0, 0.0, 1.0, 0.0, 0.0]


def test_the_owner_of_a_table_may_list_the_classes(tmp_path):
    own = {"labels": ["y"], "label_values": ["no", "yes"]}
    y = ["no", "yes", "yes"]
    assert loaded(tmp_path, y, {"label": "y"}, **own).tolist() == [0.0, 1.0, 1.0]
    other = {"label": "y", "label_values": ["yes", "no"]}
    assert loaded(tmp_path, y, other, **own).tolist() == [1.0, 0.0, 0.0]
    with pytest.raises(ConfigError, match="needs one column in 'labels', not 0"):
        parse_settings(SourceSpec, {"path": "t.csv", "label_values": ["no", "yes"]})


def test_three_classes_are_numbered_and_missing_labels_are_refused(tmp_path):
    three = {"label": "y", "label_values": ["low", "mid", "high"]}
    assert loaded(tmp_path, ["mid", "high", "low"], three).tolist() == [1.0, 2.0, 0.0]
    with pytest.raises(DataError, match="1 of 3 rows have no label"):
        loaded(tmp_path, ["mid", None, "low"], three)


@pytest.mark.parametrize(
    ("y", "listed"),
    [
        (["no", "yes"] * 3, "[no, yes]"),
        (["good", "bad"] * 3, "[bad, good]"),
        (["not paid: late", "paid"] * 3, "['not paid: late', paid]"),
    ],
)
def test_text_labels_are_refused_with_the_line_to_write_and_outsiders_hear_the_kind(
    tmp_path, y, listed
):
    with pytest.raises(DataError, match="the label is text") as caught:
        loaded(tmp_path, y, {"label": "y"})
    assert f"label_values: {listed}" in caught.value.todo
    outside = "".join(caught.value.redacted().lines())
    assert "the label is text" in outside
    assert not any(word in outside for word in ("yes", "good", "paid"))
    said = listing(listed)
    assert sorted(set(loaded(tmp_path, y, said))) == [0.0, 1.0]


def test_labels_of_minus_one_and_one_are_refused_with_the_line_to_write():
    y = np.array([-1.0, 1.0, 1.0, -1.0])
    with pytest.raises(DataError, match="2 of 4 labels") as caught:
        objectives.check_labels(TreeParams(), y)
    assert "label_values: [-1, 1]" in caught.value.todo
    assert "-1" not in "".join(caught.value.redacted().lines())


def test_a_value_of_one_row_is_in_no_error(tmp_path):
    for y in (["no", "yes", "secret"], ["no", "no", "yes"]):
        with pytest.raises(DataError) as caught:
            loaded(tmp_path, y, {"label": "y"})
        assert not {"secret", "yes", "no"} & set("".join(caught.value.lines()).split())
    with pytest.raises(
        DataError, match="1 of 3 rows have a label that label_values does"
    ) as caught:
        loaded(tmp_path, ["no", "yes", "secret"], {"label": "y", "label_values": ["no", "yes"]})
    assert "secret" not in "".join(caught.value.lines())
    with pytest.raises(DataError) as number:
        objectives.check_labels(TreeParams(), np.array([-1.0, 7.5, -1.0]))
    assert "7.5" not in "".join(number.value.lines())


@pytest.mark.parametrize("twice", [["no", False], [1, "1.0"], ["a", "a"]])
def test_a_class_that_is_listed_twice_is_refused(tmp_path, twice):
    with pytest.raises(ConfigError, match="twice"):
        loaded(tmp_path, ["no", "yes"], {"label": "y", "label_values": twice})


def test_classes_need_a_label_and_one_order_at_all_parties():
    with pytest.raises(ConfigError, match="no label has them"):
        parse_settings(Selection, {"label_values": ["no", "yes"]})
    job = {
        "name": "j",
        "protocol": "federboost-horizontal",
        "parties": {"guest": "a", "hosts": ["b"], "aggregator": "a"},
        "data": {
            "a": {"label": "y", "label_values": ["no", "yes"]},
            "b": {"label": "y", "label_values": [0, 1]},
        },
    }
    assert parse_settings(JobSpec, job).data["b"].label_values == [0, 1]
    for other in (["yes", "no"], ["no", "yes", "maybe"]):
        job["data"]["b"]["label_values"] = other  # type: ignore[index]
        with pytest.raises(ConfigError, match="number the classes differently"):
            parse_settings(JobSpec, job)


def test_a_selection_without_classes_is_written_as_before():
    assert "label_values" not in Selection(label="y").model_dump()
    listed = Selection(label="y", label_values=["no", True]).model_dump()
    assert listed["label_values"] == ["no", True]


def test_data_check_says_what_to_write_for_the_classes_of_a_label():
    for y, line in (
        (["no", "yes"] * 2, "label_values: [no, yes]"),
        ([-1, 1] * 2, "label_values: [-1, 1]"),
        ([0, 1] * 2, ""),
        ([0.5, 1.5, 2.5, 3.5], ""),
    ):
        found = survey_sheet("t", Sheet(pa.table({"id": [1, 2, 3, 4], "y": y})))
        assert not found.problems
        assert line in " ".join(found.notes)
        assert ("label_values" in " ".join(found.notes)) == bool(line)


@pytest.mark.parametrize("least", [1 / 365, 1.0 / weight_checks.WEIGHT_RATIO_MAX])
def test_weights_of_exposures_and_of_inverse_probabilities_differ_little_enough(least):
    weight = np.array([0.0, least, 0.3, 1.0])
    weight_checks.check_weight_ratio(weight)
    with pytest.raises(DataError, match="times the least above 0, and 1024 times is the most"):
        weight_checks.check_weight_ratio(np.append(weight, 1.0001 * least * 1024))
