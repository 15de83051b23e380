"""Are some rounds and then some more the rounds of one job? Bit for bit, in every mode."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedboost.flow import MODEL, Artefact
from fedboost.model import vertical
from tests.equivalence.test_secureboost_whole_jobs import assert_same_shards
from tests.support.federated import GUEST, HOSTS, Room, now, room_for
from tests.support.secureboost_jobs import CLASSES, SAMPLES, VECTORS, made

MODEL_ID = "first-0a1b2c3d"
FIRST, MORE = 4, 6  # rounds


def scored(job, model):
    """The margins of a job's rows under a model: what its stage `predict` leaves by party."""
    frames = {party: context.frame for party, context in job.room().contexts.items()}
    artefacts = {party: {MODEL: shard} for party, shard in model.items()}
    params = {"model": MODEL_ID, "output_margin": True}
    return now(room_for("predict", frames, params, artefacts=artefacts).walk())


def room_behind(job, model):
    """The room of a job that continues a model; its params already say so."""
    margins = scored(job, model)
    room = job.room()
    left = {party: {MODEL: model[party], "predict": margins[party]} for party in model}
    contexts = {
        party: replace(context, artefacts=left[party]) for party, context in room.contexts.items()
    }
    return Room(room.protocol, contexts)


def with_params(job, **params):
    """The same tables under other settings."""
    return replace(job, params={**job.params, **params})


def facts_of(shards, job):
    """Shards with the facts that the runtime adds, as far as the protocol reads them."""
    roles = {party: "guest" if party == GUEST else "host" for party in shards}
    return {
        party: Artefact({"role": roles[party], "party": party, **shard.facts}, shard.arrays)
        for party, shard in shards.items()
    }


def continued(job, first=FIRST, more=MORE):
    """The job in one go and in two; the rooms and the shards of both."""
    whole = with_params(job, n_estimators=first + more).room()
    expected = now(whole.walk())
    model = facts_of(now(with_params(job, n_estimators=first).room().walk()), job)
    behind = room_behind(with_params(job, n_estimators=more, warm_start=MODEL_ID), model)
    return SimpleNamespace(
        whole=whole, expected=expected, model=model, behind=behind, found=now(behind.walk())
    )


def assert_one_job(done):
    """Shards, margins and metrics of both ways are the same, but for the settings they name."""
    for party, shard in done.expected.items():
        found = done.found[party]
        assert found.arrays.keys() == shard.arrays.keys()
        for name, array in shard.arrays.items():
            assert found.arrays[name].tobytes() == array.tobytes(), (party, name)
        known, other = dict(shard.facts), dict(found.facts)
        known.pop("params", None)
        other.pop("params", None)
        assert repr(other) == repr(known), party
    one, two = done.whole.state(GUEST), done.behind.state(GUEST)
    assert two.margin.tobytes() == one.margin.tobytes()
    assert repr(two.history) == repr(one.history)  # NaN equals NaN
    first, second = done.whole.told[-1], done.behind.told[-1]
    for name in ("best", "importance", "curves"):
        assert list(getattr(second, name)) == list(getattr(first, name)), name


KINDS: dict[str, dict[str, Any]] = {
    "binary": {},
    "base score": {"base_score": 0.3},
    "classes": CLASSES,
    "vectors": VECTORS,
    "goss": SAMPLES["goss"],
    "samples": SAMPLES["both"],
    "classes with samples": {**CLASSES, **SAMPLES["both"]},
    "vectors with goss": {**VECTORS, **SAMPLES["goss"]},
    "layered": {"mode": "layered", "host_depth": 2, "guest_depth": 1},
    "layered classes": {**CLASSES, "mode": "layered", "host_depth": 1, "guest_depth": 2},
    "layered vectors with samples": {
        **VECTORS,
        **SAMPLES["both"],
        "mode": "layered",
        "host_depth": 1,
        "guest_depth": 1,
    },
    "medians": {"objective": "reg:absoluteerror"},
    "squares": {"objective": "reg:squarederror"},
    "counts": {"objective": "count:poisson"},
    "amounts": {"objective": "reg:tweedie", "base_score": 0.7},
}


@pytest.mark.some(2)
@pytest.mark.parametrize("params", KINDS.values(), ids=KINDS)
def test_four_rounds_and_six_more_are_ten(params):
    params = dict(params)
    score = params.pop("base_score", None)
    job = made({**params, "max_depth": 2} if "mode" not in params else params, (2, 3, 2), 90)
    if score is None:
        assert_one_job(continued(job))
        return
    # The model's own base score stands: the second job must not say it again.
    whole = with_params(job, n_estimators=FIRST + MORE, base_score=score).room()
    expected = now(whole.walk())
    first = with_params(job, n_estimators=FIRST, base_score=score).room()
    model = facts_of(now(first.walk()), job)
    behind = room_behind(with_params(job, n_estimators=MORE, warm_start=MODEL_ID), model)
    found = now(behind.walk())
    assert_one_job(SimpleNamespace(whole=whole, expected=expected, behind=behind, found=found))


