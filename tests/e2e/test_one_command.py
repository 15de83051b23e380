"""`fedboost cluster run` and `fedboost simulate`: one command, an empty folder, all results."""

import json
import re
import shlex

import pyarrow.parquet as pq
import pytest

from fedboost.model import shards
from fedboost.runtime.ledger.ledger import Ledger
from tests.e2e import world

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("one_command")]
PARTIES = ("bank", "telco", "shop")
KEYS = {
    "encryption",
    "released", "warnings", "ids", "rehearsal", "alignment",
    "job", "name", "state", "protocol", "rows", "metrics", "trees", "seconds", "cpu_seconds",
    "memory_peak_bytes", "bytes", "exchanges", "model", "report",
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory, data_file):
    """An empty folder with a job, tables elsewhere."""
    folder = tmp_path_factory.mktemp("one")
    sources = world.shares(data_file("breast.parquet"), folder / "data", list(PARTIES))
    raw = world.job(
        params={"n_estimators": 2, "max_depth": 2, "max_bin": 8, "eval_metric": ["auc", "logloss"]},
        validation={"fraction": 0.3, "seed": 7},
    )
    raw["params"]["encryption"] = {"scheme": "okamoto-uchiyama"}
    del raw["data"]
    empty = folder / "empty"
    empty.mkdir()
    file = world.job_file(folder, raw)
    data = [text for p in PARTIES for text in ("--data", f"{p}={sources[p].path}")]
    return empty, file, data


@pytest.fixture(scope="module")
def ran(place):
    folder, file, data = place
    return folder, world.fedboost("cluster", "run", file, *data, "--json", cwd=folder)


@pytest.fixture(scope="module")
def simulated(place):
    folder, file, data = place
    return world.fedboost("simulate", file, *data, "--dir", "sim", "--json", cwd=folder)


def test_a_cluster_run_prints_its_whole_result_on_the_last_line(ran):
    folder, said = ran
    assert said.code == 0, said.err
    assert len(said.out.splitlines()) == 1
    found = said.last
    assert set(found) == KEYS
    assert (found["state"], found["protocol"], found["trees"]) == ("finished", "secureboost", 2)
    assert found["rows"] == {"aligned": 569, "train": 398, "validation": 171}
    assert found["metrics"].keys() == {"train", "validation"}
    assert all(split.keys() == {"auc", "logloss"} for split in found["metrics"].values())
    assert found["metrics"]["validation"]["auc"] > 0.9
    assert found["seconds"].keys() == {"total", "align", "train", "per_tree"}
    assert all(seconds > 0 for seconds in found["seconds"].values())
    assert found["cpu_seconds"].keys() == found["memory_peak_bytes"].keys() == set(PARTIES)
    assert found["bytes"]["bank->telco"] > 398 * 512  # one ciphertext of 2048 bits for each row
    assert found["model"] == found["job"]
    report = (folder / found["report"]).read_text()
    assert "<html" in report
    assert found["job"] in report


def test_the_guests_store_keeps_the_same_result_and_every_party_its_own_shard(ran):
    folder, said = ran
    stores = folder / "fedboost-cluster" / "var"
    job = said.last["job"]
    kept = json.loads((stores / "bank" / "jobs" / job / "result.json").read_text())
    assert {**kept, "report": ""} == {**said.last, "report": ""}
    for party in PARTIES:
        facts = shards.load_shard(stores / party / "models" / job).facts
        assert (facts["party"], facts["guest"]) == (party, "bank")
        table = pq.read_table(folder.parent / "data" / f"{party}.parquet")
        assert set(facts["columns"]) <= set(table.column_names)


def test_the_ledgers_verify_and_what_one_sent_the_other_received(ran):
    folder, said = ran
    kept: dict[str, list[tuple[str, ...]]] = {"out": [], "in": []}
    sizes: dict[str, int] = {}
    for party in PARTIES:
        config = folder / "fedboost-cluster" / "configs" / f"{party}.yaml"
        verified = world.fedboost("ledger", "verify", "--config", config, "--json", cwd=folder)
        assert verified.code == 0, verified.err
        assert verified.last["whole"]
        assert verified.last["signed_by_peers"] == 2 * verified.last["signed"] > 2
        store = folder / "fedboost-cluster" / "var" / party / "store.sqlite"
        ledger = Ledger(store, read_only=True)
        for row in ledger.rows(said.last["job"]):
            ends = (party, row.peer) if row.direction == "out" else (row.peer, party)
            kept[row.direction].append((*ends, row.step, row.kind, row.sha256))
            if row.direction == "out":
                link = f"{party}->{row.peer}"
                sizes[link] = sizes.get(link, 0) + row.bytes
        ledger.close()
    assert sorted(kept["out"]) == sorted(kept["in"])
    assert sizes == said.last["bytes"]


