"""Plan of a sweep: a job file with a section `sweep`, and the jobs made from it.

plan: settings × folds ─► members, each a job ─► record: how each ended ─► standings: the best
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from fedboost import protocols
from fedboost.core.metrics import METRICS, MetricName
from fedboost.core.params import BoostingParams
from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.ground.settings import Settings, parse_settings
from fedboost.job import FOLDS_MAX, JobSpec

SECTION = "sweep"
MEMBERS_MAX = 1000  # each is a whole job, and has to be paid for by every party
NAME_CHARS_MAX = 63 - len("-t1000-f1000")  # of the sweep, so that its jobs have names as well
DRAWS_MAX = 100  # in search of settings that no trial has yet

TrialSettings = dict[
    str, Any
]  # a trial's settings, by their names, dots between those inside others


class Range(Settings):
    """Numbers to draw from, for a random search."""

    low: float
    high: float
    log: bool = False  # draw evenly by order of magnitude

    @model_validator(mode="after")
    def _check_order(self) -> Range:
        if not self.low < self.high:
            raise ValueError(f"low is {self.low:g}, high {self.high:g}: low has to be less")
        if self.log and self.low <= 0.0:
            raise ValueError("log needs numbers above 0")
        return self

    @field_validator("low", "high")
    @classmethod
    def _check_finite(cls, given: float) -> float:
        if not math.isfinite(given):
            raise ValueError("has to be a finite number")
        return given

    def draw(self, chance: random.Random, *, integer: bool) -> float | int:
        """Draw a number; an integer from both ends inclusive if the setting is an integer."""
        low, high = (self.low - 0.5, self.high + 0.5) if integer and not self.log else (
            self.low, self.high)  # fmt: skip
        drawn = chance.uniform(low, high)
        if self.log:
            drawn = math.exp(chance.uniform(math.log(low), math.log(high)))
        bounded = min(max(drawn, self.low), self.high)
        return round(bounded) if integer else float(f"{bounded:.6g}")


Choices = Annotated[list[Any], Field(min_length=1)]


class SweepSettings(Settings):
    """The section `sweep` of a job file."""

    params: dict[str, Choices | Range] = Field(default_factory=dict)  # none: cross-validation
    search: Literal["grid", "random"] = "grid"
    trials: int | None = Field(None, ge=1, le=MEMBERS_MAX)  # of a random search
    folds: int | None = Field(None, ge=2, le=FOLDS_MAX)  # absent: the rows of `validation`
    seed: int = Field(0, ge=0)  # of folds and random draws
    metric: MetricName | None = None  # ranks the trials; None: the job's last metric
    reuse: bool = True  # whether all jobs use the hosts' disclosure of the first, where possible

    @model_validator(mode="after")
    def _check_search(self) -> SweepSettings:
        if (self.search == "random") != (self.trials is not None):
            raise ValueError(
                "trials is the number of settings that search: random draws; set both or neither"
            )
        ranges = [name for name, given in self.params.items() if isinstance(given, Range)]
        if self.search == "grid" and ranges:
            raise ValueError(f"{ranges[0]} is a range, which search: random draws from")
        if self.search == "random" and not self.params:
            raise ValueError("a random search needs params to draw")
        return self


@dataclass(frozen=True)
class Trial:
    """A choice of settings."""

    number: int  # from 1
    values: TrialSettings


@dataclass(frozen=True)
class SweepJob:
    """A job of the sweep: a trial on one fold."""

    trial: Trial
    fold: int | None  # None: without folds
    spec: JobSpec  # without references to earlier jobs

    @property
    def key(self) -> str:
        """Name of its job, unique in the sweep."""
        return self.spec.name


@dataclass(frozen=True)
class Earlier:
    """Results of earlier jobs of the sweep that later ones use."""

    alignment: str | None = None  # the job whose rows in common are used again
    reuse: str | None = None  # the job whose disclosure is used again


@dataclass(frozen=True)
class Sweep:
    """A job and the settings to try on it; raises ConfigError unless every trial is a valid job."""

    base: JobSpec
    settings: SweepSettings

    def __post_init__(self) -> None:
        if self.settings.folds is not None and self.base.validation is not None:
            raise ConfigError(
                "the job has both validation and sweep.folds",
                todo="leave validation out: each fold is held out once",
                key="validation",
            )
        if self.settings.folds is None and self.base.validation is None:
            raise ConfigError(
                "the sweep has no rows to compare its trials on",
                todo="set sweep.folds: 5, or validation: {fraction: 0.3}",
                key="sweep.folds",
            )
        if len(self.base.name) > NAME_CHARS_MAX:
            raise ConfigError(
                f"the name of a sweep has at most {NAME_CHARS_MAX} characters",
                key="name",
                todo="shorten it",
            )
        if len(self.trials) * (self.settings.folds or 1) > MEMBERS_MAX:
            raise ConfigError(
                f"{len(self.trials)} trials on {self.settings.folds or 1} folds are more jobs than "
                f"the {MEMBERS_MAX} a sweep may have",
                todo="try fewer values, or set search: random and trials",
                key="sweep.params",
            )
        assert len(self.members) == len(self.trials) * (self.settings.folds or 1)

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """Return every choice of settings, in order."""
        drawn = self._grid_values() if self.settings.search == "grid" else self._random_values()
        return tuple(Trial(number, values) for number, values in enumerate(drawn, 1))

    @cached_property
    def members(self) -> tuple[SweepJob, ...]:
        """Return every job, trial by trial."""
        folds = self.settings.folds
        numbers: list[int | None] = [None] if folds is None else list(range(folds))
        return tuple(
            SweepJob(t, fold, self._fold_job(t, fold)) for t in self.trials for fold in numbers
        )

    @property
    def metric(self) -> MetricName:
        """Metric that ranks the trials of a sweep."""
        return self.settings.metric or self._boosting_params(self.base).metrics[-1]

    @property
    def bigger_is_better(self) -> bool:
        """Return True if the best trial has the greatest value."""
        return METRICS[self.metric].bigger_is_better

    @property
    def reuses_disclosure(self) -> bool:
        """Return True if later jobs use what the first one's hosts have disclosed."""
        reuse = protocols.load_protocol(self.base.protocol).reuse
        swept = {name.partition(".")[0] for name in self.settings.params}
        reuses = "reuse" in self.base.params
        can = reuse is not None and not swept & set(reuse.settled)
        return self.settings.reuse and can and not reuses

    @property
    def aligns_rows(self) -> bool:
        """Return True if its jobs find rows in common, which later ones use again."""
        base = self.base
        return (
            base.alignment_job is None
            and protocols.aligning_stage(base, self._boosting_params(base)) is not None
        )

    @property
    def digest(self) -> str:
        """Return a hash of the whole sweep, which identifies its record."""
        raw = {"job": self.base.model_dump(mode="json"), SECTION: self.settings.model_dump()}
        return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()

    def spec(self, member: SweepJob, earlier: Earlier) -> JobSpec:
        """Return the job to submit, with references to earlier jobs."""
        return self._with_earlier(member.spec, earlier)

    def best_job(self, values: TrialSettings, earlier: Earlier) -> JobSpec:
        """Return the job that trains with these settings, on all rows if there were folds."""
        raw = self.base.model_dump(mode="json")
        raw |= {"name": f"{self.base.name}-best", "params": merged_params(raw["params"], values)}
        return self._with_earlier(parse_settings(JobSpec, raw), earlier)

    def _with_earlier(self, spec: JobSpec, earlier: Earlier) -> JobSpec:
        if self.reuses_disclosure and earlier.reuse is not None:
            reuse = protocols.load_protocol(spec.protocol).reuse
            settled = () if reuse is None else reuse.settled
            params = {key: value for key, value in spec.params.items() if key not in settled}
            return spec.model_copy(update={"params": {**params, "reuse": earlier.reuse}})
        if earlier.alignment is not None and spec.alignment_job is None:
            return spec.model_copy(update={"alignment": earlier.alignment})
        return spec

    def _boosting_params(self, spec: JobSpec) -> BoostingParams:
        kind: type[BaseModel] = protocols.load_protocol(spec.protocol).params
        if not issubclass(kind, BoostingParams):
            raise ConfigError(
                f"{spec.protocol} trains no model to compare",
                key="protocol",
                todo="name a protocol that trains",
            )
        return parse_settings(kind, spec.params, section="params")

    def _fold_job(self, trial: Trial, fold: int | None) -> JobSpec:
        """Return the job of a trial on a fold; a ConfigError names the trial that makes none."""
        raw = self.base.model_dump(mode="json")
        raw["params"] = merged_params(raw["params"], trial.values)
        raw["name"] = f"{self.base.name}-t{trial.number}"
        if fold is not None:
            held = {"fold": fold, "folds": self.settings.folds, "seed": self.settings.seed}
            raw |= {"name": f"{raw['name']}-f{fold + 1}", "validation": held}
        try:
            spec = parse_settings(JobSpec, raw)
            return self._with_metric(spec)
        except FedboostError as error:
            raise error.at(section=SECTION, trial=settings_in_words(trial.values)) from None

    def _with_metric(self, spec: JobSpec) -> JobSpec:
        """Return the job with the metric that compares trials; early stopping keeps its own."""
        metrics = self._boosting_params(spec).metrics
        wanted = self.settings.metric
        if wanted is None or wanted in metrics:
            return spec
        params = {**spec.params, "eval_metric": [wanted, *metrics]}
        spec = spec.model_copy(update={"params": params})
        self._boosting_params(spec)
        return spec

    def _grid_values(self) -> Iterator[TrialSettings]:
        names = list(self.settings.params)
        lists = [given for given in self.settings.params.values() if isinstance(given, list)]
        for combination in itertools.product(*lists):
            yield dict(zip(names, combination, strict=True))

    def _random_values(self) -> Iterator[TrialSettings]:
        """Yield as many distinct draws as asked for; fewer where there are no more."""
        chance = random.Random(self.settings.seed)  # noqa: S311 - which settings to try is public
        seen: set[str] = set()
        for _ in range(self.settings.trials or 0):
            for _ in range(DRAWS_MAX):
                drawn = {name: self._draw_value(name, chance) for name in self.settings.params}
                if json.dumps(drawn) not in seen:
                    seen.add(json.dumps(drawn))
                    yield drawn
                    break

    def _draw_value(self, name: str, chance: random.Random) -> Any:
        given = self.settings.params[name]
        if isinstance(given, Range):
            kind = protocols.load_protocol(self.base.protocol).params
            return given.draw(chance, integer=_is_whole(kind, name.split(".")))
        return chance.choice(given)


