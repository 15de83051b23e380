"""A party is lost at each step of horizontal boosting: sums stay right, or the job waits."""

import io
import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from fedboost.core import objectives
from fedboost.data.holdout import validation_rows
from fedboost.data.loading import load_frame
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobId
from fedboost.model import shards, whole
from fedboost.report.page import render_page
from fedboost.report.progress import Progress, result_summary
from fedboost.runtime.cluster import local
from fedboost.runtime.transport.addresses import Timers
from tests import tiers
from tests.support.fates import LOST, SOME, Fate, bind
from tests.support.federated import now

pytestmark = SOME
PARTIES = ("bank", "telco", "shop", "mill")
AGGREGATOR = "sum"
TREES, DEPTH, ROWS = 3, 2, 200
HELD: dict[str, Any] = {"fraction": 0.2, "seed": 7}
PARAMS: dict[str, Any] = {
    "n_estimators": TREES,
    "max_depth": DEPTH,
    "max_bin": 8,
    "quantile_tolerance": 20,  # the search ends soon
    "learning_rate": 0.5,
    "eval_metric": ["logloss", "auc"],
}
WEIGHS = 5e-6  # how far the fixed point may move a leaf


def spec_of(parties=PARTIES, aggregator=AGGREGATOR, **params):
    """A job of these parties."""
    raw = {
        "name": "lost",
        "protocol": "federboost-horizontal",
        "parties": {"guest": parties[0], "hosts": list(parties[1:]), "aggregator": aggregator},
        "data": {party: {"dataset": local.DATASET, "label": "y"} for party in parties},
        "validation": HELD,
        "params": {**PARAMS, **params},
    }
    return parse_settings(JobSpec, raw)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Files of four parties, whose columns lie differently with each."""
    folder = tmp_path_factory.mktemp("tables")
    found = {}
    for place, party in enumerate(PARTIES):
        draw = np.random.default_rng(place)
        x = draw.normal(loc=0.3 * place, size=(ROWS, 3)).astype(np.float32)
        y = (x[:, 0] + x[:, 1] * (1 + place) + draw.normal(size=ROWS) > 0.5).astype(np.int64)
        columns = {f"x{c}": x[:, c] for c in range(3)}
        ids = [f"{party}{row}" for row in range(ROWS)]
        pq.write_table(pa.table({"id": ids, "y": y, **columns}), folder / f"{party}.parquet")
        found[party] = SourceSpec(path=str(folder / f"{party}.parquet"))
    return found


# Jobs


@dataclass(frozen=True)
class Ended:
    """What a job came to, attempt after attempt."""

    journals: list[Any]
    shards: dict[str, Any]

    @property
    def status(self):
        """How it rests."""
        return self.journals[-1].status

    @property
    def result(self):
        """Its result."""
        events = self.journals[-1].events
        found = [e.finished.result for e in events if e.WhichOneof("what") == "finished"]
        return json.loads(found[-1])

    @property
    def rounds(self):
        """Every round that was counted, by its number."""
        events = self.journals[-1].events
        return [e.round.progress.done for e in events if e.round.progress.round == "tree"]


def run(folder, tables, spec, monkeypatch, *attempts, keep_s=60.0):
    """Runs a job in which parties meet their fates, some in each attempt, until it finishes.

    Layers are kept if `keep_s` is 0, and only rounds by default, however slow the machine is.
    """

    async def work():
        sources = {party: tables[party] for party in spec.data}
        journals, timers = [], Timers(keep_s=keep_s)
        async with local.open_cluster(
            folder / "c", spec, sources, Serial(), timers=timers
        ) as cluster:
            with monkeypatch.context() as patch:
                bind(patch, cluster, *(attempts[0] if attempts else ()))
                journals.append(await cluster.run(spec))
            job = journals[0].status.id
            for fates in attempts[1:]:
                with monkeypatch.context() as patch:
                    bind(patch, cluster, *fates)
                    await cluster.coordinator.resume(cluster.user, JobId(id=job))
                    async for _ in cluster.events(job):
                        pass
                journals.append(await cluster.coordinator.journal(cluster.user, JobId(id=job)))
            folders = {name: node.store.folder for name, node in cluster.parties.items()}
            models = {n: shards.load_shard(f / "models" / job) for n, f in folders.items()
                      if job in shards.model_ids(f / "models")}  # fmt: skip
            return Ended(journals, models)

    return now(work())


def undisturbed(spec_of):
    """A fixture: the same job undisturbed, in both modes."""

    @pytest.fixture(scope="module")
    def whole_run(tables, tmp_path_factory):
        ended = {}
        with pytest.MonkeyPatch.context() as patch:
            for mode in ("wait", "continue"):
                spec = spec_of(dropout=mode)
                ended[mode] = run(tmp_path_factory.mktemp(mode), tables, spec, patch)
                assert ended[mode].status.state == "finished", ended[mode].status
        return ended

    return whole_run


whole_run = undisturbed(spec_of)


def assert_same(one, other):
    """Two shards are equal but for whose they are, and of which job."""
    own = ("party", "role", "job", "created", "params")
    facts = [{k: v for k, v in s.facts.items() if k not in own} for s in (one, other)]
    assert facts[0] == facts[1]
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], strict=True)


def leaves_of(tables, parties, model):
    """Round after round, what each leaf would be if these parties' rows alone made it.

    float64 (leaves,) for each round, and the leaves' own values.
    """
    frames = [
        load_frame(tables[p], Selection(label="y"), party=p, needs_label=True) for p in parties
    ]
    out = [validation_rows(frame.ids, **HELD) for frame in frames]
    x = np.concatenate([f.values[~o] for f, o in zip(frames, out, strict=True)])
    y = np.concatenate([np.asarray(f.label)[~o] for f, o in zip(frames, out, strict=True)])
    margin = np.full(len(y), model.facts["base_margin"][0])
    for tree in whole.load_trees(model):
        leaf = tree.leaf_of_values(x)
        p = objectives.transform("binary:logistic", margin[:, None])[:, 0]
        gradient = np.bincount(leaf, p - y, tree.n_nodes)
        hessian = np.bincount(leaf, p * (1 - p), tree.n_nodes)
        made = -PARAMS["learning_rate"] * gradient / (hessian + 1.0)
        yield made[tree.is_leaf], tree.value[tree.is_leaf, 0]
        margin += tree.value[leaf, 0]


def whose(tables, model, left):
    """Of each tree whether its sums were over all parties ("all") or those that were left."""
    found = []
    for (every, value), (some, _) in zip(
        leaves_of(tables, PARTIES, model), leaves_of(tables, left, model), strict=True
    ):
        fits = {
            "all": np.abs(every - value).max() < WEIGHS,
            "left": np.abs(some - value).max() < WEIGHS,
        }
        (name,) = [name for name, does in fits.items() if does]
        found.append(name)
    return found


# With `dropout: continue`

KEYS = ("offer_fresh_keys", "deal_shares", "hold_shares")  # once, in front of the first tree
# Step by step in the second tree, where each layer may be kept.
FATES: list[tuple[str, str, int, float]] = [
    (step, when, times, 0.0)
    for when in ("asked", "done")
    for step, times in (
        *((step, 1) for step in KEYS),
        *(("sum_histograms", DEPTH + 1), ("sum_histograms", DEPTH + 2)),
        *(("reveal_whole", 2), ("split_nodes", DEPTH + 1), ("split_nodes", DEPTH + 2)),
        *(("measure", 2), ("read_metrics", 2)),
    )
]
# As one of its messages leaves it, so that some have it and others do not, or as one comes; while
# the second and third tree are asked for at once, or one step after the other.
FATES += [
    (step, when, times, keep_s)
    for keep_s in (0.0, 60.0)
    for when in ("sends", "sent")
    for step, times in (
        *(("sum_histograms", DEPTH + 1), ("sum_histograms", DEPTH + 2)),
        *(("reveal_whole", 2), ("measure", 2), ("sum_histograms", 2 * DEPTH + 1)),
    )
]
FATES += [(step, "told", 2, 60.0) for step in ("gather", "open_whole")]
FATES += [("offer_fresh_keys", "sends", 2, 60.0), ("deal_shares", "sends", 2, 60.0)]
FATES += [(step, "asked", DEPTH + 1, 60.0) for step in ("sum_histograms", "split_nodes")]
FATES += [(call, "asked", 1, 60.0) for call in ("close_model", "close_stage", "finish")]
FATES += [("commit", "asked", 2, 0.0)]


CHOSEN = tiers.of_each(FATES, lambda fate: fate[0])


@pytest.mark.parametrize("fate", CHOSEN, ids=lambda fate: "-".join(map(str, fate)))
def test_a_job_goes_on_without_a_host_that_is_lost(tables, tmp_path, monkeypatch, whole_run, fate):
    *when, keep_s = fate
    lost = Fate(*when)
    spec = spec_of(dropout="continue")
    ended = run(tmp_path, tables, spec, monkeypatch, [lost], keep_s=keep_s)
    assert lost.is_lost
    assert ended.status.state == "finished", ended.status
    # A total is sent and read in one call.
    sent = {"gather", "open_total", "open_whole", "add_up", "add_or_close"}
    assert len(lost.missed - sent) <= 1, "others waited for it more than once"
    assert ended.result["lost"] == [LOST]
    assert ended.rounds == list(range(1, TREES + 1))
    left = [party for party in PARTIES if party != LOST]
    for party in left[1:]:
        assert_same(ended.shards["bank"], ended.shards[party])
    found = whose(tables, ended.shards["bank"], left)
    assert found == sorted(found)  # "all" comes before "left": nobody comes back
    assert found[0] == ("left" if lost.step in KEYS else "all")
    assert ended.result["metrics"]["train"]["auc"] > 0.8


def twice(tables, folder, monkeypatch, first, second, *, keep_s=60.0, **params):
    """A job that pauses for the first fates and is resumed to meet the second."""
    spec = spec_of(dropout="continue", **params)
    ended = run(folder, tables, spec, monkeypatch, first, second, keep_s=keep_s)
    assert ended.journals[0].status.state == "paused"
    return ended


def test_who_is_lost_stays_away_when_the_job_is_resumed(tables, tmp_path, monkeypatch):
    """shop is lost in the second round and back at once; telco's restart pauses the third."""
    lost = Fate("sum_histograms", "asked", DEPTH + 2)
    guest = Fate("sum_histograms", "asked", 2 * DEPTH + 1, "bank")
    ended = twice(tables, tmp_path, monkeypatch, [lost, guest], [], keep_s=0.0)
    assert ended.status.state == "finished", ended.status
    assert ended.journals[0].status.reason.what == "bank is not there"
    assert ended.result["lost"] == [LOST]
    assert ended.rounds == list(range(1, TREES + 1))
    left = [party for party in PARTIES if party != LOST]
    assert whose(tables, ended.shards["bank"], left) == ["all", "all", "left"]


