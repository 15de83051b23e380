"""Who did what stands in the log of the daemon where it was done, in one line for each act."""

import asyncio
import json
import logging
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from fedboost.ground.errors import ConfigError, PolicyError
from fedboost.ground.workers import Serial
from fedboost.messages.job_pb2 import JobId, SubmitRequest
from fedboost.messages.party_pb2 import DenyRequest
from fedboost.runtime.cluster import local
from fedboost.runtime.jobs import job_log
from fedboost.runtime.jobs.job_log import JobAct, RefusalLog, RefusedJob, log_act
from fedboost.runtime.process import logs
from fedboost.runtime.store.outlines import encode_outline
from fedboost.runtime.transport.identity import Peer
from tests.e2e import world

LEADER = f"coordinator {local.COORDINATOR}"
MANIFEST = json.dumps(
    {
        "coordinator": "hq",
        "submitter": "ana",
        "version": "1",
        "wire_version": 2,
        "members": [{"name": "bank"}, {"name": "shop"}, {"name": "telco"}],
        "spec": {"protocol": "secureboost", "data": {"telco": {"dataset": "people"}}},
    }
).encode()
CHURN = RefusedJob("churn-12ab34cd", "churn", MANIFEST)


@pytest.fixture(autouse=True)
def _acts_are_logged(caplog):
    caplog.set_level(logging.INFO, logger=job_log.__name__)


def lines(caplog, job=""):
    """The lines about acts, of one job or all, and how often each stands there."""
    said = (r.getMessage() for r in caplog.records if r.name == job_log.__name__)
    return Counter(line for line in said if job in line)


@asynccontextmanager
async def cluster_of(folder, raw):
    """Real nodes in one process; and the job's text."""
    spec = world.spec(raw)
    sources = {
        "bank": world.write(folder / "bank.parquet", world.toy(label=True)),
        "telco": world.write(folder / "telco.parquet", world.toy(columns=3)),
    }
    async with local.open_cluster(folder / "c", spec, sources, Serial()) as cluster:
        yield cluster, spec


def change_policy(node, **keys):
    """Gives a party's policy other values."""
    policy = node.config.policy.model_copy(update=keys)
    node.config = node.config.model_copy(update={"policy": policy})


def named(id_, protocol):
    """A job as the coordinator names it, and as its parties do."""
    return (
        f"job {id_} ({protocol}, parties bank and telco)",
        f"job {id_} ({protocol}, data set data, parties bank and telco)",
    )


def started(id_, protocol, answer="agreed"):
    """The lines up to the begin, of all three daemons."""
    led, ours = named(id_, protocol)
    answers = Counter({"agreed": 1}) + Counter({answer: 1})
    proposed = f"{LEADER} proposed {ours} of user user:"
    return Counter({f"user user submitted {led}": 1}) + Counter(
        {f"{proposed} {said}": count for said, count in answers.items()}
    )


def begun(id_, protocol):
    """The lines about the begin of the first attempt."""
    led, ours = named(id_, protocol)
    return Counter({f"{LEADER} began {led}, attempt 1": 1, f"{LEADER} began {ours}, attempt 1": 2})


async def ended(cluster, job):
    """Return once a job is at rest and its parties know."""
    async for _ in local.LocalClient(cluster).watch(job):
        pass


async def test_a_job_that_runs_leaves_one_line_for_each_act_at_each_daemon(tmp_path, caplog):
    async with cluster_of(tmp_path, world.job(hosts=("telco",))) as (cluster, spec):
        job = (await cluster.run(spec)).status.id
        [entry] = cluster.parties["telco"].spending.account.entries()
        amounts = {
            name: [a for a in node.ledger.amounts(job) if a.direction == "out"]
            for name, node in cluster.parties.items()
        }
    led, ours = named(job, "secureboost")
    found = lines(caplog, job)
    sent = {line for line in found if " sent " in line}
    assert Counter({k: n for k, n in found.items() if k not in sent}) == (
        started(job, "secureboost")
        + begun(job, "secureboost")
        + Counter({f"{led} finished": 1, f"{ours} finished": 2})
    )
    for name, peer in (("telco", "bank"), ("bank", "telco")):
        [line] = [line for line in sent if line.startswith(f"party {name} sent {peer} ")]
        values, messages, size = (
            sum(getattr(a, of) for a in amounts[name]) for of in ("values", "messages", "bytes")
        )
        assert f" {values:,} values in {messages:,} messages of {size:,} bytes (" in line
        assert f" in {ours}" in line
        is_host = name == "telco"
        assert (f"; so far {entry.counted:.2g} sums per bin and row" in line) == is_host
        assert ("CandidateSums " in line) == is_host
        assert found[line] == 1
    assert len(sent) == 2


