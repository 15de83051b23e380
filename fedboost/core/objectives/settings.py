"""Settings of a job that objectives read (`core.params` has them)."""

from __future__ import annotations

from typing import Protocol

from fedboost.core.objectives.labels import LabelRule


class LabelUse(Protocol):
    """Facts of an objective that decide checks and summaries of labels."""

    @property
    def labels(self) -> LabelRule: ...
    @property
    def has_median_leaves(self) -> bool: ...


class ObjectiveSettings(Protocol):
    """Settings that decide a loss."""

    @property
    def objective(self) -> str: ...
    @property
    def record(self) -> LabelUse: ...
    @property
    def num_class(self) -> int | None: ...
    @property
    def n_outputs(self) -> int: ...
    @property
    def scale_pos_weight(self) -> float: ...
    @property
    def tweedie_variance_power(self) -> float: ...
    @property
    def huber_slope(self) -> float: ...
    @property
    def base_score(self) -> float | None: ...
    @property
    def step_max(self) -> float: ...


class Amplification(Protocol):
    """Sampling by gradients, which multiplies the gradients of rows drawn at random."""

    @property
    def factor(self) -> float: ...


class EncodingSettings(Protocol):
    """Settings that decide the encoding of gradients."""

    @property
    def goss(self) -> Amplification | None: ...
    @property
    def precision_bits(self) -> int | None: ...