def read_sweep(raw: Mapping[str, Any], base: JobSpec, **where: str) -> Sweep:
    """Return the sweep in a file's section, with its job; raise ConfigError like `Sweep`."""
    try:
        return Sweep(base, parse_settings(SweepSettings, raw, section=SECTION))
    except FedboostError as error:
        raise error.at(**where) from None


def merged_params(params: Mapping[str, Any], values: TrialSettings) -> dict[str, Any]:
    """Return parameters overridden by those of a trial; `goss.top_rate` is a key inside `goss`."""
    tried = dict(params)
    for name, value in values.items():
        outer, dot, inner = name.partition(".")
        if dot:
            below = tried.get(outer)
            tried[outer] = merged_params(
                below if isinstance(below, Mapping) else {}, {inner: value}
            )
        else:
            tried[outer] = value
    return tried


def settings_in_words(values: TrialSettings) -> str:
    """Return settings on one line: ``max_depth 3, learning_rate 0.1``."""
    return (
        ", ".join(f"{name} {_value_text(value)}" for name, value in values.items()) or "as the job"
    )


def _value_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_whole(kind: type[BaseModel], path: list[str]) -> bool:
    """Return True if a setting is a whole number by its class."""
    at: Any = kind
    for part in path:
        known = getattr(at, "model_fields", {}).get(part)
        if known is None:
            return False
        options = getattr(known.annotation, "__args__", (known.annotation,))
        inner = [
            option
            for option in options
            if isinstance(option, type) and issubclass(option, BaseModel)
        ]
        at = inner[0] if inner else known.annotation
    return at is int or (int in getattr(at, "__args__", ()) and float not in at.__args__)