async def test_the_refusal_of_a_proposal_names_the_key_at_the_party_and_at_the_coordinator(
    tmp_path, caplog
):
    async with cluster_of(tmp_path, world.echo(hosts=("telco",))) as (cluster, spec):
        change_policy(cluster.parties["telco"], protocols=("gbun",))
        job = (await cluster.run(spec)).status.id
    led, ours = named(job, "echo")
    why = "the policy does not allow the protocol echo (party telco, key policy.protocols)"
    assert lines(caplog, job) == Counter(
        {
            f"user user submitted {led}": 1,
            f"{LEADER} proposed {ours} of user user: agreed": 1,  # the other party
            f"party telco refused {ours} of {LEADER}: {why}": 1,
            f"{led} failed: {why}": 2,  # the other party has no manifest of it any more
        }
    )


async def test_a_refusal_of_released_sums_is_one_line_with_its_key(tmp_path, caplog):
    async with cluster_of(tmp_path, world.job(hosts=("telco",))) as (cluster, spec):
        change_policy(cluster.parties["telco"], disclosure_max=0.001)
        job = (await cluster.run(spec)).status.id
    [refused] = [line for line in lines(caplog, job).elements() if "refused" in line]
    _, ours = named(job, "secureboost")
    assert refused.startswith(f"party telco refused {ours} of {LEADER}: the policy allows 0.001 ")
    assert refused.endswith("(party telco, key policy.disclosure_max)")
    refusing = [r.name for r in caplog.records if "the policy allows 0.001" in r.getMessage()]
    assert set(refusing) == {job_log.__name__}, "no other line repeats it"


async def test_a_refused_proposal_with_figures_is_one_line_too(tmp_path, caplog, monkeypatch):
    error = PolicyError("7 rows", kind="few rows", key="policy.x", party="telco")

    def refuse(*_):
        raise error

    async with cluster_of(tmp_path, world.echo(hosts=("telco",))) as (cluster, spec):
        monkeypatch.setattr(cluster.parties["telco"].judge, "job", refuse)
        job = (await cluster.run(spec)).status.id
    said = [r.getMessage() for r in caplog.records if "7 rows" in r.getMessage()]
    [refused] = [line for line in said if " failed: " not in line]
    assert refused.endswith(": 7 rows (party telco, key policy.x)")
    assert job in refused


async def test_an_approval_and_a_denial_name_the_owner(tmp_path, caplog):
    async with cluster_of(tmp_path, world.echo(hosts=("telco",))) as (cluster, spec):
        node, jobs = cluster.parties["telco"], local.LocalClient(cluster)
        change_policy(node, approve="always", approvers=("olga",))
        olga = Peer("user", "olga", fingerprint="", serial=0)
        ids = [await jobs.submit(spec.model_dump_json().encode()) for _ in range(2)]
        while any(node.store.find(id_) is None for id_ in ids):
            await asyncio.sleep(0.01)
        await node.approve(olga, JobId(id=ids[0]))
        await node.deny(olga, DenyRequest(id=ids[1], reason="too many columns"))
        for id_ in ids:
            await ended(cluster, id_)
    led, ours = named(ids[0], "echo")
    found = Counter({k: n for k, n in lines(caplog, ids[0]).items() if " sent " not in k})
    assert found == (
        started(ids[0], "echo", "waits for approval")
        + begun(ids[0], "echo")
        + Counter({f"user olga approved {ours}": 1, f"{led} finished": 1, f"{ours} finished": 2})
    )
    led, ours = named(ids[1], "echo")
    why = "telco's owner denied the job: too many columns (party telco)"
    assert lines(caplog, ids[1]) == (
        started(ids[1], "echo", "waits for approval")
        + Counter(
            {
                f"user olga denied {ours}: too many columns": 1,
                f"{led} failed: {why}": 2,  # the other party has no manifest of it any more
            }
        )
    )


