"""How finely jobs read a value: one after another, each with cut points of its own.

The host is stock. Its cut points are noted where it bins its columns: whoever has read a row's side
of each of them knows the row's value as finely as they divide the column.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedboost.core.binning import Binning
from fedboost.data.loading import load_with_ids
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.flow import Role
from fedboost.ground.errors import PolicyError
from fedboost.ground.workers import Serial
from fedboost.job import Validation
from fedboost.protocols.secureboost import host as secureboost_host
from fedboost.runtime.cluster import local
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.party.job.value_groups import ValueGroups
from fedboost.runtime.policy import declared
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.store.store import Store
from tests.support.federated import PLAIN, _left, job_spec, now

GUEST, HOST = "bank", "telco"
ROWS, GROUPS = 300, 8
TREES = {"n_estimators": 1, "max_depth": 1, **PLAIN}
JOBS = [(bins, seed) for bins in (2, 3, 8, 32) for seed in (1, 2)]


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Tables of a guest and a host, which lets jobs tell eight groups of a column apart."""
    draw, ids = np.random.default_rng(1), [f"p{row:03d}" for row in range(ROWS)]
    tables = {
        GUEST: {"id": ids, "y": draw.integers(0, 2, ROWS), "w": draw.normal(size=ROWS)},
        HOST: {"id": ids, "income": draw.lognormal(10, 1, ROWS)},
    }
    for party, columns in tables.items():
        pq.write_table(pa.table(columns), tmp_path / f"{party}.parquet")
    tables_of = local.declared_sources

    def bounded(*asked):
        return {
            name: table.model_copy(update={"bins_max": GROUPS})
            for name, table in tables_of(*asked).items()
        }

    monkeypatch.setattr(local, "declared_sources", bounded)
    return {party: SourceSpec(path=str(tmp_path / f"{party}.parquet")) for party in tables}


async def groups_told(tmp_path, monkeypatch, sources):
    """Into how many groups the cut points of all jobs together divide the host's rows."""
    cuts: list[Binning] = []
    begin = secureboost_host.begin

    def noted(context):
        state = begin(context)
        cuts.append(state.binning)
        return state

    monkeypatch.setattr(secureboost_host, "begin", noted)
    first = job_spec("secureboost", (GUEST, HOST), params=TREES)
    async with open_cluster(tmp_path / "c", first, sources, Serial()) as made:
        for bins, seed in JOBS:
            spec = first.model_copy(
                update={
                    "params": {**TREES, "max_bin": bins},
                    "validation": Validation(fraction=0.3, seed=seed),
                }
            )
            done = _left(made, await made.run(spec))
            assert done.state == "finished", done.error
    income = pq.read_table(sources[HOST].path)["income"].to_numpy().astype(np.float32)
    together = np.unique(np.concatenate([some.cuts[0] for some in cuts]))
    return len(np.unique(np.searchsorted(together, income, side="right")))


def test_jobs_with_other_rows_and_bins_tell_no_more_groups_than_the_owner_allows(
    tmp_path, monkeypatch, sources
):
    """The defence is that values of a group are one value before a protocol reads them."""
    assert now(groups_told(tmp_path, monkeypatch, sources)) <= GROUPS


def test_jobs_with_other_rows_and_bins_tell_many_groups_where_each_has_its_own_cut_points(
    tmp_path, monkeypatch, sources
):
    monkeypatch.setattr(ValueGroups, "coarsen_frame", lambda _, frame, *__: frame)
    assert now(groups_told(tmp_path, monkeypatch, sources)) > 5 * GROUPS


def rows_with_exact_ages(tmp_path):
    """The share of rows whose age is read by jobs that name one number after another as missing."""
    ages = np.random.default_rng(1).integers(18, 60, ROWS)
    path = tmp_path / "ages.parquet"
    pq.write_table(pa.table({"id": [f"p{row:03d}" for row in range(ROWS)], "age": ages}), path)
    table = SourceSpec(path=str(path), bins_max=GROUPS)
    known: dict[int, int] = {}
    with Store(tmp_path / "store", "party telco") as store:
        for age in range(18, 60):
            selection = Selection(dataset="ages", missing=float(age))
            declared.judge_use(table, declared.Use("ages", selection, Role.HOST, ()))
            frame, _ = load_with_ids(table, selection, party=HOST, needs_features=True)
            coarse = ValueGroups(store).coarsen_frame(frame, Owned("ages", table.identity), table)
            (rows,) = np.nonzero(np.isnan(coarse.values[:, 0]))
            known |= dict.fromkeys(rows.tolist(), age)
    return np.mean([known.get(row) == age for row, age in enumerate(ages.tolist())])


def test_no_job_asks_of_every_value_who_has_it(tmp_path):
    """The defence is that the owner alone says what counts as missing
    (`declared.wishes_of_job`).
    """
    with pytest.raises(PolicyError, match="missing value '18' of ages, but its owner allows none"):
        rows_with_exact_ages(tmp_path)


def test_jobs_ask_of_every_value_who_has_it_where_they_say_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(declared, "judge_use", lambda *_: None)
    assert rows_with_exact_ages(tmp_path) == 1.0
