"""Two label holders on the command line: trained in turn, and each model scores its own rows."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fedboost.cli import predicting
from fedboost.cli.cluster import simulate
from fedboost.cli.estimate import estimate_command
from fedboost.cli.groups import model_group
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.workers import Serial
from fedboost.messages.job_pb2 import JobJournal, JobStatus
from fedboost.model import shards
from fedboost.runtime.client.client import result_of
from fedboost.runtime.cluster import local
from fedboost.runtime.transport import faults
from tests.support.federated import now

GUESTS = ("bank", "fund")
ROWS = {"bank": range(80), "fund": range(50, 150)}  # of each guest's table
JOB = """
name: fraud
protocol: hybridtree
parties: {guests: [bank, fund], hosts: [telco]}
params: {n_estimators: 2, guest_depth: 2, host_depth: 1, encryption: {scheme: plain}}
"""


def run(command, *args):
    """What the command prints and returns; what it raises is raised."""
    words = [str(arg) for arg in args]
    return CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)


def model(*args):
    return run(model_group, *args)


def in_process(spec, sources, folder, **_):
    """`run_job` without daemons."""

    async def work():
        async with local.open_cluster(folder, spec, sources, Serial()) as cluster:
            return await cluster.run(spec)

    journal = now(work())
    return journal, result_of(journal)


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """A folder with tables, and a cluster's stores after both guests have trained."""
    folder: Path = tmp_path_factory.mktemp("town")
    draw = np.random.default_rng(3)
    ages = draw.normal(size=150)
    for guest, rows in ROWS.items():
        own = draw.normal(size=(len(rows), 2))
        y = (own[:, 0] + ages[list(rows)] > 0).astype(int)
        columns = {"id": list(rows), "y": y, "amount": own[:, 0], "hour": own[:, 1]}
        pq.write_table(pa.table(columns), folder / f"{guest}.parquet")
    telco = pa.table({"id": list(range(0, 150, 2)), "age": ages[::2]})
    pq.write_table(telco, folder / "telco.parquet")
    (folder / "job.yaml").write_text(JOB)
    said = run(simulate, folder / "job.yaml", *data(folder), "--dir", folder / "cluster", "--json")
    assert said.return_value == 0, said.stderr
    return folder, json.loads(said.stdout)


def data(folder, parties=(*GUESTS, "telco")):
    return [word for p in parties for word in ("--data", f"{p}={folder / p}.parquet")]


def test_two_guests_train_in_turn_a_model_each(town):
    folder, said = town
    assert (said["name"], said["protocol"], said["state"]) == ("fraud", "hybridtree", "finished")
    assert said["models"] == [said["guests"][guest]["model"] for guest in GUESTS]
    for guest, one in said["guests"].items():
        assert (one["name"], one["state"], one["trees"]) == (f"fraud-{guest}", "finished", 2)
        assert one["rows"]["train"] == len(ROWS[guest])
        stores = folder / "cluster" / "var"
        assert shards.model_ids(stores / guest / "models") == [one["model"]]
        facts = shards.load_facts(stores / guest / "models" / one["model"])
        assert (facts["guest"], facts["hosts"]) == (guest, ["telco"])
        assert Path(one["report"]).is_file()
        assert f"{guest}->telco" in one["bytes"]
    held = shards.model_ids(folder / "cluster" / "var" / "telco" / "models")
    assert sorted(held) == sorted(said["models"])


def test_each_model_scores_the_rows_of_its_guest(town, monkeypatch, tmp_path):
    folder, said = town
    monkeypatch.setattr(predicting, "run_job", in_process)
    for guest, name in zip(GUESTS, said["models"], strict=True):
        out = tmp_path / f"{guest}.parquet"
        where = ("--cluster", folder / "cluster", "--out", out)
        ended = model("predict", name, *data(folder, (guest, "telco")), *where)
        assert ended.stdout == f"{len(ROWS[guest])} rows predicted: {out}\n"
        found = pq.read_table(out)
        assert found["id"].to_pylist() == list(ROWS[guest])
        assert found.schema.metadata is None


def test_a_job_that_does_not_finish_writes_no_predictions(town, monkeypatch, tmp_path):
    folder, said = town
    status = JobStatus(id="p-1", name="p", state="failed")
    status.reason.CopyFrom(faults.fault_of_error(DataError("the ids of nobody meet")))
    monkeypatch.setattr(predicting, "run_job", lambda *_, **__: (JobJournal(status=status), {}))
    where = ("--cluster", folder / "cluster", "--out", tmp_path / "P.parquet", "--json")
    ended = model("predict", said["models"][0], *data(folder, ("bank", "telco")), *where)
    assert ended.return_value == 2
    assert json.loads(ended.stdout)["error"]["what"] == "the ids of nobody meet"
    assert list(tmp_path.iterdir()) == []


def test_simulations_without_a_folder_keep_no_models(town):
    folder, _ = town
    said = json.loads(run(simulate, folder / "job.yaml", *data(folder), "--json").stdout)
    assert (said["state"], said["models"]) == ("finished", [])
    assert {one["report"] for one in said["guests"].values()} == {""}


@pytest.mark.parametrize("key", ["label", "weight"])
@pytest.mark.parametrize("command", [simulate, estimate_command])
def test_a_label_or_weight_of_a_host_is_refused(town, tmp_path, key, command):
    folder, _ = town
    one_guest = JOB.replace("guests: [bank, fund]", "guest: bank")
    job = tmp_path / "job.yaml"
    job.write_text(one_guest + f"data: {{bank: {{label: y}}, telco: {{{key}: age}}}}\n")
    try:
        text = run(command, job, *data(folder, ("bank", "telco"))).stderr
    except ConfigError as refused:
        text = str(refused)
    text = " ".join(text.split())
    assert f"the job names the {key} 'age' of a party whose {key}s it does not read" in text
    assert f"take '{key}' out of data: telco:" in text
