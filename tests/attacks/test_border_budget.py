"""A host's budget: whatever guest and coordinator do, what left is charged and within its policy.

Host, its store and its policy are stock in every test; guest and coordinator do as they like. What
left is added up by an observer of its own (`tests.support.observer`).
"""

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import spearmanr

from fedboost.data.sources import SourceSpec
from fedboost.encrypted.host.meter import Meter
from fedboost.flow import Releases
from fedboost.ground.errors import PeerError, UnreachableError
from fedboost.ground.workers import Serial
from fedboost.messages.job_pb2 import JobId, StatusReport
from fedboost.protocols.federboost_vertical import guest as federboost_guest
from fedboost.protocols.hybridtree import guest as hybridtree_guest
from fedboost.protocols.predict import guest as predict_guest
from fedboost.protocols.secureboost import guest as secureboost_guest
from fedboost.protocols.secureboost import host as secureboost_host
from fedboost.runtime.cluster.local import LocalCluster, open_cluster
from fedboost.runtime.config.policy import PredictPolicy
from fedboost.runtime.coordinator.stage import StageWalk
from fedboost.runtime.party.job.files import JobFiles
from fedboost.runtime.policy.spending import Spending
from tests.support.federated import PLAIN, Finished, Room, _left, job_spec, now
from tests.support.observer import Observer
from tests.support.secureboost_jobs import made

GUEST, HOST = "bank", "telco"
ROWS, ATTEMPTS = 400, 4
IDS = [f"p{row:03d}" for row in range(ROWS)]
ROUND = 2 * 4 + 7  # equations of a tree with three layers: sums and divisions
TREES = {"n_estimators": 2, "max_depth": 3, "max_bin": 8, **PLAIN}
COLUMNS = ("x", "z")


