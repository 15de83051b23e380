"""The container files fit together: commands, settings, addresses, mounts, secrets."""

import configparser
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import click
import kubernetes_validate
import pytest
import yaml
from distributed.cli import dask_scheduler, dask_worker

from fedboost import protocols
from fedboost.ground.settings import load_settings, parse_settings, read_yaml
from fedboost.job import JobSpec
from fedboost.runtime.client.config import client_config
from fedboost.runtime.config.ask import Ask
from fedboost.runtime.config.daemons import CoordinatorConfig, DaemonConfig, PartyConfig
from fedboost.runtime.estimate.estimate import held_bytes
from fedboost.runtime.estimate.setting import StatedSizes, from_words
from fedboost.runtime.party.job.memory import DAEMON_BYTES, WORKER_BYTES
from fedboost.runtime.transport.addresses import Timers, split_address
from fedboost.runtime.transport.tls import load_identity
from tests.conftest import ROOT
from tests.support.shown_commands import check

DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
PARTIES = ["bank", "telco", "shop"]
DAEMONS = ["coordinator", *PARTIES]
CERTS = "/run/fedboost/certs"
MONITORING = ["prometheus", "grafana"]
OURS = [name for name in SERVICES if name not in MONITORING]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SERVICE_KEYS = {
    "build", "cap_drop", "command", "depends_on", "environment", "healthcheck", "image",
    "init", "mem_limit", "networks", "ports", "profiles", "pull_policy", "read_only", "restart",
    "security_opt", "stop_grace_period", "tmpfs", "user", "volumes",
}  # fmt: skip


def mounts(service: str) -> dict[str, tuple[str, str]]:
    """Where in the container, what of the host, and how."""
    split = (volume.split(":") for volume in SERVICES[service]["volumes"])
    return {parts[1]: (parts[0], parts[2] if len(parts) > 2 else "rw") for parts in split}


def settings_file(service: str) -> Path:
    """The file on the host that the service's --config names."""
    command = SERVICES[service]["command"]
    source, _ = mounts(service)[command[command.index("--config") + 1]]
    return DEPLOY / source


def config(service: str) -> DaemonConfig:
    kind = CoordinatorConfig if service == "coordinator" else PartyConfig
    return load_settings(kind, settings_file(service))


def job() -> JobSpec:
    return parse_settings(JobSpec, read_yaml(DEPLOY / "configs" / "job.yaml"))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """What prepare.sh makes, out of tables that hold nothing."""
    out, tables = tmp_path_factory.mktemp("deploy"), tmp_path_factory.mktemp("tables")
    for party in PARTIES:
        (tables / f"{party}.parquet").write_bytes(b"a table")
    program = Path(sys.executable).parent / "fedboost"
    environment = {**os.environ, "FEDBOOST": str(program)}
    command = ["sh", str(DEPLOY / "prepare.sh"), str(tables), str(out)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    subprocess.run(command, env=environment, check=True, capture_output=True)  # again: no harm
    return out


def test_the_services_are_the_daemons_one_job_and_what_watches_them():
    assert set(SERVICES) == {*DAEMONS, "submit", *MONITORING}
    for name, service in SERVICES.items():
        assert set(service) <= SERVICE_KEYS, name
        assert "federation" in service["networks"]
        assert set(service["networks"]) <= set(COMPOSE["networks"])
    assert COMPOSE["networks"]["federation"]["internal"] is True
    assert all(SERVICES[name]["profiles"] == ["monitoring"] for name in MONITORING)


def test_nothing_is_published_but_pages_and_grafana_on_loopback():
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert set(published) == {*DAEMONS, "grafana"}
    ports = [port for ports in published.values() for port in ports]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports)
    for name in published:  # an internal network publishes none
        assert "people" in SERVICES[name]["networks"]
    for name in DAEMONS:
        page = config(name).page
        assert page is not None
        _, outside, inside = published[name][0].split(":")
        assert outside == inside == page.listen.split(":")[1]
        assert "127.0.0.1" in page.names


def test_prometheus_asks_every_daemon_where_it_shows_its_metrics():
    asked = yaml.safe_load((DEPLOY / "monitoring" / "prometheus.yml").read_text())
    (scrape,) = asked["scrape_configs"]
    (targets,) = (one["targets"] for one in scrape["static_configs"])
    assert scrape["job_name"] == "fedboost"
    assert sorted(targets) == sorted(f"{name}:9100" for name in DAEMONS)
    for name in DAEMONS:
        metrics = config(name).metrics
        assert metrics is not None
        assert metrics.listen == "0.0.0.0:9100"
    assert asked["rule_files"] == ["/etc/prometheus/alerts.yml"]
    assert mounts("prometheus")["/etc/prometheus/alerts.yml"][0] == "./monitoring/alerts.yml"


