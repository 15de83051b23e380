"""Settings files: the samples load, and what cannot work is refused by name."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedboost.ground.errors import ConfigError, PolicyError
from fedboost.ground.settings import load_settings, parse_settings, read_yaml
from fedboost.ground.settings import user_home_folder as home_folder
from fedboost.runtime.client.config import ClientConfig, client_config
from fedboost.runtime.config.daemons import CoordinatorConfig, DaskWorkers, PartyConfig
from fedboost.runtime.config.relay import RelayConfig, RelayService
from fedboost.runtime.process.threads import count_cores
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import Timers, is_loopback, split_address
from fedboost.runtime.transport.certificates import Leaf, Term
from tests.conftest import ROOT

NOW = datetime.now(UTC)
CONFIGS = ROOT / "configs"
TLS = {"ca": "certs/ca.pem", "cert": "certs/bank.pem", "key": "certs/bank.key"}
COORD = {"name": "coord", "address": "127.0.0.1:7100"}
PARTY = {
    "name": "bank",
    "listen": "127.0.0.1:7101",
    "tls": TLS,
    "coordinator": COORD,
    "peers": {"telco": "127.0.0.1:7102"},
    "store": "var/bank",
}
BARE = {key: value for key, value in PARTY.items() if key != "tls"}
PARTY_SAMPLES = ["bank", "telco", "shop", "sum"]
JOB_SAMPLES = [
    "job-credit.yaml",
    "job-credit-forest.yaml",
    "job-buckets.yaml",
    "job-horizontal.yaml",
    "job-gbun.yaml",
    "job-hybrid.yaml",
]


def party(**keys) -> PartyConfig:
    return parse_settings(PartyConfig, {**PARTY, **keys})


@pytest.mark.parametrize("name", PARTY_SAMPLES)
def test_the_party_samples_load(name):
    config = load_settings(PartyConfig, CONFIGS / f"party-{name}.yaml")
    assert config.name == name
    assert config.store == Path("var") / name
    assert config.tls is not None
    assert config.tls.cert == Path(f"certs/{name}.pem")
    assert bool(config.datasets) == (name != "sum")


def test_the_samples_fit_together():
    coordinator = load_settings(CoordinatorConfig, CONFIGS / "coordinator.yaml")
    client = load_settings(ClientConfig, CONFIGS / "client.yaml")
    assert client.coordinator.model_dump(exclude_none=True) == COORD
    for name in PARTY_SAMPLES:
        config = load_settings(PartyConfig, CONFIGS / f"party-{name}.yaml")
        assert coordinator.parties[name].address == config.listen
        assert config.coordinator == client.coordinator
        for peer, address in config.peers.items():
            assert coordinator.parties[peer] == address


@pytest.mark.parametrize("name", JOB_SAMPLES)
def test_the_sample_jobs_name_the_samples_parties_and_data_sets(name):
    job = read_yaml(CONFIGS / name)
    assert isinstance(job, dict)
    assert sorted(job) == ["data", "name", "params", "parties", "protocol", "validation"]
    for party, source in job["data"].items():
        config = load_settings(PartyConfig, CONFIGS / f"party-{party}.yaml")
        assert source["dataset"] in config.policy.datasets
        assert job["protocol"] in config.policy.protocols


def test_the_sample_relay_admits_daemons_and_users_of_the_samples():
    relay = load_settings(RelayConfig, CONFIGS / "relay.yaml")
    coordinator = load_settings(CoordinatorConfig, CONFIGS / "coordinator.yaml")
    roles = {name: member.role for name, member in relay.members.items()}
    parties = set(PARTY_SAMPLES) - {"sum"}
    assert roles.pop(coordinator.name) == "coordinator"
    assert roles.pop("ana") == "user"
    assert roles == dict.fromkeys(parties, "party")
    assert not any(member.token for member in relay.members.values())


def test_the_lines_about_a_relay_in_the_samples_can_be_switched_on():
    relay = load_settings(RelayConfig, CONFIGS / "relay.yaml")
    coordinator = with_lines_about_a_relay(CoordinatorConfig, "coordinator")
    assert isinstance(coordinator.relay, RelayService)
    assert split_address(coordinator.relay.listen)[1] == split_address(relay.listen)[1]
    bank = with_lines_about_a_relay(PartyConfig, "party-bank")
    client = with_lines_about_a_relay(ClientConfig, "client")
    assert bank.reach == "auto"
    for found in (bank.relay, client.relay):
        assert found is not None
        assert found.address == relay.listen
        assert found.name == coordinator.name


def with_lines_about_a_relay(kind, name):
    """Return a sample's settings with its commented lines on relays."""
    text = (CONFIGS / f"{name}.yaml").read_text()
    lines = re.sub(r"^# ((?:relay|reach): )", r"\1", text, flags=re.MULTILINE)
    assert lines != text
    return parse_settings(kind, yaml.safe_load(lines))


