"""Rows of a tree that the guest chooses: two trees whose rows differ by one person tell its bin.

The defence is `check_sample`: a host draws each tree's rows from the job's public seed, too.
"""

from dataclasses import replace

import numpy as np
import pytest

from fedboost.core import sampling
from fedboost.core.hybrid import HeldRows
from fedboost.ground.errors import PeerError
from fedboost.protocols.hybridtree import host as hybrid_host
from fedboost.protocols.secureboost import host
from tests.support import hybrid_jobs
from tests.support.federated import HOSTS, now
from tests.support.secureboost_jobs import made

PERSON, ROWS = 17, 80
SAYS = {
    "all rows": {},
    "subsample": {"subsample": 0.9},
    "a forest": {"forest": {"n_trees": 1, "subsample": 0.9}},
    "goss": {"goss": {"top_rate": 0.5, "other_rate": 0.2}},
}


def choose_rows(monkeypatch, *, without):
    """The guest has every tree learn from all rows, those of some rounds without one person."""
    of_round = sampling.round_sample

    def chosen(params, gradients, round_number, *more):
        rows = np.arange(len(gradients), dtype=np.int32)
        if round_number in without:
            rows = np.delete(rows, PERSON)
        drawn = of_round(params, gradients, round_number, *more)
        return replace(drawn, trees=(rows,), rows=rows, factor=np.ones(len(rows)))

    monkeypatch.setattr(sampling, "round_sample", chosen)


def bin_read(says, heard):
    """The person's bin as the guest reads it from the sums of two roots, and as it is."""
    quiet = {"objective": "reg:squarederror", "learning_rate": 1e-12, "precision_bits": 20}
    job = made(
        {**quiet, "n_estimators": 2, "max_depth": 1, **says}, (1, 1), ROWS, missing=0.0, held=None
    )
    room = now(job.room().until("close_model"))
    first, second = ({tuple(sums) for sums in root.tolist()} for root in heard)
    # Every h is 1, so that the second sum of a candidate says how many rows are on its left.
    in_order = sorted(first, key=lambda sums: sums[1])
    return sum(sums in second for sums in in_order), int(room.state(HOSTS[0]).bins[PERSON, 0])


@pytest.mark.parametrize("says", SAYS.values(), ids=SAYS)
def test_a_guest_that_chooses_the_rows_of_a_tree_is_refused(says, heard, monkeypatch):
    choose_rows(monkeypatch, without=[1])
    with pytest.raises(PeerError, match=r"the guest chose (other|another number of) rows"):
        bin_read(says, heard)
    assert len(heard) <= 1  # no second root, where the first one could be what the job says


@pytest.mark.parametrize("says", SAYS.values(), ids=SAYS)
def test_a_guest_that_chooses_the_rows_of_a_tree_reads_a_bin_where_hosts_do_not_draw(
    says, heard, monkeypatch
):
    monkeypatch.setattr(host, "check_sample", lambda *_, **__: None)
    choose_rows(monkeypatch, without=[1])
    read, true = bin_read(says, heard)
    assert read == true
    assert true > 0


HYBRID = {name: says for name, says in SAYS.items() if name != "a forest"}


def hybrid_job(says):
    job = hybrid_jobs.made({"n_estimators": 2, **says}, rows=ROWS)
    return now(job.room().walk())


def choose_below(monkeypatch):
    """The guest leaves a person out of the rows that a host's subtrees learn from."""
    drawn = HeldRows.draw_rows

    def chosen(*given):
        held = drawn(*given)
        learns = held.learns.copy()
        learns[np.flatnonzero(learns)[0]] = False
        return replace(held, learns=learns, fractions=held.fractions[1:])

    monkeypatch.setattr(HeldRows, "draw_rows", chosen)


@pytest.mark.parametrize("says", HYBRID.values(), ids=HYBRID)
def test_a_guest_that_chooses_the_rows_below_its_layers_is_refused(says, monkeypatch):
    hybrid_job(says)
    choose_below(monkeypatch)
    with pytest.raises(PeerError, match=r"the guest chose (other|another number of) rows"):
        hybrid_job(says)


@pytest.mark.parametrize("says", HYBRID.values(), ids=HYBRID)
def test_a_guest_chooses_the_rows_below_its_layers_where_hosts_do_not_draw(says, monkeypatch):
    monkeypatch.setattr(hybrid_host, "check_sample", lambda *_, **__: None)
    choose_below(monkeypatch)
    assert hybrid_job(says)
