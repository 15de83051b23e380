"""Packed answers of all widths, both rings and all K: exact, with the noise of the formula.

`pytest --long tests/unit/crypto/test_lattice_packing_long.py` runs it.
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedboost.crypto.lattice import answers, released
from fedboost.crypto.lattice.decryption import AnsweredNode, decrypt_packed, fractions_of
from fedboost.crypto.lattice.packing import add_residues, packed_batch
from fedboost.crypto.lattice.packing_keys import PackingKey
from fedboost.crypto.lattice.parameters import SLOTS
from tests.support.lattices import HOST, LATTICE, LATTICE_4096, drawn_messages, grown, integer_sums
from tests.support.releases import NodeAnswers, release_packed

pytestmark = pytest.mark.long

ROWS = 8192
NODES = [1 << power for power in range(14)]  # rows: every width from Δ and 16 bits to q
DISTINCT, COPIES = 16, 46
EACH = DISTINCT * COPIES  # candidates of a width
CASES = [(own, slots) for own in (LATTICE, LATTICE_4096) for slots in SLOTS]


def test_the_plan_has_a_hundred_thousand_candidates_of_all_widths():
    assert EACH * len(NODES) * len(CASES) > 100_000
    for own in (LATTICE, LATTICE_4096):
        widths = {grown(drawn_messages(ROWS, own), own).budget.width(rows) for rows in NODES}
        assert widths == set(range(own.modulus_bits - 13, own.modulus_bits + 1))


@pytest.mark.parametrize(("own", "slots"), CASES, ids=lambda case: str(getattr(case, "name", case)))
def test_packed_answers_are_exact_and_their_noise_is_the_formulas(
    own, slots, monkeypatch, record_property
):
    of = grown(drawn_messages(ROWS, own), own)
    packing = of.secret.packing(slots)
    held = PackingKey.received(packing.shape, of.secret.tree.packing_origin, packing.key())
    given: list[NDArray[np.uint64]] = []
    taken: list[Any] = []

    def noted(key, vectors, *rest):
        given.append(vectors[0].copy())
        add_residues(key, vectors, *rest)

    def kept(shape, whole, numbers, scalars, widths):
        data = packed_batch(shape, whole, numbers, scalars, widths)
        taken.append((given[len(taken)], scalars.copy(), widths.copy(), data))
        return data

    monkeypatch.setattr(answers, "add_residues", noted)
    monkeypatch.setattr(released, "packed_batch", kept)
    secrets = of.secret.reversed_secrets().astype(np.int64).view(np.uint64).T
    whole, added = [], []
    # Each width by itself, then all of them mixed in the batches of one release.
    plans = [[rows] for rows in NODES] + [NODES]
    for number, plan in enumerate(plans):
        copies = COPIES if len(plan) == 1 else 1
        made = [node_of(of, rows, copies, HOST.child(slots, number, rows)) for rows in plan]
        given.clear()
        taken.clear()
        data = release_packed(of.key, [node for node, _, _ in made], held).to_bytes()
        sums = decrypt_packed(of.secret, packing, data, [asked for _, asked, _ in made])
        expected = np.concatenate([sums_of for _, _, sums_of in made])
        assert (sums == expected).all()
        sizes = np.repeat([rows / 2 for rows in plan], DISTINCT * copies)
        first = 0
        for vectors, scalars, widths, batch in taken:
            cut = slice(first, first + len(widths))
            first = cut.stop
            shifts = np.uint64(64) - widths[:, None]
            opened = fractions_of(packing, batch, widths)
            direct = (scalars - vectors @ secrets) << shifts
            true = expected[cut].view(np.uint64) << (shifts + np.uint64(own.scale_bits))
            unit = 2.0 ** -(64.0 - widths[:, None])
            case = int(widths.max()), len(widths)
            sigmas = [(own.packed_sigma(size, int(width), *case),
                       own.packing_variance(int(width), *case) ** 0.5)
                      for size, width in zip(sizes[cut], widths, strict=True)]  # fmt: skip
            scaled = np.array(sigmas)
            whole.append((opened - true).view(np.int64) * unit / scaled[:, :1])
            added.append((opened - direct).view(np.int64) * unit / scaled[:, 1:])
    ratios = [float(np.sqrt((np.concatenate(part) ** 2).mean())) for part in (whole, added)]
    record_property("candidates", len(np.concatenate(whole)))
    record_property("noise ÷ formula, all and of packing alone", ratios)
    assert ratios == pytest.approx([1, 1], rel=0.03)


def node_of(of, rows, copies, secrets):
    """Cells of about half of a node's rows each, some times over; what is asked; their sums."""
    draw = np.random.default_rng(rows)
    taken = np.sort(draw.permutation(ROWS)[:rows])
    cells = np.where(draw.random((rows, DISTINCT)) < 0.5, np.arange(DISTINCT), -1).astype(np.int32)
    places = np.tile(np.arange(DISTINCT), copies)
    sums = of.rows.segment_sum(taken, cells, DISTINCT)[places]
    expected = np.concatenate(
        [integer_sums(of.messages[taken], cells[:, [n]] - n, 1) for n in range(DISTINCT)]
    )
    node = NodeAnswers(sums, of.budget.width(rows), secrets)
    return node, AnsweredNode(len(places), rows), expected[places]
