"""Daemons that only dial out work together through a relay; their models are those of others."""

import copy
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import partial

import psutil
import pytest
import yaml

from fedboost.runtime.cluster.cluster import _free_ports
from fedboost.runtime.cluster.local import COORDINATOR, USER, tls_of
from tests.e2e import proxies, test_horizontal, world
from tests.e2e.test_doctor import doctor, failed
from tests.e2e.test_kills import back, killed_in_second_tree
from tests.e2e.world import RELAY

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("relay")]
PARTIES = ["bank", "telco", "shop"]
SUM = "sum"
DAEMONS = (COORDINATOR, *PARTIES, SUM)
ALL = (*PARTIES, SUM)
NOWHERE = "127.0.0.1:9"
TREES = 12
FAULTS = pytest.mark.some(4, of="faults on the way to a relay")
NOTICED_S = 15.0  # in this time everybody knows of a daemon that stands still
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
    "echo": world.echo(numbers=1 << 17, parts=16, rounds=2),
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
        host = RELAY if RELAY in settings else COORDINATOR
        for name, raw in settings.items():
            if raw.get("relay") and len(settings) > 1:
                world.wait_for(partial(self.is_called, host, name), 10, f"{name} can be called")

    def is_called(self, host, name):
        """Whether a daemon has a line to the relay, by the log of the relay's process."""
        said = [line for line in self.log(host).splitlines() if f" {name} can " in line]
        return bool(said) and said[-1].endswith(" can be called")

    def is_down(self, name):
        """Whether a daemon does not run."""
        process = self.cluster.processes.get(name)
        return process is None or process.poll() is not None

    def relay(self, **more):
        """Settings of the relay as a process of its own."""
        members: dict[str, dict[str, str]] = {name: {} for name in ALL}
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

    def ports_called(self, name):
        """The ports to which a daemon holds connections."""
        connections = psutil.Process(self.cluster.processes[name].pid).net_connections("tcp")
        return {c.raddr.port for c in connections if c.status == psutil.CONN_ESTABLISHED}

    def log(self, name):
        """What a daemon has logged since its last start."""
        return self.cluster.log(name).read_bytes()[self.cluster._logged[name] :].decode()

    def wait_for_words(self, name, words):
        """Waits until a daemon has logged words."""
        world.wait_for(lambda: words in self.log(name), 10, f"{name} logs {words!r}")

    def run(self, protocol):
        """Runs a job to its end; gives its id."""
        id_ = world.submit(self.cluster, JOBS[protocol])
        last = world.watch(self.cluster, id_)[-1].state
        assert last.state == "finished", str(last.reason.what)
        return id_

    def assert_same(self, protocol, id_):
        """A job has come to what it comes to without a relay."""
        direct = self.direct[protocol]
        found, expected = (
            world.result(world.call(self.cluster, "journal", i)) for i in (id_, direct)
        )
        assert {k: found.get(k) for k in FACTS} == {k: expected.get(k) for k in FACTS}
        for party in PARTIES if protocol != "echo" else ():
            test_horizontal.assert_equal(self.shard(party, id_), self.shard(party, direct))

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
    world.issue(cluster.folder / "certs", [("relay", RELAY), ("party", "spare")])
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


OUTBOUND = {"one": ("telco",), "two": ("telco", SUM), "all": ALL}


@pytest.mark.some(3, of="jobs through a relay")
@pytest.mark.parametrize("protocol", JOBS)
@pytest.mark.parametrize("host", [RELAY, COORDINATOR])
@pytest.mark.parametrize("outbound", [pytest.param(o, id=name) for name, o in OUTBOUND.items()])
def test_a_job_of_parties_that_only_dial_out_comes_to_the_model_of_direct_ones(
    town, outbound, host, protocol
):
    """One, two and all of them; the relay as a process of its own and in the coordinator."""
    town.arrange(town.through(outbound, host))
    id_ = town.run(protocol)
    town.assert_same(protocol, id_)
    sent = test_horizontal.links(town.cluster, id_, "out")
    assert sent
    assert sent == test_horizontal.links(town.cluster, id_, "in")


@pytest.mark.some(3, of="jobs through a relay")
def test_a_coordinator_that_only_dials_out_is_reached_by_parties_and_users(town):
    town.arrange(town.through((COORDINATOR, *ALL)))
    town.assert_same("secureboost", town.run("secureboost"))
    relay = {"FEDBOOST_RELAY": f"{RELAY}@{town.at[RELAY]}"}
    env = world.client_env(town.cluster) | {"FEDBOOST_COORDINATOR": f"{COORDINATOR}@relay"}
    assert world.fedboost("job", "list", env=env | relay).code == 0
    without = world.fedboost("job", "list", env=env)
    assert "relay is missing: give the address of the relay to dial" in without.err