def test_grafana_shows_the_dashboard_and_lets_nobody_in_without_the_password(prepared):
    provider = yaml.safe_load((DEPLOY / "monitoring" / "grafana" / "dashboards.yml").read_text())
    folder = provider["providers"][0]["options"]["path"]
    assert mounts("grafana")[f"{folder}/fedboost.json"][0] == "./monitoring/dashboard.json"
    source = yaml.safe_load((DEPLOY / "monitoring" / "grafana" / "datasource.yml").read_text())
    board = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    used = {panel["datasource"]["uid"] for panel in board["panels"] if "datasource" in panel}
    assert used == {source["datasources"][0]["uid"]}
    password = prepared / "certs" / "grafana" / "password"
    assert len(password.read_text()) == 32
    assert stat.S_IMODE(password.stat().st_mode) & 0o077 == 0
    said = SERVICES["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"]
    assert mounts("grafana")[str(Path(said).parent)][0] == "./certs/grafana"


@pytest.mark.parametrize("service", OURS)
def test_every_command_exists(service):
    check([str(word) for word in SERVICES[service]["command"]])


@pytest.mark.parametrize("service", DAEMONS)
def test_every_settings_file_loads_and_is_its_services(service):
    found = config(service)
    assert found.name == service
    assert str(found.store) == "/var/lib/fedboost/store"  # restore writes beside it first
    assert not found.insecure_loopback
    assert found.logs == "json"
    assert isinstance(found, CoordinatorConfig | PartyConfig)
    assert found.retention.jobs_days is not None
    metrics, page = found.warnings()  # both behind networks that others do not reach
    assert "0.0.0.0:9100" in metrics
    assert "0.0.0.0:718" in page
    assert mounts(service)["/var/lib/fedboost"] == (f"{service}-store", "rw")


def test_there_is_no_settings_file_that_nobody_mounts():
    mounted = {settings_file(name).name for name in DAEMONS} | {"job.yaml"}
    assert {path.name for path in (DEPLOY / "configs").iterdir()} == mounted


@pytest.mark.parametrize("service", DAEMONS)
def test_addresses_are_services_and_their_ports(service):
    for name, address in config(service).addresses().items():
        if name == service:
            continue
        host, port = split_address(address)
        assert host == name
        assert port == split_address(config(host).listen)[1]


@pytest.mark.parametrize("service", DAEMONS)
def test_the_health_check_asks_the_daemon_of_its_settings(service):
    kind, *words = SERVICES[service]["healthcheck"]["test"]
    assert (kind, words) == ("CMD", ["fedboost", "health"])
    command = SERVICES[service]["command"]
    named = SERVICES[service]["environment"]["FEDBOOST_CONFIG"]
    assert named == command[command.index("--config") + 1]
    check([*words[1:], "--config", named])
    assert 'CMD ["fedboost", "health"]' in (DEPLOY / "Dockerfile").read_text()


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_writes_to_its_store_only(service):
    assert SERVICES[service]["read_only"] is True
    assert SERVICES[service]["cap_drop"] == ["ALL"]
    for target, (source, mode) in mounts(service).items():
        if source.startswith("."):
            assert mode == "ro", target
        else:
            assert source in COMPOSE["volumes"]
    stores = [name for one in SERVICES for name, _ in mounts(one).values() if name[0] != "."]
    assert len(set(stores)) == len(stores)


@pytest.mark.parametrize("service", SERVICES)
def test_every_mounted_path_exists(service, prepared):
    for target, (source, _) in mounts(service).items():
        if source.startswith(("./configs", "./monitoring")):
            assert (DEPLOY / source).is_file(), source
        elif source.startswith("."):
            assert any((prepared / source).iterdir()), f"{source} for {target}"


@pytest.mark.parametrize("service", DAEMONS)
def test_a_container_gets_its_own_key_and_no_other(service, prepared):
    folder = prepared / mounts(service)[CERTS][0]
    assert {path.name for path in folder.glob("*.key")} == {f"{service}.key"}
    assert stat.S_IMODE((folder / f"{service}.key").stat().st_mode) & 0o077 == 0
    tls = config(service).tls
    assert tls is not None
    assert tls.ca.name == "ca.pem"
    assert (folder / "ca.crl").exists()
    here = {key: folder / path.relative_to(CERTS) for key, path in tls}
    found = load_identity(type(tls)(**here), name=service)
    assert found.role == ("coordinator" if service == "coordinator" else "party")