def test_there_is_a_test_for_every_sample():
    tested = {f"party-{name}.yaml" for name in PARTY_SAMPLES}
    tested |= {"coordinator.yaml", "client.yaml", "relay.yaml", *JOB_SAMPLES}
    assert tested == {path.name for path in CONFIGS.glob("*.yaml")}


@pytest.mark.parametrize("name", PARTY_SAMPLES)
def test_the_sample_parties_have_nothing_to_warn_of(name):
    assert load_settings(PartyConfig, CONFIGS / f"party-{name}.yaml").warnings() == []


def test_workers_are_the_cores_we_may_use():
    assert party().processes == party(workers="embedded").processes == count_cores()
    assert party(workers=3).processes == 3
    with pytest.raises(ConfigError):
        party(workers=0)


def test_a_party_may_have_workers_on_dask():
    own = party(workers={"dask": "tls://cluster:8786", "tls": TLS})
    assert isinstance(own.workers, DaskWorkers)
    assert own.workers.address == "tls://cluster:8786"
    assert own.processes == count_cores()
    own = party(workers={"dask": {"local": 4}})
    assert isinstance(own.workers, DaskWorkers)
    assert (own.workers.address, own.workers.local_workers) == (None, 4)


@pytest.mark.parametrize(
    ("workers", "text"),
    [
        ({"dask": "tcp://cluster:8786", "tls": TLS}, "only clusters with mutual TLS"),
        ({"dask": "cluster:8786", "tls": TLS}, "write tls://HOST:PORT"),
        ({"dask": "tls://cluster", "tls": TLS}, "is not an address"),
        ({"dask": "tls://cluster:8786"}, "needs tls"),
        ({"dask": {"local": 2}, "tls": TLS}, "local workers make their own"),
        ({"dask": {"local": 0}}, "greater than or equal to 1"),
        ("some", "write one of: embedded"),
    ],
)
def test_only_clusters_with_mutual_tls_are_accepted(workers, text):
    with pytest.raises(ConfigError) as caught:
        party(workers=workers)
    assert text in "\n".join(caught.value.lines())


def test_a_coordinator_has_no_workers_on_dask():
    raw = yaml.safe_load((CONFIGS / "coordinator.yaml").read_text())
    with pytest.raises(ConfigError, match="adds up no rows"):
        parse_settings(CoordinatorConfig, {**raw, "workers": {"dask": {"local": 2}}})


def test_without_a_policy_everything_is_denied():
    assert party().policy.approve == "always"
    assert party().policy.coordinators == ()


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"name": "Bank"}, "is not a name"),
        ({"listen": "7101"}, "is not an address"),
        ({"coordinator": {"name": "coord"}}, "coordinator.address"),
        ({"coordinator": {"name": "coord", "address": "127.0.0.1:0"}}, "port 0"),
        ({"peers": {"bank": "127.0.0.1:7102"}}, "no peer of ours"),
        ({"peers": {"coord": "127.0.0.1:7102"}}, "no peer of ours"),
        ({"coordinator": {"name": "bank", "address": "127.0.0.1:1"}}, "like ourselves"),
        ({"peers": {"telco": "127.0.0.1"}}, "is not an address"),
        ({"datasets": {"../x": {"path": "a.csv"}}}, "not a data set's name"),
        ({"datasets": {"x": {"path": "a.csv", "url": "b"}}}, "url"),
        ({"policy": {"peers": ["shop"]}}, "policy.peers names 'shop'"),
        ({"policy": {"datasets": ["credit"]}}, "policy.datasets names 'credit'"),
        ({"policy": {"coordinators": ["other"]}}, "policy.coordinators names 'other'"),
        ({"policy": {"predict": {"peers": ["shop"]}}}, "policy.predict.peers names 'shop'"),
        ({"timers": {"step_s": 0}}, "timers.step_s"),
        ({"timers": {"retry_first_s": 30}}, "must not be above"),
        ({"tls": {"ca": "a", "cert": "b"}}, "tls.key"),
        ({"stor": "var"}, "stor"),
    ],
)
def test_a_wrong_party_file_is_refused_by_key(keys, text):
    with pytest.raises(ConfigError) as caught:
        party(**keys)
    assert text in caught.value.what


def test_timers_are_shortened_one_by_one():
    timers = party(timers={"step_s": 2}).timers
    assert timers.step_s == 2.0
    assert timers.peer_lost_s == Timers().peer_lost_s == 15.0