# `reach: auto`


def called_through_the_relay(town, name):
    """The daemons that `name` calls through the relay, because their address does not answer."""
    words = " does not answer at 127.0.0.1:9: it is called through the relay"
    return {line.removesuffix(words).split()[-1] for line in town.log(name).splitlines()
            if line.endswith(words)}  # fmt: skip


@pytest.mark.some(3, of="jobs through a relay")
def test_addresses_that_answer_are_called_and_others_through_the_relay(town):
    settings = town.through(("telco",), reach="auto")
    settings["shop"]["reach"] = "auto"
    town.arrange(settings)
    town.assert_same("secureboost", town.run("secureboost"))
    assert "bank" in called_through_the_relay(town, "telco")
    assert "through the relay" not in town.log("shop")
    findings = doctor(town.cluster.config("shop"))[1]
    assert (
        "through the relay"
        not in findings[f"here -> bank ({town.cluster.addresses['bank']})"]["note"]
    )
    assert "through the relay" in findings["here -> telco (relay)"]["note"]
    findings = doctor(town.cluster.config("telco"))[1]
    assert findings[f"here -> bank ({NOWHERE})"]["note"].startswith("through the relay, round trip")


@FAULTS
def test_an_address_that_says_nothing_is_given_up_for_the_relay(town, tmp_path):
    """Like one behind a firewall that drops packets."""
    town.arrange(town.through(ALL))
    config = tmp_path / "telco.yaml"
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        settings = town.through(("telco",), reach="auto")["telco"]
        settings["peers"]["bank"], settings["timers"]["call_s"] = address, 2.0
        config.write_text(yaml.safe_dump(settings))
        findings = doctor(config)[1]
    assert findings[f"here -> bank ({address})"]["note"].startswith("through the relay")


# Deaths


@world.KILLS
@pytest.mark.parametrize(
    ("killed", "host"),
    [(RELAY, RELAY), (COORDINATOR, COORDINATOR), (COORDINATOR, RELAY), ("telco", RELAY)],
)
def test_a_job_goes_on_after_the_death_of_its_relay_or_of_a_daemon(town, killed, host):
    """Noticed soon, resumed soon, to the same model."""
    town.arrange(town.through(ALL, host))
    id_, after, at = killed_in_second_tree(town.cluster, BOOST, killed, "open_layer")
    if killed != COORDINATOR:
        events = world.watch(town.cluster, id_, after=after)
        assert events[-1].state.state == "paused"
        assert time.monotonic() - at < world.SHOWN_S
    back(town.cluster, killed)
    world.gone_on(town.cluster, id_)
    town.assert_same("secureboost", id_)


@world.KILLS
def test_a_relay_that_is_back_at_once_disturbs_a_job_for_seconds(town):
    town.arrange(town.through(ALL))
    id_, after, at = killed_in_second_tree(town.cluster, BOOST, RELAY, "open_layer")
    back(town.cluster, RELAY)
    running = world.in_round(1, "open_layer")
    world.watch(town.cluster, id_, running, after)
    assert time.monotonic() - at < world.RESUMED_S
    world.wait_for(
        lambda: world.call(town.cluster, "status", id_).state in world.ENDS, 60, "the job ends"
    )
    town.assert_same("secureboost", id_)


@world.KILLS
@pytest.mark.parametrize(("frozen", "sees"), [(RELAY, "bank"), ("telco", RELAY)])
def test_a_job_goes_on_after_its_relay_or_a_party_stood_still(town, frozen, sees):
    """Longer than the others keep their lines to it."""
    settings = town.through(ALL)
    for raw in settings.values():
        raw["timers"] = {**raw["timers"], "keepalive_s": 1.0, "keepalive_timeout_s": 1.0}
    town.arrange(settings)
    id_ = world.submit(town.cluster, BOOST)
    events = world.watch(town.cluster, id_, world.in_round(2, "open_layer"))
    process = town.cluster.processes[frozen]
    process.send_signal(signal.SIGSTOP)
    at = time.monotonic()
    try:
        events = world.watch(town.cluster, id_, after=events[-1].number)
        assert events[-1].state.state == "paused"
        assert time.monotonic() - at < NOTICED_S
        lost = {"bank": "has closed our line", RELAY: "party telco can no longer be called"}
        town.wait_for_words(sees, lost[sees])
    finally:
        process.send_signal(signal.SIGCONT)
    world.gone_on(town.cluster, id_)
    town.assert_same("secureboost", id_)


