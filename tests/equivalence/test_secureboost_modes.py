"""Does every mode, objective and switch of secureboost grow the trees that one table would?"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.core import binning, local, objectives, sampling
from fedboost.core.params import TreeParams
from fedboost.crypto.workers import Serial
from fedboost.data.holdout import canonical_order, validation_rows
from fedboost.data.ids import encode_ids
from fedboost.data.sources import SourceSpec
from fedboost.errors import UnreachableError
from fedboost.messages.job_pb2 import JobId
from fedboost.model import shards, vertical
from fedboost.model.xgboost_json import feature_names, xgboost_json
from fedboost.protocols.secureboost import guest as training
from fedboost.protocols.secureboost import host_tree
from fedboost.runtime.local import cluster
from tests.equivalence.test_secureboost_pooled import assert_same_trees
from tests.federated import (
    GUEST,
    HOSTS,
    PLAIN,
    Room,
    frame_of,
    job_spec,
    now,
    room_for,
    run_job,
    run_jobs,
)

CLASSES = {"objective": "multi:softprob", "num_class": 3}
VECTORS = {**CLASSES, "multi_output": True}
SWITCHES = ("gh_packing", "cipher_compressing", "histogram_subtraction", "sparse_histograms")
SEED = 7  # of the held-out rows
MARGIN_GAP_MAX = 1e-5  # XGBoost's leaves and sums are 32-bit floats


@dataclass(frozen=True)
class Job:
    """One table cut into parties' columns, and what the job says about it."""

    columns: dict[str, np.ndarray]  # float32 (rows, columns) by party, guest first
    y: np.ndarray
    weight: np.ndarray | None
    held: float | None
    params: dict
    ids: list[bytes]

    @property
    def out(self):
        return validation_rows(self.ids, self.held or 0.0, SEED)

    @property
    def widths(self):
        return {party: values.shape[1] for party, values in self.columns.items()}

    @property
    def values(self):
        return np.asfortranarray(np.concatenate(list(self.columns.values()), axis=1))

    @property
    def own(self):
        """The settings that a table in one place knows."""
        known = {k: v for k, v in self.params.items() if k in TreeParams.model_fields}
        return TreeParams(**known)

    def part(self, rows):
        weight = None if self.weight is None else self.weight[rows]
        return local.Table(np.asfortranarray(self.values[rows]), self.y[rows], weight)

    def room(self):
        frames = {}
        for party, values in self.columns.items():
            frame = frame_of(self.ids, values, self.y if party == GUEST else None)
            weight = self.weight if party == GUEST else None
            frames[party] = replace(frame, weight=None if weight is None else weight.copy())
        return room_for("secureboost", frames, self.params, held=self.held)


def named(rows):
    """So many ids, in canonical order."""
    return [b"%06d" % i for i in range(rows)]


def labels(objective, pull, draw):
    """Labels of every kind that depend on a column sum float64 (n,)."""
    if objective == "multi:softprob":
        return np.digitize(pull, np.quantile(pull, [0.3, 0.7])).astype(np.float64)
    if objective == "count:poisson":
        return draw.poisson(np.exp(np.clip(pull / 2, -3, 2))).astype(np.float64)
    if objective == "reg:tweedie":
        amount = np.round(np.exp(np.clip(pull / 2, -3, 2)), 2)
        return np.where(draw.random(len(pull)) < 0.4, 0.0, amount)
    return (pull > 0).astype(np.float64) if objective == "binary:logistic" else np.round(pull, 2)


def made(params, widths=(2, 3, 2), rows=120, seed=1, **how):
    """A job on random columns, with ties; `how`: held, weighted, and shares missing and zero."""
    draw = np.random.default_rng(seed)
    columns = {}
    for party, width in zip((GUEST, *HOSTS), widths, strict=False):
        values = np.round(draw.normal(size=(rows, width)), 1).astype(np.float32)
        values[draw.random(values.shape) < how.get("zero", 0.0)] = 0.0
        values[draw.random(values.shape) < how.get("missing", 0.1)] = np.nan
        columns[party] = values
    whole = np.concatenate(list(columns.values()), axis=1)
    pull = np.nansum(whole, axis=1) + draw.normal(size=rows)
    y = labels(params.get("objective", "binary:logistic"), pull, draw)
    weight = np.round(draw.uniform(0.2, 3.0, rows), 2) if how.get("weighted") else None
    said = {**PLAIN, "n_estimators": 3, "max_bin": 8, **params}
    if said.get("mode") != "layered":
        said.setdefault("max_depth", 3)
    return Job(columns, y, weight, how.get("held", 0.25), said, named(rows))


