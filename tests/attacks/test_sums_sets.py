"""What sums over sets of parties that differ by few would tell of these few: in a job that goes on
without a lost party, and over several jobs."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedboost.aggregation.contributor import Contributor
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import UnreachableError
from fedboost.ground.workers import Serial
from fedboost.runtime.cluster import local
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.policy.differences import Summed
from fedboost.runtime.transport import faults
from fedboost.runtime.transport.addresses import Timers
from tests.support.federated import job_spec, now

STAGE = "federboost-horizontal"
FOUR = ("aa", "bb", "cc", "dd")
ROWS, VALUES = 400, 8
TARGET = "dd"
KEY = "policy.aggregation_apart_min"
TREES = 3
OWN = {"n_estimators": TREES, "max_depth": 1, "max_bin": VALUES, "base_score": 0.5,
       "domains": {"x": [float(v) for v in range(VALUES)]}}  # fmt: skip


def tables(folder):
    """A table of each party in a file, and by value of x how many rows and ones the target has."""
    draw = np.random.default_rng(3)
    sources, true = {}, []
    for party in FOUR:
        x = draw.integers(0, VALUES, ROWS)
        y = (draw.random(ROWS) < 0.2 + 0.6 * (x > 3)).astype(np.int64)
        ids = [f"{party}{i}" for i in range(ROWS)]
        path = Path(folder) / f"{party}.parquet"
        pq.write_table(pa.table({"id": ids, "x": x.astype(np.float64), "y": y}), path)
        sources[party] = SourceSpec(path=str(path))
        if party == TARGET:
            true = [(int(np.sum(x == v)), int(y[x == v].sum())) for v in range(VALUES)]
    return sources, true


def spec_of(parties, **params):
    own = {party: {"label": "y"} for party in parties}
    spec = job_spec(STAGE, parties, data=own, params={**OWN, **params})
    named = spec.parties.model_copy(update={"aggregator": "sum"})
    return spec.model_copy(update={"parties": named})


@pytest.fixture
def owners(monkeypatch):
    """A function by which owners let sums tell of so many parties together; none: as by default."""
    permissive = local.permissive_policy

    def allow(least, noise=0.0):
        def own(*args, **kwargs):
            found = permissive(*args, **kwargs)
            kept = found.model_fields_set - {"aggregation_apart_min", "aggregation_parties_min"}
            said = {"aggregation_noise": noise}
            said |= {} if least is None else {"aggregation_apart_min": least}
            return Policy(**{key: getattr(found, key) for key in kept}, **said)

        monkeypatch.setattr(local, "permissive_policy", own)

    return allow


@pytest.fixture
def totals(monkeypatch):
    """Every total of a root's gradients that the guest reads, in their order; metrics of the tree
    before may stand in front of them.
    """
    seen, real, cells = [], Contributor.total, (VALUES + 1) * 2

    def total(self, parts, most):
        read = real(self, parts, most)
        if self.party == FOUR[0] and self._fresh is not None and read is not None:
            seen.append(read[-cells:].copy())
        return read

    monkeypatch.setattr(Contributor, "total", total)
    return seen


def by_value(sums):
    """Of sums of g and h at p = 1/2 over ROWS rows: how many rows and ones each value has."""
    cells = sums.reshape(-1, 2)[:VALUES]
    unit = cells[:, 1].sum() / ROWS
    return [(round(h / unit), round(h / unit / 2 - g / unit)) for g, h in cells.tolist()]


# A job that goes on without a party, and learns next to nothing


async def lost_after_a_tree(folder, sources):
    """A job whose coordinator says that the target is gone after the first tree; how it ends."""
    spec = spec_of(FOUR, dropout="continue", learning_rate=1e-12)
    timers = Timers(keep_s=0)
    async with local.open_cluster(folder / "c", spec, sources, Serial(), timers=timers) as cluster:
        node = cluster.parties[TARGET]
        run_step, measured = node.run_step, list[Any]()

        async def run(caller, request):
            if measured:
                raise UnreachableError("it is not there", party=TARGET)
            reply = await run_step(caller, request)
            measured.extend(turn for turn in request.turns if turn.step == "read_metrics")
            return reply

        cluster.parties[TARGET].__dict__["run_step"] = run
        return (await cluster.run(spec)).status


@pytest.mark.parametrize("least", [None, 2, 3])
def test_a_job_does_not_go_on_without_a_party_where_its_part_would_show(
    tmp_path, owners, totals, least
):
    """Whatever the objective and the learning rate."""
    owners(least)
    sources, _ = tables(tmp_path)
    status = now(lost_after_a_tree(tmp_path, sources))
    assert status.state == "failed"
    assert faults.error_of_fault(status.reason).where["key"] == KEY
    assert totals == []


def test_a_partys_part_is_the_difference_of_two_roots_where_owners_allow_any_sets(
    tmp_path, owners, totals
):
    owners(1)
    sources, true = tables(tmp_path)
    status = now(lost_after_a_tree(tmp_path, sources))
    assert status.state == "finished"
    assert by_value(totals[0] - totals[1]) == true


@pytest.mark.parametrize("noise", [1.0, 4.0])
def test_a_partys_part_is_hidden_in_noise_of_its_own_that_is_never_drawn_again(
    tmp_path, owners, totals, noise
):
    """However many roots there are: the noise is the same in each."""
    owners(None, noise)
    sources, true = tables(tmp_path)
    status = now(lost_after_a_tree(tmp_path, sources))
    assert status.state == "finished"
    with_it, without, again = totals
    cells = (with_it - without).reshape(-1, 2)[:VALUES]
    unit = with_it.reshape(-1, 2)[:VALUES, 1].sum() / (len(FOUR) * ROWS)  # of h, about
    exact = np.array([(rows / 2 - ones, rows) for rows, ones in true]) * unit
    assert np.abs(cells - exact).mean() > noise / 8 * unit  # but in one run of 10^9
    assert np.abs(without - again).max() < unit / 1e6  # but for what the tree has learnt


# Jobs over {a, b, c, d} and {a, b, c}


async def one_after_the_other(folder, sources, jobs):
    """How jobs over these parties end, on one cluster."""
    async with local.open_cluster(folder / "c", spec_of(FOUR), sources, Serial()) as cluster:
        return [(await cluster.run(spec_of(parties))).status for parties in jobs]


def test_a_second_job_with_a_party_less_is_refused_before_anything_leaves(tmp_path, owners, totals):
    owners(None)
    sources, _ = tables(tmp_path)
    first, second = now(one_after_the_other(tmp_path, sources, (FOUR, FOUR[:3])))
    assert (first.state, second.state) == ("finished", "failed")
    assert faults.error_of_fault(second.reason).where["key"] == KEY
    assert len(totals) == TREES


def test_the_same_parties_are_summed_again(tmp_path, owners):
    owners(None)
    sources, _ = tables(tmp_path)
    ended = now(one_after_the_other(tmp_path, sources, (FOUR, FOUR)))
    assert [one.state for one in ended] == ["finished", "finished"]


def test_two_jobs_tell_a_partys_part_where_nobody_remembers(tmp_path, owners, totals, monkeypatch):
    owners(None)
    monkeypatch.setattr(Summed, "keep_unless_isolating", lambda *_: None)
    sources, true = tables(tmp_path)
    ended = now(one_after_the_other(tmp_path, sources, (FOUR, FOUR[:3])))
    assert [one.state for one in ended] == ["finished", "finished"]
    roots = totals[0], totals[TREES]
    assert by_value(roots[0] - roots[1]) == true


# As many sums as a job likes


async def charged(folder, sources):
    """How a job ends, and the values by rows that the target's account says."""
    spec = spec_of(FOUR)
    async with local.open_cluster(folder / "c", spec, sources, Serial()) as cluster:
        status = (await cluster.run(spec)).status
        return status, cluster.parties[TARGET].spending.account.entries()


@pytest.fixture
def limited(monkeypatch):
    """A function by which owners limit the values of sums by rows."""
    permissive = local.permissive_policy

    def limit(most):
        monkeypatch.setattr(
            local,
            "permissive_policy",
            lambda *args, **kwargs: permissive(*args, **kwargs).model_copy(
                update={"totals_max": most}
            ),
        )

    return limit


def test_values_of_sums_are_charged_and_end_where_the_owner_says(tmp_path, limited, totals):
    limited(1.2)
    sources, _ = tables(tmp_path)
    status, [entry] = now(charged(tmp_path, sources))
    assert status.state == "failed"
    assert faults.error_of_fault(status.reason).where["key"] == "policy.totals_max"
    assert len(totals) < TREES
    assert 0.6 < entry.totals <= 1.2


def test_values_of_sums_go_on_without_end_where_the_owner_sets_no_limit(tmp_path, totals):
    sources, _ = tables(tmp_path)
    status, [entry] = now(charged(tmp_path, sources))
    assert status.state == "finished"
    assert len(totals) == TREES
    counts = 3 + 2 * 128  # rows to train on and to hold out, of x; bounds
    layer, measured = (VALUES + 1) * 2, entry.totals * ROWS - counts - 2
    assert measured > TREES * layer
