"""Leaf values that only become visible as sums: a host answers each row, and masks of hosts cancel.

A host multiplies the encrypted gradient sum of a leaf by a factor of the leaf's size, and answers
each of its rows with its leaf's value. Hosts that share a row add and subtract one mask. The guest
decrypts the sum over the row's hosts, and no single host's value; if a row has one host, it sees
that host's value. The guest says which rows are shared: a guest that lies learns as much as it
would of rows with one host. HybridTree (Li et al., 2023), Algorithm 1, lines 5–6 and 19–21.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np

from fedboost.core.hybrid import HybridParams
from fedboost.crypto.api import Ciphertexts, PrivateKey
from fedboost.crypto.leaf_values import LeafLayout
from fedboost.crypto.masking import MaskKey, Masks, Pair, PairStream, answer_masks
from fedboost.encrypted.number.packed import HostKey
from fedboost.flow import Out, StageContext
from fedboost.ground import wire
from fedboost.ground.arrays import Indices, Sums
from fedboost.ground.errors import ConfigError, PeerError, ProtocolError
from fedboost.ground.settings import Settings
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.encrypted_pb2 import AnswerKey, SharedRows

VALUE_BITS_MAX, VALUE_BITS_MIN = 26, 12  # bits of a gradient
LEAF_SUM_BITS = 60  # bits of the sum over all hosts and trees, below the 62 that fit
SPARE_BITS = 8  # bits that the factor of a leaf with all rows keeps


def bits_most(params: HybridParams) -> int:
    """Return the most bits of a gradient of a job with unscored splits: a leaf's value has no other
    source than its host's sums, so `precision_bits` bounds them only if a job sets it.
    """
    asked = params.precision_bits if "precision_bits" in params.model_fields_set else None
    return min(asked or VALUE_BITS_MAX, VALUE_BITS_MAX)


@dataclass(frozen=True)
class Precision:
    """How exact leaf values are; the same for all hosts of a job, whose masks must cancel."""

    value_bits: int  # of a gradient
    n_hosts: int
    rounds: int
    outputs: int  # values of a leaf

    @classmethod
    def of(cls, params: HybridParams, n_hosts: int, n_rows: int) -> Self:
        """Return the finest precision of a job with `n_rows` training rows; a ConfigError if none
        fits.

        The factors of the largest leaves keep 8 bits.
        """
        most = bits_most(params)
        for bits in range(most, min(most, VALUE_BITS_MIN) - 1, -1):
            shape = cls.from_declared_bits(params, n_hosts, bits)
            if shape.fraction_bits >= n_rows.bit_length() + SPARE_BITS:
                return shape
        raise ConfigError(
            f"leaf values of {n_rows} rows, {n_hosts} hosts and {params.n_estimators} rounds "
            "do not fit",
            todo="use split: scored, or fewer rounds",
        )

    @classmethod
    def from_declared_bits(cls, params: HybridParams, n_hosts: int, bits: int) -> Self:
        """Return the precision that the guest has chosen, by the bits of a gradient that it
        declares.
        """
        outputs = params.n_outputs // params.trees_per_round
        shape = cls(bits, n_hosts, params.n_estimators, outputs)
        if bits < 1 or shape.fraction_bits < SPARE_BITS:
            raise PeerError(
                f"the guest declares {bits} bits per gradient, which leave no room for leaf values"
            )
        return shape

    @property
    def fraction_bits(self) -> int:
        """Bits of the factors: the rest that gradients leave of a sum over hosts and rounds."""
        taken = (self.n_hosts - 1).bit_length() + (self.rounds - 1).bit_length()
        return LEAF_SUM_BITS - self.value_bits - taken

    def layout(self, plaintext_bits: int) -> LeafLayout:
        """Return the packing of every host's answers, with room for as many rows as factors can
        distinguish.
        """
        return LeafLayout(
            value_bits=self.value_bits,
            n_rows=1 << self.fraction_bits,
            fraction_bits=self.fraction_bits,
            plaintext_bits=plaintext_bits,
            outputs=self.outputs,
            holders=self.n_hosts,
            terms=self.rounds,
        )


# The host's side


@dataclass
class MaskingHost:
    """A host's masks, which it never prints."""

    context: StageContext[Settings]
    key: MaskKey = field(init=False)
    pairs: dict[str, Pair] = field(default_factory=dict, repr=False)
    shared: dict[str, Indices] = field(default_factory=dict)  # by host: places among the own rows

    def __post_init__(self) -> None:
        self.key = MaskKey(self.context.secrets.attempt.derive("answer key"))

    @property
    def others(self) -> list[str]:
        """The other hosts, in the table's order."""
        return [host for host in self.context.table.hosts if host != self.context.party]

    def signed_key(self) -> pb.AnswerKey:
        """Return our public key, signed."""
        text, signer = (
            self._signed_text(self.context.party, self.key.public),
            self.context.services.signer,
        )
        return pb.AnswerKey(key=self.key.public, signature=signer.sign(text))

    def hear(self, got: Mapping[str, pb.AnswerKey]) -> None:
        """Keep the other hosts' keys; a PeerError for a forged one."""
        signer = self.context.services.signer
        for host, offered in got.items():
            signer.check(host, self._signed_text(host, offered.key), offered.signature)
            self.pairs[host] = Pair(self.key.shared(offered.key), self._pair_salt)

    def note_shared_rows(self, got: pb.SharedRows, n_rows: int) -> None:
        """Note which of our `n_rows` rows the others have as well."""
        what = "the rows that other hosts have"
        bits = wire.unpack_bits(got.rows, len(self.others) * n_rows, what)
        each = bits.reshape(len(self.others), n_rows)
        self.shared = {h: np.flatnonzero(rows) for h, rows in zip(self.others, each, strict=True)}

    def masks(self, number: int, rows: slice, packing: LeafLayout, each: int = 1) -> Masks | None:
        """Return the masks of answer `number` of the stage, for our rows from `rows.start` to
        `rows.stop`.

        A row has `each` answers, one after the other. None without other hosts.
        """
        if not self.others:
            return None
        if not self.shared:
            raise ProtocolError("hosts answer before they know which rows they share")
        hosts, streams = self.context.table.hosts, []
        for host in self.others:
            indices = self.shared[host]
            inside = indices[(indices >= rows.start) & (indices < rows.stop)] - rows.start
            key = self.pairs[host].stream_key(b"answer" + number.to_bytes(8, "big"))
            sign = 1 if hosts.index(self.context.party) < hosts.index(host) else -1
            answers = (inside[:, None] * each + np.arange(each)).ravel()
            streams.append(PairStream(key, sign, answers))
        shape = ((rows.stop - rows.start) * each, packing.outputs)
        return answer_masks(shape, packing.mask_bits, streams)

    @property
    def _pair_salt(self) -> bytes:
        return b"fedboost answers 1" + self.context.attempt.digest

    def _signed_text(self, host: str, key: bytes) -> bytes:
        return b"fedboost answer key 1" + self.context.attempt.digest + host.encode() + key