@pytest.mark.parametrize(
    "fate",
    [
        *(("hold_shares", "asked"), ("sum_histograms", "asked", 2), ("measure", "asked", 2)),
        *(("sum_histograms", "sends", DEPTH + 1), ("reveal_whole", "sends", 2)),
    ],
    ids=lambda fate: "-".join(map(str, fate)),
)
def test_where_too_few_are_left_the_job_waits_for_the_lost_and_takes_it_back(
    tables, tmp_path, monkeypatch, whole_run, fate
):
    """Three of four are left, and all four shares are needed: nothing was settled without it."""
    lost = Fate(*fate)
    ended = twice(tables, tmp_path, monkeypatch, [lost], [], colluders=3)
    assert ended.status.state == "finished", ended.status
    reason = ended.journals[0].status.reason.what
    assert re.search("3 parties (are left|gave shares), a sum needs 4", reason)
    assert [w.party for w in ended.journals[0].status.waiting] == [LOST]
    assert "lost" not in ended.result
    assert_same(ended.shards["bank"], whole_run["continue"].shards["bank"])


# Where the job waits

IN_WAIT = [("show_columns", "told"), ("offer_keys", "sends"), ("offer_keys", "told")]
IN_WAIT += [("count_rows", "sends"), ("sum_labels", "sent"), ("count_below", "sends")]
IN_WAIT += [("add_up", "told"), ("sum_histograms", "sends"), ("measure", "sent")]
IN_WAIT += [("close_stage", "asked"), ("finish", "asked")]


