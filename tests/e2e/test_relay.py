"""Daemons that only dial out work together through a relay, and come to the models of direct ones."""

import copy
import shutil
import time

import pytest
import yaml

from fedboost.runtime.cluster.cluster import _free_ports
from fedboost.runtime.cluster.local import COORDINATOR, USER, tls_of
from tests.e2e import test_horizontal, world
from tests.e2e.world import RELAY

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("relay")]
PARTIES = ["bank", "telco", "shop"]
SUM = "sum"
DAEMONS = (COORDINATOR, *PARTIES, SUM)
NOWHERE = "127.0.0.1:9"
TREES = 12
FACTS = ("rows", "metrics", "trees")  # of results, that do not depend on when calls are made

BOOST = world.job(
    params={"n_estimators": TREES, "eval_metric": ["auc", "logloss"]},
    validation={"fraction": 0.3, "seed": 7},
)
HYBRID = world.job(
    protocol="hybridtree",
    params={"max_bin": 8, "guest_depth": 2, "host_depth": 2, "split": "scored"},
)
del HYBRID["params"]["max_depth"]


def of_rows(protocol, **params):
    """A job in which every party has rows of its own, and labels."""
    return {
        "name": "rows",
        "protocol": protocol,
        "parties": {"guest": PARTIES[0], "hosts": PARTIES[1:], "aggregator": SUM},
        "data": {party: {"dataset": "rows", "label": "y"} for party in PARTIES},
        "params": {"n_estimators": 3, "eval_metric": "logloss", **params},
    }


JOBS = {
    "echo": world.echo(),
    "secureboost": BOOST,
    "federboost-horizontal": of_rows("federboost-horizontal", max_depth=3, max_bin=4),
    "gbun": of_rows("gbun", outputs=8),
    "hybridtree": HYBRID,
}


class Town:
    """A cluster and a relay, whose settings tests replace and put back."""

    def __init__(self, cluster):
        self.cluster = cluster
        ports = _free_ports(2)
        self.at = {RELAY: f"127.0.0.1:{ports[0]}", COORDINATOR: f"127.0.0.1:{ports[1]}"}
        self.plain = {name: yaml.safe_load(cluster.config(name).read_text()) for name in DAEMONS}
        self.direct = {}  # ids of jobs without a relay

    def arrange(self, settings):
        """Has every daemon run with these settings, by name; starts those with others again."""
        cluster, stale = self.cluster, []
        for name, raw in settings.items():
            path, text = cluster.config(name), yaml.safe_dump(raw)
            if not path.exists() or path.read_text() != text or self.is_down(name):
                path.write_text(text)
                stale.append(name)
        for name in stale:
            if not self.is_down(name):
                cluster.processes[name].terminate()
        for name in stale:
            if name in cluster.processes:
                cluster.processes[name].wait(20)
            cluster.start(name)
        for name in stale:
            cluster.wait(name)

    def is_down(self, name):
        """Whether a daemon does not run."""
        process = self.cluster.processes.get(name)
        return process is None or process.poll() is not None

    def relay(self, **more):
        """Settings of the relay as a process of its own."""
        members = {name: {} for name in (*PARTIES, SUM)}
        members |= {COORDINATOR: {"role": "coordinator"}, USER: {"role": "user"}}
        tls = tls_of(self.cluster.folder / "certs", RELAY).model_dump(mode="json")
        return {
            "name": RELAY,
            "listen": self.at[RELAY],
            "tls": tls,
            "members": members,
            "timers": self.plain["bank"]["timers"],
            **more,
        }

    def through(self, outbound, host=RELAY, reach="outbound", **dialled):
        """Settings of all daemons of which some only dial out: nobody has the address of these, and
        they have nobody's. `dialled` is more about how these reach the relay, which `host` runs.
        """
        settings = copy.deepcopy(self.plain)
        address = {"address": self.at[host], "name": host}
        for name, raw in settings.items():
            raw["relay"] = dict(address)
            for key in ("parties", "peers"):
                for peer in raw.get(key, {}):
                    if peer in outbound:
                        raw[key][peer] = "relay"
                    elif name in outbound:
                        raw[key][peer] = NOWHERE
            if name in outbound:
                raw["reach"] = reach
                raw["relay"] |= dialled
                if name != COORDINATOR:
                    raw["coordinator"]["address"] = NOWHERE
        if host == COORDINATOR:
            settings[COORDINATOR]["relay"] = {"listen": self.at[COORDINATOR]}
            return settings
        return {RELAY: self.relay(), **settings}

    def run(self, protocol):
        """Runs a job to its end; gives its id."""
        id_ = world.submit(self.cluster, JOBS[protocol])
        last = world.watch(self.cluster, id_)[-1].state
        assert last.state == "finished", str(last.reason.what)
        return id_

    def assert_same(self, protocol, id_):
        """A job has come to what it comes to without a relay."""
        one, other = (world.call(self.cluster, "journal", i) for i in (id_, self.direct[protocol]))
        found, expected = world.result(one), world.result(other)
        assert {k: found.get(k) for k in FACTS} == {k: expected.get(k) for k in FACTS}
        for party in PARTIES if protocol != "echo" else ():
            test_horizontal.assert_equal(
                *(self.shard(party, i) for i in (id_, self.direct[protocol]))
            )

    def shard(self, party, id_):
        """A party's shard without nodes that a host numbers in an order of each job's own."""
        facts, arrays = world.model(self.cluster, party, id_)
        if facts["protocol"] == "hybridtree":
            arrays = {k: v for k, v in arrays.items() if party == "bank" and "below" not in k}
        return facts, arrays


