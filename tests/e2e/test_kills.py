"""A party dies in the middle of a tree: everybody knows soon, and the model loses nothing."""

import time

import pytest

from fedboost.runtime.cluster.local import COORDINATOR
from tests.e2e import world

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("kills")]
TREES = 12
IDLE = 0.02  # of a processor
PLAIN = world.job(
    params={"n_estimators": TREES, "eval_metric": ["auc", "logloss"]},
    validation={"fraction": 0.3, "seed": 7},
)
PAILLIER = world.job(
    params={"n_estimators": 3, "max_depth": 2, "max_bin": 8, "encryption": {"scheme": "paillier"}}
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, data_file):
    folder = tmp_path_factory.mktemp("kills")
    sources = world.shares(data_file("breast.parquet"), folder, ["bank", "telco", "shop"])
    with world.WarmCluster(
        folder / "c", world.spec(PLAIN), sources, timers=world.TIMERS, workers=2
    ) as made:
        yield made
        assert world.tracebacks(made) == []


@pytest.fixture(scope="module")
def whole(cluster):
    """A run that nobody disturbed."""
    return world.run(cluster, PLAIN)


def killed_in_second_tree(cluster, raw, party, step):
    """Submits a job and kills `party` while the step after `step` runs; gives the job and when."""
    id_ = world.submit(cluster, raw)
    events = world.watch(cluster, id_, world.in_round(2, step))
    assert events[-1].WhichOneof("what") == "step", "the job ended before anybody was killed"
    cluster.kill(party)
    return id_, events[-1].number, time.monotonic()


def assert_paused_for(cluster, id_, party, after, killed):
    """The job pauses in time, says for whom, and so do the daemons that live."""
    events = world.watch(cluster, id_, after=after)
    assert time.monotonic() - killed < world.SHOWN_S
    assert events[-1].state.state == "paused"
    status = world.ask(cluster, "job", "status", id_)
    assert status.code == 0
    assert "is paused" in status.out
    assert f"reason: {party} is not there" in status.out or party in status.out.split("reason:")[1]
    assert f"fedboost job resume {id_}" in status.out or "start" in status.out
    for other in set(cluster.names) - {party}:
        mine = next(
            j for j in world.owner(cluster, other, "jobs", "--json").last["jobs"] if j["id"] == id_
        )
        assert mine["state"] == "paused"
        assert party in mine["reason"]


def back(cluster, name):
    cluster.start(name)
    cluster.wait(name)


@world.KILLS
@pytest.mark.parametrize(
    ("party", "step"),
    [("telco", "open_layer"), ("telco", "encrypt_gradients"), ("bank", "sum_candidates")],
)
def test_a_killed_party_pauses_the_job_and_the_resumed_model_is_the_same(
    cluster, whole, party, step
):
    id_, after, killed = killed_in_second_tree(cluster, PLAIN, party, step)
    assert_paused_for(cluster, id_, party, after, killed)
    back(cluster, party)
    journal = world.gone_on(cluster, id_)
    found, undisturbed = world.result(journal), world.result(whole)
    assert journal.status.attempt == 2
    for key in ("rows", "metrics", "trees"):
        assert found[key] == undisturbed[key]
    world.assert_same_model(cluster, id_, whole.status.id)
    rounds = [e.round.progress.done for e in journal.events if e.WhichOneof("what") == "round"]
    trees = rounds[-TREES:] if len(rounds) > TREES else rounds
    assert rounds[-1] == TREES
    assert len(rounds) <= TREES + 1, f"more than one tree was grown again: {trees}"


def test_a_party_moves_to_another_folder_in_the_middle_of_a_job(cluster, whole, tmp_path):
    """As to another machine: the job goes on there to the same model, with nothing lost."""
    id_, _, _ = killed_in_second_tree(cluster, PLAIN, "telco", "open_layer")
    config, old = cluster.config("telco"), tmp_path / "old.yaml"
    old.write_text(config.read_text())
    moved = world.fedboost("party", "move", "--config", config, "--out", tmp_path / "telco.tar")
    assert moved.code == 0, moved.err
    world.edit(cluster, "telco", lambda raw: raw.update(store=str(cluster.folder / "moved")))
    restored = world.fedboost("restore", "--config", config, tmp_path / "telco.tar")
    assert restored.code == 0, restored.err
    back(cluster, "telco")
    journal = world.gone_on(cluster, id_)
    assert world.result(journal)["metrics"] == world.result(whole)["metrics"]
    world.assert_same_model(cluster, id_, whole.status.id)
    saved = world.fedboost("backup", "--config", config, "--out", tmp_path / "later.tar")
    assert saved.code == 0, saved.err
    refused = world.fedboost("party", "serve", "--config", old)
    assert "this store was moved: its daemon runs elsewhere" in refused.err


