"""A random adversary at the owner's border: whatever everybody else does, what left a host, or a
guest about its labels, is what its account says, within its policy, noted, and approved where
somebody is asked. Of a host nobody reads more single rows than it has charged, by whole numbers,
and no combination of its sums is about few rows.

A few schedules on each change, two hundred with `--all`, ten thousand with `--long`. A seed that
fails is in the case's name:

    pytest tests/faults/test_family_adversary.py --long -k "seed-4711"
"""

import logging
import random
from itertools import count, islice

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedboost.core.placement import NarrowedRows
from fedboost.core.sampling import RowDraws
from fedboost.crypto.noise import ValueNoise
from fedboost.encrypted.scheme.capacity import NodeField
from fedboost.ground.errors import UnreachableError
from fedboost.ground.ids import EncodedIds
from fedboost.model import shards
from fedboost.protocols.align import host as align_host
from fedboost.protocols.federboost_vertical import guest as federboost_guest
from fedboost.protocols.predict import guest as predict_guest
from fedboost.protocols.secureboost import host as secureboost_host
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.ledger.signed_heads import Recalled
from fedboost.runtime.party.job.files import JobFiles
from fedboost.runtime.party.job.states import PartyJobEvent, PartyJobStates
from fedboost.runtime.party.node.node import PartyNode
from fedboost.runtime.party.node.parts import PartyParts
from fedboost.runtime.policy import account as accounts
from fedboost.runtime.policy import judgement
from fedboost.runtime.policy.judgement import Judge
from fedboost.runtime.policy.reading import owned_job
from fedboost.runtime.policy.spending import Spending
from tests import tiers
from tests.support import adversary, labels_adversary, lies
from tests.tiers import Tier
from tests.unit.crypto.test_intersection import taken_off

SEEDS_CHANGE, SEEDS, SEEDS_LONG = 10, 200, 10_000
LABELS_CHANGE, LABELS, LABELS_LONG = 4, 50, 1_000
TRIED_MAX = 400  # schedules, until one shows that a defence is off
EXAMPLES = 20
TAPE_MAX = 400  # bytes of choices; a schedule makes about as many


