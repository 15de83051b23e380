"""Packing keys and batches: what the formula says, on Python's numbers; refused when malformed."""

import copy
import pickle

import numpy as np
import pytest

from fedboost.crypto.lattice import packing_keys, samples
from fedboost.crypto.lattice.decryption import fractions_of
from fedboost.crypto.lattice.packing_keys import (
    PACKED_SCALE,
    PackingKey,
    PackingSecret,
    PackingShape,
)
from fedboost.crypto.lattice.parameters import PACKED_BITS, SLOTS
from fedboost.crypto.lattice.transforms import (
    DEGREE,
    MODULI,
    MODULUS,
    PRIMES,
    TRANSFORM_LANES,
    forward,
    reversed_bits,
    root_of_unity,
)
from fedboost.crypto.lattice.words import field_bytes, pack_fields, unpack_fields
from fedboost.crypto.secrets import Secrets
from fedboost.ground.errors import ConfigError, FedboostError, PeerError
from tests.support.lattices import GUEST, LATTICE, LATTICE_4096, ORIGIN, TINY
from tests.support.releases import batch, batch_fractions

BYTES_OF_ORIGIN = ORIGIN.encoded()
RINGS = [LATTICE, LATTICE_4096]


def ternary_for(own, outputs):
    data = np.frombuffer(GUEST.bytes(outputs * samples.ternary_bytes(own.ring), "s"), np.uint8)
    return samples.ternary(data.reshape(outputs, -1), own.ring)


def both_sides(own=LATTICE, outputs=2, slots=32):
    """s_j, the guest's secret, and the key that the host received."""
    shape, ternary = PackingShape(own, outputs, slots), ternary_for(own, outputs)
    secret = PackingSecret(shape, GUEST, BYTES_OF_ORIGIN, ternary)
    return ternary, secret, PackingKey.received(shape, BYTES_OF_ORIGIN, secret.key())


