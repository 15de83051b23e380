"""The jobs of the privacy benchmark: 25 trees on credit tables, and attacks on what they tell."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks import plus_jobs, privacy_totals, tables
from benchmarks.federboost_room import Place, Room, contexts, frames_of
from benchmarks.harness import say
from benchmarks.plus_tables import Row
from benchmarks.tables import GUEST, HOST, Table
from fedboost import flow
from fedboost.audit import attacks, linear, transcript
from fedboost.audit.attacks import AttackPlan
from fedboost.audit.findings import CLUSTERS, SUMS, Finding, Linking
from fedboost.audit.linear import Coefficients
from fedboost.audit.releases import KnownReleases
from fedboost.flow import Artefact, Step
from fedboost.messages.party_pb2 import StepReply, Turn
from fedboost.runtime.config.policy import Policy

DATA = ("default_credit", "give_credit")
LEAST = Policy().group_rows_min
SHAPE: dict[str, Any] = {
    **plus_jobs.SHAPE,
    "encryption": {"scheme": "plain"},  # the trees and what they tell are those of every scheme
    "max_depth": plus_jobs.DEPTH,
    "n_estimators": plus_jobs.ROUNDS,
}
FOREST = {"forest": {"n_trees": 5, "subsample": 0.3}, "n_estimators": plus_jobs.ROUNDS // 5}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Variant:
    """A defence: what the job says, and what the host's policy does."""

    params: Mapping[str, Any] = field(default_factory=dict)
    least: int = LEAST  # group_rows_min


DEFAULTS = "defaults"
DIVISIONS = "divided rows alone"  # those of the column's own splits, whatever sums say
PROGRAMME = "neighbours, LP"  # a corner of the feasible set, not the point nearest to chance
SUMS_OF: dict[str, Variant] = {
    DEFAULTS: Variant(),
    "no minimum": Variant(least=1),
    "k = 50": Variant(least=50),
    "k = 100": Variant(least=100),
    "noise 0.5": Variant({"host_noise": 0.5}),
    "noise 1": Variant({"host_noise": 1.0}),
    "half the columns": Variant({"colsample_bytree": 0.5}),
    "FedGBF, 5 × 5 trees": Variant(FOREST),
    "100 trees": Variant({"n_estimators": 4 * plus_jobs.ROUNDS}),
}
LABELS_OF: dict[str, Variant] = {
    DEFAULTS: Variant(),
    "hide_divisions": Variant({"label_protection": {}}),
    **{
        f"purity_max {most}": Variant(
            {"label_protection": {"purity_max": most, "hide_divisions": False}}
        )
        for most in (0.95, 0.9, 0.8)
    },
    "hide_divisions, purity_max 0.9": Variant({"label_protection": {"purity_max": 0.9}}),
}


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    rows: int | None  # of a table at most; None: all
    sums: Sequence[str]
    labels: Sequence[str]
    columns: int  # of the host's, that are attacked
    columns_of_defaults: int  # the same where nothing but the defaults defends
    linkings: tuple[Linking, ...]

    @classmethod
    def of(cls, *, quick: bool) -> Self:
        """The quick one, or all."""
        if quick:
            some = (DEFAULTS, "no minimum", "noise 1")
            return cls(6000, some, (DEFAULTS, "hide_divisions"), 2, 2, ("neighbours", "all"))
        return cls(None, tuple(SUMS_OF), tuple(LABELS_OF), 2, 10, ("none", "neighbours", "all"))


class Watching(Room):
    """A room that notes the gradients that each tree was grown from."""

    gradients: list[Floats]  # tree by tree, (training rows, values)
    kept: dict[str, Artefact]  # everybody's transcript, when the walk is over

    def __post_init__(self) -> None:
        super().__post_init__()
        self.gradients, self.kept = [], {}

    async def __call__(
        self,
        *steps: Step,
        at: str | None = None,
        among: tuple[str, ...] = (),
        spares: bool = False,
    ) -> None:
        """As a room does; a finished round hands over what an audit needs to know of it."""
        await super().__call__(*steps, at=at, among=among, spares=spares)
        if steps[-1].name == "close_round":
            for name, session in self.sessions.items():
                self.hand_over(name, await session.snapshot())

    def hand_over(self, party: str, left: Artefact) -> None:
        """Adds what a round or the end has brought to a party's transcript."""
        assert left.transcript is not None
        before = self.kept.get(party, Artefact()).arrays
        own = left.transcript
        self.kept[party] = Artefact(own.facts, {**before, **own.arrays})

    def _note(
        self, turns: Mapping[str, list[Turn]], replies: list[StepReply], seconds: float
    ) -> None:
        super()._note(turns, replies, seconds)
        if "start_round" in {turn.step for own in turns.values() for turn in own}:
            guest = self.sessions[GUEST].state
            fixed, own = guest.rules.fixed, guest.round.gh[guest.context.parts["train"]]
            g, h = fixed.decode_g(own[:, 0::2]), fixed.decode_h(own[:, 1::2])
            own = np.stack([g / fixed.g_bound, h / fixed.h_bound], axis=2).reshape(own.shape)
            self.gradients += [own] * guest.forest[-1]