def test_the_guest_compares_its_ledger_with_what_a_host_has_exported(ran, tmp_path):
    folder, said = ran
    configs, out = folder / "fedboost-cluster" / "configs", tmp_path / "telco.ledger"
    of_telco = ("--config", configs / "telco.yaml", "--job", said.last["job"])
    written = world.fedboost(
        "ledger", "export", *of_telco, "--for", "bank", "--out", out, cwd=folder
    )
    assert written.code == 0, written.err
    own = ("ledger", "diff", "--config", configs / "bank.yaml", "--json")
    for other in (("--with", out), ("--job", said.last["job"])):
        found = world.fedboost(*own, *other, cwd=folder)
        assert found.code == 0, found.err
        assert found.last == {"agree": True, "differ": [], "on_the_way": []}


def test_nothing_of_the_cluster_is_left_running(ran):
    folder, _ = ran
    logs = folder / "fedboost-cluster" / "logs"
    assert {path.stem for path in logs.iterdir()} == {"coordinator", *PARTIES}
    for path in logs.iterdir():
        text = path.read_text()
        assert "Traceback" not in text
        assert re.search(r" stops$", text.splitlines()[-1]), path


def test_a_simulation_gives_the_same_model_bit_for_bit(ran, simulated):
    folder, said = ran
    assert simulated.code == 0, simulated.err
    assert set(simulated.last) == KEYS
    for key in ("rows", "metrics", "trees", "exchanges"):
        assert simulated.last[key] == said.last[key]
    stores = (folder / "fedboost-cluster" / "var", folder / "sim" / "var")
    for party in PARTIES:
        real = stores[0] / party / "models" / said.last["job"]
        alike = stores[1] / party / "models" / simulated.last["job"]
        assert digest(real) == digest(alike)


def digest(folder):
    """The hash of a shard's arrays that its facts name, once it has been checked."""
    shards.load_shard(folder)
    return json.loads((folder / shards.FACTS).read_text())["arrays_sha256"]


@pytest.mark.parametrize("command", [("cluster", "run"), ("simulate",)])
def test_what_is_wrong_with_the_command_is_said_before_anything_starts(place, tmp_path, command):
    _, file, data = place
    cases = [
        ((file, *data[:4]), "--data is missing for shop"),
        ((file, *data, "--data", "far=x"), "there is no such file"),
        ((file, *data, "--data", "bank"), "is not PARTY=FILE"),
        ((tmp_path / "none.yaml", *data), "cannot read the file"),
    ]
    for args, words in cases:
        said = world.fedboost(*command, *args, cwd=tmp_path)
        assert said.code == 2, said.err
        assert words in said.err
        assert "Traceback" not in said.err
    assert list(tmp_path.iterdir()) == []


@world.JOBS
def test_a_run_ends_with_the_command_that_scores_rows_by_its_own_model(tmp_path):
    raw = world.job(protocol="secureboost", name="twice")
    del raw["data"]
    tables = {"bank": world.toy(label=True), "telco": world.toy(columns=1)}
    raw["parties"] = {"guest": "bank", "hosts": ["telco"]}
    for name, table in tables.items():
        world.write(tmp_path / f"{name}.parquet", table)
    file = world.job_file(tmp_path, raw)
    data = [text for name in tables for text in ("--data", f"{name}={name}.parquet")]
    models = []
    for _ in range(2):
        said = world.fedboost("cluster", "run", file, *data, cwd=tmp_path)
        assert said.code == 0, said.err
        told, _, command = said.out.splitlines()[-1].partition(": fedboost ")
        assert told == "to score rows"
        scored = world.fedboost(*shlex.split(command), "--json", cwd=tmp_path)
        assert scored.code == 0, scored.err
        models.append(scored.last["model"])
        assert models[-1] in command
    assert models[0] != models[1]
    out = ("--out", "P.parquet", "--json")
    for name in ("latest", "twice"):
        scored = world.fedboost("model", "predict", name, *data, *out, cwd=tmp_path)
        assert scored.last["model"] == models[1], scored.err


@world.JOBS
def test_two_guests_train_in_turn_and_each_model_scores_rows(tmp_path):
    raw = world.job(protocol="hybridtree", name="two")
    raw["parties"] = {"guests": ["bank", "fund"], "hosts": ["telco"]}
    raw["params"] = {**raw["params"], "guest_depth": 1, "host_depth": 1}
    del raw["data"], raw["params"]["max_depth"]
    tables = {"bank": world.toy(label=True), "fund": world.toy(label=True, first=30)}
    tables["telco"] = world.toy(columns=1, rows=90)
    for name, table in tables.items():
        world.write(tmp_path / f"{name}.parquet", table)
    file = world.job_file(tmp_path, raw)
    data = [text for name in tables for text in ("--data", f"{name}={name}.parquet")]
    said = world.fedboost("cluster", "run", file, *data, "--json", cwd=tmp_path)
    assert said.code == 0, said.err
    assert (said.last["state"], list(said.last["guests"])) == ("finished", ["bank", "fund"])
    models = said.last["models"]
    own = ("--data", "fund=fund.parquet", "--data", "telco=telco.parquet", "--out", "P.parquet")
    said = world.fedboost("model", "predict", models[1], *own, "--json", cwd=tmp_path)
    assert said.code == 0, said.err
    assert (said.last["model"], said.last["rows"]) == (models[1], 60)
