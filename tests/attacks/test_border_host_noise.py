"""What a host's noise on sums is worth to a guest that has a job begun again."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedboost.core import binning
from fedboost.core.split import Candidates
from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.packing import GhLayout
from fedboost.encrypted.cells.candidates import NodeCandidates
from fedboost.encrypted.cells.request import CandidateTerms
from fedboost.encrypted.guest import rounds
from fedboost.encrypted.guest.rounds import OpenRound
from fedboost.encrypted.scheme import keys
from fedboost.encrypted.scheme.host_noise import HostNoise, NoiseScale
from fedboost.runtime.policy.spending import Spending
from tests.attacks import test_border_budget as budget
from tests.attacks.test_border_budget import GUEST, HOST, ROUND, ROWS, Town, observer, town
from tests.support.federated import contexts_for, frame_of, job_spec, now, with_seed
from tests.support.noisy_jobs import Watched
from tests.support.secureboost_jobs import made

__all__ = ("observer", "town")

# Marks above what a node's rows need

OF_TREE, OF_NODE = 4096, 32  # rows
ANSWERS = 400


def sides_read(scheme, patch):
    """How many sides of a cut the guest reads of one row, which it has marked as no gradient is."""
    ids = [b"%06d" % i for i in range(OF_TREE)]
    values = np.arange(OF_TREE, dtype=np.float32)[:, None]
    label = np.arange(OF_TREE) % 2
    frames = {GUEST: frame_of(ids, values, label), HOST: frame_of(ids, values)}
    said = {"encryption": {"scheme": scheme}, "host_noise": 1.0, "precision_bits": 12}
    contexts = contexts_for("secureboost", frames, said)
    params, cuts = contexts[GUEST].params, binning.fit(values, 8, ())
    guest: Any = keys.guest_side(contexts[GUEST], 12, [OF_TREE])
    host: Any = keys.host_side(contexts[HOST], guest.key_message(0), OF_TREE, cuts, are_all=True)
    layout = keys.gh_layout(params, 12, OF_TREE, host.keys.key.plaintext_bits)
    mark = layout.modulus(OF_NODE)
    assert mark > 16 * NoiseScale.of(params, 12).sigma_of(OF_NODE).max()  # far above the noise
    gh = np.zeros((OF_TREE, 2), np.int64)
    gh[0, 0] = mark
    patch.setattr(type(layout), "check_values", lambda *_: None)
    given = guest.rows(0, gh, OF_TREE)
    parts = [
        host.read_part(p.rows.data, p.rows.count // given.sizes.per_row) for p in given.parts()
    ]
    held: Any = host.rows(np.concatenate(parts), 0, b"")
    # Of two cells of the node the first has the row; each is told as many times as there are cuts.
    node_rows = np.arange(OF_NODE, dtype=np.int32)
    cells = held.row_sums.sums(node_rows, (node_rows >= OF_NODE // 2).astype(np.int32)[:, None], 2)
    chosen = np.tile([0, 1], ANSWERS // 2)
    noise = held.noise.of_node((0, 5), node_rows, offered_cuts(ANSWERS))
    terms = replace(CandidateTerms.of_cells(0, 5, OF_NODE, 2)[chosen], noise=noise)
    data = b"".join(part.data for part in held.blind_cells(cells, [terms]))
    packages = Ciphertexts.received(data, given.count([ANSWERS]), host.keys.key.width)
    sums = guest.key.decrypt(packages, layout, [ANSWERS])  # as wide as fields are
    return ((sums[:, 0] > mark / 2) == (chosen == 0)).mean()


def offered_cuts(count):
    column = np.arange(count, dtype=np.int32)
    listed = Candidates(column, np.zeros(count, np.int16), np.zeros(count, np.bool_))
    return NodeCandidates(listed, (), np.arange(count))


@pytest.mark.parametrize("scheme", ["plain", "okamoto-uchiyama"])
def test_marks_above_what_a_nodes_rows_need_are_drowned(scheme, monkeypatch):
    """The defence is `GhLayout.multiples`; lattice answers are cut as wide as a node needs."""
    assert sides_read(scheme, monkeypatch) < 0.6


def test_marks_above_the_noise_are_read_where_fields_are_as_wide_as_the_tree(monkeypatch):
    monkeypatch.setattr(GhLayout, "multiples", lambda _, __, drawn: np.zeros(drawn.shape, np.int64))
    assert sides_read("plain", monkeypatch) == 1.0


# Two attempts whose gradients differ in one row

MARKED = range(12)  # rows, each marked in an attempt of its own


def attempt(number, patch, marked):
    """The sums of a root by name, as the guest reads them and as they are; one row is marked."""
    said = {"mode": "layered", "host_depth": 2, "guest_depth": 1, "n_estimators": 1, "max_bin": 16}
    room = with_seed(
        made({**said, "host_noise": 1.0}, (1, 6), 400, missing=0.0, held=0.0).room(), b"%d" % number
    )
    start = rounds.Rounds.start_round

    def with_mark(state, fixed):
        start(state, fixed)
        gh = state.round.gh.copy()
        gh[list(MARKED), 0] = 0
        if marked is not None:
            gh[marked, 0] = 1 << fixed.bits  # the greatest gradient that the job has
        state.round = OpenRound(state.round.sample, gh)

    with patch.context() as own:
        own.setattr(rounds.Rounds, "start_round", with_mark)
        watched = Watched.of(room, own)
        now(room.until("divide_rows"))
    [root] = watched.nodes
    order = sorted(range(len(root.names)), key=root.names.__getitem__)
    return root.by_name[:, 0], root.true[order, 0]


def share_read(patch):
    """How many sides of cuts the guest reads of marked rows, by differences to one attempt."""
    seen, true = attempt(0, patch, None)
    right = []
    for number, row in enumerate(MARKED, start=1):
        again, true_again = attempt(number, patch, row)
        mark = (true_again - true).max()
        right.append(((again - seen) > mark / 2) == (true_again != true))
    return np.concatenate(right).mean()


def test_two_attempts_with_other_gradients_do_not_meet_the_same_noise(monkeypatch):
    """The defence is `HostNoise.bound_to`; a mark has one σ, noise of the difference √2."""
    assert share_read(monkeypatch) < 0.75


def test_the_mark_of_a_row_is_read_where_noise_goes_by_the_question_alone(monkeypatch):
    monkeypatch.setattr(HostNoise, "bound_to", lambda noise, *_: noise)
    assert share_read(monkeypatch) == 1.0


# Attempts with the same gradients, for the mean of their noise

LATTICE = {**budget.TREES, "encryption": {"scheme": "lattice"}, "host_noise": 1.0}
NOISY = job_spec("secureboost", (GUEST, HOST), data={GUEST: {"columns": []}}, params=LATTICE)
MOST = 1.5 * 2 * ROUND / ROWS  # what one attempt and a half may tell


@pytest.fixture
def again(town, monkeypatch):
    """A town whose guest brings the same labels in every attempt of a job with noise."""
    monkeypatch.setattr(budget, "SUMS", NOISY)
    monkeypatch.setattr(Town, "label", lambda *_: None)
    return town


def test_a_mean_of_attempts_costs_as_much_as_its_attempts(again, monkeypatch, observer):
    """The defence is the charge of every attempt: a fresh key is another observation."""
    entry, done = budget.begun_again_and_again(again, monkeypatch, disclosure_max=MOST)
    assert done.state == "failed"
    assert done.error.where["key"] == "policy.disclosure_max"
    seen, said = budget.in_all(observer, entry)
    assert seen == pytest.approx(said)
    assert entry.counted < MOST + 1e-9


def test_a_mean_of_attempts_is_free_where_attempts_are_not_charged(again, monkeypatch, observer):
    monkeypatch.setattr(Spending, "charge", lambda *_: None)
    _, done = budget.begun_again_and_again(again, monkeypatch, disclosure_max=MOST)
    assert done.state == "finished"
    ((sums, divisions),) = observer.sums(HOST, len(budget.COLUMNS), 2).values()
    assert (sums + divisions) / len(budget.COLUMNS) / ROWS > 2 * MOST
