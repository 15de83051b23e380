"""A guest with hostile data or a changed program reads rows; its replay says so."""

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from fedboost.core import binning
from fedboost.encrypted.guest import rounds
from fedboost.encrypted.guest.offers import Best, Offers
from fedboost.encrypted.guest.rounds import OpenRound
from fedboost.encrypted.guest.tree import GuestTree
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import GENESIS, row_hash
from fedboost.runtime.party.owner import replay_results
from fedboost.runtime.party.owner.replay_results import ColumnSummary
from fedboost.runtime.store import recordings
from fedboost.runtime.store.recordings import Recordings
from tests.support.replayed import GUEST, HOST, ROWS, TREES, host_values, spec, tables, trained

BITS = 8  # people that one number tells apart under the lattice
PEOPLE = range(20, 20 + BITS)
UNIT = (2**15 - 1) / 2 ** (BITS - 1)  # what a weight of 1 is where 128 is the greatest number
# With 15 bits of a gradient, which an owner may allow, a number tells all of `PEOPLE` apart.
ONE_LAYER: dict[str, Any] = {"n_estimators": 1, "max_depth": 1, "precision_bits": 15}


def people_read(numbers, unit):
    """How many cuts of the host's columns have who of `PEOPLE` is on the left, read from sums."""
    got = {tuple(round(s / unit) >> place & 1 for place in range(BITS)) for s in numbers.tolist()}
    values = host_values().astype(np.float32)
    cuts = binning.fit(values, TREES["max_bin"], (), {}, rows=np.ones(ROWS, bool)).cuts
    told = [
        tuple(int(values[row, column] < cut) for row in PEOPLE) in got
        for column in range(values.shape[1])
        for cut in cuts[column]
    ]
    return sum(told), len(told)


# 107: weights


def weighted(folder, heard):
    """A job of a stock guest whose weights are powers of two for some and 0 for all others."""
    weights = np.zeros(ROWS)
    weights[list(PEOPLE)] = 2.0 ** np.arange(BITS)
    table = tables(y=np.zeros(ROWS), w=weights)
    job = spec(
        data={"weight": "w", "columns": ["z"]},
        objective="reg:squarederror",
        base_score=1.0,
        min_child_weight=0.0,
        **ONE_LAYER,
    )
    made = trained(folder, job, table)
    assert made.state == "finished"
    return made, people_read(np.concatenate(heard)[:, 1], UNIT)


def test_weights_that_are_powers_of_two_stand_in_the_replay(tmp_path, heard):
    """The defence is `ReplayedTable.weights`: no byte is wrong, and the auditor reads why."""
    made, (read, cuts) = weighted(tmp_path, heard)
    assert read == cuts
    result = made.replay()
    assert result.is_honest
    assert result.table.weights.distinct == BITS + 1
    assert result.table.weights.zero == ROWS - BITS
    assert "the largest 128 times the smallest; 232 rows have 0" in "\n".join(result.sentences())


def test_weights_that_are_powers_of_two_pass_where_a_replay_does_not_say_them(
    tmp_path, heard, monkeypatch
):
    made, (read, cuts) = weighted(tmp_path, heard)
    assert read == cuts
    monkeypatch.setattr(ColumnSummary, "in_words", lambda self, what: what)
    result = made.replay()
    assert result.is_honest
    assert "128" not in "\n".join(result.sentences()).replace(result.job, "")


# 108: marks


def marking(patch):
    """The guest encrypts marks in place of gradients: 2^i for some people."""
    start = rounds.Rounds.start_round

    def start_round(self, fixed):
        gradients = start(self, fixed)
        gh = np.zeros_like(self.round.gh)
        gh[list(PEOPLE), 1] = 1 << np.arange(BITS)
        self.round = OpenRound(self.round.sample, gh)
        return gradients

    patch.setattr(rounds.Rounds, "start_round", start_round)


def marked(folder, heard):
    made = trained(folder, spec(min_child_weight=0.0, **ONE_LAYER), change=marking)
    assert made.state == "finished"
    read, cuts = people_read(np.concatenate(heard)[:, 1], 1)
    assert read == cuts
    return made


def test_marks_in_place_of_gradients_do_not_pass_a_replay(tmp_path, heard):
    """The defence is `SentPayloads.confirm`, by a stock program: the table has other gradients."""
    result = marked(tmp_path, heard).replay()
    assert not result.is_honest
    assert "step encrypt_gradients" in result.difference
    assert "tree 0, node 0: gradients of its rows from 0 on" in result.difference


def test_marks_in_place_of_gradients_pass_a_replay_by_the_program_that_made_them(
    tmp_path, heard, monkeypatch
):
    """Why an auditor brings the program along."""
    made = marked(tmp_path, heard)
    marking(monkeypatch)
    assert made.replay().is_honest


# 109: winners


def halving(patch):
    """The guest names the candidate that halves a node, whatever it gains."""

    def best_of(self, node, sums, shape):
        left = sums[:, 1]
        place = int(np.argmin(np.abs(2 * left - self.totals[node][1])))
        return Best(1e9, [np.array([place])], sums[place][None])

    patch.setattr(GuestTree, "best_of", best_of)