# fedboost doctor


def test_doctor_names_the_relay_and_the_peers_behind_it(town):
    town.arrange(town.through(ALL))
    config = town.cluster.config("telco")
    code, findings = doctor(config)
    assert (code, failed(findings)) == (0, set())
    assert findings[f"relay ({town.at[RELAY]})"]["note"] == "knows us as party telco"
    for peer in ("bank", "shop", SUM):
        note = findings[f"here -> {peer} (relay)"]["note"]
        assert note.startswith("through the relay, round trip")
        assert f"{peer} -> here" in findings


def test_doctor_says_which_peer_has_no_line_to_the_relay(town):
    town.arrange(town.through(ALL))
    town.cluster.kill("shop")
    code, findings = doctor(town.cluster.config("telco"))
    assert code == 3
    assert failed(findings) == {"here -> shop (relay)", "shop -> here"}
    what, *more = findings["here -> shop (relay)"]["error"]
    assert what == "shop has no line to the relay"
    assert "to do: start shop's daemon; its log says whether it reaches the relay" in more
    town.cluster.kill("telco")
    code, findings = doctor(town.cluster.config("telco"))
    warning = findings[f"relay ({town.at[RELAY]})"]["warning"]
    assert warning == "our daemon has no line to it: no call arrives here"


def test_doctor_says_that_the_relay_does_not_run(town):
    town.arrange(town.through(ALL))
    town.cluster.kill(RELAY)
    code, findings = doctor(town.cluster.config("telco"))
    assert code == 3
    what, *more = findings[f"relay ({town.at[RELAY]})"]["error"]
    assert what == f"the relay at {town.at[RELAY]} cannot be reached"
    assert "to do: check relay.address and the firewall; is the relay running?" in more
    assert findings["here -> bank (relay)"]["error"][0] == what


# Proxies


def port(address):
    """The port of an address."""
    return int(address.rpartition(":")[2])


def assert_called_through(town, proxy, *parties):
    """These parties hold connections to the proxy, and none to the relay."""
    for party in parties:
        called = town.ports_called(party)
        assert port(proxy.address) in called
        assert port(town.at[RELAY]) not in called


@pytest.mark.some(3, of="jobs through a relay")
def test_a_job_goes_through_a_proxy_that_passes_connections_on(town, tmp_path):
    with proxies.tinyproxy(tmp_path) as proxy:
        town.arrange(town.through(ALL, proxy=f"http://{proxy.address}"))
        town.assert_same("secureboost", town.run("secureboost"))
        assert_called_through(town, proxy, *ALL)


@pytest.mark.some(3, of="jobs through a relay")
def test_a_job_goes_through_a_proxy_that_wants_a_password(town, tmp_path):
    with proxies.squid(tmp_path) as proxy:
        town.arrange(town.through(ALL, proxy=f"http://{proxies.LOGIN}@{proxy.address}"))
        town.assert_same("secureboost", town.run("secureboost"))
        assert_called_through(town, proxy, *ALL)
        assert not any(proxies.LOGIN.partition(":")[2] in town.log(name) for name in DAEMONS)


@pytest.fixture(scope="module")
def mitm(town, tmp_path_factory):
    """A proxy that replaces certificates."""
    authority = town.cluster.folder / "certs" / "ca.pem"
    with proxies.mitmproxy(tmp_path_factory.mktemp("mitm"), authority) as proxy:
        yield proxy


def with_tokens(settings):
    """Settings in which parties show a token to the relay, for a proxy takes their certificates."""
    for party in ALL:
        token = f"{party}-shows-this-to-the-relay-alone"
        settings[party]["relay"]["token"] = settings[RELAY]["members"][party]["token"] = token
    return settings


@pytest.mark.some(3, of="jobs through a relay")
def test_a_job_goes_through_a_proxy_that_replaces_certificates(town, mitm):
    """It opens what passes, and finds TLS from party to party."""
    dialled = {"proxy": f"http://{mitm.address}", "ca": str(mitm.ca)}
    town.arrange(with_tokens(town.through(ALL, **dialled)))
    town.assert_same("secureboost", town.run("secureboost"))
    assert_called_through(town, mitm, *ALL)


