"""What others could learn of rows and labels, beside what it costs to keep it from them."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import boosting, privacy_totals, tables
from benchmarks.boosting import DEPTH, ROUNDS, VALIDATION
from benchmarks.question import Part, Question
from benchmarks.room import Place, Room, contexts, frames_of
from benchmarks.rows import Row, Shown, drawn, grouped, of
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
    **boosting.SHAPE,
    "encryption": {"scheme": "plain"},  # the trees and what they tell are those of every scheme
    "max_depth": DEPTH,
    "n_estimators": ROUNDS,
}
FOREST = {"forest": {"n_trees": 5, "subsample": 0.3}, "n_estimators": ROUNDS // 5}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Variant:
    """A defence: what the job says, and what the host's policy does."""

    params: Mapping[str, Any] = field(default_factory=dict)
    least: int = LEAST  # group_rows_min


DEFAULTS = "defaults"
DIVISIONS = "divided rows alone"  # those of the column's own splits, whatever sums say
PROGRAMME = "neighbours, LP"  # a corner of the feasible set, not the point nearest to chance
GAINS = {"neighbours": "nearest_gain", PROGRAMME: "linking_gain"}  # of precision / chance
SUMS_OF: dict[str, Variant] = {
    DEFAULTS: Variant(),
    "no minimum": Variant(least=1),
    "k = 50": Variant(least=50),
    "k = 100": Variant(least=100),
    "noise 0.5": Variant({"host_noise": 0.5}),
    "noise 1": Variant({"host_noise": 1.0}),
    "half the columns": Variant({"colsample_bytree": 0.5}),
    "FedGBF, 5 × 5 trees": Variant(FOREST),
    "100 trees": Variant({"n_estimators": 4 * ROUNDS}),
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

    rows: int | None = None  # of a table at most; None: all
    trees: int = ROUNDS
    sums: Sequence[str] = tuple(SUMS_OF)
    labels: Sequence[str] = tuple(LABELS_OF)
    columns: int = 2  # of the host's, that are attacked
    columns_of_defaults: int = 10  # the same where nothing but the defaults defends
    linkings: tuple[Linking, ...] = ("none", "neighbours", "all")

    def table(self, name: str) -> Table:
        """As much of a table as the plan has."""
        return tables.load(name).sample(self.rows)


QUICK = Plan(800, 3, (DEFAULTS, "no minimum"), (DEFAULTS,), 1, 1, ("neighbours",))


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


def trained(table: Table, variant: Variant, trees: int = ROUNDS) -> Trained:
    """A job of guest and host in one process, its rows aligned already."""
    held = table.held_out(**VALIDATION)
    dealt = tables.vertical(table)
    limits = Policy(group_rows_min=variant.least)
    indices = {
        party: Place(frame, held, limits=limits) for party, frame in frames_of(table, dealt).items()
    }
    params = {**SHAPE, "n_estimators": trees, "eval_metric": ["auc"], **variant.params}
    room = Watching(*contexts("secureboost", flow.Table(GUEST, (HOST,)), params, indices))
    left = asyncio.run(room.walk())
    room.hand_over(GUEST, left[GUEST])
    return Trained(room, left)


def sums(name: str, plan: Plan) -> Iterator[Row]:
    """What sums tell the guest of the host's bins, variant by variant."""
    table = plan.table(name)
    for variant in plan.sums:
        done = trained(table, SUMS_OF[variant], plan.trees)
        releases = transcript.known_releases(done.room.kept[HOST])
        columns = plan.columns_of_defaults if variant == DEFAULTS else plan.columns
        known = done.room.gradients.__getitem__
        found = as_rows(attacks.attack_host(releases, AttackPlan(plan.linkings, columns), known))
        if not releases.noise:  # with noise no x fits all sums
            found += _in_a_tree(releases, columns, known)
        ratio = done.room.sessions[HOST].state.meter.most / releases.n_rows
        about = {"what": SUMS, "variant": variant, "rows": releases.n_rows, "ratio": ratio}
        yield {**about, "auc": done.auc, "found": by_linking(found), "attacks": found}


def ruled_out(equations: linear.Equations) -> NDArray[np.float64]:
    """What sums of nobody say, float64 (rows,): of their rows none is sought, of others all alike.

    Under minimum groups such sums come from splits of the same column on the way to a node, whose
    divided rows tell as much by themselves.
    """
    x = np.full(len(equations.rows), equations.chance_precision)
    (empty,) = np.nonzero(equations.sums == 0.0)
    x[equations.matrix[empty].indices] = 0.0
    return x


def _in_a_tree(releases: KnownReleases, columns: int, known: Coefficients) -> list[Row]:
    """What linear programming itself finds with neighbour linking, and divided rows alone."""
    rows = []
    for name, solve in ((PROGRAMME, linear.least_sum_solution), (DIVISIONS, ruled_out)):
        asked = AttackPlan(("neighbours",), columns, solve)
        found = as_rows(attacks.attack_host(releases, asked, known))
        rows += [{**row, "linking": name} for row in found]
    return rows


def labels(name: str, plan: Plan) -> Iterator[Row]:
    """What row groupings tell the host of labels, variant by variant."""
    table = plan.table(name)
    for variant in plan.labels:
        done = trained(table, LABELS_OF[variant], plan.trees)
        found = transcript.run_audit(done.room.kept[GUEST], AttackPlan()).findings
        own = as_rows([one for one in found if one.attack == CLUSTERS])
        about = {"what": CLUSTERS, "variant": variant, "rows": len(table.y)}
        yield {**about, "auc": done.auc, "found": by_linking(own), "attacks": own}


def by_linking(found: Sequence[Row]) -> dict[str, list[float]]:
    """What each attack finds, and chance."""
    return {str(one["linking"]): [one["value"], one["chance"]] for one in found}


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


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """By data set: what neighbour linking gains over chance at the defaults, the meter's ratio, the
    AUC that defaults cost against no minimum, what groupings tell, and of sums under masks by
    own_rows_min the share of one row, the share of nodes with views one row apart, and the AUC.
    """
    found: dict[str, float] = {}
    for group in grouped(of(rows, SUMS), "data"):
        data = str(group[0]["data"])
        by_variant = {row["variant"]: row for row in group}
        if (own := by_variant.get(DEFAULTS)) is not None:
            found[f"ratio.{data}"] = own["ratio"]
            for one in own["attacks"]:
                if one["linking"] in GAINS and one["chance"]:
                    found[f"{GAINS[one['linking']]}.{data}"] = one["value"] / one["chance"]
            if (free := by_variant.get("no minimum")) is not None:
                gap = free["auc"]["validation"] - own["auc"]["validation"]
                found[f"auc_cost.{data}"] = gap
    for row in of(rows, CLUSTERS):
        if row["variant"] == DEFAULTS and row["attacks"]:
            found[f"groupings_auc.{row['data']}"] = row["attacks"][0]["value"]
    for row in of(rows, privacy_totals.TOTALS):
        place, told = f"{row['least']}.{row['data']}", row["told"]
        found[f"sums_of_one.{place}"] = told[privacy_totals.ALONE] / told["sums"]
        found[f"views_apart.{place}"] = told[privacy_totals.APART] / told["nodes"]
        found[f"auc.{place}"] = row["auc"]["validation"]
    return found


def shown(rows: Sequence[Row]) -> list[Shown]:
    """The table of defaults as the page has it, all others as they come."""
    from benchmarks import privacy_defaults

    plain = [row for row in rows if row["what"] != privacy_defaults.BUDGETS]
    return [*drawn(plain), *privacy_defaults.shown(of(rows, privacy_defaults.BUDGETS))]


def totals(name: str, plan: Plan) -> Iterator[Row]:
    """What sums under masks tell of few rows, by own_rows_min."""
    return privacy_totals.measure(plan.table(name), {**SHAPE, "n_estimators": plan.trees})


def defaults(name: str, plan: Plan) -> Iterator[Row]:
    """Candidates for defaults, and what attacks on whole budgets of them find."""
    from benchmarks import privacy_defaults  # which trains as this module does

    return privacy_defaults.measure(name, plan)


PARTS = {"sums": sums, "labels": labels, "totals": totals, "defaults": defaults}
QUESTION = Question(
    *("privacy", __doc__ or "", {name: Part(part, DATA) for name, part in PARTS.items()}),
    full=Plan(),
    quick=QUICK,
    figures=figures,
    tables=shown,
    settings={**SHAPE, "group_rows_min": LEAST},
)

if __name__ == "__main__":
    QUESTION.main()