@dataclass(frozen=True)
class Trained:
    """A job that is over."""

    room: Watching
    left: Mapping[str, Artefact]

    @property
    def auc(self) -> dict[str, float]:
        """Of training and validation rows after the last round."""
        history = self.left[GUEST].facts["history"]
        return {part: float(values["auc"]) for part, values in history[-1].items()}


def trained(table: Table, variant: Variant) -> Trained:
    """A job of guest and host in one process, its rows aligned already."""
    held = table.held_out(plus_jobs.VALIDATION["fraction"], plus_jobs.SEED)
    dealt = tables.vertical(table)
    limits = Policy(group_rows_min=variant.least)
    indices = {
        party: Place(frame, held, limits=limits) for party, frame in frames_of(table, dealt).items()
    }
    params = {**SHAPE, "eval_metric": ["auc"], **variant.params}
    room = Watching(*contexts("secureboost", flow.Table(GUEST, (HOST,)), params, indices))
    left = asyncio.run(room.walk())
    room.hand_over(GUEST, left[GUEST])
    return Trained(room, left)


def measure_sums(name: str, plan: Plan) -> list[Row]:
    """What sums tell the guest of the host's bins, variant by variant."""
    table, rows = loaded(name, plan), []
    for variant in plan.sums:
        done = trained(table, SUMS_OF[variant])
        releases = transcript.releases(done.room.kept[HOST])
        columns = plan.columns_of_defaults if variant == DEFAULTS else plan.columns
        asked = AttackPlan(plan.linkings, columns)
        known = done.room.gradients.__getitem__
        found = as_rows(attacks.of_host(releases, asked, known))
        if not releases.noise:  # with noise no x fits all sums
            found += _in_a_tree(releases, columns, known)
        about = {"what": SUMS, "data": name, "variant": variant, "rows": releases.n_rows}
        ratio = done.room.sessions[HOST].state.meter.most / releases.n_rows
        rows.append({**about, "ratio": ratio, "auc": done.auc, "found": found})
        say.print(f"{name}: {variant}, sums")
    return rows


def ruled_out(equations: linear.Equations) -> NDArray[np.float64]:
    """What sums of nobody say, float64 (rows,): of their rows none is sought, of others all alike.

    Under minimum groups such sums come from splits of the same column on the way to a node, whose
    divided rows tell as much by themselves.
    """
    x = np.full(len(equations.rows), equations.chance)
    (empty,) = np.nonzero(equations.sums == 0.0)
    x[equations.matrix[empty].indices] = 0.0
    return x


def _in_a_tree(releases: KnownReleases, columns: int, known: Coefficients) -> list[Row]:
    """What linear programming itself finds with neighbour linking, and divided rows alone."""
    rows = []
    for name, solve in ((PROGRAMME, linear.corner), (DIVISIONS, ruled_out)):
        asked = AttackPlan(("neighbours",), columns, solve)
        found = as_rows(attacks.of_host(releases, asked, known))
        rows += [{**row, "linking": name} for row in found]
    return rows


def measure_labels(name: str, plan: Plan) -> list[Row]:
    """What row groupings tell the host of labels, variant by variant."""
    table, rows = loaded(name, plan), []
    for variant in plan.labels:
        done = trained(table, LABELS_OF[variant])
        found = transcript.audit(done.room.kept[GUEST], AttackPlan()).findings
        about = {"what": CLUSTERS, "data": name, "variant": variant, "rows": len(table.y)}
        clusters = [one for one in found if one.attack == CLUSTERS]
        rows.append({**about, "auc": done.auc, "found": as_rows(clusters)})
    return rows


def measure_totals(name: str, plan: Plan) -> list[Row]:
    """What sums under masks tell of few rows, by own_rows_min."""
    return privacy_totals.measure(loaded(name, plan), SHAPE)


def loaded(name: str, plan: Plan) -> Table:
    """Return a table, as much of it as the plan has."""
    whole = tables.load(name)
    return whole if plan.rows is None else whole.sample(plan.rows, plus_jobs.SEED)


def as_rows(found: Sequence[Finding]) -> list[Row]:
    """Return findings as rows of a report."""
    return [
        {
            "linking": one.linking,
            "value": one.value,
            "chance": one.chance,
            "worst": one.worst,
            "tried": one.tried,
        }
        for one in found
    ]
