"""Gradients larger than declared: hosts find them before a sum leaves, and read no label by it."""

from typing import Any

import numpy as np
import pytest

from fedboost.crypto.lattice import secret as lattice_secret
from fedboost.crypto.packing import GhLayout
from fedboost.encrypted.checks import gradient_check
from fedboost.encrypted.checks.gradient_check import NORMAL, Committed, SignedRows
from fedboost.encrypted.guest import rounds
from fedboost.encrypted.guest.rounds import OpenRound
from fedboost.encrypted.scheme.ciphers import NodeBounds
from fedboost.flow import Out
from fedboost.ground import wire
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.protocols.secureboost import guest as secureboost_guest
from fedboost.protocols.secureboost import host as secureboost_host
from tests.attacks.test_widths import rows_read_by_marks
from tests.support.federated import GUEST, HOSTS, now, with_seed
from tests.support.secureboost_jobs import made

HOST, ROWS, MANY = HOSTS[0], 600, 20_000
BITS = 7
LATTICE = {"encryption": {"scheme": "lattice", "answers": "vectors"}}
NUMBERS = {"encryption": {"scheme": "plain"}}


def far(rows):
    """A gradient that is larger than what signed sums of declared ones, and noise, ever reach."""
    return int(2.5 * NORMAL * rows**0.5) << BITS


def job(rows=ROWS, **params):
    said = {"n_estimators": 1, "max_depth": 1, "gradient_check": True, **params}
    return made({"precision_bits": BITS, **LATTICE, **said}, (1, 2), rows, missing=0.0, held=0.0)


def marking(monkeypatch, marks):
    """The guest encrypts other hessians than the objective's: `marks` of its first rows."""
    start = rounds.Rounds.start_round

    def marked(self, fixed):
        start(self, fixed)
        gh = self.round.gh.copy()
        gh[: len(marks), 1] = marks
        self.round = OpenRound(self.round.sample, gh)

    monkeypatch.setattr(rounds.Rounds, "start_round", marked)
    monkeypatch.setattr(lattice_secret, "_check_messages", lambda *_: None)
    monkeypatch.setattr(GhLayout, "check_values", lambda *_: None)
    # Nor does it refuse what it reads.
    monkeypatch.setattr(
        gradient_check, "NodeBounds", lambda rows, most: NodeBounds(rows, most << 20)
    )


def opening(monkeypatch):
    """The guest opens what it has committed to, whatever it was asked for."""

    def opens(self, *_):
        return pb.OpenedSums(sums=wire.pack(self.opened), salt=self.salt)

    monkeypatch.setattr(Committed, "open", opens)


def refused(room):
    """The host's refusal, and whether any sum has left before."""
    with pytest.raises(PeerError) as error:
        now(room.walk())
    return error.value, any("CandidateSums" in line for line in room.lines())


# Marks


@pytest.mark.parametrize("scheme", [LATTICE, NUMBERS], ids=["lattice", "numbers"])
def test_marks_that_fill_a_field_are_found_before_a_sum_leaves(scheme, monkeypatch):
    marking(monkeypatch, [far(MANY)])
    error, has_left = refused(job(MANY, **scheme).room())
    assert "larger than it declares" in str(error)
    assert error.where["party"] == HOST
    assert not has_left


def test_marks_that_fill_a_field_read_rows_where_nobody_checks(heard, monkeypatch):
    def believes(host, got):
        host.gradients = host.unchecked.rows
        return Out()

    monkeypatch.setattr(secureboost_host, "check_sums", believes)
    opening(monkeypatch)
    read = rows_read_by_marks(heard, monkeypatch, "lattice", gradient_check=True)
    assert read > BITS


# A guest that says of its marks what it likes


