"""Nothing leaves a host unblinded (SECURITY.md, D5): the attacks, and that there is no way
round.
"""

import ast
from pathlib import Path

import gmpy2
import numpy as np
import phe
import pytest

import fedboost
from fedboost.crypto import api
from fedboost.crypto.api import BlindedPackages, Ciphertexts, Encrypted
from fedboost.crypto.limbs import as_bytes
from fedboost.crypto.modular import ModularPublic
from fedboost.crypto.modular_kernels import numbers
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.paillier import PaillierKey
from fedboost.crypto.paillier_keys import SecretPrimes
from fedboost.ground.workers import Serial
from tests.support.ciphertexts import pairs_in, single

TRIALS = 20
ROWS = 32


@pytest.fixture(scope="module")
def guest():
    """A guest's key (short, for many trials) as phe sees it, and the host's view of it."""
    public, private = phe.generate_paillier_keypair(n_length=1024)
    return public, private, ModularPublic(PaillierKey(public.n), Serial())


def encrypt_raw(public, host, plaintexts):
    values = [gmpy2.mpz(public.raw_encrypt(m % public.n)) for m in plaintexts]
    return single(as_bytes(values, host.width))


def opened(private, released):
    width = released.width
    raw = released.to_bytes()
    return [
        private.raw_decrypt(int.from_bytes(raw[i : i + width], "big"))
        for i in range(0, len(raw), width)
    ]


