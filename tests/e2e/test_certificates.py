"""Certificates change under jobs that run: nobody stops, and whoever is revoked is not let in."""

from datetime import UTC, datetime, timedelta

import pytest

from fedboost.ground.errors import JobError, PolicyError
from fedboost.runtime.cluster.local import COORDINATOR, USER
from fedboost.runtime.transport import authority, ca_rotation
from fedboost.runtime.transport.certificates import Term
from tests.e2e import world

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("certificates")]
PARTIES = ("bank", "telco")
EVERYBODY = (COORDINATOR, *PARTIES, USER)
REVOKED_S = 8.0  # a revoked party's next call is refused, and the job has paused
ROUNDS = 1000  # of 5 MB each: more than any test waits for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    sources = {
        name: world.write(folder / f"{name}.parquet", world.toy(label=name == "bank"))
        for name in PARTIES
    }
    spec = world.spec(world.echo(hosts=("telco",)))
    with world.WarmCluster(folder / "c", spec, sources, timers=world.TIMERS, workers=1) as made:
        yield made
        assert world.tracebacks(made) == []


@pytest.fixture
def certs(cluster):
    return cluster.folder / "certs"


def now():
    return datetime.now(UTC)


def a_round(event):
    return event.WhichOneof("what") == "round"


def begun(cluster):
    """A long job that has done a round."""
    id_ = world.submit(
        cluster, world.echo(hosts=("telco",), rounds=ROUNDS, parts=32, numbers=20_000)
    )
    world.watch(cluster, id_, a_round)
    return id_


def rounds_on(cluster, id_):
    """Waits for a further round of a job that has not stopped meanwhile."""
    after = world.journalled(cluster, id_)
    events = world.watch(cluster, id_, a_round, after=after)
    assert events, world.call(cluster, "status", id_)
    assert a_round(events[-1]), events[-1]
    status = world.call(cluster, "status", id_)
    assert (status.state, status.attempt) == ("running", 1)


def replace_everything(cluster, certs, id_):
    """New certificates for everybody; once they are in use, the old ones count for nothing."""
    authority.rotate_certificates(certs, EVERYBODY, Term(now()))
    rounds_on(cluster, id_)
    rounds_on(cluster, id_)
    for name in EVERYBODY:
        assert authority.revoke_certificates(certs, name, now(), superseded=True) == 1


def test_a_job_outlives_new_certificates_for_everybody_and_a_new_ca(cluster, certs):
    id_ = begun(cluster)
    replace_everything(cluster, certs, id_)
    rounds_on(cluster, id_)
    old = (certs / "ca.pem").read_bytes()
    ca_rotation.add_new_ca(certs, now())
    rounds_on(cluster, id_)
    replace_everything(cluster, certs, id_)
    rounds_on(cluster, id_)
    assert ca_rotation.retire_old_cas(certs) == 1
    assert old not in (certs / "ca.pem").read_bytes()
    rounds_on(cluster, id_)
    world.call(cluster, "cancel", id_)
    said = world.fedboost("ledger", "verify", "--config", cluster.config("telco"))
    assert said.code == 0, said.err


def test_a_revoked_party_is_refused_in_seconds_and_its_job_goes_on_with_a_new_certificate(
    cluster, certs
):
    id_ = begun(cluster)
    authority.revoke_certificates(certs, "telco", now())
    world.wait_for(
        lambda: world.call(cluster, "status", id_).state == "paused", REVOKED_S, "the job pauses"
    )
    reason = world.call(cluster, "status", id_).reason
    assert reason.what == "the certificate of party telco has been revoked"
    assert {place.key: place.value for place in reason.where}["party"] == "telco"
    assert "certs rotate" in reason.todo
    assert "goes on by itself" in reason.todo
    cluster.kill("telco")
    authority.rotate_certificates(certs, EVERYBODY, Term(now()))
    cluster.start("telco")
    cluster.wait("telco")
    world.wait_for(
        lambda: world.call(cluster, "status", id_).state == "running",
        world.RESUMED_S,
        "the job goes on, though its manifest shows certificates of before",
    )
    world.call(cluster, "cancel", id_)


def test_a_revoked_user_is_refused_at_once(cluster, certs):
    authority.revoke_certificates(certs, USER, now())
    with pytest.raises(PolicyError, match="the certificate of user user has been revoked"):
        world.call(cluster, "status", "any")
    authority.rotate_certificates(certs, [USER], Term(now()))
    with pytest.raises(JobError, match="no such job"):
        world.call(cluster, "status", "any")


ENDS_S = 6.0  # from a short certificate's issue to its end


def end_soon(certs, name):
    """Give a daemon a certificate that ends in some seconds."""
    term = Term(now() - timedelta(days=1) + timedelta(seconds=ENDS_S), days=1)
    authority.rotate_certificates(certs, [name], term)


@pytest.mark.parametrize("name", ["bank", "telco"])
def test_jobs_pause_and_new_ones_wait_while_a_certificate_has_ended(cluster, certs, name):
    said = f"the certificate of party {name} expired on "
    id_ = begun(cluster)
    end_soon(certs, name)
    world.wait_for(
        lambda: world.call(cluster, "status", id_).state == "paused",
        ENDS_S + REVOKED_S,
        "the job pauses",
    )
    reason = world.call(cluster, "status", id_).reason
    assert reason.what.startswith(said)
    assert {place.key: place.value for place in reason.where}["party"] == name
    new = world.submit(cluster, world.echo(hosts=("telco",)))
    [wait] = world.call(cluster, "status", new).waiting
    assert wait.party == name
    assert wait.step.startswith(f"which cannot be reached: {said}")
    authority.rotate_certificates(certs, [name], Term(now()))
    world.wait_for(
        lambda: world.call(cluster, "status", id_).state == "running",
        world.RESUMED_S,
        "the job goes on by itself",
    )
    world.call(cluster, "cancel", id_)
    world.wait_for(
        lambda: world.call(cluster, "status", new).state == "finished", 30, "the new job ends"
    )