def flat(rounds):
    """Trees one after the other, as `assert_same_trees` takes them."""
    trees = tuple((tree,) for trees in rounds for tree in trees)
    return SimpleNamespace(rounds=trees, best_round=len(trees) - 1)


def assert_pooled(job):
    """The federated model is the pooled one: trees, margins of all rows, metrics of all rounds."""
    check = job.part(job.out) if job.out.any() else None
    trained = local.train(job.part(~job.out), job.own, check, tuple(job.widths.values()))
    margin = np.tile(trained.base_margin, (len(job.y), 1))
    for trees in trained.rounds:
        local.add_to_margin(margin, [tree.predict(job.values) for tree in trees])
    room = job.room()
    shards = now(room.walk())
    assert_same_trees(shards, flat(trained.rounds[: trained.best_round + 1]), job.widths)
    guest = room.state(GUEST)
    assert guest.margin.tobytes() == margin.tobytes()
    assert repr(guest.history) == repr(trained.history)  # NaN equals NaN
    return SimpleNamespace(trained=trained, shards=shards, room=room)


def owners(rounds, widths):
    """Which parties own a split of these trees, by name."""
    ends = np.cumsum(list(widths.values()))
    used = {f for trees in rounds for tree in trees for f in tree.feature.tolist() if f >= 0}
    return {list(widths)[int(np.searchsorted(ends, f, side="right"))] for f in used}


# Objectives, samples, weights: mode default


@pytest.mark.parametrize("widths", [(2, 3), (2, 3, 2), (1, 2, 2, 2)], ids=str)
@pytest.mark.parametrize("objective", [CLASSES, VECTORS], ids=["trees", "vectors"])
def test_classes_grow_the_pooled_trees(objective, widths):
    job = made({**objective, "eval_metric": ["merror", "mlogloss"]}, widths)
    done = assert_pooled(job)
    assert owners(done.trained.rounds, job.widths) == set(job.widths)
    leaves = done.shards[GUEST].arrays["value"].shape[1]
    assert leaves == (3 if job.own.multi_output else 1)
    assert done.shards[GUEST].facts["trees_per_round"] == (1 if job.own.multi_output else 3)


@pytest.mark.parametrize(
    "objective", ["reg:absoluteerror", "count:poisson", "reg:tweedie", "reg:squarederror"]
)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_every_objective_grows_the_pooled_trees(objective, weighted):
    assert_pooled(made({"objective": objective, "n_estimators": 4}, weighted=weighted))


SAMPLES = {
    "goss": {"goss": {"top_rate": 0.2, "other_rate": 0.3}},
    "rows": {"subsample": 0.6},
    "columns": {"colsample_bytree": 0.5},
    "both": {"subsample": 0.7, "colsample_bytree": 0.6, "seed": 5},
}


@pytest.mark.parametrize("objective", [{}, CLASSES, VECTORS, {"objective": "reg:absoluteerror"}])
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_samples_are_the_pooled_ones(sample, objective):
    weighted = objective == {}
    job = made({**objective, **sample, "n_estimators": 2}, (3, 3, 4), weighted=weighted)
    done = assert_pooled(job)
    if "goss" in sample or "subsample" in sample:
        of_step = [p for p in done.room.posted if p.envelope.step == "encrypt_gradients"]
        sent = [p.message for p in of_step if p.envelope.part == 0]
        assert all(message.HasField("taking_part") for message in sent)
        assert all(0 < message.rows.count < (~job.out).sum() for message in sent)


@pytest.mark.parametrize(
    "params", [{"scale_pos_weight": 4.0}, {"reg_alpha": 0.5, "gamma": 0.2}, CLASSES], ids=repr
)
@pytest.mark.parametrize("held", [None, 0.3])
def test_weights_count_as_on_one_table(params, held):
    job = made(params, (2, 2, 1), weighted=True, held=held)
    assert_pooled(job)
    without = local.train(job.part(~job.out), job.own, None, tuple(job.widths.values()))
    plain = replace(job, weight=None).part(~job.out)
    assert local.train(plain, job.own).history != without.history


