"""What HybridTree needs: the guest's upper layers, and below them those of every host."""

from __future__ import annotations

from dataclasses import replace

from fedboost import needs as counts
from fedboost.core import forest
from fedboost.encrypted import needs
from fedboost.encrypted.needs import Cipher, Crowd
from fedboost.needs import GrowthCounts, Needs, PhaseTally, Scene
from fedboost.protocols.hybridtree.params import HybridTreeParams

STAGE = "hybridtree"


def counted(params: HybridTreeParams, scene: Scene) -> Needs:
    """The key; then for each tree the top, gradients of every host's rows, and its layers."""
    share = needs.rate(params)
    held = {host: scene.shared[host] * (1.0 - scene.held_out) for host in scene.hosts}
    cipher = Cipher(params, round(max(held.values(), default=2.0)))
    trees = float(forest.starts(params)[-1])
    top = scene.grown(params.guest_depth, scene.training * share)
    opened, _ = top.layers(params.guest_depth - 1, params.guest_depth)[0]
    below = _below(params, opened)
    crowds = [
        Crowd(scene, cipher, host, 1, rows * share, rows * share) for host, rows in held.items()
    ]
    begin, close = PhaseTally(), PhaseTally()
    for party in scene.parties:
        own = scene.common if party == scene.guest else scene.shared[party]
        begin.add(party, counts.FIT, float(own) * scene.columns[party])
    close.add(scene.guest, counts.TREE_ROW, float(scene.common) * (1 + len(scene.hosts)))
    upper = (0, params.guest_depth)
    phases = [
        begin.phase(STAGE, "bin the columns", exchanges=0.0),
        needs.keyed(STAGE, scene, cipher),
        needs.local_layers(STAGE, scene, top, upper, scene.training * share, trees),
        needs.gradients(STAGE, crowds, trees, apart=True),
        *needs.layers(STAGE, crowds, below, (0, params.host_depth), trees),
        close.phase(STAGE, "close a round", exchanges=0.0, calls=3.0, times=trees),
    ]
    memory = {
        crowd.host: needs.host_octets(scene, cipher, crowd.host, crowd.rows, below)
        for crowd in crowds
    }
    memory[scene.guest] = needs.guest_octets(scene, cipher, sum(c.rows for c in crowds), below)
    assumed: tuple[str, ...] = ()
    if params.split == "unscored":
        assumed = ("unscored splits: counted like scored ones, though hosts choose by themselves",)
    return Needs(phases, memory, assumed)


def _below(params: HybridTreeParams, opened: float) -> GrowthCounts:
    """A host's layers: its roots are the bottom nodes of the guest's tree."""
    bottom = 2.0 * opened
    own = GrowthCounts.typical(params.host_depth, 1e9)
    return replace(own, opened=tuple(bottom * nodes for nodes in own.opened))
