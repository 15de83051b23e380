"""What secureboost needs, round after round of its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fedboost import needs as counts
from fedboost.encrypted import needs
from fedboost.encrypted.needs import Cipher, Crowd
from fedboost.flow import Table
from fedboost.needs import Needs, Phase, PhaseTally, Scene
from fedboost.protocols.secureboost import plan
from fedboost.protocols.secureboost.params import SecureBoostParams
from fedboost.protocols.secureboost.plan import Plan

STAGE = "secureboost"


def counted(params: SecureBoostParams, scene: Scene) -> Needs:
    """The key, then groves of the same plan as often as the job has them."""
    cipher = Cipher(params, round(scene.training))
    table = Table(scene.guest, scene.hosts)
    groves: Counter[tuple[Plan, int]] = Counter()
    for number, _, size in plan.groves(params):
        groves[plan.of_round(params, table, number), size] += 1
    phases = [_begin(scene), needs.keyed(STAGE, scene, cipher)]
    for (own, size), times in groves.items():
        phases += _grown(params, scene, cipher, (own, size), float(times))
    share, most = needs.rate(params), max(size for _, size in groves)
    rows = scene.training * needs.together(share, most)
    growth = scene.grown(params.max_depth, scene.training * share)
    held = {host: needs.host_octets(scene, cipher, host, rows, growth) for host in scene.hosts}
    held[scene.guest] = needs.guest_octets(scene, cipher, rows, growth)
    return Needs(phases, held)


def _begin(scene: Scene) -> Phase:
    tally = PhaseTally()
    for party in scene.parties:
        tally.add(party, counts.FIT, float(scene.common) * scene.columns[party])
    return tally.phase(STAGE, "bin the columns", exchanges=0.0)


def _grown(
    params: SecureBoostParams,
    scene: Scene,
    cipher: Cipher,
    grove: tuple[Plan, int],
    times: float,
) -> Iterator[Phase]:
    """The phases of groves of some trees each."""
    own, size = grove
    share = needs.rate(params)
    rows, each = scene.training * needs.together(share, size), scene.training * share
    depth = own.host_layers + own.guest_layers
    growth = scene.grown(depth, each)
    crowds = [Crowd(scene, cipher, host, size, rows, each) for host in own.hosts]
    if crowds:
        yield needs.gradients(STAGE, crowds, times, apart=False)
        yield from needs.layers(STAGE, crowds, growth, (0, own.host_layers), times)
    competes = (0, own.host_layers) if own.guest_competes else (0, 0)
    for span in (competes, (own.host_layers, depth)):
        if span[1] > span[0]:
            found = needs.local_layers(STAGE, scene, growth, span, each, times * size)
            yield found
    tally = PhaseTally()
    tally.add(scene.guest, counts.TREE_ROW, float(scene.common) * size)
    yield tally.phase(STAGE, "close a round", exchanges=0.0, calls=3.0, times=times)
