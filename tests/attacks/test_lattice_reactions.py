"""What an active host reads of the guest's secret from which of its candidates win.

It adds units of g, times a coordinate of its answer's vector, to the candidate that would win. The
guest then reads a sum that is off by as many units times that coordinate of its secret, which is
−1, 0 or 1 (one for g, one for h), and tells the host who has won. Where the altered candidate
wins all the same, rows do not divide as it was read, and the job ends with the host's name.
"""

from typing import Any
from unittest import mock

import numpy as np

from fedboost.crypto.api import Pairs
from fedboost.crypto.lattice.cells import CellAdds
from fedboost.encrypted.lattice import parts as lattice_parts
from fedboost.encrypted.scheme.host_noise import NoiseScale
from fedboost.ground.errors import PeerError
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.protocols.secureboost.host import Host
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, now

SHOP = HOSTS[1]
QUESTIONS = 18
SHIFT = 3 << 14  # units of g: some three rows'
PACKED = {"scheme": "lattice", "answers": "packed"}
# With few bits of so few rows candidates share their sums, and a shift has no winner.
SMALL: dict[str, Any] = {"n_estimators": 1, "max_depth": 1, "precision_bits": 15}
JOB: dict[str, Any] = {"encryption": PACKED, **SMALL}


def altered(pairs, place, coordinate):
    """Sums of a node, one of them with the shift in a coordinate of its vector."""
    sums = CellAdds().sum_pairs(pairs)
    shift = np.uint64(SHIFT << sums.parameters.scale_bits)
    sums.vectors[place, coordinate] += shift
    sums.vectors[place] &= sums.parameters.mask
    return Pairs.of(sums)


def winner(coordinate=None, place=0):
    """Which candidate of the host wins the root, None where the job ends; and the secret numbers
    that it has asked for, of g and h.
    """
    blinded_of, room = lattice_parts.blinded_of, conversations.lattice(**JOB)

    def lying(rows, packing, asked, sums):
        shop = room.state(SHOP)
        own = Host.gradients.is_set(shop) and rows is shop.gradients.rows
        if own and coordinate is not None:
            sums = [altered(pairs, place, coordinate) for pairs in sums]
        return blinded_of(rows, packing, asked, sums)

    won = None
    with mock.patch.object(lattice_parts, "blinded_of", lying):
        try:
            now(room.walk())
        except PeerError as error:
            if "otherwise than it offered" not in error.what or error.where["party"] != SHOP:
                raise
        else:
            told = next(
                p.message
                for p in room.posted
                if isinstance(p.message, pb.WonSplits) and p.envelope.receiver == SHOP
            )
            won = np.frombuffer(told.candidates.data, "<i4").tolist()
    secret = room.state(GUEST).encrypted.secret.reversed_secrets()
    return won, tuple(secret[:, coordinate or 0].tolist())


def questions():
    """Answers to as many questions, and the truth."""
    (place,), _ = winner()
    asked = [winner(coordinate, place) for coordinate in range(QUESTIONS)]
    return [(None if won is None else won == [place], secret) for won, secret in asked]


def test_a_host_that_alters_a_sum_ends_the_job_where_it_wins_and_is_named():
    found = questions()
    assert {secret for wins, secret in found if wins} == {(0, 0)}
    assert (0, 0) not in {secret for wins, secret in found if not wins}
    assert sum(wins is None for wins, _ in found) >= QUESTIONS // 4


def test_a_host_goes_on_asking_where_divisions_are_not_compared(monkeypatch):
    monkeypatch.setattr(NoiseScale, "most", property(lambda _: np.full(2, 1 << 50)))
    found = questions()
    assert None not in {wins for wins, _ in found}
    assert len({secret[0] for wins, secret in found if wins}) == 2  # −1 or 1 wins, with 0