def test_rows_of_weight_zero_are_as_good_as_absent():
    job = made({}, weighted=True)
    job.weight[::3] = 0.0
    assert_pooled(job)
    assert_pooled(replace(job, params={**job.params, "objective": "reg:absoluteerror"}))


def test_early_stopping_counts_rounds_and_keeps_whole_ones():
    params = {"n_estimators": 30, "early_stopping_rounds": 2, "learning_rate": 1.0}
    done = assert_pooled(made({**CLASSES, **params}, held=0.4))
    best = done.trained.best_round + 1
    assert best < len(done.trained.rounds) < 30
    assert done.shards[GUEST].facts["trees"] == 3 * best
    assert len(done.shards[GUEST].facts["history"]) == len(done.trained.rounds)


# Modes mix and layered


def spans(widths):
    """The columns of each party in the pooled table."""
    ends = np.cumsum(list(widths.values()))
    return {p: np.arange(e - widths[p], e) for p, e in zip(widths, ends, strict=True)}


def usable(job, number, columns):
    """The columns a tree of round `number` may use, and those of its layers: the naive way."""
    own, said = spans(job.widths), job.params
    mode = said.get("mode", "default")
    if mode == "default":
        return columns, None
    if mode == "mix":
        turns = [party for party in job.widths for _ in range(said.get("trees_per_party", 1))]
        party = next(itertools.islice(itertools.cycle(turns), number, None))
        return np.intersect1d(columns, own[party]).astype(np.int32), None
    mine = np.intersect1d(columns, own[GUEST]).astype(np.int32)
    theirs = np.setdiff1d(columns, own[GUEST]).astype(np.int32)
    layers = [theirs] * said.get("host_depth", 3) + [mine] * said.get("guest_depth", 2)
    return columns, layers


def grown_naively(job):
    """Rounds, margins and history of a table in one place, whose trees see what parties would."""
    table, params = job.part(~job.out), job.own
    objective = objectives.start(params, table.y, table.weights)
    fixed = objectives.encoding(params, objective, table.y, table.weights)
    rules = local.Rules(params, binning.fit(table.values, params.max_bin), fixed)
    watched = {"train": local.Watched(table, rules.binning, objective)}
    if job.out.any():
        watched["validation"] = local.Watched(job.part(job.out), rules.binning, objective)
    seen, rounds, history = watched["train"], [], []
    for number in range(params.n_estimators):
        g, h = objective.gradients(seen.margin, seen.y, seen.weight)
        rows, factor = sampling.of_round(params, g, number)
        gh = np.zeros((len(g), 2 * g.shape[1]), np.int64)
        gh[rows] = fixed.encode(g[rows] * factor[:, None], h[rows] * factor[:, None])
        trees = []
        for mine in np.split(gh, params.trees_per_round, axis=1):
            index = number * params.trees_per_round + len(trees)
            drawn = sampling.columns(
                params.seed, index, tuple(job.widths.values()), params.colsample_bytree
            )
            columns, layers = usable(job, number, drawn)
            own = np.ascontiguousarray(mine)
            tree = local.grow(rules, seen.bins, own, rows, columns, layers)
            renews = objective.renews_leaves
            trees.append(local.renewed(tree, rules, seen, rows) if renews else tree)
        rounds.append(tuple(trees))
        for part in watched.values():
            part.advance(trees, rules.binning.missing)
        history.append({name: part.measure(params) for name, part in watched.items()})
    margin = np.empty((len(job.y), params.n_outputs))
    margin[~job.out] = seen.margin
    if job.out.any():
        margin[job.out] = watched["validation"].margin
    return SimpleNamespace(rounds=rounds, history=history, margin=margin)


def assert_naive(job):
    """The federated model is the naive one; gives both, and the room."""
    twin = grown_naively(job)
    room = job.room()
    shards = now(room.walk())
    assert_same_trees(shards, flat(twin.rounds), job.widths)
    guest = room.state(GUEST)
    assert guest.margin.tobytes() == twin.margin.tobytes()
    assert repr(guest.history) == repr(twin.history)
    return SimpleNamespace(twin=twin, shards=shards, room=room)


MORE = {
    "binary": {},
    "classes": CLASSES,
    "vectors": VECTORS,
    "goss": SAMPLES["goss"],
    "samples": SAMPLES["both"],
    "classes with goss": {**CLASSES, **SAMPLES["goss"]},
    "medians": {"objective": "reg:absoluteerror"},
}


