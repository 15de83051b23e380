"""Guests that try to see through a host's noise, each beside a host without the defence.

What a guest tries is honest by the protocol: it reads what it gets, and may break off a job.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedboost.encrypted.scheme import keys
from fedboost.encrypted.scheme.host_noise import HostNoise, NoiseScale
from fedboost.flow import StageContext
from tests.support.contexts import altered
from tests.support.federated import HOSTS, now, with_seed
from tests.support.noisy_jobs import Watched
from tests.support.secureboost_jobs import made

SIGMA = 1.0
ATTEMPTS = 40
LATTICE = {"encryption": {"scheme": "lattice"}}


def job_of(sigma, **params):
    """Two layers on the columns of one host."""
    said = {"mode": "layered", "host_depth": 2, "guest_depth": 1, "n_estimators": 1, "max_bin": 16}
    # Few rows have the same gradient, nor integer.
    said |= {"objective": "reg:squarederror", "precision_bits": None}
    return made({**said, "host_noise": sigma, **params}, (1, 6), 400, missing=0.0, held=0.0)


def seen(room, patch):
    """What the guest reads until its first tree is closed, by node."""
    with patch.context() as own:
        watched = Watched.of(room, own)
        now(room.until("grow_alone"))
    return {node.node: node for node in watched.nodes}


# Parent and children


def linked(nodes, within=0):
    """Candidates of the root that are, to some precision, the sum of one of each child's: which
    these are, where there is one choice of them only; (root, left, right) places.
    """
    sums = {number: node.seen for number, node in nodes.items()}
    pairs = (sums[1][:, None] + sums[2][None]).reshape(-1, sums[0].shape[1])
    found = []
    for place, total in enumerate(sums[0]):
        (fits,) = np.nonzero((np.abs(pairs - total) <= within).all(axis=1))
        if len(fits) == 1:
            found.append((place, *(int(n) for n in divmod(fits[0], len(sums[2])))))
    return found


def rightly(nodes, found):
    """How many of them are one cut of one column in all three nodes."""
    names = [nodes[number].names for number in (0, 1, 2)]
    return sum(names[0][a] == names[1][b] == names[2][c] for a, b, c in found)


@pytest.mark.parametrize("params", [{}, LATTICE], ids=["plain", "lattice"])
def test_without_noise_a_parents_sums_are_those_of_its_children(params, monkeypatch):
    nodes = seen(job_of(0.0, **params).room(), monkeypatch)
    found = linked(nodes)
    assert rightly(nodes, found) == len(found)
    assert len(found) > 0.8 * len(nodes[0].seen)  # all but those of the column that has divided it


@pytest.mark.parametrize("params", [{}, LATTICE], ids=["plain", "lattice"])
@pytest.mark.parametrize("sigma", [0.01, SIGMA])
def test_with_noise_nothing_links_a_parent_to_its_children_exactly(sigma, params, monkeypatch):
    nodes = seen(job_of(sigma, **params).room(), monkeypatch)
    assert rightly(nodes, linked(nodes)) == 0
    assert len(linked(nodes)) <= 0.02 * len(nodes[0].seen)  # by accident


def test_missing_rows_link_the_cuts_of_a_column_only_without_noise(monkeypatch):
    """Each cut is offered with them on either side: the same difference again and again."""
    for sigma in (0.0, SIGMA):
        job = replace(job_of(sigma), columns=with_missing(job_of(sigma).columns))
        root = seen(job.room(), monkeypatch)[0]
        apart = (root.seen[:, None] - root.seen[None]).reshape(-1, 2)
        kinds, counts = np.unique(apart[apart.any(axis=1)], axis=0, return_counts=True)
        columns = (counts >= 10) & (kinds[:, 1] > 0)  # by hessians the missing rows are on the left
        assert columns.sum() == (6 if sigma == 0.0 else 0)


def with_missing(columns):
    found = {party: values.copy() for party, values in columns.items()}
    for column in range(6):
        found[HOSTS[0]][column::7, column] = np.nan
    return found


# Attempts


def attempts(sigma, patch):
    """The root's sums in canonical order, of a job that is broken off and begun again.

    Under `plain` equal gradients are equal ciphertexts, as if one attempt's were sent again.
    """
    job, found, true = job_of(sigma), [], None
    for number in range(ATTEMPTS):
        room = with_seed(job.room(), b"%d" % number)
        with patch.context() as own:
            watched = Watched.of(room, own)
            now(room.until("divide_rows"))
        [root] = watched.nodes
        found.append(root.by_name)
        order = sorted(range(len(root.names)), key=root.names.__getitem__)
        true = root.true[order]
    return np.array(found), true


def drawn_anew(context: StageContext[Any], got):
    """Noise of the attempt's secrets, as if it were blinding."""
    return HostNoise(
        NoiseScale.of(context.params, got.value_bits), context.secrets.attempt.child("host noise")
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("redrawn", [False, True])
def test_the_same_ciphertexts_asked_about_again_and_again_average_nothing_out(redrawn, monkeypatch):
    if redrawn:
        monkeypatch.setattr(keys, "_host_noise", drawn_anew)
    found, true = attempts(SIGMA, monkeypatch)
    error = {n: np.abs(found[:n].mean(axis=0) - true).mean() for n in (1, ATTEMPTS)}
    if redrawn:
        assert error[ATTEMPTS] < 2 * error[1] / np.sqrt(ATTEMPTS)
    else:
        assert (found == found[0]).all()
        assert error[ATTEMPTS] > 0.99 * error[1]


def test_under_fresh_ciphertexts_the_same_gradients_meet_other_noise(monkeypatch):
    """A host cannot tell them from other gradients: they count as another observation."""
    rooms = [with_seed(job_of(SIGMA, **LATTICE).room(), seed) for seed in (b"one", b"other")]
    own = [seen(room, monkeypatch)[0] for room in rooms]
    assert np.array_equal(np.sort(own[0].true, axis=0), np.sort(own[1].true, axis=0))
    assert (own[0].by_name == own[1].by_name).mean() < 0.01


def test_every_attempt_shuffles_and_blinds_anew_what_its_noise_is_the_same(monkeypatch):
    rooms = [with_seed(job_of(SIGMA).room(), seed) for seed in (b"one", b"other")]
    own = [seen(room, monkeypatch)[0] for room in rooms]
    assert own[0].names != own[1].names
    assert np.array_equal(own[0].by_name, own[1].by_name)


def test_two_jobs_on_the_same_rows_have_noises_of_their_own(monkeypatch):
    room = job_of(SIGMA).room()
    other = job_of(SIGMA).room()
    contexts = {
        name: altered(context, secrets={"job": context.secrets.job.child("another job")})
        for name, context in other.contexts.items()
    }
    other = type(other)(other.protocol, contexts)
    one, two = seen(room, monkeypatch)[0], seen(other, monkeypatch)[0]
    assert not (one.by_name == two.by_name).any()
