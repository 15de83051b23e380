"""Rows on workers of Dask: the sums of one process, whoever of the cluster dies."""

import os
import signal
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from distributed import Client

from fedboost.core.row_parts import SharedTable
from fedboost.encrypted.cells.adding import PlacedRows
from fedboost.ground import part_workers
from fedboost.ground.errors import ConfigError, FedboostError, UnreachableError, install_advice
from fedboost.ground.part_workers import Embedded
from fedboost.ground.settings import parse_settings
from fedboost.runtime.config.daemons import DaskWorkers
from fedboost.runtime.party.workers import dask_part_workers
from fedboost.runtime.party.workers.dask_part_workers import DaskPartWorkers
from tests.equivalence.test_part_workers import assert_same_models
from tests.support import federboost_jobs, horizontal_jobs
from tests.support.dask_cluster import dask_cluster
from tests.support.elsewhere import spread
from tests.support.federated import now
from tests.unit.core.test_growth import job as tree_job
from tests.unit.encrypted.test_adding import Growing, nodes_of, table
from tests.unit.encrypted.test_ciphers import SHOP, Pair
from tests.unit.encrypted.test_lattice_parts import Layers

pytestmark = pytest.mark.xdist_group("dask")
ROWS = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with dask_cluster(tmp_path_factory.mktemp("dask")) as made:
        yield made


@pytest.fixture(scope="module")
def own(cluster):
    made = DaskPartWorkers(cluster.settings(gradients=True))
    yield made
    made.close()


class PlainTree:
    """A tree whose rows are added up in the clear, here and at workers, one layer after the other;
    `check` makes the next two layers of both.
    """

    def __init__(self, least):
        self.job = tree_job(5, max_depth=6)
        self.job.rules = replace(self.job.rules, own_rows_min=(least,))
        self.alone, self.least = self.job.growing(), least

    def tree(self, own):
        rules = self.job.rules
        elsewhere = SharedTable.of(own, self.alone._bins, rules.binning, self.least)
        return replace(self.job, rules=replace(rules, elsewhere=elsewhere)).growing()

    def check(self, tree):
        if tree.depth < self.alone.depth:  # one that begins now
            self.alone = self.job.growing()
        for _ in range(2):
            assert not tree.is_over
            found, expected = tree.sums(), self.alone.sums()
            assert np.array_equal(found, expected)
            tree.take(found)
            self.alone.take(expected)


class Sums:
    """The cells of some nodes, here and at workers, which have some of the rows each."""

    def __init__(self, scheme, rows=ROWS):
        self.held, _ = Pair(scheme, rows=rows).rows(SHOP)
        self.given = table("frequent"), *nodes_of(rows)
        self.expected = Growing(self.held.placed_rows, *self.given).sums()

    def tree(self, own):
        return Growing(PlacedRows(own, self.held._chosen_part, by_rows=True), *self.given)

    def check(self, tree):
        if 0 not in tree.partition.by_leaf:  # grown before: the last layer once more
            assert np.array_equal(tree.tree.added_up([3, 4, 5, 6]).data, self.expected[2])
            return
        assert all(map(np.array_equal, tree.sums(), self.expected))


class Answers:
    """Two layers of a lattice tree, here and at workers, which have some of the columns each."""

    def __init__(self, scheme="lattice, packed"):
        self.scheme, alone = scheme, Layers(scheme)
        self.expected = [alone.root(), alone.children()]

    def tree(self, own):
        return Layers(self.scheme, part_workers=own)

    def check(self, tree):
        if 0 in tree.partition.by_leaf:  # not divided before
            assert tree.root() == self.expected[0]
        assert tree.children() == self.expected[1]


def refusal(kind, work):
    with pytest.raises(FedboostError) as caught:
        work()
    assert type(caught.value) is kind, caught.value.lines()
    assert caught.value.todo
    return caught.value


def test_plain_jobs_leave_the_models_of_one_process(own):
    buckets = federboost_jobs.open_job({"n_estimators": 1})
    rows = horizontal_jobs.made({"n_estimators": 1}, own_rows_min=5)
    for make in (lambda: federboost_jobs.room_of(buckets), rows.room):
        assert_same_models(now(make().walk()), now(spread(make(), own).walk()))


def test_a_cluster_adds_up_what_one_process_does_and_outlives_a_worker(cluster, own, monkeypatch):
    """By rows and by columns, encrypted and not; what the dead worker had is given to the other."""
    monkeypatch.setattr(dask_part_workers, "SMALL_TASK_BYTES", 0)  # as tasks of many rows go
    jobs: list[Any] = [
        Sums("okamoto-uchiyama", 40),
        Answers(),
        Answers("lattice, vectors"),
        Sums("plain"),
        PlainTree(1),
        PlainTree(5),
    ]
    trees = [job.tree(own) for job in jobs]
    begun = Answers()
    tree = begun.tree(own)
    assert tree.root() == begun.expected[0]
    for job, own_tree in zip(jobs, trees, strict=True):
        job.check(own_tree)
    cluster.kill_worker()
    begun.check(tree)  # whose parents' cells are gone with the worker
    for job in jobs:
        job.check(job.tree(own))
    assert own.count == 1
    for job in jobs:
        job.check(job.tree(own))


def test_gradients_go_only_where_the_party_s_file_says_so():
    assert not DaskPartWorkers(parse_settings(DaskWorkers, {"dask": {"local": 1}})).takes_gradients


