"""What horizontal FederBoost needs: masked sums of quantiles, of every layer, of metrics."""

from __future__ import annotations

from fedboost import needs
from fedboost.aggregation.needs import metric_words, summed
from fedboost.core import forest
from fedboost.needs import Needs, Phase, PhaseTally, Scene
from fedboost.protocols.federboost_horizontal.params import FederBoostHorizontalParams

STAGE = "federboost-horizontal"
WORD = 8.0
SEARCH = 31.0  # exchanges of a search: it ends with its last column
PER_SUM_CALLS = 0.2  # a whole tree's are asked for at once


def counted(params: FederBoostHorizontalParams, scene: Scene) -> Needs:
    """Keys and counts, the search for cut points, then layers and metrics of every tree."""
    columns = max(scene.columns.values())
    waits = params.dropout == "wait"
    started = summed(PhaseTally(), scene, 3.0 * columns + 16)
    phases = [_exchanged(started, "count rows and labels", 3.0)]
    if params.reuse is None:
        probes = columns * (params.max_bin - 1.0)
        rounds = SEARCH if params.quantile_tolerance != 0 else SEARCH + 1
        # Most columns are found long before the last one.
        search = summed(PhaseTally(), scene, probes / 8)
        phases.append(_exchanged(search, "find quantiles", rounds))
    trees = float(forest.starts(params)[-1])
    rows = scene.training
    begin = PhaseTally()
    for party in scene.parties:
        begin.add(party, needs.FIT, 2.0 * scene.rows[party] * columns)
    phases.insert(0, begin.phase(STAGE, "bin the columns", exchanges=0.0))
    growth = scene.grown(params.max_depth, rows)
    cells = columns * params.column_rate * (params.max_bin + 1.0)
    outputs = 2.0 * params.n_outputs / params.trees_per_round
    calls = PER_SUM_CALLS if waits else 2.0
    for layer, (opened, share) in enumerate(growth.layers(0, params.max_depth)):
        asked = 1.0 if layer == 0 else opened / 2
        work = PhaseTally()
        for party in scene.parties:
            own = scene.rows[party] * (1.0 - scene.held_out) * max(share, 0.25)
            work.add(party, needs.HISTOGRAM, own * columns * outputs / 2)
            work.add(party, needs.NODE, opened * cells)
        words = asked * cells * outputs
        phases.append(_exchanged(summed(work, scene, words), "grow a layer", trees, calls))
    work = PhaseTally()
    for party in scene.parties:
        work.add(party, needs.TREE_ROW, float(scene.rows[party]))
    phases.append(
        _exchanged(summed(work, scene, metric_words(params, scene)), "measure", trees, calls)
    )
    memory = {party: scene.rows[party] * (9.0 * columns + 64.0) for party in scene.parties}
    widest = max(growth.opened) * cells * outputs * WORD
    adds_up = scene.aggregator or scene.guest
    memory[adds_up] = memory.get(adds_up, 0.0) + 4.0 * widest * len(scene.parties)
    return Needs(phases, memory)


def _exchanged(tally: PhaseTally, name: str, times: float, calls: float = 1.0) -> Phase:
    """A vector of everybody's there and its total back."""
    return tally.phase(STAGE, name, exchanges=2.0, calls=calls, times=times)