@pytest.mark.parametrize("turns", [1, 2])
def test_in_mix_whole_cycles_and_more_are_one_job(turns):
    params = {"mode": "mix", "trees_per_party": turns, "max_depth": 2}
    job = made(params, (2, 3, 2), 90)
    assert_one_job(continued(job, first=3 * turns, more=3 * turns + 1))


def test_in_mix_a_host_keeps_what_it_had_when_its_turn_did_not_come_last():
    job = made({"mode": "mix", "max_depth": 2}, (2, 3, 2), 90)
    done = continued(job, first=4, more=2)  # the guest's tree ends the first job
    assert done.found[GUEST].facts["trees"] == 6
    for host in HOSTS[:2]:
        kept, new = done.model[host].arrays["tree"], done.found[host].arrays["tree"]
        assert new[: len(kept)].tolist() == kept.tolist()
        assert set(new[len(kept) :].tolist()) <= {4, 5}
    turns = done.found[HOSTS[0]].arrays["tree"][len(done.model[HOSTS[0]].arrays["tree"]) :]
    assert set(turns.tolist()) == {5}  # guest first: whose turn it is starts anew


def test_a_third_job_continues_the_second():
    job = made({**SAMPLES["both"], "max_depth": 2, "base_score": 0.4}, (2, 2, 2), 80)
    whole = with_params(job, n_estimators=7).room()
    expected = now(whole.walk())
    model = facts_of(now(with_params(job, n_estimators=2).room().walk()), job)
    job = replace(job, params={k: v for k, v in job.params.items() if k != "base_score"})
    second = room_behind(with_params(job, n_estimators=3, warm_start=MODEL_ID), model)
    model = facts_of(now(second.walk()), job)
    third = room_behind(with_params(job, n_estimators=2, warm_start=MODEL_ID), model)
    found = now(third.walk())
    assert_one_job(SimpleNamespace(whole=whole, expected=expected, behind=third, found=found))


# Early stopping


STOPPING = {"learning_rate": 1.0, "early_stopping_rounds": 2, "max_depth": 3}


def test_rounds_that_early_stopping_dropped_are_not_continued():
    job = made({**STOPPING, "n_estimators": 30}, (2, 3, 2), 120, held=0.4)
    model = facts_of(now(job.room().walk()), job)
    kept = model[GUEST].facts["trees"]
    assert kept < len(model[GUEST].facts["history"])
    assert max(model[h].arrays["tree"].max() for h in HOSTS[:2]) >= kept  # hosts have them still
    more = {"early_stopping_rounds": None, "warm_start": MODEL_ID, "n_estimators": 3}
    behind = room_behind(with_params(job, **more), model)
    found = now(behind.walk())
    plain = with_params(job, early_stopping_rounds=None, n_estimators=kept + 3).room()
    expected = now(plain.walk())
    assert_one_job(SimpleNamespace(whole=plain, expected=expected, behind=behind, found=found))


def test_early_stopping_looks_at_new_rounds_only():
    job = made({**STOPPING, "n_estimators": 30}, (2, 3, 2), 120, held=0.4)
    model = facts_of(now(job.room().walk()), job)
    behind = room_behind(with_params(job, warm_start=MODEL_ID), model)
    found = now(behind.walk())
    guest, kept = behind.state(GUEST), model[GUEST].facts["trees"]
    new = [each["validation"]["logloss"] for each in guest.history[kept:]]
    best = min(range(len(new)), key=new.__getitem__)
    assert len(new) == best + 3 < 30
    assert found[GUEST].facts["trees"] == kept + best + 1
    assert found[GUEST].arrays["tree"].max() == kept + best
    closed = behind.told[-1]
    counts = {count.name: count.count for count in closed.counts}
    assert (counts["rounds"], counts["trees"]) == (kept + best + 1, kept + best + 1)
    assert counts["earlier_rounds"] == kept
    assert (
        next(m.value for m in closed.best if (m.split, m.name) == ("validation", "logloss"))
        == (new[best])
    )


# Another table


def widened(job, seed=3):
    """The same columns under their names, in another order and among new ones; other rows."""
    draw = np.random.default_rng(seed)
    fresh = made(job.params, tuple(job.widths.values()), 70, seed=seed)
    frames = {}
    for party, context in fresh.room().contexts.items():
        frame = context.frame
        order = draw.permutation(len(frame.columns))
        extra = draw.normal(size=(frame.n_rows, 1)).astype(np.float32)
        values = np.asfortranarray(np.concatenate([extra, frame.values[:, order]], axis=1))
        names = ("new", *(frame.columns[i] for i in order))
        frames[party] = replace(frame, values=values, columns=names)
    return frames