def test_the_submitter_reaches_the_coordinator_and_may_submit(prepared):
    said = SERVICES["submit"]["environment"]
    folder = prepared / mounts("submit")[said["FEDBOOST_TLS"]][0]
    environment = {**said, "FEDBOOST_TLS": str(folder)}
    found = client_config(None, None, environment, Path("/nowhere"))
    coordinator = config("coordinator")
    assert isinstance(coordinator, CoordinatorConfig)
    assert found.coordinator.name == coordinator.name
    port = split_address(coordinator.listen)[1]
    assert found.coordinator.address == f"coordinator:{port}"
    assert found.tls is not None
    user = load_identity(found.tls, role="user")
    coordinator.users.judge("submit", user.name)
    coordinator.users.judge("read", user.name)


def test_the_submitter_waits_for_every_daemon():
    waits = SERVICES["submit"]["depends_on"]
    assert set(waits) == set(DAEMONS)
    assert all(one == {"condition": "service_healthy"} for one in waits.values())
    assert SERVICES["submit"]["restart"] == "no"


def test_every_policy_allows_the_job():
    spec = job()
    protocol = protocols.load_protocol(spec.protocol)
    asks = protocol.policy.asks(parse_settings(protocol.params, spec.params))
    everybody = list(spec.parties.parties_with_data)
    assert sorted(everybody) == sorted(PARTIES)
    for name in everybody:
        party = config(name)
        assert isinstance(party, PartyConfig)
        dataset = spec.data[name].dataset
        assert dataset in party.datasets
        peers = tuple(peer for peer in everybody if peer != name)
        ask = Ask("coordinator", peers, dataset, protocol.name, asks.scheme, asks.key_bits,
                  asks.gradient_bits, asks.insecure, None, False, asks.host_noise,
                  asks.gradient_check, asks.key_trees, None, ("guest",), None, None)  # fmt: skip
        party.policy.judge(ask)


@pytest.mark.parametrize("party", PARTIES)
def test_the_declared_table_is_the_mounted_one(party, prepared):
    found = config(party)
    assert isinstance(found, PartyConfig)
    for source in found.datasets.values():
        folder = prepared / mounts(party)["/data"][0]
        assert (folder / Path(source.path or "").relative_to("/data")).exists()


def test_the_image_is_slim_unprivileged_and_needs_no_compiler():
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE=python:3\.1[123]$", text, re.MULTILINE)
    stages = re.split(r"^(?=FROM )", text, flags=re.MULTILINE)
    settings = next(stage for stage in stages if stage.startswith("FROM scratch"))
    shipped = [stage for stage in stages if stage.startswith("FROM settings")]
    assert re.search(r"^USER \$\{UID\}$", settings, re.MULTILINE)
    assert all(re.search(r"^COPY --from=\w+ /rootfs /$", stage, re.MULTILINE) for stage in shipped)
    assert "--require-hashes -r requirements.lock" in text
    assert "--only-binary=:all:" in text
    assert not re.search(r"\b(apt-get|gcc|sudo|curl)\b", text)
    assert re.search(r"^HEALTHCHECK ", text, re.MULTILINE)
    assert 'ENTRYPOINT ["fedboost"]' in text


def test_a_coordinator_alone_needs_nothing_that_its_small_image_lacks():
    absent = re.search(r"rootfs.py /rootfs (\w.+?)\n\n", (DEPLOY / "Dockerfile").read_text(), re.S)
    code = """
import json, sys
from fedboost import protocols
from fedboost.cli import daemons, health, job, owner, relay, schema
import fedboost.runtime.coordinator.node
from fedboost.runtime.daemons import daemon, doctor, metrics, relay
from fedboost.runtime.relay import answering, routes
from fedboost.pages.serving import coordinator_companion
import fedboost.pages.coordinator
protocols.load_all()
print(json.dumps(sorted(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    assert absent is not None
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & set(absent[1].split())


def test_limits_of_memory_are_half_as_much_again_as_the_estimate():
    """Of the job of these files on 30,000 rows; the chart's party and aggregator are alike."""
    rows, columns = (dict.fromkeys(PARTIES, n) for n in (30_000, 8))
    stages = from_words(job(), StatedSizes(rows, columns)).stages
    chart = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text())
    stated = [SERVICES[name]["mem_limit"] for name in PARTIES]
    stated += [chart[role]["memory"] for role in ("party", "aggregator")]
    for party in PARTIES:
        held = held_bytes(party, 30_000, 8, stages)
        need = config(party).processes * WORKER_BYTES + DAEMON_BYTES + held
        for limit in stated:
            mebibytes = int(re.sub(r".*:-|m\}$|Mi$", "", limit))
            assert 1.3 < mebibytes * 2**20 / need < 1.7, (party, limit)
    assert "mem_limit" in SERVICES["coordinator"]
    assert all("MemoryMax" in unit(path)["Service"] for path in UNITS)