@pytest.mark.parametrize("more", MORE.values(), ids=MORE)
@pytest.mark.parametrize("turns", [1, 2])
def test_mix_gives_each_tree_to_one_party(turns, more):
    widths = (3, 2, 3) if turns == 2 else (2, 3, 2, 3)
    rounds = turns * len(widths) + 1
    params = {"mode": "mix", "trees_per_party": turns, "n_estimators": rounds, **more}
    job = made({**params, "max_depth": 2}, widths, 90, weighted=turns == 2)
    done = assert_naive(job)
    for number, trees in enumerate(done.twin.rounds):
        party = list(job.widths)[number // turns % len(widths)]
        assert owners([trees], job.widths) <= {party}
    assert owners(done.twin.rounds, job.widths) == set(job.widths)
    assert_only_owners_worked(job, done)


def assert_only_owners_worked(job, done):
    """Hosts hear of no tree but their own, and of no leaf."""
    parties, per = list(job.widths), job.own.trees_per_round
    turns = job.params["trees_per_party"]
    mine = {p: set() for p in parties}
    for tree in range(job.own.n_estimators * per):
        mine[parties[tree // per // turns % len(parties)]].add(tree)
    heard = {p: set() for p in parties}
    under_way = -1
    for posted in sorted(done.room.posted, key=lambda p: p.envelope.number):
        envelope = posted.envelope
        if envelope.step == "share_key":
            continue
        if envelope.step == "encrypt_gradients":
            under_way = posted.message.tree
        host = ({envelope.sender, envelope.receiver} - {GUEST}).pop()
        assert under_way in mine[host]
        heard[host].add(under_way)
    for host in parties[1:]:
        assert heard[host] == mine[host]
        shard = done.shards[host]
        assert set(shard.arrays["tree"].tolist()) <= mine[host]
        assert set(shard.arrays) == {"tree", "node", "feature", "threshold", "missing_left"}
    assert done.shards[GUEST].arrays["value"].any()


@pytest.mark.parametrize("more", MORE.values(), ids=MORE)
@pytest.mark.parametrize(("widths", "depths"), [((2, 3), (2, 1)), ((3, 2, 2), (1, 2))], ids=str)
def test_layered_trees_have_the_hosts_above_and_the_guest_below(widths, depths, more):
    high, low = depths
    params = {"mode": "layered", "host_depth": high, "guest_depth": low, **more}
    job = made({**params, "n_estimators": 2}, widths, 100, weighted=low == 2)
    done = assert_naive(job)
    guest = done.shards[GUEST].arrays
    below = guest["node"] >= 2**high - 1
    splits = guest["owner"] != vertical.LEAF
    assert (guest["owner"][below & splits] == vertical.GUEST).all()
    assert (guest["owner"][~below & splits] > vertical.GUEST).all()
    assert (below & splits).any()
    assert (~below & splits).any()
    layers = [p for p in done.room.posted if p.envelope.step == "open_layer"]
    assert len(layers) <= high * job.own.trees_per_round * 2 * (len(widths) - 1)


def test_layered_has_default_depths():
    done = assert_naive(made({"mode": "layered", "n_estimators": 2}, rows=160))
    assert done.shards[GUEST].arrays["node"].max() >= 2**4 - 1


@pytest.mark.parametrize("mode", ["mix", "layered"])
def test_a_root_that_does_not_divide_is_a_leaf_in_every_mode(mode):
    job = made({"mode": mode, "trees_per_party": 1} if mode == "mix" else {"mode": mode})
    for more in ({"gamma": 1e9}, {"min_child_weight": 1e6}):
        done = assert_naive(replace(job, params={**job.params, **more}))
        assert all(tree.n_nodes == 1 for trees in done.twin.rounds for tree in trees)


# Switches and schemes


COMBINATIONS = list(itertools.product([True, False], repeat=len(SWITCHES)))
NAMES = ["".join("01"[on] for on in one) for one in COMBINATIONS]


@pytest.mark.parametrize("switches", COMBINATIONS, ids=NAMES)
def test_every_combination_of_switches_grows_the_same_trees(switches, monkeypatch):
    filled = []
    fill = host_tree.fill_skipped
    monkeypatch.setattr(host_tree, "fill_skipped", lambda *given: filled.append(1) or fill(*given))
    chosen = dict(zip(SWITCHES, switches, strict=True))
    for more in ({}, VECTORS):
        job = made({**chosen, **more, "n_estimators": 2, "max_depth": 4}, zero=0.6, missing=0.15)
        filled.clear()
        assert_pooled(job)
        assert bool(filled) == chosen["sparse_histograms"]


SCHEMES = {
    "paillier": {"scheme": "paillier", "key_bits": 2048},
    "okamoto-uchiyama": {"scheme": "okamoto-uchiyama", "key_bits": 2048},
    "iterative-affine": {"scheme": "iterative-affine", "key_bits": 1024},
}
ALL, NONE = (True,) * 4, (False,) * 4


@pytest.mark.parametrize(
    ("scheme", "switches", "more"),
    [
        ("paillier", ALL, {}),
        ("paillier", ALL, VECTORS),
        ("paillier", NONE, {}),
        ("paillier", (True, False, True, False), {"mode": "layered", "host_depth": 1}),
        ("okamoto-uchiyama", ALL, VECTORS),
        ("okamoto-uchiyama", NONE, {}),
        ("okamoto-uchiyama", (False, True, False, True), {}),
        ("iterative-affine", ALL, CLASSES),
        ("iterative-affine", NONE, VECTORS),
        ("iterative-affine", (True, False, False, True), {}),
    ],
    ids=repr,
)
def test_ciphertexts_grow_the_same_trees(scheme, switches, more):
    params = {
        **dict(zip(SWITCHES, switches, strict=True)),
        "encryption": SCHEMES[scheme],
        "allow_insecure": scheme == "iterative-affine",
        "n_estimators": 1,
        "max_bin": 4,
        **more,
    }
    if "mode" not in more:
        params["max_depth"] = 2
    job = made(params, (2, 2), 60, zero=0.5)
    if "mode" in more:
        assert_naive(job)
    else:
        assert_pooled(job)


# Small jobs of every kind


@st.composite
def small_jobs(draw):
    """A few rows, few distinct values, missing ones, any mode, sample, objective and switches."""
    rows, widths = (
        draw(st.integers(6, 24)),
        draw(st.lists(st.integers(1, 3), min_size=2, max_size=4)),
    )
    cells = st.sampled_from([np.nan, -1.0, 0.0, 0.0, 0.5, 2.0])
    columns = {}
    for party, width in zip((GUEST, *HOSTS), widths, strict=False):
        given_cells = draw(st.lists(cells, min_size=rows * width, max_size=rows * width))
        columns[party] = np.array(given_cells, np.float32).reshape(rows, width)
    mode = draw(st.sampled_from(["default", "mix", "layered"]))
    params = {
        **PLAIN,
        "n_estimators": 3,
        "max_bin": 4,
        "mode": mode,
        "min_child_weight": draw(st.sampled_from([0.0, 0.3, 1.0])),
        **draw(st.sampled_from([{}, *SAMPLES.values()])),
        **draw(st.sampled_from([CLASSES, VECTORS, *({"objective": o} for o in SIMPLE)])),
        **{name: draw(st.booleans()) for name in SWITCHES},
    }
    if mode == "layered":
        params |= {"host_depth": draw(st.integers(1, 2)), "guest_depth": draw(st.integers(1, 2))}
    else:
        params["max_depth"] = draw(st.integers(1, 3))
    y = np.array(draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=rows, max_size=rows)))
    weights = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=rows, max_size=rows)
    weight = draw(st.none() | weights.map(np.array))
    job = Job(columns, y, weight, draw(st.sampled_from([None, 0.25])), params, named(rows))
    known = np.flatnonzero(~job.out)[:2]
    y[known] = [0.0, 1.0]
    if weight is not None:
        weight[known] = 1.0
        weight[np.flatnonzero(job.out)[:1]] = 1.0
    return job


