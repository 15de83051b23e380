"""The Helm chart: rendered by Helm itself, valid for Kubernetes, its settings those of daemons."""

import json
from typing import Any

import kubernetes_validate
import pytest
import yaml

from fedboost import __version__
from fedboost.ground.settings import parse_settings
from fedboost.runtime.config.daemons import CoordinatorConfig, PartyConfig
from fedboost.runtime.config.relay import RelayConfig
from fedboost.runtime.transport.health import CHECK_S
from tests.conftest import ROOT
from tests.support.shown_commands import check

CHART = ROOT / "deploy" / "helm"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
ISSUED = {"certificates": {"issuer": "ours"}}
PEERS = {"coordinator": {"name": "lead", "address": "lead:7100"}}
ALL: dict[str, Any] = {
    **ISSUED,
    "coordinator": {
        "enabled": True,
        "name": "lead",
        "settings": {"parties": {"bank": "bank:7100"}},
    },
    "party": {
        "enabled": True,
        "name": "bank",
        "tables": "tables",
        "settings": {**PEERS, "datasets": {"credit": {"path": "/data/t.parquet", "labels": ["y"]}}},
    },
    "aggregator": {"enabled": True, "name": "sum", "settings": PEERS, "secret": "sums"},
    "relay": {
        "enabled": True,
        "settings": {"members": {"bank": {}, "lead": {"role": "coordinator"}}},
    },
    "metrics": {"serviceMonitor": True, "from": {"app": "prometheus"}},
    "network": {"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]},
}
KUBERNETES = ("1.29", "1.34")
FOREIGN = {"Certificate", "ServiceMonitor"}  # kinds that Kubernetes itself does not know


@pytest.fixture(scope="module")
def helm():
    """Helm; it has a wheel for Linux on x86-64 alone."""
    return pytest.importorskip("helm_python", reason="Helm has no wheel for this platform")


def rendered(helm, values):
    """What Helm makes of values: a list of objects."""
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        texts = chart.render(values, name="ours", namespace="ml")
    objects = [one for text in texts.values() for one in yaml.safe_load_all(text) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def test_the_chart_has_no_lint(helm):
    found = helm.lint(str(CHART), ALL, strict=True)
    assert not [one for one in found.get("messages", []) if "ERROR" in str(one)], found


@pytest.mark.parametrize("version", KUBERNETES)
def test_what_is_rendered_is_valid_for_kubernetes(helm, version):
    objects = rendered(helm, ALL)
    for (kind, _), one in objects.items():
        if kind not in FOREIGN:
            kubernetes_validate.validate(one, version, strict=True)
    kinds = [kind for kind, _ in objects]
    assert kinds.count("StatefulSet") == 4
    assert kinds.count("Certificate") == 3, "one daemon brings a secret of its own"
    assert kinds.count("NetworkPolicy") == kinds.count("ServiceMonitor") == 4


@pytest.mark.parametrize(("name", "kind"), [("lead", CoordinatorConfig), ("bank", PartyConfig),
                                            ("sum", PartyConfig)])  # fmt: skip
def test_a_daemon_starts_by_a_command_that_exists_with_settings_that_load(helm, name, kind):
    objects = rendered(helm, ALL)
    found = parse_settings(
        kind, yaml.safe_load(objects["ConfigMap", f"ours-{name}"]["data"]["daemon.yaml"])
    )
    assert (found.name, found.workers) == (name, 2)
    assert not found.insecure_loopback
    pod = objects["StatefulSet", f"ours-{name}"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    check(container["args"])
    mounts = {one["mountPath"] for one in container["volumeMounts"]}
    assert {str(found.store.parent), "/run/fedboost/certs", "/etc/fedboost", "/tmp"} <= mounts
    assert ("/data" in mounts) is (name == "bank")
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["resources"]["limits"]["memory"]


def test_a_relay_starts_with_settings_that_load_and_keeps_nothing(helm):
    objects = rendered(helm, ALL)
    text = objects["ConfigMap", "ours-relay"]["data"]["daemon.yaml"]
    found = parse_settings(RelayConfig, yaml.safe_load(text))
    assert (found.name, found.listen) == ("relay", "0.0.0.0:7100")
    assert set(found.members) == {"bank", "lead"}
    stateful = objects["StatefulSet", "ours-relay"]["spec"]
    assert "volumeClaimTemplates" not in stateful
    (container,) = stateful["template"]["spec"]["containers"]
    check(container["args"])
    assert container["image"].startswith("fedboost-coordinator:")
    assert "/var/lib/fedboost" not in {one["mountPath"] for one in container["volumeMounts"]}
    assert objects["Service", "relay"]["spec"]["ports"][0]["appProtocol"] == "https"


def test_a_party_that_only_dials_out_has_settings_that_load(helm):
    ways = {
        "coordinator": {"name": "lead", "address": "relay"},
        "relay": {"address": "relay.example.org:443", "name": "relay"},
    }
    values = {**ISSUED, "party": {"enabled": True, "name": "bank", "settings": ways}}
    text = rendered(helm, values)["ConfigMap", "ours-bank"]["data"]["daemon.yaml"]
    assert parse_settings(PartyConfig, yaml.safe_load(text)).dialed_relay is not None


def container_of(pod):
    (container,) = pod["containers"]
    return container


def pods(objects):
    """The pods of daemons, by name."""
    return {
        name.removeprefix("ours-"): one["spec"]["template"]
        for (kind, name), one in objects.items()
        if kind == "StatefulSet"
    }


def test_a_probe_asks_the_daemon_itself_and_ends_in_time(helm):
    daemons = pods(rendered(helm, ALL))
    relay = container_of(daemons.pop("relay")["spec"])  # members alone may call it
    assert relay["readinessProbe"]["tcpSocket"] == {"port": "https"}
    for pod in daemons.values():
        container = container_of(pod["spec"])
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            command = container[probe]["exec"]["command"]
            assert command[:2] == ["fedboost", "health"]
            assert ("--live" in command) is (probe != "readinessProbe"), "a restart cures no end"
            check([*command[1:], "--config", container["args"][-1]])
            assert container[probe]["timeoutSeconds"] > CHECK_S + 1.0
        named = {one["name"]: one["value"] for one in container["env"]}
        assert named["FEDBOOST_CONFIG"] == container["args"][-1]


def test_what_an_operator_adds_to_a_pod_is_there(helm):
    added: dict[str, Any] = {
        "env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "p"}}}],
        "volumes": [{"name": "extra", "secret": {"secretName": "extra"}}],
        "volumeMounts": [{"name": "extra", "mountPath": "/extra", "readOnly": True}],
        "annotations": {"example.org/team": "risk"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "big", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "service": {"type": "LoadBalancer", "annotations": {"example.org/internal": "true"}},
    }
    values = {**ALL, "party": {**ALL["party"], **added}, "image": {"pullSecrets": ["registry"]}}
    objects = rendered(helm, values)
    for version in KUBERNETES:
        kubernetes_validate.validate(objects["StatefulSet", "ours-bank"], version, strict=True)
        kubernetes_validate.validate(objects["Service", "bank"], version, strict=True)
    pod, container = pods(objects)["bank"], container_of(pods(objects)["bank"]["spec"])
    for key in ("env", "volumeMounts"):
        assert added[key][0] in container[key]
    assert added["volumes"][0] in pod["spec"]["volumes"]
    for key in ("nodeSelector", "tolerations", "affinity"):
        assert pod["spec"][key] == added[key]
        assert key not in pods(objects)["lead"]["spec"]
    assert pod["metadata"]["annotations"].items() >= added["annotations"].items()
    assert "checksum/settings" in pod["metadata"]["annotations"]
    assert objects["Service", "bank"]["spec"]["type"] == "LoadBalancer"
    assert objects["Service", "bank"]["metadata"]["annotations"] == added["service"]["annotations"]
    assert objects["Service", "lead"]["spec"]["type"] == "ClusterIP"
    for one in pods(objects).values():
        assert one["spec"]["imagePullSecrets"] == [{"name": "registry"}]


def test_a_page_has_a_port_that_only_named_peers_reach(helm):
    page: dict[str, Any] = {"user": "ana", "names": ["bank.example.org"]}
    party: dict[str, Any] = {**ALL["party"], "page": 7180}
    party["settings"] = {**party["settings"], "page": page, "policy": {"approvers": ["ana"]}}
    shut = rendered(helm, {**ALL, "party": party})
    browsers = {"ipBlock": {"cidr": "198.51.100.0/24"}}
    network = {"from": [], "pages": [browsers]}
    objects = rendered(helm, {**ALL, "party": party, "network": network})
    settings = yaml.safe_load(objects["ConfigMap", "ours-bank"]["data"]["daemon.yaml"])
    found = parse_settings(PartyConfig, settings).page
    assert found is not None
    assert (found.listen, found.user, found.names) == ("0.0.0.0:7180", "ana", (page["names"][0],))
    [port] = [one for one in objects["Service", "bank"]["spec"]["ports"] if one["name"] == "page"]
    assert port["port"] == 7180
    for one in objects.values():
        if one["kind"] not in FOREIGN:
            kubernetes_validate.validate(one, KUBERNETES[-1], strict=True)

    def opened(of):
        rules = of["NetworkPolicy", "ours-bank"]["spec"]["ingress"]
        return [rule["from"] for rule in rules if {"port": "page"} in rule["ports"]]

    assert (opened(shut), opened(objects)) == ([], [[browsers]])
    assert "page" not in yaml.safe_load(objects["ConfigMap", "ours-sum"]["data"]["daemon.yaml"])


@pytest.mark.parametrize(("name", "role"), [("bank", "party"), ("lead", "coordinator"),
                                            ("relay", "relay")])  # fmt: skip
def test_a_certificate_names_its_daemon_as_peers_expect(helm, name, role):
    certificate = rendered(helm, ALL)["Certificate", f"ours-{name}"]["spec"]
    assert certificate["uris"] == [f"fedboost:{role}:{name}"]
    assert name in certificate["dnsNames"]


@pytest.mark.parametrize(
    "values",
    [
        {"party": {"enabled": True}},
        {"party": {"enabled": True, "name": "Bank"}},
        {"party": {"colour": "red"}},
        {"party": {"service": {"type": "Public"}}},
        {"party": {"page": 70_000}},
        {"coordinator": {"enabled": True}},  # neither an issuer nor a secret
    ],
)
def test_wrong_values_are_refused(helm, values):
    with pytest.raises(helm.HelmError):
        rendered(helm, values)


def test_nothing_is_rendered_of_what_is_not_wanted(helm):
    assert rendered(helm, {}) == {}
    bare = {**ALL, "metrics": {"enabled": False}, "network": {"policies": False}}
    objects = rendered(helm, bare)
    assert not {"NetworkPolicy", "ServiceMonitor"} & {kind for kind, _ in objects}
    assert len(objects["Service", "bank"]["spec"]["ports"]) == 1


def table():
    """The table of README.md: each value, its default, what it is."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    lines = ["| value | default | is |", "| --- | --- | --- |"]
    for group, values in defaults.items():
        about = SCHEMA["properties"][group]["properties"]
        assert set(values) == set(about), group
        for name, default in values.items():
            shown = f"`{json.dumps(default)}`"
            lines.append(f"| `{group}.{name}` | {shown} | {about[name]['description']} |")
    return "\n".join(lines)


def test_every_value_stands_in_the_readme_as_the_schema_says_it(request):
    path = CHART / "README.md"
    if request.config.getoption("--rewrite"):
        head, _, _ = path.read_text().partition("| value |")
        path.write_text(f"{head}{table()}\n")
    assert path.read_text().endswith(f"\n\n{table()}\n")


def test_the_chart_is_of_this_release():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == __version__
    assert __version__.startswith(chart["appVersion"])