def test_what_the_image_copies_exists_and_is_not_ignored():
    text = (DEPLOY / "Dockerfile").read_text()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored, source


def test_the_shell_script_is_a_script():
    assert shutil.which("sh")
    subprocess.run(["sh", "-n", str(DEPLOY / "prepare.sh")], check=True)


def test_what_is_renewed_appears_whole(prepared, tmp_path):
    """A daemon may read a file at any moment: it is never written where it lies."""
    text = (DEPLOY / "prepare.sh").read_text()
    assert not re.search(r"^\s*cp .*certs", text, re.MULTILINE)
    assert text.index('"$name.key" "$name.pem"') > 0, "the key before its certificate"
    assert not list(prepared.rglob("*.new"))
    assert {"ca.pem", "ca.crl"} <= {path.name for path in (prepared / "certs" / "bank").iterdir()}


# Units of systemd


def unit(path):
    """A unit file's settings; a key that stands twice is an error."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(path.read_text())
    return parser


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_command_that_exists_and_may_write_to_its_store_only(path):
    service = unit(path)["Service"]
    program, *args = shlex.split(service["ExecStart"])
    assert program == "/opt/fedboost/bin/fedboost"
    check(args)
    name = "%i" if "@" in path.name else "coordinator"
    assert args[-1] == f"/etc/fedboost/{name}.yaml"
    assert service["StateDirectory"] == f"fedboost/{name}"
    assert service["WorkingDirectory"] == f"/var/lib/fedboost/{name}"
    assert service["ProtectSystem"] == "strict"
    assert service["StateDirectoryMode"] == "0700"
    assert service["NoNewPrivileges"] == "true"
    assert service["CapabilityBoundingSet"] == ""
    assert service["User"] == "fedboost"
    assert "ReadWritePaths" not in service
    assert "MemoryDenyWriteExecute" not in service, "numba compiles"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_stops_a_daemon_as_it_wants_to_be_stopped_and_starts_it_again(path):
    service = unit(path)["Service"]
    assert service["KillSignal"] == "SIGTERM"
    assert float(service["TimeoutStopSec"]) > Timers().shutdown_s
    assert service["Restart"] == "on-failure"


def test_the_units_are_those_of_a_party_and_of_a_coordinator():
    assert [path.name for path in UNITS] == [
        "fedboost-coordinator.service", "fedboost-party@.service",
    ]  # fmt: skip


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed here")
    for path in UNITS:
        text = path.read_text().replace("/opt/fedboost/bin/fedboost", "/bin/true")
        (tmp_path / path.name.replace("@", "@bank")).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def dask_pods():
    """The pods of the Dask cluster, as Kubernetes would make them."""
    cluster = yaml.safe_load((DEPLOY / "dask" / "cluster.yaml").read_text())
    for kind in ("scheduler", "worker"):
        spec = cluster["spec"][kind]["spec"]
        yield kind, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": kind}, "spec": spec}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "scheduler"}}
    yield "service", {**service, "spec": cluster["spec"]["scheduler"]["service"]}


def dask_command(words):
    """Refuses what the program of a scheduler or a worker does not know."""
    commands = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}
    assert words[0] == "dask"
    context = click.Context(commands[words[1]])
    commands[words[1]].make_parser(context).parse_args(list(words[2:]))


def test_a_dask_cluster_on_kubernetes_speaks_tls_alone():
    for kind, made in dask_pods():
        kubernetes_validate.validate(made, "1.34", strict=True)
        if kind == "service":
            continue
        [container] = made["spec"]["containers"]
        dask_command(container["args"])
        [volume] = made["spec"]["volumes"]
        mounted = {f"/certs/{item['path']}" for item in volume["secret"]["items"]}
        named = {word.split("=")[1] for word in container["args"] if word.startswith("--tls")}
        assert named == mounted == {"/certs/ca.pem", f"/certs/{kind}.pem", f"/certs/{kind}.key"}
        assert [one["value"] for one in container["env"]] == ["[]"]


def test_workers_on_slurm_speak_tls_alone():
    """With a real Slurm: tests/e2e/test_slurm.py."""
    script = DEPLOY / "dask" / "workers.sh"
    subprocess.run(["sh", "-n", script], check=True)
    text = script.read_text()
    assert text.count("#SBATCH --") == 6
    command = text.partition("exec srun ")[2]
    cpus, *words = shlex.split(command.replace("\\\n", " ").replace("$SLURM_CPUS_PER_TASK", "16"))
    assert cpus == "--cpus-per-task=16"  # Slurm 22.05 and later do not hand it on
    dask_command(words)
    assert {word for word in words if word.startswith("--tls")} == {
        "--tls-ca-file",
        "--tls-cert",
        "--tls-key",
    }