def test_proxies_of_the_environment_count(town, tmp_path, monkeypatch):
    """HTTPS_PROXY, but not to hosts in NO_PROXY; the relay in the daemon itself needs neither."""
    with proxies.tinyproxy(tmp_path) as proxy:
        town.arrange(town.through(ALL))
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
        town.cluster.kill("telco")
        back(town.cluster, "telco")
        town.wait_for_words("telco", "brings calls here")
        assert_called_through(town, proxy, "telco")
        monkeypatch.setenv("NO_PROXY", "example.org,127.0.0.1")
        town.cluster.kill("telco")
        back(town.cluster, "telco")
        town.wait_for_words("telco", "brings calls here")
        assert port(town.at[RELAY]) in town.ports_called("telco")
        monkeypatch.delenv("NO_PROXY")
        town.cluster.kill("telco")
    monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
    town.arrange({COORDINATOR: town.through(ALL, COORDINATOR)[COORDINATOR]})
    town.wait_for_words(COORDINATOR, "brings calls here")
    town.cluster.kill(COORDINATOR)


def spare_settings(town, **dialled):
    """Settings of one more party, with more about how it dials the relay."""
    return town.through(ALL, **dialled)["telco"] | {
        "name": "spare",
        "store": str(town.cluster.store("spare")),
        "listen": "127.0.0.1:0",
        "tls": tls_of(town.cluster.folder / "certs", "spare").model_dump(mode="json"),
    }


def assert_refused(town, what, todo, settings, relay=None):
    """A party with these settings says why it has no line to the relay, once in its log and in
    `fedboost doctor`.
    """
    town.arrange({RELAY: relay or with_tokens(town.through(ALL))[RELAY]})
    config = town.cluster.config("spare")
    config.write_text(yaml.safe_dump(settings))
    error = doctor(config)[1][f"relay ({settings['relay']['address']})"]["error"]
    assert error[0] == what
    assert todo in "\n".join(error)
    back(town.cluster, "spare")
    try:
        town.wait_for_words("spare", f"no line to the relay: {what}; ")
        time.sleep(0.5)  # it tries again meanwhile
        assert town.log("spare").count("no line to the relay: ") == 1
        assert todo in town.log("spare")
    finally:
        town.cluster.kill("spare")


@FAULTS
def test_a_wrong_password_of_a_proxy_is_named(town, tmp_path):
    with proxies.squid(tmp_path) as proxy:
        at = proxy.address
        what = f"the proxy {at} does not accept our login"
        assert_refused(
            town,
            what,
            "correct the login in relay.proxy",
            spare_settings(town, proxy=f"http://bank:false-1@{at}"),
        )
        what = f"the proxy {at} wants a login"
        assert_refused(
            town, what, "write it into relay.proxy", spare_settings(town, proxy=f"http://{at}")
        )


@FAULTS
def test_a_proxy_that_is_down_is_named(town):
    what = f"the proxy {NOWHERE} cannot be reached"
    assert_refused(town, what, "check relay.proxy", spare_settings(town, proxy=f"http://{NOWHERE}"))


@FAULTS
def test_a_proxy_that_refuses_the_port_is_named(town, tmp_path):
    with proxies.tinyproxy(tmp_path, [443]) as proxy:
        what = f"the proxy {proxy.address} allows no such connection (403)"
        todo = f"allow CONNECT to {town.at[RELAY]}"
        assert_refused(town, what, todo, spare_settings(town, proxy=f"http://{proxy.address}"))


@FAULTS
@pytest.mark.parametrize(("start", "status"), [(proxies.tinyproxy, 500), (proxies.squid, 503)])
def test_a_relay_that_a_proxy_does_not_reach_is_named(town, tmp_path, start, status):
    with start(tmp_path) as proxy:
        dialled = {"proxy": f"http://{proxies.LOGIN}@{proxy.address}"}
        settings = spare_settings(town, **dialled)
        settings["relay"]["address"] = NOWHERE
        what = f"the proxy {proxy.address} does not reach the relay at {NOWHERE} ({status})"
        assert_refused(town, what, "is the relay running?", settings)


@FAULTS
def test_a_replaced_certificate_is_named(town, mitm):
    what = f"the certificate of the relay at {town.at[RELAY]} is not valid for us"
    todo = "where a proxy replaces certificates, name its CA in relay.ca"
    dialled = {"proxy": f"http://{mitm.address}"}
    assert_refused(town, what, todo, spare_settings(town, **dialled))
    what = "the relay does not know us"
    assert_refused(town, what, "token", spare_settings(town, ca=str(mitm.ca), **dialled))


@FAULTS
def test_a_proxy_that_takes_the_certificate_of_a_party_without_a_token_is_named(town, mitm):
    """Nobody has a token, so the relay wants a certificate from the proxy too."""
    dialled = {"proxy": f"http://{mitm.address}", "ca": str(mitm.ca)}
    what = f"the proxy {mitm.address} does not reach the relay at {town.at[RELAY]} (502)"
    settings = spare_settings(town, **dialled)
    assert_refused(town, what, "the relay needs our token", settings, relay=town.relay())


