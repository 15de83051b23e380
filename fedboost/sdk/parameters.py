"""Parameters of estimators under a job's names, in scikit-learn's manner but without scikit-learn.

They come from the classes that define a job's `params`, and are checked by `fit`.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, get_args

import numpy as np
from pydantic import BaseModel

from fedboost.sdk import xgboost_parameters
from fedboost.sdk.refusals import InvalidParameterError

# Of every estimator, beside a job's params.
OWN: dict[str, Any] = {
    "validation": None,  # a job's: {"fraction": 0.2, "seed": 0}; for early stopping
    "n_jobs": None,  # processes for arithmetic on large numbers; None: one for each core
    "random_state": None,  # the same as `seed`
    "verbose": False,  # True or "auto": show progress
}


class EstimatorParameters:
    """An estimator's parameters, for `clone`, searches and people."""

    _models: ClassVar[tuple[type[BaseModel], ...]] = ()  # classes whose fields are parameters
    _absent: ClassVar[frozenset[str]] = frozenset()  # fields that are not: they follow from data
    _own: ClassVar[dict[str, Any]] = {}  # further parameters, and defaults that are not a job's

    def __init__(self, **params: Any) -> None:
        """Store the parameters; raise ConfigError for an unknown one."""
        vars(self).update(self.defaults())
        self.set_params(**params)

    def __init_subclass__(cls, **more: Any) -> None:
        """Give the class an `__init__` that shows every parameter with its default."""
        super().__init_subclass__(**more)
        if not cls._models:
            return
        defaults = cls.defaults()
        shown = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        shown += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value)
            for name, value in defaults.items()
        ]
        begin = _own_init(cls.__init__)
        begin.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        begin.__name__, begin.__qualname__ = "__init__", f"{cls.__qualname__}.__init__"
        setattr(cls, "__init__", begin)  # noqa: B010  mypy knows no other way

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return every parameter with its default; None for a default with several parts."""
        fields = {
            name: _signature_default(field.get_default(call_default_factory=True))
            for model in cls._models
            for name, field in model.model_fields.items()
            if name not in cls._absent
        }
        return {**fields, **OWN, **cls._own}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters by name; `deep` makes no difference, as none of them is an
        estimator.
        """
        return {name: getattr(self, name) for name in self.defaults()}

    def set_params(self, **params: Any) -> Self:
        """Set some parameters; raise ConfigError for an unknown one."""
        known = self.defaults()
        for name in params:
            if name not in known:
                [nearest] = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
                raise InvalidParameterError(
                    f"{type(self).__name__} has no parameter {name[:64]!r}",
                    todo=xgboost_parameters.remedy(name, known) or f"did you mean {nearest!r}?",
                )
        vars(self).update(params)
        return self

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value!r}" for name, value in self.said().items())
        return f"{type(self).__name__}({params})"

    def said(self) -> dict[str, Any]:
        """Return the parameters that differ from their defaults; None, as in XGBoost, stands for a
        default.
        """
        defaults = self.defaults()
        return {
            name: value
            for name, value in self.get_params().items()
            if not _is_same_value(value, defaults[name])
            and (value is not None or self._takes_none(name))
        }

    @classmethod
    def _takes_none(cls, name: str) -> bool:
        """Return True if None means something other than the default."""
        fields = [m.model_fields[name] for m in cls._models if name in m.model_fields]
        return any(type(None) in get_args(field.annotation) for field in fields)

    def _job_params(self, model: type[BaseModel], **derived: Any) -> dict[str, Any]:
        """Return the `params` of a job: given parameters, and those that follow from the data."""
        fields = set(model.model_fields)
        shared = {name: value for name, value in self._own.items() if name in fields}
        said = self.said()
        asked = xgboost_parameters.job_settings(self.get_params())
        given = {**shared, **said, **asked}
        seed = self.seed_said()
        if seed is not None:
            given["seed"] = seed
        trees = self._parallel_trees()
        if trees is not None:
            given = with_forest(given, trees)
        return {
            name: plain_value(value)
            for name, value in {**given, **derived}.items()
            if name in fields
        }

    def _parallel_trees(self) -> int | None:
        """Return how many trees a round has; None for the job's default."""
        return xgboost_parameters.parallel_trees(self.get_params(), self.said())

    def seed_said(self) -> int | None:
        """Return the job's seed from `random_state`; None if it is not given.

        Raise InvalidParameterError if `seed` differs from it, or if it is invalid.
        """
        state, seed = self.get_params()["random_state"], self.said().get("seed")
        if state is None:
            return None
        if isinstance(state, np.random.RandomState):
            state = int(state.randint(2**31 - 1))
        if isinstance(state, np.random.Generator):
            state = int(state.integers(2**31 - 1))
        if isinstance(state, bool) or not isinstance(state, int | np.integer) or state < 0:
            raise InvalidParameterError(
                f"random_state is {state!r}, expected a whole number", todo="give 0 or more"
            )
        if seed is not None and seed != state:
            raise InvalidParameterError(
                f"seed is {seed} and random_state is {state}", todo="give only one of them"
            )
        return int(state)


def with_forest(settings: Mapping[str, Any], trees: int) -> dict[str, Any]:
    """Return a job's settings with rounds of several trees, whose draws move into `forest`."""
    draws = {name: settings.get(name, 1.0) for name in ("subsample", "colsample_bytree")}
    others = {name: value for name, value in settings.items() if name not in draws}
    return {**others, "forest": {"n_trees": trees, **draws}}


def _own_init(inherited: Callable[..., None]) -> Callable[..., None]:
    """Return an own `__init__` for a class, which can carry its own signature."""

    def call_inherited(self: EstimatorParameters, **params: Any) -> None:
        inherited(self, **params)

    call_inherited.__doc__ = inherited.__doc__
    return call_inherited


def _signature_default(value: Any) -> Any:
    """Return a default for the signature of `__init__`, immutable; None if it has own keys."""
    return None if isinstance(value, BaseModel | Mapping | list) else value


def _is_same_value(first: Any, second: Any) -> bool:
    if first is second:
        return True
    if type(first) is not type(second) or not isinstance(first, str | int | float | tuple):
        return False
    are_nan = isinstance(first, float) and math.isnan(first) and math.isnan(second)
    return are_nan or bool(first == second)


def plain_value(value: Any) -> Any:
    """Return a value in the form of a job's file."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(entry) for entry in value]
    return value
