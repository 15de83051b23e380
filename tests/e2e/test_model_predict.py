"""A model trained by daemons predicts on daemons that run, and on a cluster started again."""

import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.e2e import world
from tests.e2e.world import WarmCluster, ask, fedboost, job, job_file, shares, spec

PARTIES = ["bank", "telco", "shop"]
ABSENT = 169  # rows that one host lacks

pytestmark = pytest.mark.e2e


@world.JOBS
def test_a_user_trains_and_predicts_on_running_daemons_and_then_on_files(data_file, tmp_path):
    sources = shares(data_file("breast.parquet"), tmp_path, PARTIES)
    raw = job()
    folder = tmp_path / "cluster"
    out, again = tmp_path / "p.csv", tmp_path / "again.parquet"
    with WarmCluster(folder, spec(raw), sources, workers=1) as cluster:
        done = ask(cluster, "job", "submit", job_file(tmp_path, raw), "--watch", "--json")
        assert done.code == 0, done.err
        model = done.last["model"]
        data = [word for party in PARTIES for word in ("--data", f"{party}=data")]
        guest = ("--config", cluster.config("bank"))
        said = ask(cluster, "model", "predict", model, *guest, *data, "--out", out, "--json")
        assert said.code == 0, said.err
    n = pq.read_metadata(tmp_path / "bank.parquet").num_rows
    assert said.last["rows"] == n
    assert said.last["rows_without_partner"] == 0
    whole = pa.csv.read_csv(out)
    assert whole["id"].equals(pq.read_table(tmp_path / "bank.parquet")["id"])

    short = pq.read_table(tmp_path / "shop.parquet").slice(ABSENT)
    pq.write_table(short, tmp_path / "shop.parquet")
    data = [word for p in PARTIES for word in ("--data", f"{p}={tmp_path / p}.parquet")]
    said = fedboost("model", "predict", model, "--cluster", folder, *data, "--out", again)
    assert said.code == 0, said.err
    assert f"{n - ABSENT} rows predicted" in said.out
    assert f"{ABSENT} rows of bank's table are not predicted" in said.out
    assert pq.read_table(again).equals(whole.slice(ABSENT))

    pq.write_table(short.select(["id"]), tmp_path / "shop.parquet")
    lost = tmp_path / "lost.parquet"
    said = fedboost("model", "predict", model, "--cluster", folder, *data, "--out", lost, "--json")
    assert said.code == 2
    assert json.loads(said.out.splitlines()[-1])["error"]["where"]["party"] == "shop"
    assert not lost.exists()