SIMPLE = ("binary:logistic", "reg:absoluteerror", "count:poisson", "reg:tweedie")
MEASURED = {"binary:logistic": "rmse", "multi:softprob": "merror"}  # of rows of one class, too


@settings(max_examples=60, deadline=None)
@given(small_jobs())
def test_any_small_job_grows_the_naive_trees(job):
    measured = MEASURED.get(job.params["objective"], "mae")
    assert_naive(replace(job, params={**job.params, "eval_metric": [measured]}))


# Interrupted and carried on


@dataclass
class CarriedOn(Room):
    """A room whose first rounds are finished, as the coordinator starts it again."""

    done: int = 0

    def rounds(self, name: str, most: int) -> Iterator[int]:
        """The rest of the outermost rounds; all of the others."""
        first = self.done if name == "tree" else 0
        return (index for index in super().rounds(name, most) if index >= first)


RESUMED = {
    "classes": {**CLASSES, "n_estimators": 4},
    "classes in turns": {**CLASSES, "mode": "mix", "n_estimators": 5},
    "layered vectors": {**VECTORS, "mode": "layered", "n_estimators": 3},
    "samples": {**SAMPLES["both"], "n_estimators": 4},
    "goss in turns": {**SAMPLES["goss"], "mode": "mix", "trees_per_party": 2, "n_estimators": 7},
    "stopping": {**CLASSES, "n_estimators": 30, "early_stopping_rounds": 2, "learning_rate": 1.0},
}


