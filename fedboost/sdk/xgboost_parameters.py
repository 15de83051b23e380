"""XGBoost's parameters that no job has: values with the same effect are taken, others refused."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedboost.core import other_names
from fedboost.sdk.caller_warnings import warn_caller
from fedboost.sdk.refusals import InvalidParameterError


@dataclass(frozen=True)
class XgboostParameter:
    """A parameter of XGBoost's estimators that is no parameter of a job."""

    default: Any  # XGBoost's; it is always taken
    same: tuple[Any, ...]  # further values that change nothing here
    todo: str  # for a user who gives another value
    near: tuple[str, ...] = ()  # values that are taken with a warning: the model differs a little


XGBOOST_PARAMETERS: Mapping[str, XgboostParameter] = {
    "verbosity": XgboostParameter(None, (0, 1, 2, 3), "give 0 to 3"),
    "booster": XgboostParameter(
        None, ("gbtree",), "leave it out: every model here is boosted trees, without dropout"
    ),
    "tree_method": XgboostParameter(
        None, ("auto", "hist"), "leave it out: trees grow on binned columns", ("exact", "approx")
    ),
    "sampling_method": XgboostParameter(
        None, ("uniform",), "set goss={'top_rate': 0.2, 'other_rate': 0.1} to sample by gradients"
    ),
    "num_parallel_tree": XgboostParameter(None, (), "give a whole number from 1 to 1000"),
    "interaction_constraints": XgboostParameter(
        None, (), "leave it out: no protocol constrains which columns a path combines"
    ),
    "importance_type": XgboostParameter("gain", (), "give gain, weight or total_gain"),
    "device": XgboostParameter(None, ("cpu",), "leave it out: parties compute on processors"),
    "validate_parameters": XgboostParameter(
        None, (True, False), "leave it out: unknown parameters are always refused"
    ),
    "enable_categorical": XgboostParameter(
        False, (True,), "leave it out: columns of a categorical type, and those in `categorical`, "
        "are categories"
    ),
    "feature_types": XgboostParameter(
        None, (), "give one of c, q, float, int and i for each column of a single table; otherwise "
        "name the columns of categories in `categorical`"
    ),
    "feature_weights": XgboostParameter(
        None, (), "leave it out: colsample_bytree draws all columns alike"
    ),
    "max_cat_to_onehot": XgboostParameter(
        None, (1,), "leave it out: categories are ordered by their gradients"
    ),
    "max_cat_threshold": XgboostParameter(
        None, (), "leave it out: a split may part all categories of a column"
    ),
    "multi_strategy": XgboostParameter(
        None,
        ("one_output_per_tree", "multi_output_tree"),
        "give one_output_per_tree or multi_output_tree",
    ),
    "callbacks": XgboostParameter(None, (), "give a list of callbacks"),
}  # fmt: skip
FEATURE_TYPES = ("c", "q", "float", "int", "i")  # the first is for categories
_CHECKED_ELSEWHERE = frozenset(
    {"num_parallel_tree", "importance_type", "callbacks", "feature_types"}
)

_TREES_ONE_WAY = "leave it out: trees are grown in one way here"
_RANKS = "leave it out: no protocol ranks rows within groups; use a classifier's probabilities"
_NEVER_NEEDED: Mapping[tuple[str, ...], str] = {
    ("nthread", "num_threads"): "write 'n_jobs', the processes of this machine's simulation",
    ("use_label_encoder",): "leave it out: classes may have any names",
    ("num_class", "num_classes", "n_classes"): "leave it out: it follows from the labels",
    ("updater", "process_type", "refresh_leaf", "predictor", "gpu_id"): _TREES_ONE_WAY,
    ("boosting_type", "sample_type", "normalize_type", "rate_drop", "skip_drop", "one_drop"): (
        XGBOOST_PARAMETERS["booster"].todo
    ),
    ("lambdarank_pair_method", "lambdarank_num_pair_per_sample", "ndcg_exp_gain"): _RANKS,
    ("categorical_feature", "cat_features"): "name the columns of categories in `categorical`",
    ("silent",): "write 'verbosity'",
    ("quantile_alpha", "expectile_alpha"): (
        "leave it out: no objective learns quantiles; the one for absolute errors learns the median"
    ),
}
_TODO = {name: todo for names, todo in _NEVER_NEEDED.items() for name in names}


def remedy(name: str, known: Container[str]) -> str | None:
    """Return what to do in place of giving an unknown parameter; None if nothing is known of it."""
    if name in XGBOOST_PARAMETERS:
        return "leave it out: this estimator grows no trees"
    return _TODO.get(name) or other_names.name_remedy(name, known)


def check(params: Mapping[str, Any]) -> None:
    """Refuse values of XGBoost's parameters that have no effect here; warn of those with another
    one.
    """
    for name, parameter in XGBOOST_PARAMETERS.items():
        value = params.get(name)
        if name not in params or name in _CHECKED_ELSEWHERE or value is None:
            continue
        if isinstance(value, str) and value in parameter.near:
            warn_caller(f"{name}={value!r} grows trees on bins here: max_bin sets how many")
        elif not (isinstance(value, str | int) and value in _taken(parameter)):
            raise InvalidParameterError(f"{name} is {value!r}", todo=parameter.todo)


def job_settings(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job's settings for XGBoost's parameters."""
    return {"multi_output": True} if params.get("multi_strategy") == "multi_output_tree" else {}


def parallel_trees(params: Mapping[str, Any], said: Mapping[str, Any]) -> int | None:
    """Return `num_parallel_tree`, None for one tree; `said` are the user's parameters."""
    trees = params.get("num_parallel_tree")
    if trees is None or trees == 1:
        return None
    if isinstance(trees, bool) or not isinstance(trees, int):
        raise InvalidParameterError(
            f"num_parallel_tree is {trees!r}", todo=XGBOOST_PARAMETERS["num_parallel_tree"].todo
        )
    if said.get("forest") is not None:
        raise InvalidParameterError(
            "num_parallel_tree and forest both say how many trees a round has",
            todo="use one of them",
        )
    return trees


def categories_by_type(types: Any, names: Sequence[str]) -> list[str]:
    """Return the columns that `feature_types` calls categories; refuse any other list."""
    if types is None:
        return []
    is_list = isinstance(types, list | tuple) and len(types) == len(names)
    if not is_list or not all(one in FEATURE_TYPES for one in types):
        raise InvalidParameterError(
            f"feature_types is {types!r}, and the table has {len(names)} columns",
            todo=XGBOOST_PARAMETERS["feature_types"].todo,
        )
    return [name for name, one in zip(names, types, strict=True) if one == "c"]


def check_objective(objective: Any, name: str) -> None:
    """Refuse an objective that the estimator `name` cannot have, saying which one can."""
    if callable(objective):
        raise InvalidParameterError(
            "objective is a function, and parties must know its gradients' bounds beforehand",
            todo="name one of XGBoost's objectives",
        )
    if isinstance(objective, str) and objective.startswith("rank:"):
        raise InvalidParameterError(
            f"objective is {objective}, and no protocol ranks rows within groups",
            todo=f"leave it out, and rank rows by the scores of {name}",
        )


def check_metric(metrics: Any) -> None:
    """Refuse functions as metrics."""
    for metric in metrics if isinstance(metrics, list | tuple) else [metrics]:
        if callable(metric):
            raise InvalidParameterError(
                "eval_metric is a function, and the job measures rows that you do not hold",
                todo="name a metric, or score predictions with the function after fit",
            )


def _taken(parameter: XgboostParameter) -> tuple[Any, ...]:
    return (parameter.default, *parameter.same)