@pytest.fixture(scope="module")
def town(request, tmp_path_factory, data_file):
    """Daemons without a relay, the jobs that they have run, and certificates of a relay."""
    folder = tmp_path_factory.mktemp("relay")
    pooled = data_file("breast.parquet")
    sources = world.shares(pooled, folder, PARTIES)
    rows = test_horizontal.dealt(pooled, folder / "rows", PARTIES)
    spec = world.spec(JOBS["federboost-horizontal"])
    cluster = world.WarmCluster(folder / "c", spec, sources, timers=world.TIMERS, workers=1)
    for party in PARTIES:

        def more(raw, party=party):
            raw["datasets"]["data"]["labels"] = ["y"] if party == "bank" else []
            raw["datasets"]["rows"] = {"path": rows[party].path, "labels": ["y"]}
            raw["policy"] |= {"datasets": list(raw["datasets"]), "allow_insecure": True}

        world.edit(cluster, party, more)
    world.issue(cluster.folder / "certs", [("relay", RELAY)])
    with cluster:
        made = Town(cluster)
        wanted = {"secureboost"}.union(
            item.callspec.params["protocol"]
            for item in request.session.items
            if "protocol" in getattr(getattr(item, "callspec", None), "params", ())
            and item.path == request.path
        )
        made.direct = {protocol: made.run(protocol) for protocol in sorted(wanted)}
        yield made
        assert world.tracebacks(cluster) == []


OUTBOUND = {"one": ("telco",), "two": ("telco", SUM), "all": (*PARTIES, SUM)}


@world.JOBS
@pytest.mark.parametrize("protocol", JOBS)
@pytest.mark.parametrize("host", [RELAY, COORDINATOR])
@pytest.mark.parametrize("outbound", [pytest.param(o, id=name) for name, o in OUTBOUND.items()])
def test_a_job_of_parties_that_only_dial_out_comes_to_the_model_of_direct_ones(
    town, outbound, host, protocol
):
    """One, two and all of them; the relay as a process of its own and in the coordinator."""
    town.arrange(town.through(outbound, host))
    town.assert_same(protocol, town.run(protocol))
