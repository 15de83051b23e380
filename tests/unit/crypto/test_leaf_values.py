"""Leaf values under encryption: sums, products, masks and packages against Python's integers."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.crypto import schemes
from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.leaf_values import LeafLayout
from fedboost.crypto.limbs import rows_of
from fedboost.crypto.masking import PairStream, answer_masks
from fedboost.ground.errors import ConfigError, PeerError, ProtocolError
from fedboost.ground.workers import Serial
from fedboost.runtime.process.workers import ProcessWorkers
from tests import tiers
from tests.support.ciphertexts import arrived, encrypted, masks_of, short_keys, wrapped

MULTIPLYING = sorted(name for name, row in schemes.KEYED_SCHEMES.items() if row.multiplies)
SECURE = [name for name in MULTIPLYING if schemes.KEYED_SCHEMES[name].secure]
ROWS, VALUE_BITS, FRACTION_BITS, LEAVES = 23, 20, 16, 4
REG_LAMBDA = 1.5


def gradients(outputs, seed):
    """Random gradients, int64 (ROWS, outputs), the extremes among them."""
    rng = np.random.default_rng(seed)
    g = rng.integers(-(2**VALUE_BITS), 2**VALUE_BITS, (ROWS, outputs), endpoint=True)
    g[0], g[1] = 2**VALUE_BITS, -(2**VALUE_BITS)
    return g


def layout_of(public, **more):
    return LeafLayout(VALUE_BITS, ROWS, FRACTION_BITS, public.plaintext_bits, **more)


def leaves_of(rows, seed):
    """A leaf for each of a host's rows, every leaf with one at least."""
    leaf = np.random.default_rng(seed).integers(0, LEAVES, len(rows))
    leaf[:LEAVES] = np.arange(LEAVES)
    return leaf


def row_values(public, layout, ciphertexts, rows, leaf):
    """Each row's leaf value, as a host computes it."""
    cells = leaf[:, None].astype(np.int32)
    sums = public.segment_sum(ciphertexts, rows, cells, LEAVES)
    factors = layout.factors(np.bincount(leaf, minlength=LEAVES), REG_LAMBDA)
    return public.scale(sums, factors)[leaf]


def clear_values(g, rows, leaf):
    """The same in Python's integers, [row][output]."""
    values = []
    for own in leaf.tolist():
        members = [
            row for row, other in zip(rows.tolist(), leaf.tolist(), strict=True) if other == own
        ]
        s = round(Fraction(2**FRACTION_BITS) / (len(members) + Fraction(REG_LAMBDA)))
        values.append([s * sum(int(g[row, k]) for row in members) for k in range(g.shape[1])])
    return values


def overlapping(n_hosts, seed):
    """The guest's rows that each host has, ascending; any two share some, nobody has all."""
    rng = np.random.default_rng(seed)
    return [np.flatnonzero(rng.random(ROWS) < 0.7) for _ in range(n_hosts)]


def masks_for(layout, host, held):
    """A host's masks: one stream a pair over what both have; the earlier of a pair adds."""
    pairs = []
    for peer, rows in enumerate(held):
        shared = np.intersect1d(rows, held[host])
        if peer != host:
            key = bytes([min(host, peer), max(host, peer)]) * 16
            indices = np.searchsorted(held[host], shared)
            pairs.append(PairStream(key, 1 if host < peer else -1, indices))
    return answer_masks((len(held[host]), layout.outputs), layout.mask_bits, pairs)


def answers(private, public, layout, ciphertexts, held, seed):
    """What each host's answer decrypts to, int64 (rows, outputs), and its clear values."""
    for host, rows in enumerate(held):
        value, clear = None, np.zeros((len(rows), layout.outputs), dtype=object)
        for term in range(layout.terms):
            leaf = leaves_of(rows, seed + 10 * host + term)
            own = row_values(public, layout, ciphertexts, rows, leaf)
            value = own if value is None else public.add(value, own)
            clear = clear + np.array(clear_values(GRADIENTS[layout.outputs], rows, leaf), object)
        masks = masks_for(layout, host, held) if layout.holders > 1 else None
        cut = len(rows) // 3
        counts = [cut, 0, len(rows) - cut]  # part-full packages in the middle and at the end
        released = public.release(value, layout, public.blinders(), counts, masks)
        assert len(released) == layout.package_count(counts)
        yield private.decrypt(arrived(released), layout, counts), clear