@pytest.mark.parametrize("compress", [True, False])
def test_rows_marked_above_the_declared_package_are_not_read_back(guest, compress):
    """One bit a row in unused plaintext: sums show it, released packages do not."""
    public, private, host = guest
    layout = GhLayout(8, ROWS, host.plaintext_bits, compress=compress)
    free = host.plaintext_bits - layout.lanes[0].package_bits
    # The topmost 41 bits of the blinding range are given away, as SECURITY.md says.
    marks = [layout.lanes[0].package_bits + i * (free - 41 - 1) // ROWS for i in range(ROWS)]
    rows = encrypt_raw(public, host, [1 << mark for mark in marks])
    rng = np.random.default_rng(1)
    blinders = host.blinders()
    read_back = 0
    right = 0
    for _ in range(TRIALS):
        members = rng.random(ROWS) < 0.5
        chosen = np.flatnonzero(members)
        cells = np.zeros((len(chosen), 1), dtype=np.int32)
        sums = host.segment_sum(rows, chosen, cells, 1)
        clear = private.raw_decrypt(int(numbers(sums.data)[0]))
        assert clear == sum(1 << marks[i] for i in chosen)  # unblinded, all of it is read
        (value,) = opened(private, host.release(sums, layout, blinders))
        guess = np.array([(value >> mark) & 1 for mark in marks], dtype=bool)
        read_back += bool((guess == members).all())
        right += int((guess == members).sum())
    assert read_back == 0
    assert abs(right / (TRIALS * ROWS) - 0.5) < 0.2  # of single bits, as many as by guessing


@pytest.mark.parametrize("compress", [True, False])
def test_a_field_that_overflows_is_drowned_where_it_has_headroom_of_its_own(guest, compress):
    """Compressed, the overflow lands in the next field: what `modular`'s module text admits."""
    public, private, host = guest
    layout = GhLayout(8, ROWS, host.plaintext_bits, compress=compress)
    marked = range(layout.n_bit, layout.n_bit + 8)
    rows = encrypt_raw(public, host, [1 << mark for mark in marked])
    members = np.array([1, 0, 1, 1, 0, 0, 1, 0], dtype=bool)
    chosen = np.flatnonzero(members)
    cells = np.zeros((len(chosen), 1), dtype=np.int32)
    sums = host.segment_sum(rows, chosen, cells, 1)
    blinders = host.blinders()
    read = 0
    for _ in range(TRIALS):
        (value,) = opened(private, host.release(sums, layout, blinders))
        read += [(value >> mark) & 1 for mark in marked] == members.tolist()
    assert read == TRIALS if compress else read < TRIALS // 4


def test_the_headroom_is_filled_to_the_top_and_never_wraps(guest):
    public, private, host = guest
    layout = GhLayout(8, ROWS, host.plaintext_bits)
    capacity = layout.lanes[0].capacity
    lowest = encrypt_raw(public, host, [-layout.bound << layout.h_bits] * capacity)
    highest = encrypt_raw(public, host, [(layout.bound << layout.h_bits) + layout.bound] * capacity)
    blinders = host.blinders()
    filled = []
    for _ in range(TRIALS):
        for rows, expected in ((lowest, (-layout.bound, 0)), (highest, (layout.bound,) * 2)):
            (value,) = opened(private, host.release(rows, layout, blinders))
            assert pairs_in(layout, value, layout.lanes[0].capacity) == [expected] * capacity
            filled.append(value / public.n)
    assert min(filled) < 0.25
    assert max(filled) > 0.75


def test_two_releases_of_the_same_sums_differ(guest):
    public, private, host = guest
    layout = GhLayout(8, ROWS, host.plaintext_bits)
    sums = encrypt_raw(public, host, [5] * layout.lanes[0].capacity)
    blinders = host.blinders()
    first, second = (host.release(sums, layout, blinders) for _ in range(2))
    assert first.to_bytes() != second.to_bytes()
    assert opened(private, first) != opened(private, second)


def test_the_guest_cannot_recognise_the_rows_by_their_own_randomness(guest):
    """Modulo n a ciphertext is r^n: the guest knows r of every row, hence the product of any
    subset.
    """
    public, _, host = guest
    layout = GhLayout(8, ROWS, host.plaintext_bits, compress=False)
    rows = encrypt_raw(public, host, [0] * ROWS)
    members = np.arange(0, ROWS, 3)
    sums = host.segment_sum(rows, members, np.zeros((len(members), 1), np.int32), 1)
    fingerprint = 1
    for value in numbers(rows[members].data):
        fingerprint = fingerprint * value % public.n
    assert numbers(sums.data)[0] % public.n == fingerprint  # unblinded, the subset is recognised
    released = host.release(sums, layout, host.blinders())
    value = int.from_bytes(released.to_bytes(), "big")
    assert value % public.n != fingerprint
    ratio = value * gmpy2.invert(fingerprint, public.n) % public.n
    assert gmpy2.jacobi(ratio, public.n) in (-1, 1)


def test_equal_sums_cannot_be_told_from_different_ones(guest):
    """Equal gradients give equal plaintexts, but no two equal ciphertexts."""
    public, _, host = guest
    layout = GhLayout(8, ROWS, host.plaintext_bits, compress=False)
    one = encrypt_raw(public, host, [7])
    same = Ciphertexts.concat([one] * 10)
    released = host.release(same, layout, host.blinders()).to_bytes()
    parts = {released[i : i + host.width] for i in range(0, len(released), host.width)}
    residues = {int.from_bytes(part, "big") % public.n for part in parts}
    assert len(parts) == len(residues) == 10


def test_only_a_keys_own_methods_make_what_may_leave():
    data = np.zeros((1, 1, 4), dtype=np.uint8)
    for kind in (BlindedPackages, Encrypted):
        with pytest.raises(TypeError, match="made by a key's own methods only"):
            kind(data, object())
    assert not hasattr(Ciphertexts(data), "to_bytes")
    assert not isinstance(Ciphertexts(data), api.Outgoing)


def test_the_seals_are_used_in_release_and_encrypt_alone():
    """Every use of the seals in the whole package stands in the few functions that may."""
    allowed = {
        ("seal_released", "release"),
        ("seal_released", "release_packed"),
        ("seal_encrypted", "_encrypted_blocks"),
        ("seal_released", "<import>"),
        ("seal_encrypted", "<import>"),
        ("_SEAL", "seal_released"),
        ("_SEAL", "seal_encrypted"),
        ("_SEAL", "__init__"),
        ("_SEAL", "<module>"),
    }
    found = set()
    for path in sorted(Path(fedboost.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "seal_" in text or "_SEAL" in text:
            found |= {(name, where, path.parent.name) for name, where in uses(ast.parse(text))}
    assert {(name, where) for name, where, _ in found} <= allowed
    assert {folder for _, _, folder in found} == {"crypto", "lattice"}
    assert {("seal_released", "release"), ("_SEAL", "seal_released")} <= {f[:2] for f in found}


def uses(tree, where="<module>"):
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef) else where
        if isinstance(node, ast.ImportFrom | ast.Import):
            for alias in node.names:
                if alias.name in ("seal_released", "seal_encrypted", "_SEAL"):
                    yield alias.name, "<import>"
        name = getattr(node, "id", None) or getattr(node, "attr", None)
        if name in ("seal_released", "seal_encrypted", "_SEAL"):
            yield name, where
        yield from uses(node, inside)


def test_shapes_are_all_that_is_printed(guest):
    _, _, host = guest
    sums = Ciphertexts(np.full((3, 2, 4), 7, dtype=np.uint8))
    assert repr(sums) == str(sums) == "Ciphertexts(3 × 2 × 4 bytes)"
    layout = GhLayout(8, ROWS, host.plaintext_bits)
    one = np.zeros((1, host.width), dtype=np.uint8)
    one[:, -1] = 1
    released = host.release(single(one), layout, host.blinders())
    assert repr(released) == f"BlindedPackages(1 × {host.width} bytes)"
    secret = SecretPrimes(101, 103)
    assert "101" not in repr(secret)


def test_ciphertexts_are_indexed_and_joined_as_arrays():
    sums = Ciphertexts(np.arange(24, dtype=np.uint8).reshape(6, 2, 2))
    assert (len(sums), sums.lanes, sums.width) == (6, 2, 2)
    assert sums[1:2].data.tolist() == [[[4, 5], [6, 7]]]
    assert sums[np.array([5, 0])].each.tolist() == [[20, 21], [22, 23], [0, 1], [2, 3]]
    joined = Ciphertexts.concat([sums[:1], sums[5:]])
    assert joined.each.tolist() == [[0, 1], [2, 3], [20, 21], [22, 23]]
    assert sums.from_single(sums.each).data.tolist() == sums.data.tolist()
    with pytest.raises(TypeError):
        Ciphertexts(np.zeros((4, 2), dtype=np.uint8))
