"""What a common alignment needs: every party moves every set once, and opens what is common."""

from __future__ import annotations

from collections.abc import Iterator

from fedboost import needs
from fedboost.crypto.id_digests import DIGEST_BYTES
from fedboost.crypto.intersection import POINT_BYTES
from fedboost.needs import Needs, Phase, PhaseTally, Scene
from fedboost.protocols.align.params import AlignParams

STAGE = "align"
POINT_MEMORY = 2200.0  # bytes of an id while sets are moved: numbers, keys, what workers are given


def counted(_: AlignParams, scene: Scene) -> Needs:
    """Phases of the ring, the opening and the check."""
    largest = max(scene.rows.values())
    held = {party: POINT_MEMORY * largest for party in scene.parties}
    return Needs(list(_phases(scene)), held)


def _phases(scene: Scene) -> Iterator[Phase]:
    ring = scene.parties
    first = PhaseTally()
    for place, party in enumerate(ring):
        own = float(scene.rows[party])
        first.add(party, needs.HASH, own)
        first.add(party, needs.MULTIPLY, own)
        first.send((party, ring[(place + 1) % len(ring)]), POINT_BYTES * own)
    yield first.phase(STAGE, "blind the own ids")
    for passed in range(1, len(ring)):
        tally, is_last = PhaseTally(), passed == len(ring) - 1
        for place, party in enumerate(ring):
            theirs = float(scene.rows[ring[place - passed]])
            tally.add(party, needs.CHECK, theirs)
            tally.add(party, needs.MULTIPLY, theirs)
            to = scene.guest if is_last else ring[(place + 1) % len(ring)]
            if to != party:
                tally.send((party, to), POINT_BYTES * theirs)
        yield tally.phase(STAGE, "blind the others' ids")
    yield from _opened(scene)


def _opened(scene: Scene) -> Iterator[Phase]:
    common, guest = float(scene.common), scene.guest
    asked = guest
    for host in reversed(scene.hosts):
        tally = PhaseTally()
        tally.send((asked, host), POINT_BYTES * common)
        if host == scene.hosts[0]:
            tally.send((host, guest), POINT_BYTES * common)
        asked = host
        yield tally.phase(STAGE, "open what is common")
    tally = PhaseTally()
    tally.add(guest, needs.DIGEST, common)
    for host in scene.hosts:
        tally.send((guest, host), DIGEST_BYTES * common)
        tally.send((host, guest), 64.0)
        tally.add(host, needs.DIGEST, float(scene.rows[host]) + common)
    yield tally.phase(STAGE, "compare rows", exchanges=2.0, calls=3.0)
