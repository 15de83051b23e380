"""A guest's job is done again: honest ones are found so, over pauses too, and others are named."""

import json
import sqlite3
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from fedboost.cli.groups import cli
from fedboost.encrypted.guest.tree import GuestTree
from fedboost.ground.errors import ConfigError, DataError, PeerError, StoreError
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial
from fedboost.job import JobSpec
from fedboost.protocols.secureboost import guest as guest_steps
from fedboost.runtime.jobs.submitted import check_spec
from fedboost.runtime.party.owner import replay_results, replays
from fedboost.runtime.store.recordings import Recordings
from fedboost.runtime.transport.addresses import Timers
from tests.support import small_jobs
from tests.support.replayed import GUEST, HOST, ROWS, spec, tables, trained
from tests.support.whole_jobs import breaking, resumed


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A job of an honest guest."""
    made = trained(tmp_path_factory.mktemp("honest"), spec())
    assert made.state == "finished"
    return made


def test_an_honest_guest_is_found_honest_and_hosts_can_hold_it_to_what_came(honest):
    result = honest.replay()
    assert result.is_honest
    assert result.is_whole
    assert (result.difference, result.ledger, result.attempts) == ("", [], 1)
    peer = result.peers[HOST]
    for way in (peer.sent, peer.came):
        assert way.payloads == way.signed == len(way.hashes) > 5
    assert result.other_payloads == {"align": 3}
    assert result.table.weights.distinct == 1
    file = replay_results.sign_result(honest.configs[GUEST], result)
    host = honest.configs[HOST]
    assert replay_results.read_result(host, file) == result
    assert replay_results.compare_with_ledger(host, result) == []


def test_a_result_that_was_altered_is_not_the_guests(honest):
    file = replay_results.sign_result(honest.configs[GUEST], honest.replay())
    with pytest.raises(PeerError):
        replay_results.read_result(honest.configs[HOST], file.replace(b'"zero":0', b'"zero":1', 1))
    with pytest.raises(ConfigError, match="no result of a replay"):
        replay_results.read_result(honest.configs[HOST], b"{}\n")


def test_a_payload_that_no_replay_confirmed_is_found_by_the_host_that_got_it(honest):
    result = honest.replay()
    peer = result.peers[HOST]
    sent = peer.sent.model_copy(update={"hashes": peer.sent.hashes[1:]})
    fewer = peer.model_copy(update={"sent": sent})
    found = replay_results.compare_with_ledger(
        honest.configs[HOST], result.model_copy(update={"peers": {HOST: fewer}})
    )
    assert len(found) == 1
    assert "is not among the payloads that were replayed" in found[0]


def test_payloads_that_a_host_sent_must_be_those_that_a_replay_was_given(honest):
    result = honest.replay()
    peer = result.peers[HOST]
    came = peer.came.model_copy(update={"hashes": ["0" * 64, *peer.came.hashes[1:]]})
    other = peer.model_copy(update={"came": came})
    left, strange = replay_results.compare_with_ledger(
        honest.configs[HOST], result.model_copy(update={"peers": {HOST: other}})
    )
    assert "left this party and is not what the replay was given" in left
    assert strange == "the replay was given 1 payloads that this party never sent"


def test_other_rows_and_another_job_than_the_hosts_are_found_by_it(honest):
    result = honest.replay()
    table = result.table.model_copy(update={"ids_sha256": "0" * 64})
    other = result.model_copy(update={"table": table, "manifest_sha256": "1" * 64})
    assert replay_results.compare_with_ledger(honest.configs[HOST], other) == [
        "the rows that were replayed are not those in common with this party",
        "the job that was replayed is not the one that this party signed",
    ]


@pytest.mark.parametrize(
    ("step", "times", "keep_s"),
    [
        ("choose_splits", 2, 60.0),  # in the first round: nothing is kept
        ("choose_splits", 2, 0.0),  # behind a layer
        ("grow_nodes", 3, 60.0),  # behind a round
        ("encrypt_gradients", 2, 60.0),
        ("close_trees", 1, 0.0),
    ],
)
def test_an_honest_guest_is_found_honest_over_a_pause(tmp_path, step, times, keep_s, monkeypatch):
    breaking(monkeypatch, guest_steps, step, times)
    made = trained(tmp_path, spec(), run=resumed, timers=Timers(keep_s=keep_s))
    assert made.state == "finished"
    monkeypatch.undo()
    result = made.replay()
    assert result.is_confirmed, result.difference
    assert (result.attempts, result.is_whole) == (2, True)
    assert not result.is_honest  # of an attempt that broke off hosts have not signed the end
    assert f"NOT SHOWN: {result.unsigned_counts[HOST]} payloads" in "\n".join(result.sentences())
    assert replay_results.compare_with_ledger(made.configs[HOST], result) == []


def test_an_honest_guest_is_found_honest_over_a_pause_between_two_classes(tmp_path, monkeypatch):
    """Its last place is inside the class before: what is kept there has no more than its layers."""
    breaking(monkeypatch, guest_steps, "choose_splits", 3)
    classes = tables(y=np.arange(ROWS) % 3.0)
    job = spec(objective="multi:softprob", num_class=3, n_estimators=1)
    made = trained(tmp_path, job, classes, run=resumed, timers=Timers(keep_s=0.0))
    monkeypatch.undo()
    result = made.replay()
    assert result.is_confirmed, result.difference
    assert result.attempts == 2


@pytest.mark.parametrize("scheme", ["paillier", "okamoto-uchiyama"])
def test_a_guest_with_a_key_is_found_honest_over_a_pause_with_another_key(
    tmp_path, scheme, monkeypatch
):
    breaking(monkeypatch, guest_steps, "choose_splits", 1)
    job = spec(encryption={"scheme": scheme}, n_estimators=1, max_depth=1)
    made = trained(tmp_path, job, run=resumed)
    monkeypatch.undo()
    result = made.replay()
    assert result.is_confirmed
    assert replay_results.compare_with_ledger(made.configs[HOST], result) == []
    with sqlite3.connect(made.store / "store.sqlite") as sql:
        keys = sql.execute("SELECT sha256 FROM ledger WHERE step = 'share_key'").fetchall()
    assert len(set(keys)) == 2


def test_attempts_share_no_ciphertext(tmp_path, monkeypatch):
    breaking(monkeypatch, guest_steps, "choose_splits", 1)
    made = trained(tmp_path, spec(), run=resumed)
    monkeypatch.undo()
    with sqlite3.connect(made.store / "store.sqlite") as sql:
        rows = sql.execute(
            "SELECT attempt, sha256 FROM ledger WHERE step = 'encrypt_gradients' AND number < 8"
        ).fetchall()
    assert {attempt for attempt, _ in rows} == {1, 2}
    assert len({digest for _, digest in rows}) == len(rows)


def test_a_guest_that_cheats_in_a_later_attempt_alone_is_found(tmp_path, monkeypatch):
    breaking(monkeypatch, guest_steps, "grow_nodes", 3)
    best = GuestTree.best_of

    def best_of(self, node, sums, shape):
        honest = best(self, node, sums, shape)
        if len(begun) < 2 or honest is None:
            return honest
        worst = int(np.argmin(sums[:, 0]))
        return type(honest)(honest.gain, [np.array([worst])], sums[worst][None])

    begun: list[int] = []
    begin = guest_steps.begin

    def counted(context):
        begun.append(1)
        return begin(context)

    monkeypatch.setattr(guest_steps, "begin", counted)
    monkeypatch.setattr(GuestTree, "best_of", best_of)
    made = trained(tmp_path, spec(), run=resumed)
    monkeypatch.undo()
    result = made.replay()
    assert not result.is_honest
    assert result.difference.startswith("attempt 2, step choose_splits")
    assert "tree 1, node" in result.difference


def test_a_table_that_has_changed_since_is_refused(tmp_path):
    made = trained(tmp_path, spec())
    table = tables()[GUEST]
    other = table.set_column(1, "y", [1.0 - table["y"].to_numpy()])
    pq.write_table(other, tmp_path / f"{GUEST}.parquet")
    with pytest.raises(DataError, match="table differs from the one of the training"):
        made.replay()


def test_a_record_that_was_altered_is_not_believed(tmp_path):
    made = trained(tmp_path, spec())
    path = Recordings(made.store).folder(made.job) / "records"
    [attempt] = Recordings(made.store).attempts(made.job)
    answer = next(m for m in attempt.came if m.envelope.step == "sum_candidates")
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[answer.offset + answer.n_bytes // 2] ^= 1
    path.write_bytes(bytes(changed))
    with pytest.raises(StoreError, match="damaged"):
        made.replay()
    path.write_bytes(whole[: answer.offset + 5])  # and one that breaks off
    assert not made.replay().is_honest
    path.write_bytes(whole)
    assert made.replay().is_honest


def test_another_ledger_than_the_hosts_have_signed_is_refused(tmp_path):
    made = trained(tmp_path, spec())
    with sqlite3.connect(made.store / "store.sqlite") as sql:
        sql.execute("DROP TRIGGER ledger_stays")
        sql.execute("UPDATE ledger SET sha256 = ? WHERE step = 'choose_splits'", ("0" * 64,))
    with pytest.raises(DataError, match="the ledger is broken"):
        made.replay()


def test_what_a_replay_takes_goes_when_the_owner_says_so(tmp_path):
    made = trained(tmp_path, spec())
    folder = made.store / "jobs" / made.job
    assert sorted(path.name for path in folder.iterdir()) == [
        "replay",
        "result.json",
        "secret",
        "transcript",
    ]
    replays.forget_record(made.configs[GUEST], made.job)
    assert sorted(path.name for path in folder.iterdir()) == ["result.json", "transcript"]
    with pytest.raises(ConfigError, match="there are no records here"):
        made.replay()
    with pytest.raises(ConfigError, match="no longer kept"):
        replays.forget_record(made.configs[GUEST], made.job)


def test_a_job_that_is_not_replayable_keeps_no_secret(tmp_path):
    made = trained(tmp_path, spec(replayable=False))
    assert not (made.store / "jobs" / made.job / "secret").exists()
    with pytest.raises(ConfigError, match="cannot be replayed"):
        made.replay()


def test_only_the_guest_can_replay_its_job(honest):
    with pytest.raises(ConfigError, match=f"{HOST} is no guest"):
        replays.replay_job(honest.configs[HOST], honest.job, Serial())
    with pytest.raises(ConfigError, match="has no job"):
        replays.replay_job(honest.configs[GUEST], "credit-00000000", Serial())


def test_a_host_may_demand_a_guest_that_can_be_checked(tmp_path):
    async def run(made, job):
        node = made.parties[HOST]
        policy = node.config.policy.model_copy(update={"guest_replayable": True})
        node.config = node.config.model_copy(update={"policy": policy})
        journals.append(await made.run(job))
        return journals[-1]

    journals: list[Any] = []
    assert trained(tmp_path / "a", spec(replayable=False), run=run).state == "failed"
    assert "that it was honest" in journals[0].status.reason.what
    assert trained(tmp_path / "b", spec(), run=run).state == "finished"


@pytest.mark.parametrize("name", ["gbun", "hybridtree", "federboost-vertical"])
def test_protocols_that_cannot_be_replayed_refuse_to_promise_it(name):
    raw = {**small_jobs.raw(name), "replayable": True}
    with pytest.raises(ConfigError, match=f"jobs of {name} cannot be replayed") as refused:
        check_spec(parse_settings(JobSpec, raw))
    assert refused.value.where["key"] == "replayable"


def test_schemes_that_cannot_be_replayed_refuse_to_promise_it():
    for params, why in (
        ({"encryption": {"scheme": "plain"}}, "jobs under plain cannot be replayed"),
        ({"warm_start": "credit-1a2b3c4d"}, "a job with warm_start"),
    ):
        with pytest.raises(ConfigError, match=why):
            check_spec(spec(**params))


def test_what_a_replayable_job_signs_says_so_and_others_sign_what_they_did():
    assert "replayable" not in spec(replayable=False).model_dump(mode="json")
    assert spec().model_dump(mode="json")["replayable"] is True


def test_the_commands_replay_verify_and_forget(honest, tmp_path):
    files = {}
    for name, config in honest.configs.items():
        files[name] = tmp_path / f"{name}.yaml"
        files[name].write_text(yaml.safe_dump(json.loads(config.model_dump_json())))
    out = tmp_path / "replay.json"
    shown = CliRunner().invoke(
        cli,
        ["audit", "replay", honest.job, "--config", str(files[GUEST]), "--out", str(out), "--json"],
    )
    assert shown.exit_code == 0, shown.output
    facts = json.loads(shown.stdout)
    assert facts["is_honest"] is True
    assert facts["cpu_seconds"] > 0
    shown = CliRunner().invoke(cli, ["audit", "verify", str(out), "--config", str(files[HOST])])
    assert shown.exit_code == 0, shown.output
    assert f"all that passed between it and {HOST} was replayed" in shown.output
    shown = CliRunner().invoke(
        cli, ["audit", "forget", honest.job, "--config", str(files[GUEST])], input="n\n"
    )
    assert "nothing was destroyed" in shown.output