# Certificates


@FAULTS
def test_a_missing_ca_of_the_relay_is_named(town):
    ca = town.cluster.folder / "certs" / "later.pem"
    settings = spare_settings(town, ca=str(ca))
    assert_refused(town, "cannot read the file: No such file or directory", str(ca), settings)


@FAULTS
def test_a_certificate_that_the_relay_does_not_accept_is_named(town, tmp_path):
    world.issue(tmp_path / "certs", [("party", "spare")])
    settings = spare_settings(town, ca=str(town.cluster.folder / "certs" / "ca.pem"))
    settings["tls"] = tls_of(tmp_path / "certs", "spare").model_dump(mode="json")
    what = f"the relay at {town.at[RELAY]} closed the connection"
    for relay in (town.relay(), with_tokens(town.through(ALL))[RELAY]):
        assert_refused(town, what, "it may not accept our certificate", settings, relay=relay)


@FAULTS
def test_a_relay_with_the_certificate_of_somebody_else_is_named(town):
    settings = spare_settings(town, name="other")
    what = f"the certificate of the relay at {town.at[RELAY]} is not valid for us"
    assert_refused(town, what, "check relay.name", settings)


# A firewall


@pytest.fixture
def fence():
    """A network of its own, into which nobody opens a connection: its name, our address there, and
    its own.
    """
    if os.getuid() != 0 or not shutil.which("ip") or not shutil.which("nft"):
        pytest.skip("needs root, ip and nft")
    name, link = f"fedboost{os.getpid()}", f"fb{os.getpid()}"
    inside = ("ip", "netns", "exec", name)
    rules = (
        "add table inet fence; add chain inet fence in { type filter hook input priority 0; policy "
        "drop; }; add rule inet fence in ct state established,related accept; add rule inet fence "
        "in iif lo accept"
    )
    commands = [
        ("ip", "netns", "add", name),
        ("ip", "link", "add", f"{link}a", "type", "veth", "peer", "name", f"{link}b"),
        ("ip", "link", "set", f"{link}b", "netns", name),
        ("ip", "addr", "add", "198.51.100.1/30", "dev", f"{link}a"),
        ("ip", "link", "set", f"{link}a", "up"),
        (*inside, "ip", "addr", "add", "198.51.100.2/30", "dev", f"{link}b"),
        (*inside, "ip", "link", "set", f"{link}b", "up"),
        (*inside, "ip", "link", "set", "lo", "up"),
        (*inside, "nft", rules),
    ]
    try:
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"no network of our own here: {done.stderr[:100]}")
        yield name, "198.51.100.1", "198.51.100.2"
    finally:
        subprocess.run(("ip", "netns", "del", name), capture_output=True, check=False)
        subprocess.run(("ip", "link", "del", f"{link}a"), capture_output=True, check=False)


@pytest.mark.full
def test_a_party_behind_a_firewall_takes_part(town, fence):
    """Packets to its address are dropped; with `reach: auto` others come through the relay."""
    network, ours, theirs = fence
    cluster = town.cluster
    settings = town.through(("telco",))
    relay = f"{ours}:{port(town.at[RELAY])}"
    listen = f"{theirs}:{port(cluster.addresses['telco'])}"
    for name, raw in settings.items():
        if name == RELAY:
            raw["listen"] = relay
            continue
        raw["relay"]["address"] = relay
        for peer in {"telco"} & {*raw.get("parties", {}), *raw.get("peers", {})}:
            raw["parties" if name == COORDINATOR else "peers"][peer] = listen
            raw["reach"] = "auto"
    settings["telco"] |= {"listen": listen, "reach": "outbound"}
    telco = settings.pop("telco")
    cluster.kill("telco")
    town.arrange(settings)
    cluster.config("telco").write_text(yaml.safe_dump(telco))
    command = ["ip", "netns", "exec", network, sys.executable, "-m", "fedboost", "party", "serve"]
    command += ["--config", str(cluster.config("telco")), "--until-stdin-closes"]
    with cluster.log("telco").open("ab") as log:
        cluster._logged["telco"] = log.tell()
        cluster.processes["telco"] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    cluster.wait("telco")
    try:
        town.assert_same("secureboost", town.run("secureboost"))
        assert f"telco does not answer at {listen}: it is called through the relay" in town.log(
            "bank"
        )
    finally:
        cluster.kill("telco")
