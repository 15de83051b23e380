"""What boosted networks need: three sums a round, and each party's rows through the network."""

from __future__ import annotations

from fedboost import needs
from fedboost.aggregation import counts
from fedboost.aggregation.needs import metric_words, summed
from fedboost.needs import Needs, Phase, PhaseTally, Scene
from fedboost.protocols.gbun.columns import EXPONENTS
from fedboost.protocols.gbun.params import GbunJobParams

STAGE = "gbun"
PASSES = "outputs of a row"  # a row through a network: forward, normalised, softmax
SYSTEM = "squares of a row"  # its part of PᵀHP for one class
SOLVE = "equations of a class"
ROUND_CALLS = 1.0
# Words of sums over rows that are dense, once a job: of each column, and of labels and weights.
SUMS_EACH, BOUNDS_EACH, BOUNDS = 4.0, float(len(EXPONENTS)), 2.0 * len(counts.EXPONENTS)


def counted(params: GbunJobParams, scene: Scene) -> Needs:
    """Rows and columns counted once; then outputs, equations and metrics of every round."""
    columns, size = max(scene.columns.values()), float(params.outputs)
    classes, times = float(params.n_outputs), float(params.n_estimators)
    shape = f"{columns}x{params.outputs}"
    phases = [
        _exchanged(
            summed(PhaseTally(), scene, BOUNDS_EACH * columns + BOUNDS),
            "count rows and labels",
            1.0,
        ),
        _exchanged(summed(PhaseTally(), scene, SUMS_EACH * columns), "sum the columns", 2.0),
    ]
    first, second, third = PhaseTally(), PhaseTally(), PhaseTally()
    for party in scene.parties:
        own = float(scene.rows[party])
        training = own * (1.0 - scene.held_out)
        first.add(party, f"{PASSES}: {shape}", training)
        second.add(party, f"{PASSES}: {shape}", training)
        second.add(party, f"{SYSTEM}: {params.outputs}", training * classes)
        second.add(party, f"{SOLVE}: {params.outputs}", classes)
        third.add(party, f"{PASSES}: {shape}", own)
        third.add(party, needs.TREE_ROW, own)
    equations = classes * (size * (size + 1) / 2 + size)
    measured = metric_words(params, scene)
    for name, words, work in (
        ("add up outputs", 2 * size + 1, first),
        ("add up equations", equations, second),
        ("measure", measured, third),
    ):
        calls = ROUND_CALLS / 3 if params.dropout == "wait" else 2.0
        phases.append(_exchanged(summed(work, scene, words), name, times, calls))
    memory = {
        party: scene.rows[party] * (8.0 * columns + 40.0 * classes) + 48.0 * equations
        for party in scene.parties
    }
    adds_up = scene.aggregator or scene.guest
    memory[adds_up] = memory.get(adds_up, 0.0) + 32.0 * equations * len(scene.parties)
    return Needs(phases, memory)


def _exchanged(tally: PhaseTally, name: str, times: float, calls: float = 1.0) -> Phase:
    """A vector of everybody's there and its total back."""
    return tally.phase(STAGE, name, exchanges=2.0, calls=calls, times=times)