def drawn_answers(own, outputs, widths, seed=0):
    """u, uint64 (groups, n, N), and b, uint64 (n, outputs), modulo 2^64."""
    draw, groups = np.random.default_rng(seed), -(-outputs // 8)
    vectors = draw.integers(0, 2**64, (groups, len(widths), own.ring), dtype=np.uint64)
    return vectors, draw.integers(0, 2**64, (len(widths), outputs), dtype=np.uint64)


def mixed_widths(own, count):
    """W of each candidate: all that there are, one after the other."""
    least = own.scale_bits + 16
    return np.array([least + k % (own.modulus_bits + 1 - least) for k in range(count)], np.uint64)


def distances(fractions_read, exact):
    """How far fractions of 2^64 are from exact ones, in units of 2^-64."""
    return [
        (int(x) - y + 2**63) % 2**64 - 2**63 for x, y in zip(fractions_read, exact, strict=True)
    ]


# Sizes


@pytest.mark.parametrize(
    ("slots", "key", "batch"),
    [(32, 1_376_256, 19_736), (64, 2_752_512, 20_016), (128, 5_505_024, 20_576),
     (256, 11_010_048, 21_696), (512, 22_020_096, 23_936)],
)  # fmt: skip
def test_sizes_are_those_of_the_specification(slots, key, batch):
    shape = PackingShape(LATTICE, 2, slots)
    assert (shape.key_bytes, shape.batch_bytes(slots, 53)) == (key, batch)
    assert PackingShape(LATTICE_4096, 2, slots).key_bytes == 2 * key
    assert shape.pieces == LATTICE.ring * slots // 4096


def test_batches_take_candidates_of_all_nodes_one_after_the_other():
    shape = PackingShape(LATTICE, 2, 32)
    batches = shape.batches([20, 0, 30, 5], [41, 53, 45, 43])
    assert [batch.tolist() for batch in batches] == [[41] * 20 + [45] * 12, [45] * 18 + [43] * 5]
    expected = shape.batch_bytes(32, 45) + shape.batch_bytes(23, 45)
    assert shape.answer_bytes([20, 0, 30, 5], [41, 53, 45, 43]) == expected
    assert shape.batches([], []) == []
    assert shape.answer_bytes([], []) == 0


def test_every_eight_outputs_have_a_c1_of_their_own():
    for outputs, groups in ((1, 1), (8, 1), (9, 2), (17, 3)):
        shape = PackingShape(LATTICE, outputs, 32)
        assert len(shape.groups) == groups
        size = groups * field_bytes(4096, 38) + outputs * field_bytes(32, 35)
        assert shape.batch_bytes(32, 53) == size


@pytest.mark.parametrize("slots", [0, 1, 16, 33, 48, 1024, -32])
def test_other_slots_are_refused(slots):
    with pytest.raises(ConfigError, match="slots"):
        PackingShape(LATTICE, 2, slots)


def test_a_ring_that_makes_no_16_pieces_is_refused():
    for slots in SLOTS:
        with pytest.raises(ConfigError, match="multiple of 16"):
            PackingShape(TINY, 2, slots)


# Keys


@pytest.mark.parametrize(("own", "slots"), [(LATTICE, 32), (LATTICE, 64), (LATTICE_4096, 32)])
def test_a_key_is_the_formula_on_pythons_numbers(own, slots):
    ternary, secret, held = both_sides(own, 2, slots)
    shape = held.shape
    values, errors = held.values[0], [secret._errors(j) for j in range(2)]
    for j, piece, n, x in [(0, 0, 0, 0), (1, 5, 1, 1), (1, 15, 2, 4095), (0, 8, 0, 1234)]:
        prime = PRIMES[n]
        parts = [0] * DEGREE  # S_ij
        for b in range(shape.each):
            place = (-slots * b) % (2 * DEGREE)
            sign = -1 if place >= DEGREE else 1
            parts[place % DEGREE] += sign * int(ternary[j, b * shape.pieces + piece])
        point, values_at = pow(root_of_unity(prime), 2 * reversed_bits(x) + 1, prime), []
        for polynomial in (parts, secret._ternary[j].tolist(), errors[j][piece].tolist()):
            value = 0
            for coefficient in reversed(polynomial):
                value = (value * point + coefficient) % prime
            values_at.append(value)
        a = int(shape.public(BYTES_OF_ORIGIN, piece)[n, x])
        expected = (-a * values_at[1] + values_at[2] - PACKED_SCALE * values_at[0]) % prime
        chunk, lane = divmod(piece, TRANSFORM_LANES)
        assert (a, expected) == (values[chunk, n, x, 0, lane], values[chunk, n, x, 1 + j, lane])


def test_a_key_is_the_same_bytes_again_and_others_share_nothing():
    ternary = ternary_for(LATTICE, 2)
    other = ternary.copy()
    other[1, 2047] = -other[1, 2047] or 1

    def made(slots=32, secrets=GUEST, origin=BYTES_OF_ORIGIN, of=ternary):
        return PackingSecret(PackingShape(LATTICE, len(of), slots), secrets, origin, of)

    first = made()
    assert first.key() == made(secrets=Secrets(GUEST.seal())).key() == first.key()
    changed = [made(64), made(secrets=Secrets(bytes(32))), made(origin=BYTES_OF_ORIGIN + b"\0"),
               made(of=other), made(of=ternary[:1])]  # fmt: skip
    for secret in changed:
        same = (secret._ternary[0] == first._ternary[0]).mean()
        assert same == pytest.approx(1 / 3, abs=0.05)
        assert (secret._errors(0)[0] == first._errors(0)[0]).mean() < 0.2


def test_public_polynomials_depend_on_the_origin_and_the_place_and_not_on_outputs():
    shape, other, more = (PackingShape(LATTICE, 2, 32), PackingShape(LATTICE_4096, 2, 32),
                          PackingShape(LATTICE, 2, 64))  # fmt: skip
    made = [shape.public(b"", 0), shape.public(b"1", 0), shape.public(b"", 1),
            other.public(b"", 0), more.public(b"", 0)]  # fmt: skip
    assert len({polynomial.tobytes() for polynomial in made}) == 5
    assert (PackingShape(LATTICE, 1, 32).public(b"", 0) == made[0]).all()
    for polynomial in made:
        assert polynomial.shape == (3, 4096)
        assert (polynomial < MODULI[:, None]).all()


def test_public_polynomials_whose_bytes_run_out_are_an_error(monkeypatch):
    monkeypatch.setattr(packing_keys, "SPARE", 0)
    with pytest.raises(FedboostError, match="ran out"):
        PackingShape(LATTICE, 2, 32).public(BYTES_OF_ORIGIN, 0)


def test_a_packing_secret_prints_nothing_and_is_not_copied_out():
    _, secret, held = both_sides()
    assert repr(secret) == "PackingSecret(2 outputs, hidden)"
    assert repr(held) == "PackingKey(2 outputs, 32 slots)"
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            copied(secret)


def test_a_key_of_another_size_is_refused():
    _, secret, held = both_sides()
    data = secret.key()
    for wrong in (b"", data[:-1], data + b"\0", data + data):
        with pytest.raises(PeerError, match="packing key of 1376256 bytes"):
            PackingKey.received(held.shape, BYTES_OF_ORIGIN, wrong)


@pytest.mark.parametrize("n", range(3))
@pytest.mark.parametrize("output", [0, 1])
def test_a_residue_that_is_no_residue_is_refused(n, output):
    """Sums of such numbers would overflow."""
    _, secret, held = both_sides()
    fields = np.frombuffer(secret.key(), np.uint8).reshape(2, 16, 3, -1).copy()
    words = np.empty((1, DEGREE), np.uint64)
    for value, is_refused in ((PRIMES[n] - 1, False), (PRIMES[n], True), (2**28 - 1, True)):
        own = fields[output, 7, n][None]
        unpack_fields(own, 28, words)
        words[0, 9] = value
        pack_fields(words, 28, own)
        if is_refused:
            with pytest.raises(PeerError, match="out of range"):
                PackingKey.received(held.shape, BYTES_OF_ORIGIN, fields.tobytes())
        else:
            PackingKey.received(held.shape, BYTES_OF_ORIGIN, fields.tobytes())


# Batches


@pytest.mark.some(6)
@pytest.mark.parametrize("outputs", [1, 2, 9])
@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
def test_a_batch_opens_to_the_inner_products(own, slots, outputs):
    """Its direct twin: b − ⟨u, s⟩ modulo 2^W, for batches that are full, short, and of one."""
    ternary, secret, held = both_sides(own, outputs, slots)
    for count in (slots, slots // 2 + 3, 1):
        widths = mixed_widths(own, count)
        vectors, scalars = drawn_answers(own, outputs, widths, count)
        data = batch(held, vectors, scalars, widths)
        widest = int(widths.max())
        assert len(data) == held.shape.batch_bytes(count, widest)
        direct = scalars.copy()
        for number, group in enumerate(held.shape.groups):
            of_group = ternary[group].astype(np.int64).view(np.uint64)
            direct[:, group] -= vectors[number] @ of_group.T
        left = fractions_of(secret, data, widths) - (direct << (np.uint64(64) - widths[:, None]))
        for k in range(count):
            width = int(widths[k])
            most = 7 * own.packing_variance(width, widest, count) ** 0.5 * 2.0 ** (64 - width)
            assert np.abs(left[k].view(np.int64)).max() < most


def test_what_is_above_the_width_does_not_count():
    """The cut to W bits comes first: what a guest marks above the sums vanishes."""
    _, _, held = both_sides()
    widths = mixed_widths(LATTICE, 5)
    vectors, scalars = drawn_answers(LATTICE, 2, widths)
    mask = (np.uint64(1) << widths[:, None]) - np.uint64(1)
    cut = batch(held, vectors & mask, scalars & mask, widths)
    assert batch(held, vectors, scalars, widths) == cut


def chosen_key(own, slots, values):
    """A host's key of values that no guest makes, uint32 (chunks, primes, M, 16), everywhere."""
    shape = PackingShape(own, 2, slots)
    each = np.repeat(values[:, :, :, None], 3, axis=3)
    return PackingKey(shape, (np.ascontiguousarray(each),))


@pytest.mark.some(3)
@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
def test_numbers_as_large_as_they_get_are_exact(own, slots):
    """All residues p − 1, and u at both ends: a sum that overflowed would be somewhere else."""
    shape = PackingShape(own, 2, slots)
    largest = np.broadcast_to(
        (MODULI - np.uint32(1))[:, None, None], (len(PRIMES), DEGREE, TRANSFORM_LANES)
    )
    held = chosen_key(own, slots, np.broadcast_to(largest, (shape.chunks, *largest.shape)))
    shift = 64 - own.modulus_bits
    for signed in (2 ** (PACKED_BITS - 1) - 1, -(2 ** (PACKED_BITS - 1)), 0, -1):
        whole = (signed << (64 - PACKED_BITS)) % 2**64 >> shift
        vectors = np.full((slots, own.ring), whole, np.uint64)
        widths = np.full(slots, own.modulus_bits, np.uint64)
        cut = (((whole << shift) % 2**64 + (1 << (63 - PACKED_BITS))) % 2**64) >> (64 - PACKED_BITS)
        cut -= (cut >> (PACKED_BITS - 1)) << PACKED_BITS
        exact = ((-shape.pieces * cut) % MODULUS << 64) // MODULUS
        # P is cut · Σ X^x in every piece, and values of −1 everywhere are the polynomial −1.
        for read in batch_fractions(held, vectors, np.zeros((slots, 2), np.uint64), widths):
            for row in read:
                off = distances(row, [exact] * len(row))
                assert -4 < min(off) <= max(off) <= 0


@pytest.mark.parametrize(("own", "slots"), [(LATTICE, 32), (LATTICE, 256), (LATTICE_4096, 128)])
def test_a_batch_is_the_formula_on_pythons_numbers(own, slots):
    """With a key of few coefficients, which are as large as any."""
    shape, draw, count = PackingShape(own, 2, slots), np.random.default_rng(slots), slots - 3
    polynomials = np.zeros((shape.pieces, DEGREE), object)
    for piece in range(shape.pieces):
        for x in draw.integers(0, DEGREE, 2):
            polynomials[piece, x] = int.from_bytes(draw.bytes(11), "little") % MODULUS
    values = np.empty((shape.chunks, len(PRIMES), DEGREE, TRANSFORM_LANES), np.uint32)
    for n, prime in enumerate(PRIMES):
        small = (
            (polynomials % prime).astype(np.uint32).reshape(shape.chunks, TRANSFORM_LANES, DEGREE)
        )
        for chunk in range(shape.chunks):
            turned = np.ascontiguousarray(small[chunk].T)
            forward(turned.reshape(-1), n)
            values[chunk, n] = turned % MODULI[n]
    widths = mixed_widths(own, count)
    vectors, _ = drawn_answers(own, 2, widths, 3)
    product = python_product(polynomials, vectors[0], widths, shape)
    exact = [(int(value) % MODULUS << 64) // MODULUS for value in product]
    read = batch_fractions(chosen_key(own, slots, values), vectors[0],
                     np.zeros((count, 2), np.uint64), widths)  # fmt: skip
    for row in (read[0][0], read[1][0], read[1][1]):
        off = distances(row, exact[: len(row)])
        assert -4 < min(off) <= max(off) <= 0


def python_product(polynomials, vectors, widths, shape):
    """Σ_i P_i·A_i modulo X^M + 1, with few coefficients in each A_i, as Python's numbers."""
    shifted = vectors << (np.uint64(64) - widths[:, None])
    cut = (shifted + np.uint64(1 << (63 - PACKED_BITS))).view(np.int64) >> (64 - PACKED_BITS)
    total = np.zeros(DEGREE, object)
    for piece, polynomial in enumerate(polynomials):
        placed = np.zeros(DEGREE, object)
        for b in range(shape.each):
            first = shape.slots * b
            placed[first : first + len(cut)] = cut[:, b * shape.pieces + piece].astype(object)
        for x in np.flatnonzero(polynomial):
            turned = np.concatenate([-placed[DEGREE - x :], placed[: DEGREE - x]])
            total += polynomial[x] * turned
    return total