def assert_paused(ended, party):
    assert ended.journals[0].status.state == "paused"
    assert ended.journals[0].status.reason.what == f"{party} is not there"
    assert [waiting.party for waiting in ended.journals[0].status.waiting] == [party]


@pytest.mark.parametrize("fate", IN_WAIT, ids="-".join)
def test_a_job_waits_for_a_lost_party_and_ends_as_if_nothing_had_happened(
    tables, tmp_path, monkeypatch, whole_run, fate
):
    ended = run(tmp_path, tables, spec_of(), monkeypatch, [Fate(*fate)], [])
    assert ended.status.state == "finished", ended.status
    assert_paused(ended, LOST)
    assert "lost" not in ended.result
    for party in PARTIES:
        assert_same(ended.shards[party], whole_run["wait"].shards["bank"])


@pytest.mark.parametrize("party", ["bank", AGGREGATOR])
@pytest.mark.parametrize("mode", ["wait", "continue"])
def test_nobody_goes_on_without_the_guest_or_the_aggregator(
    tables, tmp_path, monkeypatch, whole_run, party, mode
):
    fate = Fate("sum_histograms", "sends" if party == "bank" else "told", DEPTH + 1, party)
    ended = run(tmp_path, tables, spec_of(dropout=mode), monkeypatch, [fate], [])
    assert ended.status.state == "finished", ended.status
    assert_paused(ended, party)
    assert "lost" not in ended.result
    assert_same(ended.shards["telco"], whole_run[mode].shards["bank"])


def test_nobody_goes_on_without_a_host_that_adds_up(tables, tmp_path, monkeypatch, whole_run):
    fate = Fate("sum_histograms", "asked", 2)
    spec = spec_of(dropout="continue", aggregator=LOST)
    ended = run(tmp_path, tables, spec, monkeypatch, [fate], [])
    assert ended.status.state == "finished", ended.status
    assert_paused(ended, LOST)
    assert_same(ended.shards["telco"], whole_run["continue"].shards["bank"])


