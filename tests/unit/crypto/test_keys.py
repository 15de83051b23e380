"""Key hygiene (SECURITY.md, D4): sound keys pass, every other one is refused."""

import gmpy2
import pytest

from fedboost.crypto import paillier_keys, schemes
from fedboost.crypto.moduli import check_modulus
from fedboost.crypto.paillier_keys import SecretPrimes, proved_key, read_public
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.ground.workers import Serial

HALF = 256
# q = 2p + 1: p divides both n and φ(n)
P = 0x99B28A9C80680348FDF9117B72DD0D77A2F1CFC988E154AAC545FF88517D7105
Q = 2 * P + 1


def prime(bits, seed):
    state = gmpy2.random_state(seed)
    top = (gmpy2.mpz(7) << (bits - 3)) + gmpy2.mpz_urandomb(state, bits - 3)
    return int(gmpy2.next_prime(top))


def sound():
    return SecretPrimes(prime(HALF, 1), prime(HALF, 2))


def with_roots(n, roots):
    width = (n.bit_length() + 7) // 8
    return b"".join([number.to_bytes(width, "big") for number in (n, *roots)])


def test_a_proved_key_is_read_back():
    secret = sound()
    assert read_public(proved_key(secret), 2 * HALF) == secret.n


@pytest.mark.parametrize("key_bits", [2048, 3072])
def test_generated_keys_have_their_exact_length_and_pass(key_bits):
    scheme = schemes.KEYED_SCHEMES["paillier"]
    private = scheme.generate(key_bits, Serial())
    public = scheme.load_public(private.public_bytes(), key_bits, Serial())
    assert public.plaintext_bits == private.plaintext_bits == key_bits - 1
    assert public.width == private.width == key_bits // 4
    assert public.to_bytes() == private.public_bytes()


@pytest.mark.parametrize("key_bits", [0, 512, 1024, 2047, 2050, 65536])
def test_key_lengths_outside_the_rule_are_refused(key_bits):
    scheme = schemes.KEYED_SCHEMES["paillier"]
    with pytest.raises(ConfigError, match="key_bits"):
        scheme.generate(key_bits, Serial())
    with pytest.raises(ConfigError, match="key_bits"):
        scheme.load_public(b"", key_bits, Serial())


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (sound().n * 2 + 1, "has 513 bits"),
        (sound().n >> 1, "has 511 bits"),
        (0, "has 0 bits"),
        (-sound().n, "bits"),
        (sound().n & ~1, "small prime factor"),
        (65521 * prime(496, 3), "small prime factor"),
        (prime(128, 4) ** 4, "a prime or a power"),
        (prime(HALF, 5) ** 2, "a prime or a power"),
        (prime(512, 6), "a prime or a power"),
    ],
)
def test_bad_moduli_are_refused(n, text):
    with pytest.raises(PeerError, match=text):
        check_modulus(n, 2 * HALF)


def test_a_key_that_makes_blinding_void_has_no_proof():
    """n = p·(2p+1): every n-th residue modulo q² is 1 or −1, so r^n would hide nothing."""
    n, bits = P * Q, 2 * HALF
    assert gmpy2.is_prime(P)
    assert gmpy2.is_prime(Q)
    residues = {int(gmpy2.powmod(r, n, Q * Q)) for r in range(2, 40)}
    assert residues <= {1, Q * Q - 1}
    check_modulus(n, bits)  # nothing else is wrong with it
    with pytest.raises(ZeroDivisionError):
        proved_key(SecretPrimes(P, Q))
    for roots in (
        [1] * paillier_keys.PAILLIER_PROOF_ROOTS,
        list(range(2, 2 + paillier_keys.PAILLIER_PROOF_ROOTS)),
    ):
        with pytest.raises(PeerError, match="proof"):
            read_public(with_roots(n, roots), bits)


def forged(primes):
    """What comes closest to a proof: roots of what drawn numbers are up to n's own part of φ(n)."""
    n, group = 1, 1
    for p in primes:
        n *= p
        group *= p if n % (p * p) == 0 else p - 1
    while (shared := gmpy2.gcd(n, group)) != 1:
        group //= shared
    inverse = int(gmpy2.invert(n, group))
    drawn = [paillier_keys._challenge(n, i) for i in range(paillier_keys.PAILLIER_PROOF_ROOTS)]
    return n, with_roots(n, [pow(number, inverse, n) for number in drawn])


CHEATING = {
    "q = 2p + 1": [P, Q],
    "p squared times q": [prime(128, 9), prime(128, 9), prime(256, 10)],
    "p to the third times q": [prime(128, 9)] * 3 + [prime(128, 11)],
    "one pair among many primes": [0x2001D, 0x800743002B9, *[prime(41, 20 + i) for i in range(13)]],
}


@pytest.mark.parametrize("primes", CHEATING.values(), ids=CHEATING)
def test_moduli_with_a_factor_in_common_with_their_order_have_no_proof(primes):
    n, data = forged(primes)
    with pytest.raises(PeerError, match="proof"):
        read_public(data, n.bit_length())


def test_the_forger_proves_what_is_true():
    secret = sound()
    assert forged([secret.p, secret.q]) == (secret.n, proved_key(secret))


def test_a_root_that_shares_a_factor_with_the_key_is_refused(monkeypatch):
    """Numbers that are no units have roots modulo other primes more often than one in 2^16."""
    secret = sound()
    draw = paillier_keys._challenge
    monkeypatch.setattr(paillier_keys, "_challenge", lambda n, i: draw(n, i) * secret.p % n)
    with pytest.raises(PeerError, match="proof"):
        read_public(proved_key(secret), 2 * HALF)


def test_a_proof_of_another_key_or_with_a_wrong_root_is_refused():
    secret, other = sound(), SecretPrimes(prime(HALF, 7), prime(HALF, 8))
    width = 2 * HALF // 8
    good = proved_key(secret)
    swapped = good[:width] + proved_key(other)[width:]
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    last = int.from_bytes(good[-width:], "big")
    zero = good[:-width] + bytes(width)
    for bad in (swapped, flipped, zero):
        with pytest.raises(PeerError, match="proof"):
            read_public(bad, 2 * HALF)
    assert 0 < last < secret.n
    for bad in (b"", good[:-1], good + b"\0", good[:width]):
        with pytest.raises(PeerError, match="and its proof"):
            read_public(bad, 2 * HALF)
