"""What is refused: one clear error with what, where and what to do, the same text on every side."""

import shutil

import pytest

from fedboost.runtime.cluster.local import COORDINATOR
from tests.e2e import world
from tests.e2e.conftest import ABSENT, MALLORY

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("town")]


def submitted(town, tmp_path, raw):
    """What `job submit --watch --json` says of a job."""
    return world.ask(town, "job", "submit", world.job_file(tmp_path, raw), "--watch", "--json")


def assert_one_error(said, *words):
    """Three lines at most, each word in them, nothing that only a log may hold."""
    assert "Traceback" not in said.err
    lines = said.lines[-3:]
    assert any(line.startswith("to do: ") for line in lines), said.err
    for word in words:
        assert word in "\n".join(lines), (word, said.err)


def two(guest="bank", host="telco", **more):
    return world.job(guest, (host,), **more)


BAD_TABLES = {
    "elsewhere": ("no id is held by all parties", "party bank"),
    "twice": ("6 of 63 rows share their id", "party bank", "column id", "file twice.parquet"),
    "unlabelled": ("the table has no label column 'y'", "party bank", "file unlabelled.parquet"),
    "gaps": ("2 of 60 rows have no label", "party bank", "column y", "file gaps.parquet"),
    "oneclass": ("label", "party bank"),
    "nan": ("1 of 60 rows have no label", "party bank", "column y"),
    "infinite": ("1 of 60 rows have an infinite label", "party bank", "column y"),
    "text": ("x0", "party bank", "file text.parquet"),
}


@pytest.mark.parametrize("table", BAD_TABLES)
def test_a_table_that_no_job_can_use_fails_the_job_everywhere_with_the_same_words(
    town, tmp_path, table
):
    said = submitted(town, tmp_path, two(datasets={"bank": table}))
    assert said.code == 2, said.err
    assert_one_error(said, *BAD_TABLES[table])
    assert said.last["state"] == "failed"
    id_, what = said.last["job"], said.last["error"]["what"]
    status = world.call(town, "status", id_)
    assert (status.state, status.reason.what) == ("failed", what)
    for party in ("bank", "telco"):
        jobs = world.owner(town, party, "jobs", "--json").last["jobs"]
        mine = next(job for job in jobs if job["id"] == id_)
        assert (mine["state"], mine["reason"]) == ("failed", what)


def test_a_bad_table_is_refused_again_when_the_job_is_resumed(town, tmp_path):
    id_ = submitted(town, tmp_path, two(datasets={"bank": "oneclass"})).last["job"]
    said = world.ask(town, "job", "resume", id_, "--watch", "--json")
    assert said.code == 2
    assert_one_error(said, *BAD_TABLES["oneclass"])


def test_a_typo_in_a_job_names_the_nearest_key(town, tmp_path):
    raw = two()
    raw["params"]["n_estimatrs"] = 3
    said = submitted(town, tmp_path, raw)
    assert said.code == 2
    assert_one_error(said, "unknown key 'n_estimatrs'", "did you mean 'n_estimators'?")


@pytest.mark.parametrize(
    ("code", "words", "raw"),
    [
        (2, ("no party 'telko'", "did you mean 'telco'?"), two(host="telko")),
        (4, ("strict", "policy.protocols"), world.echo(hosts=("strict",))),
        (4, ("strict", "policy.datasets"), two(host="strict", datasets={"strict": "secret"})),
        (4, ("party strict", "policy.peers", "shop"), world.job(hosts=("strict", "shop"))),
        (4, ("party strict", "policy.allow_insecure"), two(host="strict")),
        (
            4,
            ("party strict", "policy.key_bits_min", "3072", "2048"),
            two(host="strict", params={"encryption": {"scheme": "paillier", "key_bits": 2048}}),
        ),
        (4, ("bank", "policy.datasets"), two(datasets={"bank": "nowhere"})),
    ],
    ids=["unknown", "protocol", "dataset", "peer", "insecure", "key_bits", "undeclared"],
)
def test_a_job_that_somebody_refuses_fails_with_one_error(town, tmp_path, code, words, raw):
    said = submitted(town, tmp_path, raw)
    assert said.code == code, said.err
    assert_one_error(said, *words)
    if "job" in said.last:
        status = world.call(town, "status", said.last["job"])
        assert status.reason.what == said.last["error"]["what"]


