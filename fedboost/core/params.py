"""Settings of all boosting protocols, under XGBoost's names; not the protection of data."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from fedboost.core import objectives, other_names
from fedboost.core.gradient_bits import BITS_MAX, BITS_MIN
from fedboost.core.metrics import MetricName
from fedboost.core.objectives import ObjectiveName, ObjectiveParams, ObjectiveRecord
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import Settings

MAX_DEPTH = 14  # a layer has at most 2**14 nodes, the limit of every message that lists nodes
MAX_BIN = 256  # XGBoost's default
NUM_CLASS_MAX = 1000  # a row costs two sums per class; beyond this no exchange would end
ROUNDS_MAX = 10_000  # bounds a job's length and the model's size
FOREST_TREES_MAX = 1000  # of a round; nodes of all of them travel in one message


class Goss(Settings):
    """Gradient-based one-side sampling: all rows with large gradients, some of the others."""

    top_rate: float = Field(0.2, gt=0.0, lt=1.0)  # share of all rows: those with largest |g|
    other_rate: float = Field(0.1, gt=0.0, lt=1.0)  # share of all rows: drawn from the others

    @model_validator(mode="after")
    def _leaves_rows_out(self) -> Self:
        if self.top_rate + self.other_rate >= 1.0:
            raise ValueError("top_rate and other_rate make up all rows; leave goss out instead")
        return self

    @property
    def rates(self) -> tuple[float, float]:
        """Shares of all rows: those kept for their gradients, and those drawn."""
        return self.top_rate, self.other_rate

    @property
    def factor(self) -> float:
        """Factor on the drawn rows' g and h, which makes up for the rows that were not drawn."""
        return (1.0 - self.top_rate) / self.other_rate


class Speed(Settings):
    """Share of the rounds that the values of a dynamic forest take to reach their end."""

    n_trees: float = Field(1.0, gt=0.0, le=1.0)
    subsample: float = Field(1.0, gt=0.0, le=1.0)


TreeCount = Annotated[int, Field(ge=1, le=FOREST_TREES_MAX)]
UnitShare = Annotated[float, Field(gt=0.0, le=1.0)]


class Dynamic(Settings):
    """Values of a forest in the first and the last round (Dynamic FedGBF)."""

    n_trees: tuple[TreeCount, TreeCount] = Field((5, 2), strict=False)
    subsample: tuple[UnitShare, UnitShare] = Field((0.1, 0.3), strict=False)
    speed: Speed = Speed()


class Forest(Settings):
    """Several trees a round, grown at once and averaged (FedGBF); for each class if they differ."""

    n_trees: int = Field(5, ge=1, le=FOREST_TREES_MAX)  # of every round
    subsample: float = Field(0.3, gt=0.0, le=1.0)  # chance of a row to be used by a tree
    colsample_bytree: float = Field(1.0, gt=0.0, le=1.0)  # share of columns used by a tree
    dynamic: Dynamic | None = None  # in place of n_trees and subsample

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        both = sorted({"n_trees", "subsample"} & self.model_fields_set)
        if self.dynamic is not None and both:
            raise ValueError(f"{both[0]} and dynamic are two ways to say it: use one of them")
        return self