async def snapshots(room, rounds):
    """What every party keeps after so many rounds; then the room stands amid the next one."""
    await room.until("start_round", rounds + 1)
    kept = {p: await session.snapshot() for p, session in room.sessions.items()}
    await room.call("start_round", GUEST)
    return kept


async def carried_on(job, kept, rounds):
    """The shards, and the guest, of the rounds that were left."""
    fresh = job.room()
    room = CarriedOn(fresh.protocol, fresh.seats, done=rounds)
    await room.open(kept)
    await room.protocol.walk(room)
    guest = room.state(GUEST)
    return {name: await session.close() for name, session in room.sessions.items()}, guest


def assert_same_shards(found, expected):
    for party, shard in expected.items():
        assert set(found[party].arrays) == set(shard.arrays)
        for name, array in shard.arrays.items():
            assert found[party].arrays[name].tobytes() == array.tobytes()
        assert repr(found[party].facts) == repr(shard.facts)


@pytest.mark.parametrize("params", RESUMED.values(), ids=RESUMED)
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_job_that_carries_on_is_the_one_that_was_never_stopped(params, rounds):
    job = made(params, (2, 2, 2), weighted=True, held=0.4)
    whole = job.room()
    shards = now(whole.walk())

    async def work():
        return await carried_on(job, await snapshots(job.room(), rounds), rounds)

    found, guest = now(work())
    assert_same_shards(found, shards)
    assert guest.margin.tobytes() == whole.state(GUEST).margin.tobytes()


# Whole jobs: training, a break amid a round, predictions, exports


def arrow_tables(job):
    """The job's table as its parties keep it; ids are numbers, rows in each one's own order."""
    draw, given = np.random.default_rng(0), {}
    for party, values in job.columns.items():
        order = draw.permutation(len(values))
        content = {"id": order}
        if party == GUEST:
            content["y"] = job.y[order]
        if party == GUEST and job.weight is not None:
            content["w"] = job.weight[order]
        content |= {f"c{i}": values[order, i] for i in range(values.shape[1])}
        given[party] = pa.table(content)
    return given


def in_canonical_order(job):
    """The same job as all parties keep its rows after the alignment."""
    ids = encode_ids([pa.chunked_array([np.arange(len(job.y))])], ["id"])
    order = canonical_order(ids)
    return replace(
        job,
        columns={party: values[order] for party, values in job.columns.items()},
        y=job.y[order],
        weight=None if job.weight is None else job.weight[order],
        ids=[ids[i] for i in order],
    )


def spec_of(job):
    """The job as a user would send it."""
    weight = {} if job.weight is None else {GUEST: {"weight": "w"}}
    validation = {"fraction": job.held, "seed": SEED}
    parties = tuple(job.columns)
    return job_spec("secureboost", parties, data=weight, validation=validation, params=job.params)


def trained_and_scored(folder, job):
    """The training and its prediction on the same rows; the guest's ids and margins at its end."""
    noted, parties = {}, tuple(job.columns)
    with pytest.MonkeyPatch.context() as patch:
        finish = training.finish

        def noting(me):
            noted.update(ids=list(me.seat.frame.ids), margin=me.margin.copy())
            return finish(me)

        patch.setattr(training, "finish", noting)
        done, scored = now(
            run_jobs(
                folder,
                arrow_tables(job),
                [
                    spec_of(job),
                    lambda d: job_spec("predict", parties, params={"model": d.result["model"]}),
                ],
            )
        )
    assert done.state == "finished", done.error.lines()
    assert scored.state == "finished", scored.error.lines()
    return done, scored.predictions, noted


