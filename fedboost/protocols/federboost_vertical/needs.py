"""What vertical FederBoost needs: buckets of every value once, then the guest's own trees."""

from __future__ import annotations

from fedboost import needs
from fedboost.core import forest
from fedboost.core.params import TreeParams
from fedboost.needs import Needs, PhaseTally, Scene
from fedboost.protocols.federboost_vertical.buckets import width
from fedboost.protocols.federboost_vertical.params import FederBoostVerticalParams

STAGE = "federboost-vertical"
SPLIT_BYTES, BATCH_S = 18.0, 1.0


def counted(params: FederBoostVerticalParams, scene: Scene) -> Needs:
    """Buckets, trees on all columns, each host's splits."""
    guest, rows = scene.guest, float(scene.common)
    told, close = PhaseTally(), PhaseTally()
    told.add(guest, needs.FIT, rows * scene.columns[guest])
    trees = float(forest.starts(params)[-1])
    for host in scene.hosts:
        values = rows * scene.columns[host]
        told.add(host, needs.FIT, values)
        if params.reuse is None:
            if params.epsilon is not None:
                told.add(host, needs.DIGEST, rows)
            told.add(host, needs.NOISY, values if params.epsilon is not None else values / 4)
            told.add(guest, needs.NOISY, values / 4)
            told.send((host, guest), values * width(params.buckets) / 8 + 256)
        splits = trees * 2.0 ** min(params.max_depth, 6) * scene.columns[host]
        close.send((guest, host), SPLIT_BYTES * splits / max(1, sum(scene.columns.values())) + 64)
    grown = PhaseTally()
    columns = sum(scene.columns.values()) * params.column_rate
    grow(grown, guest, params, scene, columns)
    close.add(guest, needs.DISK, rows * sum(scene.columns[host] for host in scene.hosts) + 1e6)
    memory = {guest: rows * (columns + 80.0)}
    memory |= {host: 4.0 * rows * scene.columns[host] for host in scene.hosts}
    phases = [
        told.phase(STAGE, "tell buckets", calls=2.0),
        grown.phase(STAGE, "grow a tree", exchanges=0.0, calls=0.1, times=trees),
        close.phase(STAGE, "close the model", calls=2.0),
    ]
    return Needs(phases, memory)


def grow(tally: PhaseTally, party: str, params: TreeParams, scene: Scene, columns: float) -> None:
    """One tree on a party's own rows, all columns binned."""
    rows = scene.training * (params.subsample if params.goss is None else 0.3)
    growth = scene.grown(params.max_depth, rows)
    bins = sum(scene.cells(one) for one in scene.parties) / max(1, sum(scene.columns.values()))
    for opened, share in growth.layers(0, params.max_depth):
        tally.add(party, needs.HISTOGRAM, rows * share * columns)
        tally.add(party, needs.NODE, opened * columns * bins)
    tally.add(party, needs.TREE_ROW, float(scene.common))
