"""Settings that change while a job runs: taken up by a signal or a command, and the job goes on."""

import signal

import pytest

from fedboost.data.sources import SourceSpec
from fedboost.runtime.cluster.local import COORDINATOR, USER
from tests.e2e import world

pytestmark = pytest.mark.e2e
JOB = world.job(hosts=("telco",), params={"n_estimators": 150})


@pytest.fixture
def cluster(tmp_path):
    tables = {}
    for name in ("bank", "telco"):
        path = tmp_path / f"{name}.parquet"
        world.write(path, world.toy(rows=100, label=name == "bank"))
        tables[name] = SourceSpec(path=str(path))
    folder = tmp_path / "c"
    with world.WarmCluster(folder, world.spec(JOB), tables, timers=world.TIMERS, workers=1) as made:
        yield made


def said(cluster, name, words):
    world.wait_for(lambda: words in cluster.log(name).read_text(), 10, words)


def test_policies_peers_and_users_change_while_a_job_runs(cluster, tmp_path):
    id_ = world.submit(cluster, JOB)
    world.watch(cluster, id_, world.in_round(2, "open_layer"))

    (tmp_path / "port").write_text("127.0.0.1:9\n")

    def narrower(raw):
        raw["policy"]["protocols"] = ["echo"]
        raw["peers"]["shop"] = f"${{file:{tmp_path}/port}}"

    world.edit(cluster, "telco", narrower)
    cluster.processes["telco"].send_signal(signal.SIGHUP)
    said(cluster, "telco", "settings read again, changed: peers, policy")
    world.edit(cluster, COORDINATOR, lambda raw: raw["users"].update(cancel=[]))
    cluster.processes[COORDINATOR].send_signal(signal.SIGHUP)
    said(cluster, COORDINATOR, "settings read again, changed: users")
    world.edit(cluster, COORDINATOR, lambda raw: raw["parties"].pop("telco"))
    cluster.processes[COORDINATOR].send_signal(signal.SIGHUP)
    said(cluster, COORDINATOR, "parties.telco takes part in a running job")
    (tmp_path / "port").write_text("127.0.0.1:10\n")
    own = {"FEDBOOST_USER": USER, "FEDBOOST_CONFIG": str(cluster.config("telco"))}
    command = world.fedboost("party", "reload", "--tls", cluster.folder / "certs", env=own)
    assert (command.code, command.out) == (0, "changed: peers\n"), command.err
    world.edit(cluster, "bank", lambda raw: raw.update(workers=2))
    refused = world.owner(cluster, "bank", "reload")
    assert refused.code != 0
    assert "workers: a change needs a restart, so nothing was reloaded" in refused.err

    world.watch(cluster, id_)
    status = world.call(cluster, "status", id_)
    assert (status.state, status.attempt) == ("finished", 1)
    later = world.run(cluster, JOB)
    assert later.status.state == "failed", "the new policy counts"
    assert "telco" in [where.value for where in later.status.reason.where]