def test_tls_is_needed_unless_loopback_development_is_named():
    with pytest.raises(ConfigError, match="tls is missing"):
        parse_settings(PartyConfig, BARE)
    config = parse_settings(PartyConfig, {**BARE, "insecure_loopback": True})
    assert any("no link is encrypted" in warning for warning in config.warnings())
    with pytest.raises(ConfigError, match="exclude each other"):
        party(insecure_loopback=True)


@pytest.mark.parametrize(
    "keys",
    [
        {"listen": "0.0.0.0:7101"},
        {"listen": "[::]:7101"},
        {"peers": {"telco": "10.0.0.7:7102"}},
        {"coordinator": {"name": "coord", "address": "coord.example.org:7100"}},
        {"coordinator": {"name": "coord", "address": "localhost.example.org:7100"}},
    ],
)
def test_insecure_links_cannot_leave_the_machine(keys):
    with pytest.raises(ConfigError, match="is not loopback"):
        parse_settings(PartyConfig, {**BARE, "insecure_loopback": True, **keys})


def test_traces_go_in_the_clear_to_this_machine_alone():
    for near in (
        "http://127.0.0.1:4317",
        "http://localhost:4317",
        "https://traces.example.org:4317",
    ):
        assert party(traces={"endpoint": near}).warnings() == []
    far = {"endpoint": "http://collector:4317"}
    with pytest.raises(ConfigError, match="is not loopback: use https, or allow_remote"):
        party(traces=far)
    [warning] = party(traces={**far, "allow_remote": True}).warnings()
    assert warning == "traces are sent to http://collector:4317 in the clear"
    for wrong in ("127.0.0.1:4317", "ftp://127.0.0.1:4317"):
        with pytest.raises(ConfigError, match="is no endpoint"):
            party(traces={"endpoint": wrong})
    with pytest.raises(ConfigError, match="is not an address"):
        party(traces={"endpoint": "http://127.0.0.1"})


def test_an_insecure_coordinator_or_client_cannot_leave_the_machine():
    coordinator = {"name": "coord", "listen": "127.0.0.1:7100", "store": "var"}
    near = {"insecure_loopback": True, "parties": {"bank": "[::1]:7101"}}
    assert parse_settings(CoordinatorConfig, {**coordinator, **near}).insecure_loopback
    far = {"insecure_loopback": True, "parties": {"bank": "10.0.0.1:7101"}}
    with pytest.raises(ConfigError, match="is not loopback"):
        parse_settings(CoordinatorConfig, {**coordinator, **far})
    remote = {"name": "coord", "address": "10.0.0.1:7100"}
    with pytest.raises(ConfigError, match="is not loopback"):
        parse_settings(ClientConfig, {"coordinator": remote, "insecure_loopback": True})


def test_a_coordinator_lets_in_whom_it_lists():
    config = load_settings(CoordinatorConfig, CONFIGS / "coordinator.yaml")
    for action in ("submit", "read", "cancel"):
        config.users.judge(action, "ana")
        with pytest.raises(PolicyError) as caught:
            config.users.judge(action, "eve")
        assert caught.value.where["key"] == f"users.{action}"


def test_a_coordinator_is_no_party():
    raw = read_yaml(CONFIGS / "coordinator.yaml")
    assert isinstance(raw, dict)
    with pytest.raises(ConfigError, match="like the coordinator"):
        parse_settings(CoordinatorConfig, {**raw, "parties": {"coord": "127.0.0.1:1"}})
    with pytest.raises(ConfigError, match="parties"):
        parse_settings(CoordinatorConfig, {**raw, "parties": {}})


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:7100", ("127.0.0.1", 7100)),
        ("[::1]:1", ("::1", 1)),
        ("bank.example.org:65535", ("bank.example.org", 65535)),
        ("localhost:0", ("localhost", 0)),
        ("fedboost_telco_1:7102", ("fedboost_telco_1", 7102)),
        ("_telco:7102", ("_telco", 7102)),
        ("telco.ns.svc.cluster.local.:7102", ("telco.ns.svc.cluster.local.", 7102)),
    ],
)
def test_addresses_split(address, parts):
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address",
    ["", ":1", "a", "a:", "a:b", "a:65536", "a:-1", "a:+1", "::1:1", "[::1]", "[a]:1", "a b:1",
     "http://a:1", "a/b:1", "-a:1", "a:1\n", "a:１", ".:1", "a..:1"],
)  # fmt: skip
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ConfigError, match="is not an address"):
        split_address(address)


