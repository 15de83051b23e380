"""The guest's rounds: margins, metrics, and the decision to stop."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from fedboost.core import margins, metrics, objectives, sampling
from fedboost.core.early_stopping import EarlyStopping
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.leaf_gradients import LeafGradients
from fedboost.core.objectives import Gradients, Objective
from fedboost.core.params import TreeParams
from fedboost.core.purity import PurityLimit
from fedboost.core.sampling import Sample
from fedboost.encrypted.scheme.params import EncryptedContext, EncryptedTreeParams
from fedboost.ground.arrays import Floats, Sums
from fedboost.ground.slot import Slot
from fedboost.ground.state import Growing, state_class
from fedboost.messages.job_pb2 import Count, StatusReport
from fedboost.model import labels, words

History = list[dict[str, dict[str, float]]]  # one a round


@dataclass(frozen=True)
class GuestLabels:
    """The guest's labels and weights, float64 (n,) each."""

    y: Floats
    weight: Floats

    @classmethod
    def of(cls, context: EncryptedContext, params: TreeParams) -> Self:
        """Return a table's labels; refuse early stopping without rows held out."""
        labels.check_held_out(params, bool(context.validation.any()))
        weight = context.data.weight
        return cls(context.label, np.ones(context.data.n_rows) if weight is None else weight)


@dataclass(frozen=True)
class OpenRound:
    """The current round: the rows that it draws, and the gradients that its trees learn from."""

    sample: Sample
    gh: Sums  # (rows, 2·all outputs)


@state_class
class RoundsState:
    """Finished rounds, and the start of the current one."""

    margin: Floats  # (rows, outputs), training and validation rows
    stopping: EarlyStopping
    history: Growing[dict[str, dict[str, float]]]
    forest: Growing[int]  # trees of each round, for each class
    start: Floats | None  # (rows, outputs) margins of the current round's gradients