@dataclass
class Town:
    """A guest with a table that it changes as it likes, and a host."""

    folder: Path
    sources: dict[str, SourceSpec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for party in (GUEST, HOST):
            self.sources[party] = SourceSpec(path=str(self.folder / f"{party}.parquet"))
        draw = np.random.default_rng(1)
        self.write(HOST, id=IDS, **{name: draw.normal(size=ROWS) for name in COLUMNS})
        self.label()

    def write(self, party: str, **columns: object) -> None:
        """A party's table."""
        pq.write_table(pa.table(columns), self.folder / f"{party}.parquet")

    def label(self, seed: int = 0, ids: list[str] = IDS) -> None:
        """Other labels, maybe of other rows."""
        draw = np.random.default_rng(seed)
        self.write(GUEST, id=ids, y=draw.integers(0, 2, len(ids)), w=draw.normal(size=len(ids)))

    async def again(self, made: LocalCluster, job: str) -> None:
        """The guest's daemon dies, loses what it kept of a job, and the coordinator goes on."""
        node = made.parties[GUEST]
        node.under_way.pop(job, None)
        shutil.rmtree(node.store.folder / "jobs" / job, ignore_errors=True)
        await made.coordinator.resume(made.user, JobId(id=job))
        async for _ in made.events(job):
            pass


def ruled(made: LocalCluster, **rules):
    """The host under its own policy."""
    node = made.parties[HOST]
    policy = node.config.policy.model_copy(update=rules)
    node.config = node.judge.config = node.config.model_copy(update={"policy": policy})
    return node


@pytest.fixture
def town(tmp_path):
    return Town(tmp_path)


@pytest.fixture
def observer(monkeypatch):
    found = Observer()
    with found.watching(monkeypatch):
        yield found


def failing(monkeypatch, module, step, attempts):
    """The guest gives up at a step of its, in the first attempts."""
    real, tries = getattr(module, step), [0]

    def close(state, *got):
        tries[0] += 1
        if tries[0] < attempts:
            raise UnreachableError("the guest's daemon died", party=GUEST)
        return real(state, *got)

    monkeypatch.setattr(module, step, close)


SUMS = job_spec("secureboost", (GUEST, HOST), data={GUEST: {"columns": []}}, params=TREES)


def begun_again_and_again(town, monkeypatch, **rules):
    """A job in attempts, each with other labels: the host's entries, and how the job stands."""
    failing(monkeypatch, secureboost_guest, "close_model", ATTEMPTS)

    async def work():
        async with open_cluster(town.folder / "c", SUMS, town.sources, Serial()) as made_of:
            host = ruled(made_of, **rules)
            journal = await made_of.run(SUMS)
            for attempt in range(1, ATTEMPTS):
                if journal.status.state != "paused":
                    break
                town.label(attempt)
                await town.again(made_of, journal.status.id)
                one = JobId(id=journal.status.id)
                journal = await made_of.coordinator.journal(made_of.user, one)
            [entry] = host.spending.account.entries()
            return entry, _left(made_of, journal)

    entry, done = asyncio.run(work())
    return entry, done


def in_all(observer, entry):
    """Sums about all columns, and divisions, by rows: as observed, and as the account says."""
    ((sums, divisions),) = observer.sums(HOST, len(COLUMNS), 2).values()
    return (sums + divisions) / ROWS, sum(entry.told.values())


def test_attempts_with_other_labels_stay_within_the_budget(town, monkeypatch, observer):
    """The defence is the charge in the transaction of the ledger's row (`Spending.charge`)."""
    most = 1.5 * 2 * ROUND / ROWS
    entry, done = begun_again_and_again(town, monkeypatch, disclosure_max=most)
    assert done.state == "failed"
    assert done.error.where["key"] == "policy.disclosure_max"
    seen, said = in_all(observer, entry)
    assert seen == pytest.approx(said)
    assert 0 < entry.counted <= most


async def test_attempts_with_other_labels_tell_several_budgets_where_nothing_is_charged(
    town, monkeypatch, observer
):
    monkeypatch.setattr(Spending, "charge", lambda *_: None)
    most = 1.5 * 2 * ROUND / ROWS
    failing(monkeypatch, secureboost_guest, "close_model", ATTEMPTS)
    async with open_cluster(town.folder / "c", SUMS, town.sources, Serial()) as made_of:
        ruled(made_of, disclosure_max=most)
        journal = await made_of.run(SUMS)
        for attempt in range(1, ATTEMPTS):
            town.label(attempt)
            await town.again(made_of, journal.status.id)
    ((sums, divisions),) = observer.sums(HOST, len(COLUMNS), 2).values()
    assert (sums + divisions) / len(COLUMNS) / ROWS > 1.5 * most


def test_every_sum_counts_though_nobody_ever_asks_for_a_commit(town, monkeypatch, observer):
    async def never(_):
        """The coordinator leaves it out."""

    monkeypatch.setattr(StageWalk, "commit", never)
    entry, done = begun_again_and_again(town, monkeypatch)
    assert done.state == "finished"
    seen, said = in_all(observer, entry)
    assert seen == pytest.approx(said)
    assert entry.counted > ATTEMPTS * ROUND / ROWS


def deeper(**own):
    """A guest, and whoever leads the job, that want six layers of a tree signed for two."""
    job = made({"max_depth": 2, "n_estimators": 1, "min_child_weight": 0.0, **own}, (2, 2, 2), 200)
    room = job.room()
    guest = room.contexts[GUEST]
    more = guest.params.model_copy(update={"max_depth": 6})
    contexts = {**room.contexts, GUEST: type(guest)(**{**vars(guest), "params": more})}
    return Room(room.protocol, {GUEST: contexts[GUEST], **contexts})


def test_a_tree_has_no_more_layers_than_the_job_that_the_host_signed():
    """The defence is the number of layers in `secureboost.host._follow_frontier`."""
    with pytest.raises(PeerError, match="asked for layer 3 of a tree, it has 2"):
        now(deeper().walk())


def test_a_tree_has_as_many_layers_as_the_guest_asks_for_where_the_host_counts_none(monkeypatch):
    monkeypatch.setattr(secureboost_host, "_candidate_layers", lambda *_: 99)
    room = deeper()
    now(room.walk())
    asked = [p for p in room.posted if p.envelope.step == "sum_candidates" and not p.envelope.part]
    assert len({p.envelope.number for p in asked}) > 2


# Other rows in every attempt

PREDICTED = 25


def predicted(town, monkeypatch, observer):
    """Predictions in attempts, each of other rows; how the job ends and how many rows were told."""
    trained = {**TREES, "n_estimators": 1}
    training = job_spec("secureboost", (GUEST, HOST), params=trained)

    async def work():
        async with open_cluster(town.folder / "c", training, town.sources, Serial()) as made_of:
            first: Finished = _left(made_of, await made_of.run(training))
            allowed = PredictPolicy(peers=(GUEST,), rows_per_day=PREDICTED)
            ruled(made_of, predict=allowed, intersection_min=1)
            asked = job_spec("predict", (GUEST, HOST), params={"model": first.result["job"]})
            failing(monkeypatch, predict_guest, "close_batch", ATTEMPTS)
            town.label(ids=IDS[:PREDICTED])
            journal = await made_of.run(asked)
            for attempt in range(1, ATTEMPTS):
                if journal.status.state != "paused":
                    break
                first_row = attempt * PREDICTED
                town.label(ids=IDS[first_row : first_row + PREDICTED])
                await town.again(made_of, journal.status.id)
                one = JobId(id=journal.status.id)
                journal = await made_of.coordinator.journal(made_of.user, one)
            return _left(made_of, journal)

    done = asyncio.run(work())
    told = [one for one in observer.left if type(one.message).__name__ == "Directions"]
    return done, sum(8 * len(one.message.goes_right.data) for one in told)


def test_a_job_predicts_the_rows_with_which_it_began(town, monkeypatch, observer):
    """The defence is the digest of the rows (`JobFiles.pin_digest`)."""
    done, _ = predicted(town, monkeypatch, observer)
    assert done.state == "failed"
    assert "have changed since the job began" in done.error.what
    assert observer.predicted(HOST) <= PREDICTED


def test_attempts_predict_other_rows_each_where_rows_are_not_bound(town, monkeypatch, observer):
    monkeypatch.setattr(JobFiles, "pin_digest", lambda *_: True)
    done, bits = predicted(town, monkeypatch, observer)
    assert done.state == "finished"
    assert bits >= ATTEMPTS * PREDICTED


NOISY = job_spec(
    "federboost-vertical",
    (GUEST, HOST),
    params={"n_estimators": 1, "buckets": 8, "epsilon": 1.0},
)


def noisy(town, monkeypatch, rows):
    """Noisy buckets in attempts, of so many rows each; how the job stands, and the account."""
    failing(monkeypatch, federboost_guest, "receive_buckets", ATTEMPTS)

    async def work():
        async with open_cluster(town.folder / "c", NOISY, town.sources, Serial()) as made_of:
            host = ruled(made_of, epsilon_element_max=1.0, epsilon_row_max=len(COLUMNS))
            journal = await made_of.run(NOISY)
            for count in rows:
                town.label(ids=IDS[:count])
                await town.again(made_of, journal.status.id)
            one = JobId(id=journal.status.id)
            journal = await made_of.coordinator.journal(made_of.user, one)
            [entry] = host.spending.account.entries()
            return entry, _left(made_of, journal)

    return asyncio.run(work())


def test_the_same_buckets_are_charged_once(town, monkeypatch, observer):
    entry, done = noisy(town, monkeypatch, [ROWS] * (ATTEMPTS - 1))
    assert done.state == "finished"
    assert entry.noise == sum(observer.noise(HOST, 1.0).values()) == len(COLUMNS)


def test_buckets_of_other_rows_are_charged_again_and_refused(town, monkeypatch, observer):
    """Two defences: the rows of a job are bound, and only the same bytes are free."""
    monkeypatch.setattr(JobFiles, "pin_digest", lambda *_: True)
    entry, done = noisy(town, monkeypatch, [ROWS - 1])
    assert done.error.where["key"] == "policy.epsilon_row_max"
    assert entry.noise == sum(observer.noise(HOST, 1.0).values()) == len(COLUMNS)


# Random cuts, whose leaves show which rows go together

CUTS = {
    "n_estimators": 40, "guest_depth": 1, "host_depth": 2, "max_bin": 32, "split": "unscored",
    **PLAIN,
}  # fmt: skip
UNSCORED = job_spec("hybridtree", (GUEST, HOST), data={GUEST: {"columns": ["w"]}}, params=CUTS)


def listened(town, monkeypatch, **rules):
    """A job whose guest notes which value each row gets: these, tree by tree, and the job."""
    real, heard = hybridtree_guest.add_values, []

    def noted(state, got):
        out = real(state, got)
        heard.append(np.unique(state.growing.added.ravel(), return_inverse=True)[1])
        return out

    monkeypatch.setattr(hybridtree_guest, "add_values", noted)
    town.write(HOST, id=IDS, x=np.random.default_rng(1).normal(size=ROWS))

    async def work():
        async with open_cluster(town.folder / "c", UNSCORED, town.sources, Serial()) as made_of:
            host = ruled(made_of, group_rows_min=10, **rules)
            journal = await made_of.run(UNSCORED)
            return heard, _left(made_of, journal), host.spending.account.entries()

    return asyncio.run(work())


def in_order(heard):
    """How the order of rows that share leaves most often agrees with that of the host's column."""
    together = sum((leaf[:, None] == leaf[None, :]).astype(float) for leaf in heard)
    weights = np.exp(together / len(heard) * 4)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    order = np.linalg.eigh(laplacian)[1][:, 1]
    x = np.random.default_rng(1).normal(size=ROWS)
    return abs(spearmanr(order, x).statistic)


def test_random_cuts_are_charged_and_a_column_is_not_put_in_order(town, monkeypatch):
    """The defence is the charge of the cuts' order (`Meter.charge_cuts`, in the host's answer)."""
    heard, done, _ = listened(town, monkeypatch, disclosure_max=0.15)
    assert done.error.where["key"] == "policy.disclosure_max"
    assert not heard  # it is not even begun: the forecast says so
    monkeypatch.setattr(Spending, "judge_table", _knows_the_table)
    monkeypatch.setattr(Spending, "judge_context", lambda *_: StatusReport())
    heard, done, entries = listened(town, monkeypatch, disclosure_max=0.15)
    assert done.error.where["key"] == "policy.disclosure_max"
    assert len(heard) <= 3
    assert entries[-1].counted <= 0.15


def test_random_cuts_put_a_column_in_order_where_they_are_free(town, monkeypatch):
    monkeypatch.setattr(Meter, "charge_cuts", lambda *_: ())
    monkeypatch.setattr(Spending, "judge_table", _knows_the_table)
    monkeypatch.setattr(Spending, "judge_context", lambda *_: StatusReport())
    heard, done, _ = listened(town, monkeypatch, disclosure_max=0.15)
    assert done.state == "finished"
    assert in_order(heard) > 0.9


def _knows_the_table(self, job, frame):
    """What a party notes when a job begins, without a forecast."""
    if frame is not None:
        self._jobs[job.id] = self._new_entry(job, Releases(0), 0, frame.n_rows)
