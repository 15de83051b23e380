"""A Dask cluster under the federation's CA: a peer's certificate runs a peer's code on its workers.

The defence is `check_own_ca`, at the daemon's start and at every connection.
"""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from distributed import Client, Security

from fedboost.ground.errors import ConfigError, UnreachableError
from fedboost.ground.settings import parse_settings
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.party.workers import dask_part_workers
from fedboost.runtime.party.workers.dask_part_workers import DaskPartWorkers, part_workers_of
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.certificates import Leaf, Term
from tests.support.dask_cluster import dask_cluster

pytestmark = pytest.mark.xdist_group("dask")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster whose `certs` are the federation's, too: telco and mill are parties."""
    with dask_cluster(tmp_path_factory.mktemp("dask")) as made:
        certs = made.folder / "certs"
        parties = [Leaf("party", "telco"), Leaf("party", "mill")]
        authority.create_certificates(certs, parties, Term(datetime.now(UTC)))
        yield made


def party(cluster, **workers):
    """The party telco of the federation, with the cluster's workers."""
    raw = {"dask": cluster.address, "tls": cluster.files(), **workers}
    return parse_settings(PartyConfig, {
        "name": "telco", "listen": "127.0.0.1:1", "store": str(cluster.folder / "store"),
        "tls": cluster.files(name="telco"), "workers": raw,
        "coordinator": {"name": "coord", "address": "127.0.0.1:2"},
    })  # fmt: skip


def run_by_a_peer(cluster):
    """What the certificate of the peer mill has workers run: any function."""
    tls = cluster.files(name="mill")
    files = {"tls_client_cert": tls["cert"], "tls_client_key": tls["key"]}
    security = Security(require_encryption=True, tls_ca_file=tls["ca"], **files)
    with Client(cluster.address, security=security, timeout=10, set_as_default=False) as client:
        return client.submit(os.getpid).result(timeout=10)


def test_a_cluster_under_the_federations_ca_is_refused(cluster):
    with pytest.raises(ConfigError, match="certificates of the federation's CA"):
        part_workers_of(party(cluster))
    part_workers = DaskPartWorkers(party(cluster).workers, party(cluster).tls)
    with pytest.raises(ConfigError, match="certificates of the federation's CA"):
        part_workers.check()


def test_a_cluster_that_takes_certificates_of_the_federation_beside_its_own_is_refused(cluster):
    cluster.certify("others")
    own = cluster.files("others")
    both = cluster.folder / "both.pem"
    texts = [Path(files["ca"]).read_text() for files in (own, cluster.files())]
    both.write_text("".join(texts))
    for tls in ({**own, "ca": str(both)}, {**own, **_driver(cluster)}):
        with pytest.raises(ConfigError, match="certificates of the federation's CA"):
            part_workers_of(party(cluster, tls=tls))
    assert part_workers_of(party(cluster, tls=own)) is not None


def _driver(cluster):
    tls = cluster.files()
    return {"cert": tls["cert"], "key": tls["key"]}


def test_a_cluster_under_a_ca_that_the_federation_has_retired_is_refused(cluster):
    certs, later = cluster.folder / "certs", cluster.folder / "later"
    authority.create_certificates(later, [Leaf("party", "telco")], Term(datetime.now(UTC)))
    shutil.copy(certs / "ca.pem", later / "ca.retired")
    config = party(cluster).model_copy(
        update={"tls": parse_settings(PartyConfig, _raw(cluster, later)).tls}
    )
    with pytest.raises(ConfigError, match="certificates of the federation's CA"):
        part_workers_of(config)


def _raw(cluster, folder):
    names = {"ca": "ca.pem", "cert": "telco.pem", "key": "telco.key"}
    return {
        "name": "telco", "listen": "127.0.0.1:1", "store": str(cluster.folder / "store"),
        "tls": {key: str(folder / name) for key, name in names.items()},
        "coordinator": {"name": "coord", "address": "127.0.0.1:2"},
    }  # fmt: skip


def test_a_peer_runs_code_on_a_cluster_under_the_federations_ca_where_nobody_compares(
    cluster, monkeypatch
):
    monkeypatch.setattr(dask_part_workers, "check_own_ca", lambda *_: None)
    part_workers = part_workers_of(party(cluster))
    assert isinstance(part_workers, DaskPartWorkers)
    assert "threads" in part_workers.check()
    part_workers.close()
    workers = {process.pid for process in cluster.workers}
    assert run_by_a_peer(cluster) in workers


def test_a_peer_runs_nothing_on_a_cluster_with_a_ca_of_its_own(cluster):
    cluster.certify("federation")
    tls = cluster.files("federation")
    files = {"tls_client_cert": tls["cert"], "tls_client_key": tls["key"]}
    security = Security(require_encryption=True, tls_ca_file=cluster.files()["ca"], **files)
    with pytest.raises((OSError, UnreachableError)):
        Client(cluster.address, security=security, timeout=2, set_as_default=False)