GRADIENTS = {outputs: gradients(outputs, outputs) for outputs in (1, 2, 3, 7, 9)}


@pytest.mark.parametrize("scheme", MULTIPLYING)
@pytest.mark.parametrize(
    ("outputs", "holders", "terms"), [(1, 3, 1), (3, 3, 2), (2, 2, 5), (7, 3, 1)]
)
def test_answers_of_all_holders_add_up_exactly(scheme, outputs, holders, terms):
    private, public = short_keys(scheme)
    layout = layout_of(public, outputs=outputs, holders=holders, terms=terms)
    g = GRADIENTS[outputs]
    ciphertexts = encrypted(private, g, layout)
    held = overlapping(holders, seed=outputs)
    total = np.zeros((ROWS, outputs), dtype=np.int64)
    expected = np.zeros((ROWS, outputs), dtype=object)
    for rows, (got, clear) in zip(
        held, answers(private, public, layout, ciphertexts, held, seed=1), strict=True
    ):
        assert got.dtype == np.int64
        alone = ~np.isin(rows, np.concatenate([r for r in held if r is not rows]))
        assert got[alone].tolist() == clear[alone].tolist()  # a row with one holder is seen
        assert not (got[~alone] == clear[~alone].astype(np.int64)).any()
        total[rows] += got
        expected[rows] += clear
    assert total.tolist() == expected.tolist()


@pytest.mark.parametrize("scheme", MULTIPLYING)
@pytest.mark.parametrize("outputs", [1, 3])
def test_without_masks_the_values_are_read(scheme, outputs):
    private, public = short_keys(scheme)
    layout = layout_of(public, outputs=outputs, terms=2)
    ciphertexts = encrypted(private, GRADIENTS[outputs], layout)
    held = overlapping(1, seed=3)
    ((got, clear),) = answers(private, public, layout, ciphertexts, held, seed=2)
    assert got.tolist() == clear.tolist()


@settings(max_examples=tiers.examples(25), deadline=None)
@given(
    st.sampled_from(MULTIPLYING),
    st.integers(1, 3),
    st.lists(st.integers(1, 2**40), min_size=1, max_size=6),
    st.integers(0, 2**32),
)
def test_products_are_those_of_integers_in_every_lane(scheme, outputs, factors, seed):
    private, public = short_keys(scheme)
    bits = 10
    layout = LeafLayout(bits, 1, 41, public.plaintext_bits, outputs)
    rng = np.random.default_rng(seed)
    shape = (len(factors), outputs)
    g = rng.integers(-(2**bits), 2**bits, shape, endpoint=True)
    rows = Ciphertexts.concat([encrypted(private, row[None], layout) for row in g])
    before = rows.data.copy()
    scaled = public.scale(rows, np.array(factors))
    public.check(scaled)
    assert np.array_equal(rows.data, before)
    got = private.decrypt(
        arrived(public.release(scaled, layout, public.blinders())), layout, [len(factors)]
    )
    assert got.tolist() == [
        [s * x for x in row] for s, row in zip(factors, g.tolist(), strict=True)
    ]


@pytest.mark.parametrize("scheme", SECURE)
def test_out_of_range_answers_are_one_uniform_error(scheme):
    private, public = short_keys(scheme)
    layout = layout_of(public, holders=2)
    (lane,) = layout.lanes
    top = 1 << lane.package_bits
    texts = set()
    for number in (layout.most + 1, -layout.most - 1, 1 << lane.bits, 1 << (lane.bits + 64)):
        data = rows_of(map(int, private._secret.encrypt([top + number])), public.width)
        with pytest.raises(PeerError) as caught:
            private.decrypt(Ciphertexts(data[:, None]), layout, [1])
        texts.add(tuple(caught.value.lines()))
    assert texts == {("a ciphertext does not decrypt into the declared range",)}
    for number in (layout.most, -layout.most):
        data = rows_of(map(int, private._secret.encrypt([top + number])), public.width)
        got = private.decrypt(Ciphertexts(data[:, None]), layout, [1])
        assert got.tolist() == [[wrapped(number)]]