def halved(folder):
    made = trained(folder, spec(), change=halving)
    assert made.state == "finished"
    return made


def test_winners_that_do_not_gain_most_do_not_pass_a_replay(tmp_path):
    """The defence is `SentPayloads.confirm`, by a stock program: others gain more."""
    result = halved(tmp_path).replay()
    assert not result.is_honest
    assert "step choose_splits" in result.difference
    assert "tree 0, node 0: who has won" in result.difference


def test_winners_that_do_not_gain_most_pass_a_replay_by_the_program_that_named_them(
    tmp_path, monkeypatch
):
    """Why an auditor brings the program along."""
    made = halved(tmp_path)
    halving(monkeypatch)
    assert made.replay().is_honest


# 109 as well: what came, written anew when the job is over

PACKAGES: dict[str, Any] = {  # 48 sums, 16 in a package
    **{**ONE_LAYER, "precision_bits": 52, "max_bin": 25},
    "encryption": {"scheme": "paillier"},
}


def swapped(message):
    """The sums of a host with its three packages in another order: each stands for others."""
    assert message.packages.count == 3
    width = len(message.packages.data) // 3
    other = pb.CandidateSums.FromString(message.SerializeToString())
    other.packages.data = message.packages.data[width:] + message.packages.data[:width]
    return other


def swapping(patch):
    """The guest takes other sums than came, so that another candidate gains most."""
    add = Offers.add
    patch.setattr(Offers, "add", lambda self, part: add(self, swapped(part)))


def records_written_anew(made):
    """The same sums in the record of what came; returns new hashes by the true ones."""
    path, changed = Recordings(made.store).folder(made.job) / recordings.RECORDS, {}
    with path.open("rb") as file:
        kept = list(recordings._read_records(file))
    whole, records = path.read_bytes(), []
    came = [message for one in Recordings(made.store).attempts(made.job) for message in one.came]
    by_offset = {message.offset: message.envelope for message in came}
    for kind, head, at, n_bytes in kept:
        is_came = kind == recordings._CAME
        body, envelope = whole[at : at + n_bytes], by_offset[at] if is_came else None
        if envelope is not None and envelope.step == "sum_candidates":
            body = swapped(pb.CandidateSums.FromString(body)).SerializeToString()
            true, envelope.payload_sha256 = envelope.payload_sha256, hashlib.sha256(body).digest()
            changed[true.hex()] = envelope.payload_sha256.hex()
        front = head if envelope is None else envelope.SerializeToString()
        records.append(recordings._HEADER.pack(kind, len(front), len(body)) + front + body)
    path.write_bytes(b"".join(records))
    return changed


def ledger_written_anew(made, changed):
    """A chain that is whole, with other hashes of what came, and without heads."""
    database = made.store / "store.sqlite"
    with closing(Ledger(database, read_only=True)) as ledger:
        rows = ledger.rows()
    with closing(sqlite3.connect(database)) as sql, sql:
        for trigger in ("ledger_stays", "ledger_signed_keeps"):
            sql.execute(f"DROP TRIGGER {trigger}")
        sql.execute("DELETE FROM ledger_signed")
        previous = GENESIS
        for row in rows:
            other = replace(row, sha256=changed.get(row.sha256, row.sha256), previous=previous)
            previous = row_hash(other)
            sql.execute(
                "UPDATE ledger SET sha256 = ?, previous = ?, hash = ? WHERE n = ?",
                (other.sha256, other.previous, previous, other.n),
            )
        sql.execute("UPDATE ledger_head SET hash = ?", (previous,))


def forged(folder):
    """A job of that guest, as its store says afterwards; it ends when a division shows the swap,
    and by then the host has said how the guest's candidate divides its rows.
    """
    table = tables(z=np.zeros(ROWS))  # the guest's own column never wins
    made = trained(folder, spec(**PACKAGES), table, change=swapping)
    assert made.state == "failed"
    found = made.replay()
    assert not found.is_confirmed
    assert "who has won" in found.difference
    changed = records_written_anew(made)
    assert changed
    ledger_written_anew(made, changed)
    return made


def test_a_guest_that_forges_what_came_is_found_by_the_host_that_sent_it(tmp_path):
    """The defence is `replay_results.compare_with_ledger`, both ways; what hosts have not signed is
    not honest before they compared it.
    """
    made = forged(tmp_path)
    result = made.replay()
    assert result.is_confirmed  # nobody sees it at the guest
    assert not result.is_honest
    payloads = result.peers[HOST].sent.payloads + result.peers[HOST].came.payloads
    assert result.unsigned_counts == {HOST: payloads}
    host, file = made.configs[HOST], replay_results.sign_result(made.configs[GUEST], result)
    assert replay_results.compare_with_ledger(host, replay_results.read_result(host, file)) == [
        "the replay was given 1 payloads that this party never sent"
    ]


def test_a_guest_that_forges_what_came_passes_where_a_host_compares_what_it_received_alone(
    tmp_path, monkeypatch
):
    made = forged(tmp_path)
    monkeypatch.setattr(replay_results, "_payload_differences", lambda *_: [])
    result = made.replay()
    assert result.is_confirmed
    assert replay_results.compare_with_ledger(made.configs[HOST], result) == []