async def test_a_refused_step_a_pause_a_return_and_a_cancellation_say_why_and_who(tmp_path, caplog):
    async with cluster_of(tmp_path, world.echo(hosts=("telco",), rounds=1000)) as (cluster, spec):
        node, jobs = cluster.parties["telco"], local.LocalClient(cluster)
        job = await jobs.submit(spec.model_dump_json().encode())

        async def runs_on():
            done = (await jobs.status(job)).progress.done
            while (await jobs.status(job)).progress.done <= done:
                await asyncio.sleep(0.01)

        await runs_on()
        for key, party in (("x", "telco"), ("x", "telco"), ("y", "telco"), ("z", "bank")):
            node.public_error(job, PolicyError("no", key=f"policy.{key}", party=party))
        await node.pause_all()
        await ended(cluster, job)
        led, ours = named(job, "echo")
        why = "telco's daemon was stopped (party telco)"
        found = lines(caplog, job)
        assert found[f"{led} is paused: {why}"] == 1
        assert found[f"{ours} is paused: {why}"] == 2
        [sent] = [line for line in found if line.startswith("party telco sent bank ")]
        assert Counter({k: n for k, n in found.items() if "refused" in k}) == Counter(
            f"party telco refused {ours} of {LEADER}: no (party telco, key policy.{key})"
            for key in ("x", "y")
        )
        caplog.clear()
        await jobs.resume(job)
        await runs_on()
        await cluster.coordinator.cancel(cluster.user, JobId(id=job))
    found = lines(caplog, job)
    again = [line for line in found.elements() if line.startswith("party telco sent bank ")]
    assert len(again) == 1, "what this attempt has sent"
    assert Counter({k: n for k, n in found.items() if " sent " not in k}) == Counter(
        {
            f"user user resumed {led}": 1,
            f"{LEADER} began {led}, attempt 2": 1,
            f"{LEADER} began {ours}, attempt 2": 2,
            f"{led} was cancelled: cancelled by user": 1,
            f"{ours} was cancelled: cancelled by user": 2,
        }
    )
    assert sent


async def test_a_submission_that_the_coordinator_refuses_names_the_user_and_the_key(
    tmp_path, caplog
):
    async with cluster_of(tmp_path, world.echo(hosts=("telco",))) as (cluster, spec):
        bob = Peer("user", "bob", fingerprint="", serial=0)
        request = SubmitRequest(spec=spec.model_dump_json().encode())
        for submit in (
            lambda: cluster.coordinator.submit(bob, request),
            lambda: cluster.coordinator.submit_here(bob, spec, ""),
        ):
            caplog.clear()
            with pytest.raises(PolicyError):
                await submit()
            assert lines(caplog) == Counter(
                [
                    f"{LEADER} refused a job of user bob: bob may not submit jobs here"
                    " (key users.submit)"
                ]
            )


def test_a_line_names_the_job_its_data_set_and_its_parties(caplog):
    log_act(JobAct.APPROVED, CHURN, "telco", user="olga")
    log_act(JobAct.SUBMITTED, RefusedJob("churn-2-12ab34cd", "Churn_2", encode_outline(MANIFEST)))
    log_act(JobAct.FINISHED, RefusedJob("churn-1", "churn", b"another version's"))
    assert list(lines(caplog)) == [
        "user olga approved job churn-12ab34cd (secureboost, data set people, "
        "parties bank, shop and telco)",
        "user ana submitted job churn-2-12ab34cd (Churn_2, secureboost, "
        "parties bank, shop and telco)",
        "job churn-1 finished",
    ]


def test_what_others_wrote_is_one_short_printable_line(caplog):
    log_act(JobAct.DENIED, CHURN, user="olga", reason=": no\n\x1b[2J{party}\u202e" + "x" * 5000)
    [line] = lines(caplog)
    assert line.isprintable()
    assert ": no??[2J{party}?xxx" in line
    assert len(line) == job_log.ACT_CHARS_MAX


def test_an_act_that_nobody_logs_reads_no_manifest(caplog):
    class Unread(RefusedJob):
        @property
        def manifest(self):
            raise AssertionError

    caplog.set_level(logging.WARNING, logger=job_log.__name__)
    log_act(JobAct.FINISHED, Unread.__new__(Unread))
    assert not lines(caplog)


def test_no_caller_fills_the_log_with_refusals(caplog, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(job_log, "monotonic_s", lambda: now[0])
    refusals, most = RefusalLog("party", "telco"), job_log.REFUSALS_PER_MINUTE_MAX
    for count in range(3 * most):
        refusals.log_refusal(RefusedJob(f"j-{count}"), "coordinator hq", ConfigError("no"))
    found = list(lines(caplog))
    assert len(found) == most
    assert found[0] == "party telco refused job j-0 of coordinator hq: no"
    assert found[-1].endswith(": no; further refusals of this minute are not logged")
    now[0] += 60.0
    refusals.log_refusal(RefusedJob("later"), "coordinator hq", ConfigError("no"))
    assert len(lines(caplog, "later")) == 1


def test_a_line_of_json_has_the_job_as_a_field_and_the_next_line_has_not(capsys):
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        logs.set_up_logging("json", logging.INFO, "party telco")
        log_act(JobAct.APPROVED, CHURN, "telco", user="olga")
        logging.getLogger("fedboost.runtime").info("later")
    finally:
        logging.captureWarnings(False)
        root.handlers[:] = before
        root.setLevel(level)
    act, later = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (act["level"], act["daemon"], act["job"]) == ("info", "party telco", CHURN.id)
    assert act["message"].startswith("user olga approved job churn-12ab34cd ")
    assert "job" not in later
