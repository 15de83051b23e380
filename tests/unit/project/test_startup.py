"""What a command and an idle daemon load: what they need, and nothing of what jobs compute with."""

import json
import subprocess
import sys
from contextlib import closing

import click
import pytest
import yaml

from fedboost import protocols
from fedboost.cli.groups import LazyGroup, cli
from fedboost.runtime.ledger.ledger import Ledger
from tests.conftest import ROOT
from tests.unit.cli.test_help import LEAVES

HEAVY = (
    *("numba", "llvmlite", "scipy", "xgboost", "sklearn", "pandas", "pyarrow"),
    *("aiohttp", "prometheus_client", "opentelemetry", "numpy"),
)
RUN = """
import json, sys
from fedboost.cli.main import main
try:
    main()
except SystemExit as done:
    print(json.dumps({"code": done.code, "loaded": sorted(sys.modules)}))
"""
SERVES = {
    "coordinator": "import fedboost.runtime.coordinator.node",
    "party": "import fedboost.runtime.party.node.node, fedboost.runtime.process.workers",
}
OF_PARTIES = {"numpy"}  # a party's store holds arrays


def heavy(loaded):
    """The heavy packages among modules, and the protocols' own ones."""
    packages = {name.partition(".")[0] for name in loaded} & set(HEAVY)
    inside = {name for name in loaded if name.startswith(f"{protocols.__name__}.")}
    return packages | inside


def loaded_by(code, *args):
    """What is loaded after running `code` in a process of its own, as it says itself."""
    words = [sys.executable, "-c", code, *map(str, args)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    return json.loads(done.stdout.splitlines()[-1])


def groups(group=cli, path=()):
    """Every group, by its words."""
    yield path, group
    for name in group.list_commands(click.Context(group)):
        if isinstance(found := group.commands.get(name), LazyGroup):
            yield from groups(found, (*path, name))


GROUPS = dict(groups())


@pytest.fixture
def party(tmp_path):
    """The settings of a party that has a ledger and whose daemon nobody has started."""
    content = {
        "name": "telco",
        "listen": "127.0.0.1:1",
        "insecure_loopback": True,
        "coordinator": {"name": "coord", "address": "127.0.0.1:7100"},
        "store": str(tmp_path),
    }
    closing(Ledger(tmp_path / "store.sqlite")).__enter__().close()
    (tmp_path / "party.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / ".config" / "fedboost").mkdir(parents=True)
    client = {"coordinator": {"name": "coord", "address": "127.0.0.1:1"}, "insecure_loopback": True}
    (tmp_path / ".config" / "fedboost" / "client.yaml").write_text(yaml.safe_dump(client))
    return tmp_path / "party.yaml"


@pytest.mark.parametrize("path", GROUPS, ids=lambda path: " ".join(path) or "fedboost")
def test_a_help_loads_nothing_but_click(path):
    said = loaded_by(RUN, *path, "--help")
    assert said["code"] == 0
    assert heavy(said["loaded"]) == set()
    assert not {"pydantic", "grpc", "cryptography", "rich"} & set(said["loaded"])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("job", "list"), 3),
        (("job", "status", "credit-1a2b3c4d"), 3),
        (("party", "jobs", "--config"), 3),
        (("ledger", "show", "--config"), 0),
        (("health", "--config"), 1),
    ],
    ids=lambda given: " ".join(given[:2]) if isinstance(given, tuple) else "",
)
def test_a_small_question_loads_nothing_that_jobs_compute_with(words, code, party, monkeypatch):
    monkeypatch.setenv("HOME", str(party.parent))
    for name in ("FEDBOOST_COORDINATOR", "FEDBOOST_TLS"):
        monkeypatch.delenv(name, raising=False)
    said = loaded_by(RUN, *words, *([party] if words[-1] == "--config" else ()))
    assert said["code"] == code
    assert heavy(said["loaded"]) == set()


@pytest.mark.parametrize("role", SERVES)
def test_a_daemon_without_a_job_loads_nothing_that_jobs_compute_with(role):
    code = f"""
import json, sys
from fedboost.cli import daemons
from fedboost.runtime.daemons import daemon
{SERVES[role]}
print(json.dumps(sorted(sys.modules)))
"""
    assert heavy(loaded_by(code)) <= (OF_PARTIES if role == "party" else set())


def test_a_daemon_does_without_what_its_libraries_load_for_nothing():
    code = """
import json, sys
from fedboost.cli import daemons
daemons.prevent_imports(*daemons.UNUSED)
import pyarrow as pa, pyarrow.compute as pc
assert pc.equal(pa.array(["a", ""]), "").to_pylist() == [False, True]
import fedboost.ground.kernel_files
print(json.dumps(sorted(sys.modules)))
"""
    loaded = loaded_by(code)
    assert "numba" in loaded
    assert not {"pandas", "coverage"} & set(loaded)


def test_a_coordinator_drives_every_protocol_without_what_parties_compute_with():
    code = """
import json, sys
from fedboost import protocols
import fedboost.runtime.coordinator.node
protocols.load_all()
print(json.dumps(sorted(sys.modules)))
"""
    loaded = loaded_by(code)
    packages = {name.partition(".")[0] for name in loaded} & set(HEAVY)
    assert packages <= {"numpy"}
    homes = [protocol.modules[role] for protocol in protocols.load_all().values()
             for role in protocol.modules]  # fmt: skip
    assert not set(homes) & set(loaded)


@pytest.mark.parametrize("path", GROUPS, ids=lambda path: " ".join(path) or "fedboost")
def test_the_tree_says_of_a_command_what_the_command_says_itself(path):
    for name, (_, sentence) in GROUPS[path].table.items():
        command = LEAVES[" ".join((*path, name))]
        assert command.get_short_help_str(200) == sentence
