"""Names of other libraries: each leads to a parameter that there is, or to a reason."""

import pytest

from fedboost.core import other_names
from fedboost.core.params import BoostingParams, TreeParams
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.sdk import SecureBoostClassifier
from fedboost.sdk.refusals import InvalidParameterError

OTHERS = [*other_names._NAMES, *other_names._REASONS]


def test_every_name_leads_somewhere_and_none_is_a_parameter_itself():
    assert set(other_names.CALLED) <= set(TreeParams.model_fields)
    assert len(OTHERS) == len(set(OTHERS))
    assert not set(OTHERS) & set(TreeParams.model_fields)


@pytest.mark.parametrize("name", OTHERS)
def test_a_job_file_with_it_is_told_what_to_write(name):
    with pytest.raises(ConfigError, match=f"unknown key '{name}'") as refused:
        parse_settings(TreeParams, {name: 1})
    assert refused.value.todo == other_names.name_remedy(name, TreeParams.model_fields)


def test_a_name_of_what_a_protocol_does_not_have_is_not_promised():
    assert other_names.name_remedy("feature_fraction", BoostingParams.model_fields) is None
    with pytest.raises(ConfigError) as refused:
        parse_settings(BoostingParams, {"feature_fraction": 0.5})
    assert refused.value.todo.startswith("remove it, or write one of: ")


@pytest.mark.parametrize(
    ("name", "todo"),
    [
        ("eta", "write 'learning_rate', the name of eta here"),
        ("num_leaves", "write 'max_leaves', the name of num_leaves here"),
        ("learning_rat", "did you mean 'learning_rate'?"),
    ],
)
def test_an_estimator_says_the_same(name, todo):
    with pytest.raises(InvalidParameterError) as refused:
        SecureBoostClassifier(**{name: 0.1})
    assert refused.value.todo == todo