@dataclass(kw_only=True)
class Rounds(RoundsState):
    """Finished rounds; a protocol's guest remembers them beside its trees."""

    context: EncryptedContext
    params: EncryptedTreeParams
    objective: Objective
    y: Floats
    weight: Floats
    base_margin: Floats  # (outputs,)
    stopping: EarlyStopping = field(init=False)
    first_round: int = 0  # first of this job; earlier ones are those of the model it continues
    history: History = field(default_factory=list)
    forest: list[int] = field(default_factory=list)
    start: Floats | None = None
    round = Slot[OpenRound]("a round under way")

    def __post_init__(self) -> None:
        """Refuse rows that a metric cannot rank, before a tree has grown."""
        decisive = metrics.METRICS[self.params.metrics[-1]]
        self.stopping = EarlyStopping(self.params.early_stopping_rounds, decisive.bigger_is_better)
        self._measure()

    @cached_property
    def purity_limit(self) -> PurityLimit | None:
        """The purity limit of nodes that hosts see; None if the job has no limit."""
        protection = self.params.label_protection
        if protection is None or protection.purity_max is None:
            return None
        training = ~self.context.validation
        return PurityLimit.from_labels(
            self.params.objective, self.y, training, protection.purity_max
        )

    @property
    def best_round(self) -> int:
        """The best round of all; early stopping chooses among those of this job."""
        last = len(self.history) - 1
        return last if self.stopping.best is None else self.first_round + self.stopping.best_round

    @property
    def n_kept(self) -> int:
        """Number of trees that the model keeps."""
        return sum(self.forest[: self.best_round + 1]) * self.params.trees_per_round

    @property
    def outputs_of_tree(self) -> int:
        """Number of values of a leaf."""
        return self.params.n_outputs // self.params.trees_per_round

    def start_round(self, fixed: FixedPoint) -> Gradients:
        """Begin a round, or resume the current one, and return the gradients of all training rows,
        float64 (n, outputs) each.

        The round has the gradients of the rows that it draws, at the margins before it, as exact
        integers in units of `fixed`.
        """
        number, train = len(self.history), self.context.parts["train"]
        if self.start is None:
            self.start = self.margin.copy()
        gradients = self._gradients(self.start)
        sample = sampling.round_sample(self.params, gradients[0], number, number - self.first_round)
        self.forest[number:] = [len(sample.trees)]
        gh = sample.encoded_gradients(fixed, gradients)
        if len(gh) < len(self.y):
            drawn, gh = gh, np.zeros((len(self.y), gh.shape[1]), np.int64)
            gh[train[sample.rows]] = drawn
        self.round = OpenRound(sample, gh)
        return gradients

    def leaf_gradients(self, tree: int, coarse: FixedPoint) -> LeafGradients | None:
        """Return the gradients of the leaves of tree number `tree`, whose divisions are in units of
        `coarse`; None if these are exact enough. They are made on request: rows are many.
        """
        if not coarse.is_coarse:
            return None
        assert self.start is not None
        some, sample = self.outputs_of(tree), self.round.sample
        g, h = sample.scaled_gradients(self._gradients(self.start))
        at = self.context.parts["train"][sample.rows]
        return LeafGradients.of(coarse, g[:, some], h[:, some], at, len(self.y))

    def _gradients(self, margin: Floats) -> Gradients:
        """Return the gradients of the training rows."""
        train = self.context.parts["train"]
        # All rows are used without a copy.
        chosen = slice(None) if len(train) == len(self.y) else train
        return self.objective.gradients(margin[chosen], self.y[chosen], self.weight[chosen])

    def gh_of(self, tree: int) -> Sums:
        """Return the gradients that tree number `tree` learns from, int64 (rows, 2·values of a
        leaf), contiguous.
        """
        return np.ascontiguousarray(self.round.gh[:, self.pairs_of(tree)])

    def pairs_of(self, tree: int) -> slice:
        """Return the columns of a round's gradients that tree number `tree` learns from."""
        outputs = self.outputs_of(tree)
        return slice(2 * (outputs.start or 0), None if outputs.stop is None else 2 * outputs.stop)

    def outputs_of(self, tree: int) -> slice:
        """Return the margins that tree number `tree` of the current round adds to: its class's, or
        all.

        The number counts trees of all rounds.
        """
        per_round = self.params.trees_per_round
        if per_round == 1:
            return slice(None)
        output = (tree - sum(self.forest[:-1]) * per_round) // self.forest[-1]
        return slice(output, output + 1)

    def close_round(self, loop: str) -> StatusReport:
        """Return the metrics of the round, and whether early stopping ends the rounds, which `loop`
        counts.
        """
        margins.check_finite(self.params, self.margin, len(self.history) + 1)
        measured = self._measure()
        self.history.append(measured)
        self.start = None
        del self.round
        if self.params.early_stopping_rounds is not None:
            self.stopping = self.stopping.after(measured["validation"][self.params.metrics[-1]])
        return StatusReport(ends=self.ended(loop), metrics=words.as_metrics(measured))

    def ended(self, loop: str) -> str:
        """Return the name of the finished loop: that of the rounds after early
        stopping, or none.
        """
        return loop if self.stopping.stop else ""

    def status_report(self) -> StatusReport:
        """Report the rounds: metrics of the best one, counts, curves."""
        best = self.best_round
        told = StatusReport(best=words.as_metrics(self.history[best]))
        told.counts.add(name="rounds", count=best + 1)
        told.counts.add(name="trees", count=self.n_kept)
        if self.first_round:
            told.counts.add(name="earlier_rounds", count=self.first_round)
        parts = self.context.parts
        told.counts.extend(Count(name=name, count=len(rows)) for name, rows in parts.items())
        if self.params.record.has_chances:
            prediction = objectives.transform(self.params.objective, self.margin)[:, 0]
            told.curves.extend(words.curve_messages(self.y, prediction, parts))
        return told

    def model_facts(self) -> dict[str, Any]:
        """Return the facts about the whole model for the guest's shard."""
        return {
            "objective": self.params.objective,
            "params": self.params.model_dump(mode="json"),
            "base_margin": self.base_margin.tolist(),
            "trees": self.n_kept,
            "trees_per_round": self.params.trees_per_round,
            "forest": self.forest[: self.best_round + 1],
            "history": self.history,
        }

    def _measure(self) -> dict[str, dict[str, float]]:
        parts = self.context.parts
        return words.measure_parts(self.params, self.margin, self.y, self.weight, parts)
