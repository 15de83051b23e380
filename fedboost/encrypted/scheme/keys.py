"""The beginning of an encrypted job: agreement of both sides before a gradient travels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedboost.core.binning import Binning
from fedboost.crypto.api import PrivateKey, PublicKey
from fedboost.crypto.lattice.polynomials import NONCE_BYTES
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.schemes import KEYED_SCHEMES
from fedboost.encrypted.scheme import loading
from fedboost.encrypted.scheme.ciphers import GuestCipher, HostCipher
from fedboost.encrypted.scheme.host_noise import HostNoise, NoiseScale
from fedboost.encrypted.scheme.params import EncryptedContext, EncryptedTreeParams
from fedboost.encrypted.scheme.rehearsed import RehearsedContext
from fedboost.ground.errors import PeerError, PolicyError
from fedboost.messages.protocol import encrypted_pb2 as pb

NONCE_BYTES_MAX = 64  # of a message that carries one


def takes_nonces(params: EncryptedTreeParams) -> bool:
    """Return whether every party gives a nonce for public polynomials first."""
    return loading.tree_scheme(params).takes_nonces


def own_nonce(context: EncryptedContext) -> bytes:
    """Return our nonce for the public polynomials of this attempt."""
    return context.secrets.attempt.child("polynomials").bytes(NONCE_BYTES)


def read_nonces(context: EncryptedContext, got: Mapping[str, pb.Nonce]) -> tuple[bytes, ...]:
    """Return our nonce and each host's in the table's order; a PeerError for one of
    another size.
    """
    for host, message in got.items():
        if len(message.nonce) != NONCE_BYTES:
            raise PeerError(f"{host} sent a nonce of {len(message.nonce)} bytes", party=host)
    return (own_nonce(context), *(got[host].nonce for host in context.table.hosts))


def generate(context: EncryptedContext) -> PrivateKey:
    """Return a fresh key, as the job says; in an attempt that can be replayed, the key that its
    secret determines.
    """
    encryption = context.params.encryption
    generate_from = KEYED_SCHEMES[encryption.scheme].generate_from
    if context.attempt.is_replayable and generate_from is not None:
        secrets = context.secrets.attempt.child("key")
        return generate_from(encryption.key_bits, context.services.workers, secrets)
    return KEYED_SCHEMES[encryption.scheme].generate(encryption.key_bits, context.services.workers)


def gh_layout(
    params: EncryptedTreeParams, value_bits: int, n_rows: int, plaintext_bits: int
) -> GhLayout:
    """Return the packing of gradients of `value_bits` bits of at most `n_rows` rows (section
    4.2).
    """
    g_noise, h_noise = NoiseScale.of(params, value_bits).most[:2].tolist()
    return GhLayout(
        value_bits=value_bits,
        n_rows=n_rows,
        plaintext_bits=plaintext_bits,
        outputs=params.n_outputs // params.trees_per_round,
        pack=params.gh_packing,
        compress=params.cipher_compressing,
        g_noise=g_noise,
        h_noise=h_noise,
    )


def guest_side(
    context: EncryptedContext,
    value_bits: int,
    rows: Iterable[int],
    nonces: tuple[bytes, ...] = (),
) -> GuestCipher:
    """Return the guest's cipher of an attempt, from a fresh key or from the `nonces`.

    `rows` are the numbers of training rows that hosts have.
    """
    if isinstance(context, RehearsedContext):
        return context.cipher.guest(value_bits, nonces)
    return loading.tree_scheme(context.params).guest_side(context, value_bits, rows, nonces)


def host_side(
    context: EncryptedContext,
    got: pb.EncryptionKey,
    n_rows: int,
    binning: Binning,
    *,
    are_all: bool,
) -> HostCipher:
    """Return the cipher of a host with `n_rows` training rows, `are_all` those of the job.

    A PeerError for a message that is unsound or breaks the job's settings; a PolicyError as in
    `accepted_key`.
    """
    if isinstance(context, RehearsedContext):
        return context.cipher.host_cipher(got, n_rows)
    check_said(context, got)
    check = check_value_bits if are_all else check_value_bits_fit
    check(context, got, n_rows)
    offered = 2 * int(binning.n_bins.sum())
    return loading.tree_scheme(context.params).host_side(
        context, got, n_rows, offered, _host_noise(context, got)
    )


def accepted_key(context: EncryptedContext, got: pb.EncryptionKey) -> PublicKey:
    """Return the guest's key; a PeerError unless it is sound and as the job says.

    A PolicyError if it declares more bits of a gradient than our policy allows.
    """
    check_said(context, got)
    return read_key(context, got)


def read_key(context: EncryptedContext, got: pb.EncryptionKey) -> PublicKey:
    """Return the guest's key; a PeerError unless it is sound."""
    asked = context.params.encryption
    if got.nonces:
        raise PeerError(f"the guest sent nonces, which {asked.scheme} has no use for")
    return KEYED_SCHEMES[asked.scheme].load_public(
        got.key, asked.key_bits, context.services.workers
    )


def check_said(context: EncryptedContext, got: pb.EncryptionKey) -> None:
    """Refuse another scheme than the job's, and more bits than our policy allows."""
    asked, limits = context.params.encryption, context.limits
    if got.scheme != asked.scheme:
        raise PeerError(f"the guest sent a {got.scheme[:32]!r} key, the job says {asked.scheme}")
    if got.value_bits > limits.gradient_bits_max:
        raise PolicyError(
            f"the policy allows {limits.gradient_bits_max} bits per gradient, "
            f"the guest declares {got.value_bits}",
            todo=f"set precision_bits of the job to at most {limits.gradient_bits_max}, or ask the "
            f"party's owner for gradient_bits_max: {got.value_bits}",
            key="policy.gradient_bits_max",
        )


def check_value_bits(context: EncryptedContext, got: pb.EncryptionKey, n_rows: int) -> None:
    """Refuse, by a PeerError, another precision than that of a job with `n_rows` training rows."""
    bits = loading.tree_scheme(context.params).bits_of(context.params, n_rows)
    if got.value_bits != bits:
        raise PeerError(
            f"the guest declares {got.value_bits} bits per gradient, the job has {bits}"
        )


def check_value_bits_fit(context: EncryptedContext, got: pb.EncryptionKey, n_rows: int) -> None:
    """Refuse, by a PeerError, a precision that is impossible for a job if our `n_rows` training
    rows are all or some of it.
    """
    asked, scheme = context.params.precision_bits, loading.tree_scheme(context.params)
    least, most = scheme.bits_least, scheme.bits_of(context.params, n_rows)
    if not (asked or least) <= got.value_bits <= (asked or most):
        expected = str(asked) if asked else f"{least} to {most}"
        raise PeerError(
            f"the guest declares {got.value_bits} bits per gradient, the job has {expected}"
        )


def _host_noise(context: EncryptedContext, got: pb.EncryptionKey) -> HostNoise | None:
    """Return the noise that we add to sums, the same in every attempt; None if the job asks for
    none.
    """
    if not context.params.host_noise:
        return None
    scale = NoiseScale.of(context.params, got.value_bits)
    return HostNoise(scale, context.secrets.job.child("host noise"))
