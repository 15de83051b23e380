"""Real daemons find 20,000 ids in common by an oblivious function, whoever dies meanwhile."""

import numpy as np
import pyarrow as pa
import pytest

from fedboost.model import shards
from fedboost.oblivious.method import OPRF_IDS_MIN
from tests.e2e import world
from tests.support import drills

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("alignment")]
PARTIES = ("bank", "telco", "shop", "mill")
FEW, MANY = OPRF_IDS_MIN, 300_000  # the latter in five parts: more than a round


def numbers(party, count):
    """Ids of a party in an order of its own: each lacks some of the guest's, and has others."""
    place = PARTIES.index(party)
    found = np.arange(place * count // 10, place * count // 10 + count)
    return np.random.default_rng(place).permutation(found)


def job(protocol, hosts, dataset="data", method="auto"):
    """A job that aligns and does nothing else."""
    parties = ("bank", *hosts)
    return {
        "name": "aligned",
        "protocol": protocol,
        "parties": {"guest": "bank", "hosts": list(hosts)},
        "data": {party: {"dataset": dataset} for party in parties},
        "alignment": {"method": method},
    }


def table(folder, party, count):
    """A party's ids as a file."""
    values = np.zeros(count, np.float32)
    rows = pa.table({"id": numbers(party, count), "x": values})
    return world.write(folder / f"{party}-{count}.parquet", rows)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alignment")
    sources = {party: table(folder, party, FEW) for party in PARTIES}
    spec = world.spec(job("align", PARTIES[1:]))
    made = world.WarmCluster(folder / "c", spec, sources, timers=drills.TIMERS, workers=2)
    for party in PARTIES[:2]:
        path = str(table(folder, party, MANY).path)

        def declare(raw, path=path):
            raw["datasets"]["many"] = {**raw["datasets"]["data"], "path": path}
            raw["policy"]["datasets"] = ["data", "many"]

        world.edit(made, party, declare)
    with made:
        yield made
        assert world.tracebacks(made) == []


def kept(cluster, id_, party):
    """What a party keeps of an alignment: its rows, and of a guest with whom."""
    return shards.load_shard(cluster.store(party) / "alignments" / id_).arrays


def common(hosts, count):
    """The ids that all have."""
    return set.intersection(*(set(numbers(p, count).tolist()) for p in ("bank", *hosts)))


def assert_same(cluster, journals, parties):
    """Two alignments have come to the same rows in the same order."""
    one, other = map(world.result, journals)
    assert one["rows"] == other["rows"]
    assert one["ids"] == other["ids"]
    for party in parties:
        found, expected = (kept(cluster, run.status.id, party) for run in journals)
        assert found.keys() == expected.keys()
        for name, array in found.items():
            np.testing.assert_array_equal(array, expected[name], strict=True)


@pytest.mark.parametrize(
    ("protocol", "hosts"),
    [("align", PARTIES[1:2]), ("align", PARTIES[1:]), ("align-pairs", PARTIES[1:3])],
)
def test_the_rows_are_those_of_the_curve_in_its_order(cluster, protocol, hosts):
    runs = [world.run(cluster, job(protocol, hosts, method=how)) for how in ("auto", "ecdh")]
    assert [world.result(run)["alignment"] for run in runs] == ["oprf", "ecdh"]
    assert_same(cluster, runs, ("bank", *hosts))
    if protocol == "align":
        assert world.result(runs[0])["rows"] == {"aligned": len(common(hosts, FEW))}


@pytest.fixture(scope="module")
def whole(cluster):
    """A run of several rounds of parts that nobody disturbed."""
    return world.run(cluster, job("align", PARTIES[1:2], "many"))


def is_step(name):
    """True once that step is done."""
    return lambda event: event.WhichOneof("what") == "step" and event.step.step == name


def is_round(event):
    """True once a round of parts is done."""
    return event.WhichOneof("what") == "round" and event.round.progress.round == "part"


MOMENTS = {
    "part": is_round,
    **{name: is_step(name) for name in ("choose_method", "hear_start", "open_transfers")},
}


@world.KILLS
@pytest.mark.parametrize("party", PARTIES[:2])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_party_changes_nothing_about_the_rows(cluster, whole, party, moment):
    assert world.result(whole)["rows"] == {"aligned": len(common(PARTIES[1:2], MANY))}
    id_ = world.submit(cluster, job("align", PARTIES[1:2], "many"))
    world.watch(cluster, id_, MOMENTS[moment])
    cluster.kill(party)
    world.wait_for(
        lambda: world.call(cluster, "status", id_).state == "paused", 60, "the job pauses"
    )
    cluster.start(party)
    cluster.wait(party)
    journal = world.gone_on(cluster, id_)
    assert_same(cluster, (journal, whole), PARTIES[:2])


def test_progress_counts_parts(whole):
    rounds = [e.round.progress for e in whole.events if is_round(e)]
    assert [(one.done, one.of) for one in rounds] == [(4, 5), (5, 5)]