class BoostingParams(ObjectiveParams):
    """Settings every boosting protocol shares; names and meaning are XGBoost's, and the
    defaults are unless a table below lists a key again.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    # The loss, which decides the valid labels.
    objective: ObjectiveName = objectives.class_objective(2)
    num_class: int | None = Field(None, ge=2, le=NUM_CLASS_MAX)  # classes of multi:softprob
    n_estimators: int = Field(100, ge=1, le=ROUNDS_MAX)  # rounds
    learning_rate: float = Field(0.3, gt=0.0, le=1.0)  # factor on the sum that a round adds
    reg_lambda: float = Field(1.0, ge=0.0)  # added to the hessian sum of a leaf
    scale_pos_weight: float = Field(1.0, gt=0.0)  # factor on the weight of rows with label 1
    tweedie_variance_power: float = Field(1.5, gt=1.0, lt=2.0)  # 1 is Poisson, 2 is gamma
    base_score: float | None = None  # first prediction; None: estimated from the labels
    early_stopping_rounds: int | None = Field(None, ge=1)  # rounds without a better last metric
    eval_metric: tuple[MetricName, ...] = Field((), strict=False)  # empty: the objective's own
    seed: int = Field(0, ge=0, lt=1 << 63)  # public: of random draws, not of secrets

    @classmethod
    def key_remedy(cls, key: str) -> str | None:
        """Return advice about a parameter's name from another library."""
        return other_names.name_remedy(key, cls.model_fields)

    @field_validator("eval_metric", mode="before")
    @classmethod
    def _one_metric_needs_no_list(cls, given: object) -> object:
        return [given] if isinstance(given, str) else given

    @model_validator(mode="after")
    def _classes_fit_the_objective(self) -> Self:
        multi = self.record.has_many_classes
        if multi and self.num_class is None:
            raise ValueError(f"num_class is missing; {self.objective} needs the number of classes")
        if not multi and self.num_class is not None:
            others = objectives.class_objective(NUM_CLASS_MAX)
            raise ValueError(f"num_class is only for {others}, not for {self.objective}")
        return self

    @model_validator(mode="after")
    def _settings_fit_the_objective(self) -> Self:
        for other in objectives.OBJECTIVES.values():
            for name in other.settings:
                usual = type(self).model_fields[name].default
                if other.name != self.objective and getattr(self, name) != usual:
                    raise ValueError(f"{name} needs {other.name}, not {self.objective}")
        return self

    @model_serializer(mode="wrap")
    def _own_settings(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the settings of other objectives, so that a new objective changes no existing
        file.
        """
        said: dict[str, Any] = dump(self)
        others = set(ObjectiveParams.model_fields) - set(self.record.settings)
        return {name: value for name, value in said.items() if name not in others}

    @model_validator(mode="after")
    def _metrics_fit_the_objective(self) -> Self:
        known = objectives.metrics_of(self.objective)
        for name in self.eval_metric:
            if name not in known:
                raise ValueError(
                    f"eval_metric {name} does not fit {self.objective}, which has "
                    + ", ".join(known)
                )
        if len(set(self.eval_metric)) < len(self.eval_metric):
            raise ValueError("eval_metric names the same metric twice")
        return self

    @model_validator(mode="after")
    def _base_score_is_a_prediction(self) -> Self:
        score, link = self.base_score, self.record.link
        if score is not None and not link.gives(score):
            raise ValueError(f"base_score is {score}; {self.objective} needs {link.predictions}")
        return self

    @property
    def record(self) -> ObjectiveRecord:
        """Record of the objective."""
        return objectives.objective_record(self.objective)

    @property
    def metrics(self) -> tuple[MetricName, ...]:
        """Metrics of every round; the last one decides on early stopping.

        Without eval_metric they are the metrics of the objective's record.
        """
        return self.eval_metric or self.record.metrics

    @property
    def step_max(self) -> float:
        """Value of max_delta_step in force; 0 is no limit. The default is the objective's."""
        return self.record.steps.usual

    @property
    def n_outputs(self) -> int:
        """Margins per row: one, or one per class."""
        return self.num_class or 1


class TreeParams(BoostingParams):
    """Settings of every protocol that grows trees.

    max_bin differs from XGBoost's 256: each bin of each column is a ciphertext to add up, send
    and decrypt, and 32 is the papers' choice, at an AUC within 0.005.
    """

    multi_output: bool = False  # one tree a round with vector leaves, not one tree per class
    max_depth: int = Field(6, ge=1, le=MAX_DEPTH)  # layers below the root
    max_leaves: int = Field(0, ge=0, le=1 << MAX_DEPTH)  # of a tree; 0: any number
    grow_policy: Literal["depthwise", "lossguide"] = "depthwise"  # order of growth
    reg_alpha: float = Field(0.0, ge=0.0)  # taken from |gradient sum| of a leaf, not below 0
    max_delta_step: float | None = Field(
        None, ge=0.0
    )  # greatest |leaf| before learning_rate, 0: any
    # By the guest's column: 1 if predictions may only rise with it, −1 if they may only fall.
    monotone_constraints: dict[str, Literal[-1, 0, 1]] = Field(default_factory=dict)
    gamma: float = Field(0.0, ge=0.0)  # least gain of a split
    min_child_weight: float = Field(1.0, ge=0.0)  # least hessian sum (over outputs) of a child
    max_bin: int = Field(32, ge=2, le=MAX_BIN)  # bins of a column, not counting missing values
    subsample: float = Field(1.0, gt=0.0, le=1.0)  # chance of a row to be used in a round
    goss: Goss | None = None  # absent: no sampling by gradients
    colsample_bytree: float = Field(1.0, gt=0.0, le=1.0)  # share of columns used by a tree
    colsample_bylevel: float = Field(1.0, gt=0.0, le=1.0)  # share of these used by a layer
    colsample_bynode: float = Field(1.0, gt=0.0, le=1.0)  # share of those used by a node
    forest: Forest | None = None  # absent: one tree a round (and class)
    # Bits of one gradient; None: the most that fit. The default for encrypted gradients is 7.
    precision_bits: int | None = Field(None, ge=BITS_MIN, le=BITS_MAX)

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        if self.multi_output and not self.record.has_many_classes:
            several = objectives.class_objective(NUM_CLASS_MAX)
            raise ValueError(f"multi_output needs {several}, not {self.objective}")
        if self.goss is not None and self.subsample != 1.0:
            raise ValueError("goss and subsample are two ways to sample rows: use one of them")
        if self.forest is not None:
            for name in ("subsample", "colsample_bytree", "goss"):
                if name in self.model_fields_set:
                    raise ValueError(f"a forest draws its own samples: leave {name} out")
        return self

    @model_validator(mode="after")
    def _leaves_have_an_order(self) -> Self:
        if self.max_leaves and self.grow_policy != "lossguide":
            raise ValueError(
                "max_leaves keeps the splits of greatest gain, layers or not: set grow_policy: "
                "lossguide with it"
            )
        if self.max_leaves == 1:
            raise ValueError("max_leaves is 1, a tree without a split: give 2 or more, 0 for any")
        return self

    @field_validator("monotone_constraints", mode="before")
    @classmethod
    def _columns_have_names(cls, said: object) -> object:
        if isinstance(said, list | tuple | str):
            raise ConfigError(
                "monotone_constraints counts columns, and each party has different columns",
                todo="write it by name: {COLUMN: 1} to rise with it, {COLUMN: -1} to fall",
                key="monotone_constraints",
            )
        return said

    @model_validator(mode="after")
    def _constraints_can_hold(self) -> Self:
        if self.monotone_constraints and self.record.has_median_leaves:
            raise ValueError(
                f"{self.objective} has medians as leaf values, which monotone_constraints does not "
                f"order: leave it out, or use {self.record.instead}"
            )
        if self.monotone_constraints and self.multi_output:
            raise ValueError(
                "monotone_constraints orders one value of a leaf, multi_output has one for each "
                "class: use one of them"
            )
        return self

    @model_validator(mode="after")
    def _steps_have_a_limit(self) -> Self:
        step, steps = self.max_delta_step, self.record.steps
        if step and self.record.has_median_leaves:
            raise ValueError(
                f"{self.objective} has medians as leaf values, which max_delta_step does not cap: "
                "leave it out"
            )
        if step and step > steps.most:
            raise ValueError(
                f"max_delta_step is {step:g}, {steps.effect.format(step=step)}; "
                f"{steps.most:g} is the most for {self.objective}"
            )
        return self

    @property
    def step_max(self) -> float:
        """Value of max_delta_step in force; see `BoostingParams`."""
        return super().step_max if self.max_delta_step is None else self.max_delta_step

    @property
    def column_rate(self) -> float:
        """Share of columns used by a tree."""
        return self.colsample_bytree if self.forest is None else self.forest.colsample_bytree

    @property
    def draws_within_trees(self) -> bool:
        """Return whether layers or nodes use only some of their tree's columns."""
        return self.colsample_bylevel < 1.0 or self.colsample_bynode < 1.0

    @property
    def trees_per_round(self) -> int:
        """Trees per round, for each tree of a forest: one, or one per class."""
        return 1 if self.multi_output else self.n_outputs