PREDICTED = {
    "classes": CLASSES,
    "vectors": VECTORS,
    "mix": {"mode": "mix", "n_estimators": 4},
    "mix with classes": {**CLASSES, "mode": "mix"},
    "layered": {"mode": "layered", "host_depth": 2, "guest_depth": 2, "objective": "reg:tweedie"},
}


@pytest.mark.parametrize("params", PREDICTED.values(), ids=PREDICTED)
def test_predictions_and_exports_are_the_margins_of_the_training(tmp_path, params):
    job = made(params, (2, 2, 2), weighted=True)
    done, predictions, noted = trained_and_scored(tmp_path / "job", job)
    twin = grown_naively(in_canonical_order(job))
    assert_same_trees(done.shards, flat(twin.rounds), job.widths)
    assert noted["margin"].tobytes() == twin.margin.tobytes()
    at = {row: k for k, row in enumerate(encode_ids([predictions["id"]], ["id"]))}
    order = [at[row] for row in noted["ids"]]
    names = [name for name in predictions.column_names if name != "id"]
    found = np.column_stack([predictions[name].to_numpy() for name in names])[order]
    expected = objectives.transform(job.own.objective, noted["margin"])
    assert found.tobytes() == expected.tobytes()

    xgb = pytest.importorskip("xgboost")
    model = vertical.join(done.shards[GUEST], {h: done.shards[h] for h in list(job.columns)[1:]})
    ids = predictions["id"].to_numpy()[order]
    cells = [job.columns[party][ids, int(name[1:])] for party, name in model.columns]
    booster = xgb.Booster(model_file=bytearray(xgboost_json(model).encode()))
    rows = xgb.DMatrix(np.column_stack(cells), feature_names=feature_names(model))
    assert booster.num_boosted_rounds() == job.own.n_estimators
    theirs = booster.predict(rows, output_margin=True).reshape(noted["margin"].shape)
    np.testing.assert_allclose(theirs, noted["margin"], rtol=0, atol=MARGIN_GAP_MAX)


def carried(rows):
    """How many messages of each kind a party's ledger has."""
    return Counter(row.kind.rpartition(".")[2] for row in rows if ".secureboost." in row.kind)


def test_in_mix_an_idle_host_has_nothing_in_its_ledger(tmp_path):
    job = made({"mode": "mix", "n_estimators": 2, "max_depth": 2}, (2, 2, 2))
    done = run_job(tmp_path / "job", arrow_tables(job), spec_of(job))
    assert done.state == "finished", done.error.lines()
    busy, idle = carried(done.ledgers[HOSTS[0]]), carried(done.ledgers[HOSTS[1]])
    assert idle == {"EncryptionKey": 1}
    assert busy["EncryptionKey"] == 1
    assert busy["Frontier"] == busy["CandidateSums"] == busy["RowDivisions"] == 2
    assert not len(done.shards[HOSTS[1]].arrays["tree"])


@pytest.mark.parametrize("mode", ["default", "mix"])
def test_a_break_amid_the_classes_of_a_round_loses_nothing(tmp_path, monkeypatch, mode):
    job = made({**CLASSES, "mode": mode, "max_depth": 2}, (2, 2), weighted=True)
    closed, close_tree = [], training.close_tree

    def failing(me):
        closed.append(me.trees_closed)
        if len(closed) == 5:  # the second of three classes, in the second round
            raise UnreachableError("the guest's memory is gone", party=GUEST)
        return close_tree(me)

    monkeypatch.setattr(training, "close_tree", failing)
    spec, sources = spec_of(job), {}
    for party, table in arrow_tables(job).items():
        pq.write_table(table, tmp_path / f"{party}.parquet")
        sources[party] = SourceSpec(path=str(tmp_path / f"{party}.parquet"))

    async def work():
        async with cluster(tmp_path / "cluster", spec, sources, Serial()) as made_of:
            paused = await made_of.run(spec)
            assert paused.status.state == "paused"
            one = JobId(id=paused.status.id)
            await made_of.coordinator.resume(made_of.user, one)
            async for _ in made_of.events(one.id):
                pass
            journal = await made_of.coordinator.journal(made_of.user, one)
            folders = {p: n.store.folder / "models" / one.id for p, n in made_of.parties.items()}
            return journal, {party: shards.load(folder) for party, folder in folders.items()}

    journal, found = asyncio.run(work())
    assert journal.status.state == "finished"
    assert closed == [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 8]
    twin = grown_naively(in_canonical_order(job))
    assert_same_trees(found, flat(twin.rounds), job.widths)
