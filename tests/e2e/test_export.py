"""Daemons train, hosts consent, and XGBoost predicts with the merged file what daemons predict."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fedboost.cli.groups import model_group
from fedboost.ground.errors import ConfigError
from tests.e2e import world
from tests.e2e.world import WarmCluster, ask, fedboost, job, job_file, spec
from tests.e2e.world import shares as dealt

PARTIES = ["bank", "telco", "shop"]

pytestmark = pytest.mark.e2e


@world.JOBS
def test_a_guest_predicts_alone_once_every_host_has_consented(data_file, tmp_path):
    xgb = pytest.importorskip("xgboost")
    sources = dealt(data_file("breast.parquet"), tmp_path, PARTIES)
    raw = job()
    with WarmCluster(tmp_path / "cluster", spec(raw), sources, workers=1) as cluster:
        done = ask(cluster, "job", "submit", job_file(tmp_path, raw), "--watch", "--json")
        assert done.code == 0, done.err
        model = done.last["model"]
        data = [word for party in PARTIES for word in ("--data", f"{party}=data")]
        bank, scores = ("--config", cluster.config("bank")), tmp_path / "p.parquet"
        said = ask(cluster, "model", "predict", model, *bank, *data, "--out", scores, "--json")
        assert said.code == 0, said.err

        files = {host: tmp_path / f"{host}.json" for host in PARTIES[1:]}
        out = tmp_path / "m.json"
        for host, file in files.items():
            with pytest.raises(ConfigError, match=host):
                here("export", model, *bank, *given(files, file), "--out", out)
            own = ("--config", cluster.config(host))
            here("release", model, *own, "--to", "bank", "--out", file, "--yes")
        said = fedboost("model", "export", model, *bank, *given(files), "--out", out)
        assert said.code == 0, said.err
        own = ("--config", cluster.config("telco"))  # whose daemon runs
        said = fedboost("ledger", "verify", *own, "--json")
        assert said.last["whole"], said.err

    pooled = {party: pq.read_table(tmp_path / f"{party}.parquet") for party in PARTIES}
    booster = xgb.Booster(model_file=out)
    named = [name.split(".", 1) for name in booster.feature_names]
    cells = np.column_stack([pooled[party][name].to_numpy() for party, name in named])
    rows = xgb.DMatrix(cells.astype(np.float32), feature_names=booster.feature_names)
    ours = pq.read_table(scores)["prediction"].to_numpy()
    np.testing.assert_allclose(booster.predict(rows), ours, rtol=0, atol=2e-6)

    shares = tmp_path / "s.parquet"
    tables = [word for p in PARTIES for word in ("--data", f"{p}={tmp_path / p}.parquet")]
    here("explain", model, *bank, *given(files), *tables, "--out", shares)
    told = pq.read_table(shares)
    added = np.sum([told[name].to_numpy() for name in told.column_names if name != "id"], axis=0)
    margin = booster.predict(rows, output_margin=True)
    np.testing.assert_allclose(added, margin, rtol=0, atol=5e-6)

    tree = tmp_path / "tree.svg"
    here("picture", model, *bank, *given(files), "--out", tree)
    assert "split of" not in tree.read_text()


def here(*args):
    """A command about models in this process, which is quicker; what it raises is raised."""
    words = [str(word) for word in args]
    CliRunner().invoke(model_group, words, catch_exceptions=False, standalone_mode=False)


def given(files, until=None):
    """The --with options of the releases written before that one."""
    found = []
    for file in files.values():
        if file == until:
            break
        found += ["--with", file]
    return found