@pytest.mark.parametrize("more", [{}, CLASSES], ids=["binary", "classes"])
def test_old_trees_find_their_columns_by_name_in_a_table_that_has_changed(more):
    job = made({**more, "max_depth": 2, "n_estimators": 3}, (2, 3, 2), 90)
    model = facts_of(now(job.room().walk()), job)
    frames = widened(job)
    wanted = {"model": MODEL_ID, "output_margin": True}
    artefacts = {party: {MODEL: shard} for party, shard in model.items()}
    margins = now(room_for("predict", frames, wanted, artefacts=artefacts).walk())
    both = {party: {MODEL: model[party], "predict": margins[party]} for party in frames}
    params = {**job.params, "n_estimators": 2, "warm_start": MODEL_ID}
    room = room_for("secureboost", frames, params, artefacts=both, held=0.25)
    found = facts_of(now(room.walk()), job)
    for party, shard in model.items():
        place = list(found[party].facts["columns"])
        old, new = shard.arrays, found[party].arrays
        own = old["feature"] >= 0 if party != GUEST else old["owner"] == vertical.GUEST
        names = [shard.facts["columns"][f] for f in old["feature"][own]]
        count = len(old["tree"])
        assert [place[f] for f in new["feature"][:count][own]] == names
        for name in ("tree", "node", "threshold", "missing_left"):
            assert new[name][:count].tobytes() == old[name].tobytes()
    again = {party: {MODEL: shard} for party, shard in found.items()}
    whole = now(room_for("predict", frames, wanted, artefacts=again).walk())[GUEST]
    assert whole.arrays["prediction"].tobytes() == room.state(GUEST).margin.tobytes()


# Interrupted and carried on


@pytest.mark.some(2)
@pytest.mark.parametrize("params", [{}, CLASSES, {"mode": "mix"}], ids=["binary", "classes", "mix"])
def test_a_continuation_that_was_interrupted_is_the_one_that_was_not(params):
    job = made({**params, **SAMPLES["both"], "max_depth": 2, "n_estimators": 3}, (2, 2, 2), 80)
    model = facts_of(now(job.room().walk()), job)
    job = with_params(job, n_estimators=5, warm_start=MODEL_ID)
    whole = room_behind(job, model)
    expected = now(whole.walk())

    broken, fresh = room_behind(job, model), room_behind(job, model)

    async def work():
        await broken.until("start_round", 3)
        kept = await broken.snapshots()
        await broken.call("start_round", GUEST)
        room = Room(fresh.protocol, fresh.contexts, place=(2,))
        return await room.walk(kept), room.state(GUEST)

    found, guest = now(work())
    assert_same_shards(found, expected)
    assert guest.margin.tobytes() == whole.state(GUEST).margin.tobytes()


def test_rounds_on_categories_are_continued_by_their_names():
    job = made({"max_depth": 3, "learning_rate": 0.1}, (2, 3, 2), 150, categories=6)
    done = continued(job)
    assert_one_job(done)
    assert done.found[HOSTS[0]].arrays["left_bins"].any()


def test_a_table_with_other_categories_keeps_the_places_of_the_models():
    job = made({"max_depth": 3, "learning_rate": 0.1}, (2, 3), 150, categories=5)
    model = facts_of(now(with_params(job, n_estimators=FIRST).room().walk()), job)
    more = with_params(job, n_estimators=MORE, warm_start=MODEL_ID)
    again = room_behind(more, model)
    expected = now(again.walk())
    # The same rows in a table that knows further categories, before, between and behind its own.
    fresh = room_behind(more, model)
    texts = [f"{HOSTS[0]} {k}" for k in range(5)]
    wider = tuple(sorted([*texts, "a", f"{HOSTS[0]} 2b", "z"]))
    place = np.array([wider.index(text) for text in texts] + [np.nan])
    context = fresh.contexts[HOSTS[0]]
    values = context.frame.values.copy(order="F")
    codes = values[:, -1]
    values[:, -1] = place[np.where(np.isnan(codes), 5, codes).astype(int)]
    column = context.frame.columns[-1]
    frame = replace(context.frame, values=values, categories={column: wider})
    contexts = {**fresh.contexts, HOSTS[0]: replace(context, frame=frame)}
    found = now(Room(fresh.protocol, contexts).walk())
    for party, shard in expected.items():
        assert found[party].facts["categories"] == shard.facts["categories"]
        for name, array in shard.arrays.items():
            assert found[party].arrays[name].tobytes() == array.tobytes(), (party, name)