def released_answers(keys: HostKey, values: Ciphertexts, masks: Masks | None) -> pb.LeafAnswers:
    """Return the rows' values, masked, compressed and blinded."""
    assert isinstance(keys.layout, LeafLayout)
    released = keys.key.release(values, keys.layout, keys.blinders, masks=masks)
    keys.blinders.prepare(len(released))
    packages = pb.Ciphertexts(count=len(released), data=released.to_bytes())
    return pb.LeafAnswers(packages=packages)


# The guest's side


def shared_rows(held: Mapping[str, Indices], n_rows: int) -> dict[str, pb.SharedRows]:
    """Return the message of shared rows to each host; `held` are the guest's rows that each has,
    ascending.
    """
    has = {host: np.zeros(n_rows, np.bool_) for host in held}
    for host, rows in held.items():
        has[host][rows] = True
    told = {}
    for host, rows in held.items():
        bits = [has[other][rows] for other in held if other != host]
        flat = np.concatenate([np.empty(0, np.bool_), *bits])
        told[host] = pb.SharedRows(rows=wire.pack_bits(flat))
    return told


def read_answers(
    got: Mapping[str, pb.LeafAnswers],
    key: PrivateKey,
    packing: LeafLayout,
    held: Mapping[str, Indices],
    n_rows: int,
) -> Sums:
    """Return the sums over each row's hosts, int64 (n_rows, outputs); a PeerError if masks remain.

    `held` are the rows that each host answers, in its order.
    """
    total, most = np.zeros((n_rows, packing.outputs), np.int64), np.zeros(n_rows, np.int64)
    for host, rows in held.items():
        message = got[host].packages
        count = packing.package_count([len(rows)])
        if message.count != count:
            what = f"{host} sent {message.count} packages of answers, expected {count}"
            raise PeerError(what, party=host)
        packages = Ciphertexts.received(message.data, count, key.width)
        total[rows] += key.decrypt(packages, packing, [len(rows)])  # modulo 2^64, as masks cancel
        most[rows] += packing.bound
    if (np.abs(total) > most[:, None]).any() or (total == np.iinfo(np.int64).min).any():
        raise PeerError("the hosts' answers do not add up to leaf values")
    return total


# Steps of every host that sends leaf values under masks: a role module imports them as its own.


class HasMasks(Protocol):
    """The state of a host that answers under masks."""

    @property
    def answering(self) -> MaskingHost:
        """The masks; a ProtocolError if there are none."""

    @property
    def n_rows(self) -> int:
        """Number of our rows."""


def offer_answer_key(host: HasMasks) -> Out:
    """Send the public half of our key for masks to the other hosts."""
    return Out(send=host.answering.signed_key())


def hear_answer_keys(host: HasMasks, got: Mapping[str, AnswerKey]) -> Out:
    """Keep the other hosts' keys."""
    host.answering.hear(got)
    return Out()


def learn_shared(host: HasMasks, got: SharedRows) -> Out:
    """Note which of our rows the other hosts have as well."""
    host.answering.note_shared_rows(got, host.n_rows)
    return Out()


def shared_bytes_max(host: HasMasks) -> int:
    """Return the largest size of `SharedRows`: a bit for each other host and row."""
    return len(host.answering.others) * host.n_rows // 8 + 1024