@pytest.mark.parametrize("scheme", SECURE)
def test_workers_and_one_process_compute_the_same(scheme):
    private, public = short_keys(scheme)
    layout = layout_of(public, outputs=7, holders=2)
    ciphertexts = encrypted(private, GRADIENTS[7], layout)
    factors = np.arange(1, ROWS + 1) * 1000
    numbers = [[row * 10**9 - 7 * k for k in range(7)] for row in range(ROWS)]
    masks = masks_of(numbers, layout.mask_bits)
    with ProcessWorkers(2) as workers:
        parallel = type(public)(public.key, workers)
        scaled = parallel.scale(ciphertexts, factors)
        assert np.array_equal(scaled.data, public.scale(ciphertexts, factors).data)
        released = parallel.release(scaled, layout, parallel.blinders(), masks=masks)
    got = private.decrypt(arrived(released), layout, [ROWS])
    assert got.tolist() == (GRADIENTS[7] * factors[:, None] + np.array(numbers)).tolist()


@pytest.mark.parametrize("scheme", MULTIPLYING)
def test_what_does_not_fit_is_refused(scheme):
    private, public = short_keys(scheme)
    layout = layout_of(public, holders=2)
    rows = encrypted(private, GRADIENTS[1], layout)[:2]
    ill: list[Any] = [[1], [1, 0], [1, -2], [1.0, 2.0], [[1], [1]]]
    for factors in ill:
        with pytest.raises(ProtocolError, match="as many positive factors"):
            public.scale(rows, np.array(factors))
    fitting = masks_of([[5], [6]], layout.mask_bits)
    public.release(rows, layout, public.blinders(), masks=fitting)
    wrong = [
        None,
        masks_of([[5]], layout.mask_bits),
        masks_of([[5, 5], [6, 6]], layout.mask_bits),
        masks_of([[5], [6]], layout.mask_bits - 1),
        masks_of([[5], [6]], layout.mask_bits, streams=2),
    ]
    for masks in wrong:
        with pytest.raises(ProtocolError, match="do not have the masks that they leave under"):
            public.release(rows, layout, public.blinders(), masks=masks)


def test_a_scheme_that_cannot_multiply_says_so():
    private, public = short_keys("iterative-affine")
    assert not schemes.KEYED_SCHEMES["iterative-affine"].multiplies
    layout = layout_of(public, holders=2)
    rows = encrypted(private, GRADIENTS[1], layout)[:1]
    with pytest.raises(ConfigError, match="cannot multiply or add"):
        public.scale(rows, np.array([3]))
    with pytest.raises(ConfigError, match="cannot multiply or add"):
        public.release(rows, layout, public.blinders(), masks=masks_of([[5]], layout.mask_bits))


def test_keys_as_jobs_have_them_answer_whole():
    """Okamoto and Uchiyama's plaintexts are a third of the key."""
    row = schemes.KEYED_SCHEMES["okamoto-uchiyama"]
    private = row.generate(row.key_bits, Serial())
    public = row.load_public(private.public_bytes(), row.key_bits, Serial())
    layout = layout_of(public, outputs=9, holders=3, terms=2)
    assert [len(lane.digits) for lane in layout.lanes] == [7, 2]
    ciphertexts = encrypted(private, GRADIENTS[9], layout)
    held = overlapping(3, seed=9)
    total, expected = np.zeros((2, ROWS, 9), dtype=object)
    for rows, (got, clear) in zip(
        held, answers(private, public, layout, ciphertexts, held, seed=1), strict=True
    ):
        total[rows] += got
        expected[rows] += clear
    assert [[wrapped(x) for x in row] for row in total] == expected.tolist()
