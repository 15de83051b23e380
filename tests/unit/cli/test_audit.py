"""`fedboost audit` on stores on disk, beside their daemons: what it says, keeps, and refuses."""

import asyncio
import json
from typing import Any

import click
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from fedboost.cli import outcome
from fedboost.cli.audit import audit
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import load_settings
from fedboost.ground.workers import Serial
from fedboost.report import page
from fedboost.runtime.cluster import local
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.store.transcripts import FINDINGS, Transcripts
from tests.equivalence.test_secureboost_whole_jobs import arrow_tables, spec_of
from tests.support.federated import GUEST, HOSTS, job_spec, now
from tests.support.secureboost_jobs import made

TELCO = HOSTS[0]
JOB = made({"n_estimators": 12, "max_depth": 4}, (2, 3), 250, held=0.3)
NOISY = {"n_estimators": 2, "max_depth": 2, "max_bin": 8, "epsilon": 4.0}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Settings of the parties, the journals of a job and of one with noisy buckets; what two
    commands printed while the daemons ran.
    """
    folder = tmp_path_factory.mktemp("audit")
    sources = {}
    for party, table in arrow_tables(JOB).items():
        path = folder / f"{party}.parquet"
        pq.write_table(table, path)
        sources[party] = SourceSpec(path=str(path))
        raw = {
            "name": party,
            "listen": "127.0.0.1:7101",
            "insecure_loopback": True,
            "coordinator": {"name": "coord", "address": "127.0.0.1:7100"},
            "store": str(folder / "cluster" / "var" / party),
            "datasets": {"data": {"path": str(path)}},
        }
        (folder / f"{party}.yaml").write_text(yaml.safe_dump(raw))

    async def work():
        async with local.open_cluster(
            folder / "cluster", spec_of(JOB), sources, Serial()
        ) as cluster:
            trained = await cluster.run(spec_of(JOB))
            noisy = job_spec("federboost-vertical", (GUEST, TELCO), params=NOISY)
            told = await cluster.run(noisy)
            said = {
                party: await asyncio.to_thread(
                    run,
                    folder,
                    trained.status.id,
                    party,
                    "--json",
                    "--out",
                    folder / f"{party}.html",
                )
                for party in (GUEST, TELCO)
            }
            return trained, told, said

    trained, told, said = now(work())
    assert trained.status.state == told.status.state == "finished"
    return folder, trained, told, said


def run(folder, job, party, *more):
    """What the command prints; what it raises is raised."""
    words = [job, "--config", str(folder / f"{party}.yaml"), *map(str, more)]
    given: dict[str, Any] = {"catch_exceptions": False, "standalone_mode": False}
    return CliRunner().invoke(audit, words, **given).stdout


def test_a_host_reads_beside_its_daemon_what_its_sums_give_away(world):
    _, trained, _, said = world
    found = json.loads(said[TELCO])
    assert (found["job"], found["party"], found["trees"]) == (trained.status.id, TELCO, 12)
    assert found["columns"] == ["c0", "c1", "c2"]
    sums = {one["linking"]: one for one in found["findings"]}
    assert list(sums) == ["none", "neighbours", "all"]
    assert sums["all"]["value"] > 0.9 > 2 * sums["all"]["chance"]
    assert "are right" in sums["all"]["says"]


def test_a_guest_reads_what_its_hosts_could_tell_of_labels(world):
    found = json.loads(world[3][GUEST])["findings"]
    assert [(one["attack"], one["about"]) for one in found] == [
        ("row groupings", TELCO),
        ("the model's loss", ""),
    ]


def test_people_read_a_table_and_sentences(world):
    folder, trained, _, _ = world
    text = run(folder, trained.status.id, TELCO, "--linking", "all", "--columns", "1")
    assert "from what is kept of 12 trees and 175 rows" in text
    assert "A guest that knew" in text
    assert "within a tree" not in text
    assert "sums of bins" in text


def test_what_was_found_is_drawn_alone_and_in_the_jobs_report(world):
    folder, trained, _, _ = world
    alone = (folder / f"{TELCO}.html").read_text()
    assert "What the others could have learnt" in alone
    own = outcome.report_additions(
        load_settings(PartyConfig, folder / f"{GUEST}.yaml"), trained.status.id
    )
    whole = page.render_page(trained, own.ledger, own.findings)
    assert 'id="audit"' in whole
    assert "own disclosure ledger" in whole
    assert 'id="audit"' not in page.render_page(trained)


def test_linear_programming_alone_can_be_asked_for(world):
    folder, trained, _, _ = world
    more = ("--linking", "neighbours", "--columns", "1", "--json")
    found = [
        json.loads(run(folder, trained.status.id, TELCO, *more, "--solver", solver))["findings"][0]
        for solver in ("corner", "nearest")
    ]
    assert found[0]["chance"] == found[1]["chance"]
    assert found[0]["value"] != found[1]["value"]


def test_findings_of_another_version_are_to_be_made_again(world):
    folder, trained, _, _ = world
    party, job = load_settings(PartyConfig, folder / f"{GUEST}.yaml"), trained.status.id
    kept = Transcripts(party.store)
    before = kept.findings(job)
    (kept.folder(job) / FINDINGS).write_text('[{"attack": "of old"}]')
    with pytest.raises(ConfigError, match="another version"):
        outcome.report_additions(party, job)
    kept.keep_findings(job, before)


def test_a_job_without_sums_says_what_it_told_instead(world):
    folder, _, told, _ = world
    with pytest.raises(ConfigError) as caught:
        run(folder, told.status.id, TELCO)
    assert "bucket of every value, with ε = 4 for each" in caught.value.what
    assert f"fedboost ledger show --job {told.status.id}" in caught.value.todo


def test_a_job_that_nobody_knows_is_refused(world):
    folder = world[0]
    with pytest.raises(ConfigError, match="this party has no job credit-00000000"):
        run(folder, "credit-00000000", TELCO)
    with pytest.raises(ConfigError, match="is not a model's id"):
        run(folder, "../../etc", TELCO)
    with pytest.raises(click.BadParameter):
        run(folder, "credit-00000000", TELCO, "--linking", "some")


def test_a_transcript_goes_with_the_model(world):
    folder, trained, _, _ = world
    kept = Transcripts(folder / "cluster" / "var" / TELCO)
    assert kept.folder(trained.status.id).is_dir()
    kept.delete(trained.status.id)
    with pytest.raises(ConfigError, match="or its transcript is deleted"):
        run(folder, trained.status.id, TELCO)