def guessing(monkeypatch, marks):
    """The guest takes its marks out of what it has read, with signs that it guesses."""
    draw = np.random.default_rng(5)

    def commits(guest, got):
        gradient_check.commit_sums(guest, got)
        [one] = guest.committed.values()
        read = one.read.copy()
        read[0, 1] -= sum(draw.choice([-1, 1], len(marks)) * marks)  # the rows of no smaller set
        guest.committed = {HOST: Committed(read, one.noise, one.salt)}
        digest = gradient_check.commitment_of(guest.committed[HOST].opened, one.salt)
        return Out(send={HOST: pb.SumsCommitment(digest=digest)})

    monkeypatch.setattr(secureboost_guest, "commit_sums", commits)
    opening(monkeypatch)


def found(monkeypatch, marks, jobs=24):
    """In how many jobs a host finds marks of a guest that guesses."""
    marking(monkeypatch, marks)
    guessing(monkeypatch, marks)
    ends = []
    for seed in range(jobs):
        try:
            now(with_seed(job(MANY).room(), bytes([seed] * 32)).until("sum_candidates"))
        except PeerError as error:
            ends.append(error.what)
    assert all("larger than it declares" in what for what in ends)
    return len(ends)


def test_a_guest_that_guesses_signs_is_found_half_the_time_by_one_mark(monkeypatch):
    assert 4 <= found(monkeypatch, np.array([far(MANY)])) <= 20


def test_a_guest_that_guesses_the_signs_of_many_marks_is_found(monkeypatch):
    assert found(monkeypatch, np.array([far(MANY)] * 12)) >= 18


def test_a_guest_opens_what_it_has_committed_to(monkeypatch):
    """The signs tell what would have passed, too late."""
    marking(monkeypatch, [far(ROWS)] * 6)

    def fits(self, got, gradients, value_bits, host):
        honest = np.clip(gradients, 0, 1 << BITS)
        rows, numbers = gradients.shape
        question = SignedRows(got.seed, rows, numbers, value_bits)
        sums = question.sums(honest) + question.offsets
        return pb.OpenedSums(sums=wire.pack(sums), salt=self.salt)

    monkeypatch.setattr(Committed, "open", fits)
    error, has_left = refused(job().room())
    assert "other sums than it had committed to" in str(error)
    assert not has_left


def test_a_host_gives_no_sum_before_it_has_checked():
    """Whatever a coordinator asks for first."""

    async def early():
        room = await job().room().until("sign_rows")
        await room.call("open_layer", GUEST)
        await room.call("sum_candidates", HOST)

    with pytest.raises(ProtocolError):
        now(early())


# A host that reads labels by what is opened


def asking_for_one_row(monkeypatch):
    """The host has the gradient of one row opened, and tells signs that it has not used."""
    signs: Any = SignedRows.cells

    def alone(self):
        cells = signs.fget(self)
        cells[1:] = -1  # adds nothing
        return cells

    monkeypatch.setattr(SignedRows, "cells", property(alone))


def test_a_host_that_asks_for_one_row_is_told_nothing(monkeypatch):
    asking_for_one_row(monkeypatch)
    room = job().room()
    with pytest.raises(PeerError, match="asked for other sums") as error:
        now(room.walk())
    assert error.value.where["party"] == GUEST
    assert not any("OpenedSums" in line for line in room.lines())


def test_a_host_that_asks_for_one_row_is_told_of_it_by_a_guest_that_does_not_add_up(monkeypatch):
    asking_for_one_row(monkeypatch)
    opening(monkeypatch)
    monkeypatch.setattr(Committed, "opened", property(lambda self: self.read))  # without noise
    opened = []

    def listens(host, got):
        question = host.unchecked.question
        opened.append(gradient_check.read_sums(got.sums, question) - question.offsets)
        raise PeerError("enough")

    monkeypatch.setattr(secureboost_host, "check_sums", listens)
    room = job().room()
    with pytest.raises(PeerError, match="enough"):
        now(room.walk())
    first = room.state(GUEST).round.gh[0]
    assert abs(opened[0][0]).tolist() == abs(first).tolist()