class Tape(random.Random):
    """Random numbers from bytes that are chosen beforehand, then from a seed that they give.

    How many a schedule uses depends on when its daemons answer; hypothesis may see no draw of that.
    """

    def __init__(self, tape: bytes) -> None:
        super().__init__(tape)
        self._tape = iter(tape)

    def getrandbits(self, k: int) -> int:
        """Return `k` random bits."""
        taken = bytes(islice(self._tape, -(-k // 8)))
        if len(taken) * 8 < k:
            return super().getrandbits(k)
        return int.from_bytes(taken) >> (len(taken) * 8 - k)

    def random(self) -> float:
        """Return a random number in [0, 1)."""
        return self.getrandbits(53) * 2.0**-53


@pytest.fixture(autouse=True)
def _quiet():
    """What jobs say of their ends is no news here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def seeds(name, change, of_all, of_long):
    """Few seeds or all."""
    first = 0 if tiers.runs(Tier.ALL) else tiers.number(name)
    count = of_long if tiers.runs(Tier.LONG) else of_all
    count = count if tiers.runs(Tier.ALL) else change
    return [pytest.param(first + n, id=f"seed-{first + n}") for n in range(count)]


@pytest.mark.parametrize("seed", seeds("adversary", SEEDS_CHANGE, SEEDS, SEEDS_LONG))
def test_what_left_is_charged_within_the_policy_and_approved(seed, tmp_path):
    adversary.carried_out(random.Random(seed), tmp_path / "town")


@pytest.mark.parametrize("seed", seeds("labels", LABELS_CHANGE, LABELS, LABELS_LONG))
def test_what_was_told_of_labels_is_charged_and_of_many_people(seed, tmp_path):
    labels_adversary.carried_out(random.Random(seed), tmp_path / "town")


@settings(
    max_examples=tiers.examples(EXAMPLES),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.binary(max_size=TAPE_MAX))
def test_no_schedule_that_hypothesis_finds_leaves_the_border(tmp_path_factory, tape):
    adversary.carried_out(Tape(tape), tmp_path_factory.mktemp("town"))


def test_a_tape_of_choices_is_used_up_and_then_goes_on_at_random():
    low, high = Tape(bytes(8)), Tape(b"\xff" * 8)
    assert [low.random(), high.random()] == [0.0, 1 - 2**-53]
    draws = [[tape.randrange(10) for _ in range(50)] for tape in (Tape(b"x"), Tape(b"x"))]
    assert draws[0] == draws[1]
    assert len(set(draws[0])) > 5


# What is there in place of a defence, and what its schedules lean towards


def _always(instead):
    return lambda *_, **__: instead


def _no_forecast(patched):
    """No job is refused before it begins."""
    patched.setattr(Policy, "judge_sums", _always(False))
    patched.setattr(Policy, "allows_sums", _always(True))
    patched.setattr(Policy, "judge_disclosure", _always(None))
    patched.setattr(Policy, "judge_prediction", _always(None))


def _unapproved(patched):
    patched.setattr(PartyParts, "has_consent", _always(True))
    patched.setattr(lies, "APPROVED", 0.2)


def _denied_later(patched):
    async def deny(node, caller, request):
        node.states.deny(request.id, caller.name, "")
        return owned_job(node.config, node.store.job(request.id))

    patched.setattr(PartyNode, "deny", deny)
    patched.setattr(lies, "DENIES", 0.05)


def _attempts_again(patched):
    def begins(states, id_, attempt):
        states._store.set_attempt(id_, attempt)
        states._change_state(id_, PartyJobEvent.BEGUN)

    def fractions(rows, width):
        return np.random.default_rng().random((rows.n_rows, width))

    patched.setattr(PartyJobStates, "note_begin", begins)
    patched.setattr(RowDraws, "fractions", fractions)  # the guest asks for other sums each time
    patched.setattr(lies, "FORGETS", 0.9)
    _only("sums")(patched)


def _charged_before_a_restart(patched):
    charge = Spending.charge
    first: dict[object, Spending] = {}

    def charged(spending, *given):
        path = spending.account._path
        if first.setdefault(path, spending) is spending:
            charge(spending, *given)

    patched.setattr(Spending, "charge", charged)


def _unseen(patched):
    async def nobody(*_):
        """Peers remember, and nobody asks."""

    patched.setattr(Recalled, "refuse_gaps", nobody)
    for name in ("COPIED", "DIES", "CALM"):
        patched.setattr(adversary, name, 1.0)


def _any_point(patched):
    def opened(state, points):
        return taken_off(points, state.exponent)

    patched.setattr(align_host, "points_as_received", opened)


def _other_tables(patched, module, step):
    """Two of three attempts end at a step of the guest's, and the next one meets another table."""
    for name, often in {"LOSES": 1.0, "CHANGES": 1.0, "FORGETS": 0.0}.items():
        patched.setattr(lies, name, often)
    patched.setattr(adversary, "SPOILT", 0.0)
    real, calls = getattr(module, step), count()

    def dies(state, *got):
        if next(calls) % 3:
            raise UnreachableError("the guest's daemon died", party=state.context.party)
        return real(state, *got)

    patched.setattr(module, step, dies)


def _noise_by_place(patched):
    by_id = ValueNoise.__init__

    def by_place(state, secrets, ids):
        by_id(state, secrets, EncodedIds.of(b"%d" % place for place, _ in enumerate(ids)))

    _only("noise")(patched)
    _other_tables(patched, federboost_guest, "receive_buckets")
    patched.setattr(ValueNoise, "__init__", by_place)
    patched.setattr(JobFiles, "pin_digest", _always(True))


def _any_guest(patched):
    def used_model(job, models):
        return shards.load_facts(models / str(job.model))

    patched.setattr(SignedJob, "used_model", used_model)
    for name in ("RENAMED", "CALM"):
        patched.setattr(adversary, name, 1.0)


def _other_rows(patched):
    _only("sums")(patched)
    patched.setattr(JobFiles, "pin_digest", _always(True))
    patched.setattr(adversary, "CALM", 1.0)
    _other_tables(patched, predict_guest, "close_batch")


def _each_alone(patched):
    _no_forecast(patched)
    _only("sums")(patched)
    patched.setattr(adversary, "CALM", 1.0)
    patched.setattr(Policy, "together", lambda _, guest: lambda other: other == guest)


def _each_name(patched):
    _no_forecast(patched)
    _only("sums")(patched)
    patched.setattr(adversary, "CALM", 1.0)
    patched.setattr(accounts, "SAME", "dataset = :dataset")


def _only(*kinds):
    """Schedules that lean towards what is to be shown train by these protocols alone, with guests
    whose numbers are as they should be.
    """

    def leans(patched):
        patched.setattr(adversary, "HOSTILE", 0.0)
        known = {kind: adversary.KINDS[kind] for kind in kinds or adversary.KINDS}
        patched.setattr(adversary, "KINDS", known)

    return leans


def _hostile(patched):
    """Schedules of jobs whose guest alone is hostile, and that tell little by what they declare."""
    _only("sums")(patched)
    for name in ("HOSTILE", "ALONE", "CALM"):
        patched.setattr(adversary, name, 1.0)
    patched.setattr(adversary, "CHOSEN_BINS", (2,))
    patched.setattr(adversary, "CHOSEN_BITS", (4,))


def _equations_alone(patched):
    """Sums are charged as equations, and hardly for the bits that their fields hold."""
    told = NodeField.bits_by_column
    _hostile(patched)
    patched.setattr(NodeField, "bits_by_column", lambda *given: 1e-6 * told(*given))
    patched.setattr(NodeField, "following_bits", _always(0.0))


def _put_hostile(owner, name, instead, **leans):
    def off(patched):
        _hostile(patched)
        for lean, choices in leans.items():
            patched.setattr(adversary, lean, choices)
        patched.setattr(owner, name, _always(instead))

    return off


def _put(owner, name, instead=None, *kinds):
    def off(patched):
        _only(*kinds)(patched)
        patched.setattr(owner, name, _always(instead))

    return off


def _unlimited(name, *kinds):
    def off(patched):
        _no_forecast(patched)
        _only(*kinds)(patched)
        patched.setattr(Policy, name, _always(None))

    return off


# What puts something in its place, and what a schedule then shows.
OFF = {
    "approvals are asked for": (_unapproved, "left all the same"),
    "a denial ends a job": (_denied_later, "left all the same"),
    "a restored store is seen first": (_unseen, "left all the same"),
    "an attempt's number is used once": (_attempts_again, "two messages in one place"),
    "messages are noted": (_put(PartyParts, "record"), "stands in no ledger"),
    "messages are charged": (_put(Spending, "charge"), "the account says"),
    "and after a restart": (_charged_before_a_restart, "the account says"),
    "only the same bytes are free": (
        _put(accounts, "has_been_sent", True),
        "ε are more than the account says",
    ),
    "sums have a limit": (_unlimited("judge_told_sums", "sums"), "more sums than"),
    "for guests that compare notes": (_each_alone, "more sums than"),
    "and for a table of two names": (_each_name, "more sums than|more ε than"),
    "noise has a limit": (_unlimited("judge_told_noise", "noise"), "more ε than"),
    "noise belongs to ids": (_noise_by_place, "noise was drawn anew"),
    "trees have so many layers": (
        _put(secureboost_host, "_candidate_layers", 99, "sums"),
        "more layers than the job has",
    ),
    "predictions have a limit": (_unlimited("judge_rows", "sums"), "more rows than"),
    "rows are those of the beginning": (_other_rows, "rows that nobody counted|the account says"),
    "models belong to guests": (_any_guest, "another than the model's guest"),
    "alignments are counted": (
        _put(judgement, "count_alignment"),
        "alignments that nobody counted",
    ),
    "ids of peers have a limit": (_put(Policy, "judge_peer_ids"), "more ids of a peer than"),
    "few ids are not opened": (_put(align_host, "check_common"), "fewer ids opened"),
    "fields of sums are charged": (_equations_alone, "more rows read than the account says"),
    "and divisions": (
        _put_hostile(NarrowedRows, "divide", 0.0),
        "more rows read than the account says",
    ),
    "jobs' rows are judged together": (
        _put_hostile(Judge, "judge_row_sets", lambda: None, LEFT_OUT=(0, 1, 2)),
        "jobs that together tell of few",
    ),
    "trees have the rows that are drawn": (
        _put_hostile(secureboost_host, "check_sample", None),
        "a tree that leaves out few rows",
    ),
    "and leave out many": (
        _put_hostile(secureboost_host, "check_draws", None, ROWS_CHOSEN=({"subsample": 0.95},)),
        "a tree that leaves out few rows",
    ),
    "only points of the guest's are opened": (_any_point, "opened what nobody had sent"),
}


def _any_rows(patched):
    for name in ("judge_row_counts", "judge_row_sets"):
        patched.setattr(Judge, name, lambda *_: lambda: None)


LABELS_OFF = {
    "metrics are of many people": (_any_rows, "few"),
    "and their sets together too": (
        _put(Judge, "judge_row_sets", lambda: None),
        "metrics that together tell of few",
    ),
    "metrics are charged": (_put(Spending, "charge_report"), "more than the account says"),
    "metrics have a limit": (_put(Policy, "judge_told_metrics"), "more metrics than"),
}


def shows(off, shown, carried_out, patched, folder):
    """Some schedule of the first shows that a defence is off."""
    off(patched)
    tried = (carried_out(random.Random(seed), folder / str(seed)) for seed in range(TRIED_MAX))
    with pytest.raises(AssertionError, match=shown):
        all(tried)


@pytest.mark.some(1, of="what a schedule shows")
@pytest.mark.parametrize("defence", OFF)
def test_with_a_defence_off_a_schedule_shows_it(defence, monkeypatch, tmp_path):
    shows(*OFF[defence], adversary.carried_out, monkeypatch, tmp_path)


@pytest.mark.some(1, of="what a schedule shows")
@pytest.mark.parametrize("defence", LABELS_OFF)
def test_with_a_defence_of_labels_off_a_schedule_shows_it(defence, monkeypatch, tmp_path):
    shows(*LABELS_OFF[defence], labels_adversary.carried_out, monkeypatch, tmp_path)