def test_an_error_in_a_task_is_raised_here(own):
    with pytest.raises(ZeroDivisionError):
        own.run(divmod, [own.keep(1, lambda _: 1)], [(0,)])


def test_workers_of_another_version_are_refused(cluster, monkeypatch):
    monkeypatch.setattr(part_workers, "build_version", lambda: "0.0.1")
    other = DaskPartWorkers(cluster.settings())
    error = refusal(ConfigError, lambda: other.count)
    assert "here are 0.0.1" in error.what
    other.close()


def test_workers_without_fedboost_are_refused(cluster, monkeypatch):
    other = DaskPartWorkers(cluster.settings())

    def lacking(*_):
        raise ModuleNotFoundError("No module named 'fedboost'")

    monkeypatch.setattr("distributed.Client.run", lambda *_, **__: lacking())
    assert "cannot run fedboost" in refusal(ConfigError, lambda: other.count).what
    other.close()


def test_certificates_of_another_ca_are_refused(cluster, monkeypatch):
    monkeypatch.setattr(dask_part_workers, "DASK_CONNECT_S", 1)
    cluster.certify("others")
    other = DaskPartWorkers(cluster.settings("others"))
    assert "does not answer" in refusal(UnreachableError, lambda: other.count).what


def test_files_that_cannot_be_read_are_named(cluster):
    raw = cluster.raw()
    raw["tls"] = {**cluster.files(), "ca": "/none.pem"}
    error = refusal(ConfigError, lambda: DaskPartWorkers(parse_settings(DaskWorkers, raw)).count)
    assert error.where["file"] == "/none.pem"


def test_without_the_extra_it_is_named(cluster, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    error = refusal(ConfigError, lambda: DaskPartWorkers(cluster.settings()).count)
    assert install_advice("dask") in error.todo


def test_workers_that_are_lost_again_and_again_end_the_layer(own, monkeypatch):
    def lost(*_):
        raise OSError("Stream is closed")

    monkeypatch.setattr(dask_part_workers, "LOST_S", 0.001)
    monkeypatch.setattr(dask_part_workers._Run, "results", lost)
    error = refusal(UnreachableError, lambda: own.run(divmod, [], [(1, 2)]))
    assert "8 times in a row" in error.what


def test_a_scheduler_that_answers_no_more_is_gone(cluster, monkeypatch):
    other = DaskPartWorkers(cluster.settings())
    assert other.count

    def gone(*_):
        raise OSError("Connection refused")

    monkeypatch.setattr("distributed.Client.nthreads", gone)
    assert "is gone" in refusal(UnreachableError, lambda: other.count).what


def test_a_scheduler_that_is_soon_back_is_asked_again(cluster, monkeypatch):
    other = DaskPartWorkers(cluster.settings())
    expected, asked, errors = other.count, Client.nthreads, [OSError("Connection refused")]

    def once(*args):
        if errors:
            raise errors.pop()
        return asked(*args)

    monkeypatch.setattr(Client, "nthreads", once)
    assert other.count == expected
    assert not errors
    other.close()


def test_a_client_that_fails_as_it_is_closed_is_let_go_of(cluster, monkeypatch):
    """One that is about to connect again raises what it meets there."""
    own, job, closing = DaskPartWorkers(cluster.settings()), Sums("plain"), Client.close
    tree = job.tree(own)
    job.check(tree)

    def failing(client, *words, **more):
        closing(client, *words, **more)
        raise ValueError("IOStream is not idle; cannot convert to SSL")

    monkeypatch.setattr(Client, "close", failing)
    own.close()
    job.check(tree)
    own.close()


@pytest.mark.full
def test_processes_of_this_machine_are_made_again_when_they_die():
    own = DaskPartWorkers(parse_settings(DaskWorkers, {"dask": {"local": 1}}))
    job = Answers()
    try:
        tree = job.tree(own)
        job.check(tree)
        [pid] = own.run(os.getpid, [], [()])
        os.kill(pid, signal.SIGKILL)
        job.check(tree)
    finally:
        own.close()


def test_a_cluster_that_dies_ends_the_layer_and_is_found_again(cluster, monkeypatch):
    """Last, for it ends the cluster."""
    monkeypatch.setattr(dask_part_workers, "DASK_CONNECT_S", 1)
    own = DaskPartWorkers(cluster.settings())
    job = Sums("plain")
    tree = job.tree(own)
    job.check(tree)
    while cluster.workers:
        cluster.kill_worker()
    assert "has no workers" in refusal(UnreachableError, lambda: job.check(tree)).what
    cluster.kill_scheduler()
    what = refusal(UnreachableError, lambda: job.check(tree)).what
    assert "is gone" in what or "does not answer" in what
    assert "does not answer" in refusal(UnreachableError, lambda: job.check(tree)).what
    monkeypatch.setattr(dask_part_workers, "DASK_CONNECT_S", 10)
    cluster.start_scheduler()
    cluster.start_workers(1)
    job.check(tree)
    own.close()


def test_this_process_joins_what_its_workers_make():
    own = Embedded(3)
    kept = own.keep(3, lambda i: i)
    assert own.run(pow, [kept], [(2,), (2,), (2,)]) == [0, 1, 4]
    assert own.run(max, [kept], [(7,), (8,), (9,)], max) == [9]
    own.close()