@world.KILLS
def test_a_killed_coordinator_carries_its_job_on_when_it_is_back(cluster, whole):
    id_, _, _ = killed_in_second_tree(cluster, PLAIN, COORDINATOR, "open_layer")
    back(cluster, COORDINATOR)
    journal = world.gone_on(cluster, id_)
    assert "the coordinator was restarted" in [e.state.reason.what for e in journal.events]
    world.result(journal)
    world.assert_same_model(cluster, id_, whole.status.id)


@world.KILLS
def test_parties_whose_coordinator_is_gone_pause_and_say_so(cluster, whole):
    id_, _, killed = killed_in_second_tree(cluster, PLAIN, COORDINATOR, "open_layer")

    def paused(party):
        jobs = world.owner(cluster, party, "jobs", "--json").last["jobs"]
        return next(j for j in jobs if j["id"] == id_)["state"] == "paused"

    world.wait_for(
        lambda: all(paused(party) for party in cluster.names),
        world.SHOWN_S - (time.monotonic() - killed) + 2.0,  # each look takes a second
        "the parties of a job whose coordinator is gone say that it is paused",
    )
    back(cluster, COORDINATOR)
    world.result(world.gone_on(cluster, id_))
    world.assert_same_model(cluster, id_, whole.status.id)


def assert_idle(cluster, *names):
    """These daemons, each with its workers, do next to nothing; one look may meet a chore."""
    time.sleep(2.0)  # what was under way when the job paused
    shares = dict.fromkeys(names, 1.0)
    for _ in range(4):
        pids = {name: world.processes(cluster.processes[name].pid) for name in shares}
        began, before = time.monotonic(), {name: world.cpu_seconds(pids[name]) for name in shares}
        time.sleep(3.0)
        lasted = time.monotonic() - began
        shares = {name: (world.cpu_seconds(pids[name]) - before[name]) / lasted for name in shares}
        shares = {name: share for name, share in shares.items() if share >= IDLE}
        if not shares:
            return
    raise AssertionError(f"busy while the job is paused: {shares}")


@world.KILLS
def test_a_paused_job_costs_nothing_and_is_cancelled_also_at_a_party_that_was_gone(cluster):
    id_, after, _ = killed_in_second_tree(cluster, PLAIN, "telco", "open_layer")
    world.watch(cluster, id_, after=after)
    assert_idle(cluster, COORDINATOR, "bank")
    assert world.ask(cluster, "job", "cancel", id_).code == 0
    back(cluster, "telco")

    def jobs():
        return world.owner(cluster, "telco", "jobs", "--json").last["jobs"]

    world.wait_for(
        lambda: next(j for j in jobs() if j["id"] == id_)["state"] == "cancelled",
        world.SHOWN_S,
        "a party that was gone when a job was cancelled hears it when it is back",
    )
    for party in cluster.names:
        left = [str(path) for path in cluster.store(party).rglob(f"*{id_}*")]
        assert left == [], "a cancelled job has left files"


@world.KILLS
def test_an_encrypted_job_survives_the_kill_of_a_host(cluster):
    undisturbed = world.run(cluster, PAILLIER)
    world.result(undisturbed)
    id_, after, killed = killed_in_second_tree(cluster, PAILLIER, "shop", "open_layer")
    assert_paused_for(cluster, id_, "shop", after, killed)
    back(cluster, "shop")
    world.result(world.gone_on(cluster, id_))
    world.assert_same_model(cluster, id_, undisturbed.status.id)


@world.KILLS
def test_a_job_waits_for_nobody_when_a_party_is_back_before_it_is_missed(cluster, whole):
    """A restart is noticed at once, not after the time a lost party gets."""
    id_, after, killed = killed_in_second_tree(cluster, PLAIN, "telco", "open_layer")
    back(cluster, "telco")
    events = world.watch(cluster, id_, after=after)
    assert events[-1].state.state == "paused"
    assert "telco" in events[-1].state.reason.what
    assert time.monotonic() - killed < world.SHOWN_S
    world.result(world.gone_on(cluster, id_))
    world.assert_same_model(cluster, id_, whole.status.id)
