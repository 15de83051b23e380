"""What the stages behind a pairwise alignment find: rows by party, held out alike, all scored."""

import sys
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from fedboost import protocols
from fedboost.data.holdout import validation_rows, validation_rows_by_id
from fedboost.flow import GUEST as GUEST_ROLE
from fedboost.flow import HOST, START, Artefact, Out, Protocol, RowsUsed, Step, TableUse
from fedboost.ground.settings import Settings
from fedboost.ground.workers import Serial
from fedboost.messages.job_pb2 import StatusReport
from fedboost.runtime.cluster import local
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.jobs.manifest import JobMember, Manifest
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.party.job.job import PartyJob
from fedboost.runtime.store.store import Store
from tests.support.federated import GUEST, HOSTS, Hand, frame_of, job_spec, run_job

TELCO, SHOP, MILL = HOSTS[:3]
NAME = "hybrid-scores"
FRACTION, SEED = 0.4, 3
LOOK = Step("look", (GUEST_ROLE, HOST))


class NoParams(Settings):
    """No parameters."""


async def walk(run):
    """Everybody looks at its rows once."""
    await run(LOOK)


@pytest.fixture
def contexts(monkeypatch):
    """A stage that leaves predictions behind a pairwise alignment; the seats that it had."""
    seen = {}

    def begin(context):
        seen[context.party] = context
        return context

    def finish(context):
        if context.role is not GUEST_ROLE:
            return Artefact()
        return Artefact(
            arrays={"prediction": np.arange(context.frame.n_rows, dtype=float)[:, None]}
        )

    module = ModuleType(NAME)
    monkeypatch.setitem(sys.modules, NAME, module)
    module.__dict__.update(
        begin=begin,
        look=lambda context: Out(),
        snapshot=lambda context: Artefact(),
        restore=lambda context, kept: StatusReport(),
        finish=finish,
        bytes_max=lambda context, step: 0,
    )
    protocol = Protocol(
        name=NAME,
        params=NoParams,
        flow=(LOOK,),
        walk=walk,
        modules={GUEST_ROLE: NAME, HOST: NAME},
        before=("align-pairs",),
        leaves="predictions",
        tables=TableUse(rows=RowsUsed.GUESTS),
    )
    monkeypatch.setitem(protocols.load_all(), NAME, protocol)
    return seen


def table(ids):
    return pa.table({"id": ids, "x": np.arange(len(ids), dtype=float)})


@pytest.fixture
def done(contexts, tmp_path):
    """A guest with 60 rows, hosts that have 40, 3 and none of them beside others; all finished."""
    draw = np.random.default_rng(5)
    ids = {
        GUEST: draw.permutation(60),
        TELCO: draw.permutation(100)[:70],
        SHOP: np.array([59, 7, 200, 33]),
        MILL: np.arange(300, 320),
    }
    spec = job_spec(NAME, tuple(ids), validation={"fraction": FRACTION, "seed": SEED})
    finished = run_job(tmp_path / "job", {p: table(own) for p, own in ids.items()}, spec)
    assert finished.state == "finished", finished.error.lines()
    return ids, finished


def ids_of(context):
    return [int(row[4:]) for row in context.frame.ids]  # behind the length that an id begins with


def test_the_guest_has_all_its_rows_and_a_host_those_it_shares_with_it(contexts, done):
    ids, _ = done
    assert sorted(ids_of(contexts[GUEST])) == list(range(60))
    assert list(contexts[GUEST].frame.ids) == sorted(contexts[GUEST].frame.ids)
    alignment = contexts[GUEST].artefacts["align-pairs"]
    for host in (TELCO, SHOP, MILL):
        own = contexts[host].frame.ids
        assert set(ids_of(contexts[host])) == set(ids[host]) & set(range(60))
        indices = alignment.arrays[f"with_{host}"]
        assert contexts[GUEST].frame.ids.take(indices) == own
        # Values came along with their rows.
        in_table = [list(ids[host]).index(row) for row in ids_of(contexts[host])]
        assert contexts[host].frame.values[:, 0].tolist() == in_table
    assert contexts[MILL].frame.n_rows == 0


def test_guest_and_hosts_hold_out_the_same_rows(contexts, done):
    guest = contexts[GUEST]
    assert 0 < guest.validation.sum() < 60
    for host in (TELCO, SHOP, MILL):
        indices = guest.artefacts["align-pairs"].arrays[f"with_{host}"]
        assert contexts[host].validation.dtype == np.bool_
        assert contexts[host].validation.tolist() == guest.validation[indices].tolist()
    alone = validation_rows_by_id(contexts[TELCO].frame.ids, FRACTION, SEED)
    assert contexts[TELCO].validation.tolist() == alone.tolist()
    # The rule of jobs whose parties all have the same rows would have had them disagree.
    assert validation_rows(contexts[TELCO].frame.ids, FRACTION, SEED).tolist() != alone.tolist()


def test_all_rows_of_the_guest_are_scored_also_those_that_no_host_has(contexts, done):
    ids, finished = done
    assert finished.predictions.column("id").to_pylist() == ids[GUEST].tolist()
    order = ids_of(contexts[GUEST])
    scored = dict(zip(order, range(60), strict=True))
    told = finished.predictions.column("prediction").to_pylist()
    assert told == [scored[row] for row in ids[GUEST].tolist()]


def test_the_result_counts_rows_with_and_without_hosts_and_times_both_stages(done):
    ids, finished = done
    held = (set(ids[TELCO]) | set(ids[SHOP])) & set(range(60))
    assert finished.result["rows"] == {"aligned": len(held), "alone": 60 - len(held)}
    assert finished.result["seconds"].keys() == {"total", "align", "predict"}


@pytest.mark.parametrize(
    ("job", "stage", "rows"),
    [
        ("align", "align", [b"a", b"b", b"c"]),  # another party had not finished it: once more
        ("align-pairs", "align-pairs", [b"a", b"b", b"c"]),
        ("secureboost", "align", [b"a", b"b", b"c"]),
        ("secureboost", "secureboost", [b"c", b"a"]),
        (NAME, "align-pairs", [b"a", b"b", b"c"]),
        (NAME, NAME, [b"c", b"a"]),
    ],
)
def test_what_an_alignment_left_is_for_the_stages_behind_it(contexts, tmp_path, job, stage, rows):
    spec = job_spec(job, (GUEST, TELCO), data={GUEST: {"label": "y"}})
    terms = Manifest(
        job="job-1",
        coordinator=local.COORDINATOR,
        submitter="ann",
        spec=spec,
        members=[JobMember(name=party, certificate="none") for party in (GUEST, TELCO)],
    )
    with Store(tmp_path / "store", f"party {GUEST}") as store:
        work = PartyJob(SignedJob(GUEST, terms, bytes(32)), store)
        work.table.frame = frame_of([b"a", b"b", b"c"], np.zeros((3, 1), np.float32))
        work.close(work.signed.stages[0], Artefact(arrays={"rows": np.array([2, 0])}))
        context = work.context(stage, START, Serial(), Policy(), Hand(GUEST))
    assert context.frame is not None
    assert list(context.frame.ids) == list(rows)
    assert len(context.validation) == len(rows)
