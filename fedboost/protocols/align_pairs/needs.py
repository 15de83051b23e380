"""What a pairwise alignment needs: guest and host move each other's sets, host by host."""

from __future__ import annotations

from fedboost import needs
from fedboost.crypto.id_digests import DIGEST_BYTES
from fedboost.crypto.intersection import POINT_BYTES
from fedboost.needs import Needs, PhaseTally, Scene
from fedboost.protocols.align_pairs.params import AlignPairsParams

STAGE = "align-pairs"
POINT_MEMORY = 2200.0  # bytes of an id while sets are moved: numbers, keys, what workers are given


def counted(_: AlignPairsParams, scene: Scene) -> Needs:
    """Both sets of every pair, there and back; then digests of what is common."""
    guest, own = scene.guest, float(scene.rows[scene.guest])
    blind, move, compare = PhaseTally(), PhaseTally(), PhaseTally()
    for host in scene.hosts:
        theirs, common = float(scene.rows[host]), float(scene.shared[host])
        for party, count, other in ((guest, own, host), (host, theirs, guest)):
            blind.add(party, needs.HASH, count)
            blind.add(party, needs.MULTIPLY, count)
            blind.send((party, other), POINT_BYTES * count)
        for party, count in ((guest, theirs), (host, own)):
            move.add(party, needs.CHECK, count)
            move.add(party, needs.MULTIPLY, count)
        move.send((host, guest), POINT_BYTES * own)
        compare.add(guest, needs.DIGEST, 2 * common)
        compare.add(host, needs.DIGEST, theirs + common)
        compare.send((guest, host), DIGEST_BYTES * common)
        compare.send((host, guest), 64.0)
    phases = [
        blind.phase(STAGE, "blind the own ids"),
        move.phase(STAGE, "blind the others' ids"),
        compare.phase(STAGE, "compare rows", exchanges=2.0, calls=3.0),
    ]
    pairs = {guest: len(scene.hosts) * own} | dict.fromkeys(scene.hosts, own)
    return Needs(phases, {party: POINT_MEMORY * n for party, n in pairs.items()})