@given(st.text(max_size=20))
def test_any_text_is_an_address_or_refused(text):
    try:
        host, port = split_address(text)
    except ConfigError:
        return
    assert host
    assert 0 <= port <= 65535


def test_loopback_is_this_machine_only():
    assert all(map(is_loopback, ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"]))
    assert not any(map(is_loopback, ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "127.0.0.1.evil.org:1"]))


def test_the_home_folder_may_be_written_short():
    config = party(store="~/bank")
    assert config.store == Path.home() / "bank"


def test_a_home_folder_that_is_nobodys_is_refused_by_name(tmp_path):
    path = tmp_path / "bank.yaml"
    path.write_text(yaml.safe_dump({**PARTY, "store": "~nobody-of-this-name/bank"}))
    with pytest.raises(ConfigError, match="~nobody-of-this-name is no user's home folder") as error:
        load_settings(PartyConfig, path)
    assert error.value.where == {"file": str(path)}
    with pytest.raises(ConfigError, match="no user's home folder"):
        client_config("127.0.0.1:7", Path("~nobody-of-this-name/certs"), {}, tmp_path)


def test_a_user_without_a_home_folder_has_none_that_is_there(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    assert not home_folder().exists()


# --- clients


@pytest.fixture
def certs(tmp_path):
    folder = tmp_path / "certs"
    leaves = [Leaf("coordinator", "hub"), Leaf("party", "bank"), Leaf("user", "ana")]
    authority.create_certificates(folder, leaves, Term(NOW))
    return folder


@pytest.fixture
def home(tmp_path):
    path = tmp_path / "home/.config/fedboost/client.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(
        "coordinator: {name: filed, address: 127.0.0.1:1}\ntls: {ca: a, cert: b, key: c}\n"
    )
    return tmp_path / "home"


def test_a_client_goes_by_flags(certs, tmp_path):
    config = client_config("127.0.0.1:7100", certs, {}, tmp_path)
    assert config.coordinator.name == "hub"  # the folder's only coordinator
    assert config.tls is not None
    assert config.tls.cert == certs / "ana.pem"


def test_a_client_names_the_coordinator_where_the_folder_does_not(certs, tmp_path):
    assert client_config("other@127.0.0.1:1", certs, {}, tmp_path).coordinator.name == "other"
    (certs / "hub.pem").unlink()
    assert client_config("127.0.0.1:1", certs, {}, tmp_path).coordinator.name == "coord"


def test_flags_come_before_variables_and_variables_before_the_file(certs, home):
    env = {"FEDBOOST_COORDINATOR": "127.0.0.1:2", "FEDBOOST_TLS": str(certs)}
    filed = client_config(None, None, {}, home)
    assert filed.coordinator.address == "127.0.0.1:1"
    assert filed.coordinator.name == "filed"
    varied = client_config(None, None, env, home)
    assert varied.coordinator.address == "127.0.0.1:2"
    assert varied.tls is not None
    assert varied.tls.ca == certs / "ca.pem"
    flagged = client_config("127.0.0.1:3", None, env, home)
    assert flagged.coordinator.address == "127.0.0.1:3"


def test_of_several_users_one_must_be_named(certs, tmp_path):
    authority.create_certificates(certs, [Leaf("user", "eve")], Term(NOW))
    with pytest.raises(ConfigError, match="found: ana, eve"):
        client_config("127.0.0.1:1", certs, {}, tmp_path)
    config = client_config("127.0.0.1:1", certs, {"FEDBOOST_USER": "eve"}, tmp_path)
    assert config.tls is not None
    assert config.tls.key == certs / "eve.key"
    with pytest.raises(ConfigError, match="found: ana, eve"):
        client_config("127.0.0.1:1", certs, {"FEDBOOST_USER": "bank"}, tmp_path)


def test_a_client_without_settings_is_told_what_to_give(certs, tmp_path, home):
    with pytest.raises(ConfigError, match="no coordinator is given"):
        client_config(None, None, {}, tmp_path)
    with pytest.raises(ConfigError, match=r"no ca\.pem"):
        client_config("127.0.0.1:1", tmp_path, {}, tmp_path)
    with pytest.raises(ConfigError, match="tls is missing"):
        client_config("127.0.0.1:1", None, {}, tmp_path)
    with pytest.raises(ConfigError, match="'coordinator' is missing"):
        client_config(None, certs, {}, tmp_path)
    with pytest.raises(ConfigError, match="not an address"):
        client_config("nowhere", certs, {}, tmp_path)
    (home / ".config/fedboost/client.yaml").write_text("- a\n")
    with pytest.raises(ConfigError, match="expected keys and values"):
        client_config(None, None, {}, home)