def test_a_job_of_a_party_that_is_not_there_is_queued_and_says_so(town):
    id_ = world.submit(town, two(host=ABSENT))

    def waits():
        return [wait.party for wait in world.call(town, "status", id_).waiting] == [ABSENT]

    world.wait_for(waits, 10, f"the job waits for {ABSENT}")
    said = world.ask(town, "job", "status", id_)
    assert "is queued" in said.out
    assert f"waiting for {ABSENT}, which cannot be reached: " in said.out
    cancelled = world.ask(town, "job", "cancel", id_)
    assert cancelled.code == 0, cancelled.err
    assert world.call(town, "status", id_).state == "cancelled"


def test_only_users_whom_the_coordinator_names_may_submit_read_and_cancel(town, tmp_path):
    file = world.job_file(tmp_path, two())
    for args in (("submit", file), ("list",), ("status", "x"), ("cancel", "x"), ("resume", "x")):
        said = world.ask(town, "job", *args, user=MALLORY)
        assert said.code == 4, said.err
        assert_one_error(said, f"{MALLORY} may not", "key users.")


def test_a_job_that_does_not_exist_is_named(town):
    said = world.ask(town, "job", "status", "nothing")
    assert said.code == 1
    assert_one_error(said, "there is no such job", "job nothing", "fedboost job list")


# Certificates


@pytest.fixture
def other_certs(town, tmp_path):
    """A folder with the town's CA and nobody in it."""
    folder = tmp_path / "certs"
    folder.mkdir()
    for name in ("ca.pem", "ca.key"):
        shutil.copy(town.folder / "certs" / name, folder / name)
    return folder


def listed(town, certs):
    env = world.client_env(town) | {"FEDBOOST_TLS": str(certs)}
    return world.fedboost("job", "list", env=env)


@pytest.mark.parametrize(
    ("days_ago", "word"), [(30, "expired"), (-2, "not valid before")], ids=["expired", "early"]
)
def test_a_users_certificate_out_of_its_time_is_refused(town, other_certs, days_ago, word):
    world.issue(other_certs, [("user", "user")], days_ago=days_ago, days=7)
    said = listed(town, other_certs)
    assert said.code == 2, said.err
    assert_one_error(said, word, "user.pem", "fedboost certs rotate")


def test_a_certificate_of_another_ca_is_refused(town, tmp_path):
    world.issue(tmp_path / "certs", [("user", "user")])
    said = listed(town, tmp_path / "certs")
    assert said.code == 3, said.err
    assert_one_error(said, "not one of our CA's", f"party {COORDINATOR}", "fedboost doctor")


def test_a_daemon_does_not_start_with_an_expired_certificate(town, other_certs, tmp_path):
    world.issue(other_certs, [("party", "shop")], days_ago=30, days=7)
    config = tmp_path / "shop.yaml"
    text = town.config("shop").read_text()
    config.write_text(text.replace(str(town.folder / "certs" / "shop"), str(other_certs / "shop")))
    said = world.fedboost("party", "serve", "--config", config)
    assert said.code == 2, said.err
    assert_one_error(said, "expired", "shop.pem", "fedboost certs rotate")


def test_a_second_daemon_on_the_same_store_is_refused(town):
    said = world.fedboost("party", "serve", "--config", town.config("shop"))
    assert said.code != 0
    assert "Traceback" not in said.err


def test_an_address_that_is_taken_is_named(town, tmp_path):
    config = tmp_path / "shop.yaml"
    text = town.config("shop").read_text()
    config.write_text(text.replace(str(town.store("shop")), str(tmp_path / "store")))
    said = world.fedboost("party", "serve", "--config", config)
    assert said.code == 2, said.err
    assert_one_error(said, f"cannot listen on {town.addresses['shop']}: Address already in use")
    config.write_text(config.read_text().replace(town.addresses["shop"], "192.0.2.1:7100"))
    said = world.fedboost("party", "serve", "--config", config)
    assert said.code == 2, said.err
    assert_one_error(said, "cannot listen on 192.0.2.1:7100: Cannot assign requested address")
    assert "the address is not this machine's" in said.err