@pytest.mark.parametrize(
    ("step", "when"), [("offer_keys", "told"), ("count_rows", "sends"), ("count_below", "sent")]
)
def test_before_there_are_cut_points_a_job_waits_for_everybody(
    tables, tmp_path, monkeypatch, whole_run, step, when
):
    spec = spec_of(dropout="continue")
    ended = run(tmp_path, tables, spec, monkeypatch, [Fate(step, when)], [])
    assert ended.status.state == "finished", ended.status
    assert_paused(ended, LOST)
    assert_same(ended.shards["mill"], whole_run["continue"].shards["bank"])


@pytest.mark.parametrize("keep_s", [0.0, 60.0])
def test_what_was_settled_without_a_host_amid_the_first_tree_is_carried_on(
    tables, tmp_path, monkeypatch, keep_s
):
    """Counting again without it, from the start, would tell what it had counted."""
    lost = Fate("sum_histograms", "asked")
    guest = Fate("measure", "asked", 1, "bank")
    ended = twice(tables, tmp_path, monkeypatch, [lost, guest], [], keep_s=keep_s)
    assert ended.status.state == "finished", ended.status
    assert ended.result["lost"] == [LOST]
    left = [party for party in PARTIES if party != LOST]
    assert whose(tables, ended.shards["bank"], left) == ["left"] * TREES


def test_a_tree_that_a_host_has_left_half_way_is_kept_before_the_others_go_on(
    tables, tmp_path, monkeypatch
):
    """The guest restarts as the next tree is begun; this one could not be begun without shop."""
    lost = Fate("sum_histograms", "sends", DEPTH + 2)
    guest = Fate("reveal_whole", "asked", 3, "bank")
    ended = twice(tables, tmp_path, monkeypatch, [lost, guest], [])
    assert ended.status.state == "finished", ended.status
    assert ended.result["lost"] == [LOST]
    assert_ends_early(tables, ended)


@pytest.mark.parametrize("step", ["deal_shares", "sum_histograms"])
def test_a_tree_that_was_begun_with_a_host_waits_for_it_where_nothing_of_it_was_kept(
    tables, tmp_path, monkeypatch, whole_run, step
):
    """Both are gone at once in the second tree; shop is back, and gone again as it begins anew."""
    guest = Fate("sum_histograms", "asked", DEPTH + 1, "bank")
    ended = run(
        *(tmp_path, tables, spec_of(dropout="continue"), monkeypatch),
        *([guest], [Fate(step, "asked")], []),
    )
    paused = ended.journals[1].status
    assert paused.state == "paused"
    assert paused.reason.what == f"a tree was begun with {LOST} and cannot be begun without"
    assert [waiting.party for waiting in paused.waiting] == [LOST]
    assert ended.status.state == "finished", ended.status
    assert "lost" not in ended.result
    assert_same(ended.shards["bank"], whole_run["continue"].shards["bank"])


def test_a_tree_that_was_begun_with_a_host_ends_where_it_stands_once_that_is_lost(
    tables, tmp_path, monkeypatch
):
    """The guest's restart pauses the second round behind its first layer; then shop stays away."""
    guest, lost = Fate("sum_histograms", "asked", DEPTH + 2, "bank"), Fate("deal_shares", "asked")
    ended = twice(tables, tmp_path, monkeypatch, [guest], [lost], keep_s=0.0)
    assert ended.status.state == "finished", ended.status
    assert ended.result["lost"] == [LOST]
    assert_ends_early(tables, ended)


def assert_ends_early(tables, ended):
    """The second of three trees ends behind its first layer; the third is without the lost."""
    left = [party for party in PARTIES if party != LOST]
    assert whose(tables, ended.shards["bank"], left) == ["all", "all", "left"]
    grown = [tree.n_nodes for tree in whole.load_trees(ended.shards["bank"])]
    assert grown[1] == 3 < grown[2], "the second tree has one layer, the third is whole"


def test_whoever_was_lost_is_named_on_the_page_and_in_the_terminal(tables, tmp_path, monkeypatch):
    lost = Fate("measure", "asked", 2)
    ended = run(tmp_path, tables, spec_of(dropout="continue"), monkeypatch, [lost])
    page = render_page(ended.journals[-1])
    assert "Lost shop, continued without it" in page
    assert "host, lost" in page
    assert 'id="curves"' not in page
    assert "each holds the whole model" in page
    text = io.StringIO()
    said = Console(file=text, width=200)
    shown = Progress(said, "job")
    for event in ended.journals[-1].events:
        shown.event(event)
    said.print(result_summary(ended.result))
    assert "job: shop is lost; the job continues without it" in text.getvalue()
    assert re.search(r"^lost +shop", text.getvalue(), re.MULTILINE)
