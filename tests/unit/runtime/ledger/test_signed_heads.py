"""Two ledgers must agree: heads travel with every commit, and whoever changes a past is found."""

import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from fedboost.cli.groups import ledger_group
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError, DataError, PeerError
from fedboost.ground.workers import Serial
from fedboost.messages.party_pb2 import SignedHead
from fedboost.runtime.cluster import local
from fedboost.runtime.ledger import comparison, signed_heads
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import GENESIS, DisclosureRow, Head, row_hash
from fedboost.runtime.policy.judgement import signer_at
from fedboost.runtime.transport.roots import Roots
from fedboost.runtime.transport.tls import load_identity
from tests.support.federated import job_spec, now

BANK, TELCO, SHOP = PARTIES = ("bank", "telco", "shop")
ROUNDS, PARTS = 3, 2


class Town:
    """A cluster on which an echo job runs; `spoil` may change what a commit carries."""

    def __init__(self, folder):
        self.folder = folder
        self.spec = job_spec("echo", PARTIES, params={"rounds": ROUNDS, "parts": PARTS})
        rng = np.random.default_rng(7)
        for party in PARTIES:
            columns = {"id": [str(i) for i in range(20)], "x": rng.normal(size=20)}
            pq.write_table(pa.table(columns), folder / f"{party}.parquet")

    def run(self, spoil=lambda party, name, request: request, meddle=None):
        """The job's journal; `meddle` is told the parties' nodes before it begins."""

        async def work():
            sources = {p: SourceSpec(path=str(self.folder / f"{p}.parquet")) for p in PARTIES}
            where = self.folder / "cluster"
            async with local.open_cluster(where, self.spec, sources, Serial()) as made:
                for party, node in made.parties.items():
                    for name in ("commit", "finish"):
                        wrapped = partial(called, getattr(node, name), party, name)
                        setattr(node, name, wrapped)
                if meddle is not None:
                    meddle(made.parties)
                return await made.run(self.spec)

        async def called(method, party, name, caller, request):
            return await method(caller, spoil(party, name, request))

        journal = now(work())
        self.job = journal.status.id
        return journal

    def ledger(self, party):
        """A party's ledger."""
        return closing(Ledger(self.store(party), read_only=True))

    def store(self, party):
        """The file it lies in."""
        return self.folder / "cluster" / "var" / party / "store.sqlite"

    @property
    def check(self):
        """Checks a signature under the cluster's CA."""
        return partial(
            signer_at, Roots((self.folder / "cluster" / "certs" / "ca.pem").read_bytes())
        )

    def config(self, party):
        """The party's settings file."""
        certs = self.folder / "cluster" / "certs"
        tls = {"ca": "ca.pem", "cert": f"{party}.pem", "key": f"{party}.key"}
        content = {
            "name": party,
            "listen": "127.0.0.1:9",
            "tls": {key: str(certs / name) for key, name in tls.items()},
            "coordinator": {"name": "coordinator", "address": "127.0.0.1:9"},
            "store": str(self.store(party).parent),
        }
        file = self.folder / f"{party}.yaml"
        file.write_text(yaml.safe_dump(content))
        return str(file)

    def command(self, *args):
        """What a ledger command says, and its exit code."""
        done = CliRunner().invoke(ledger_group, list(args), standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        return done.return_value or 0, done.output

    def exported(self, party, *more):
        """The file with a party's rows of the job."""
        out = self.folder / f"{party}.ledger"
        self.command(
            *("export", "--config", self.config(party), "--job", self.job, "--out", str(out)), *more
        )
        return out


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A job that nobody disturbed."""
    town = Town(tmp_path_factory.mktemp("town"))
    assert town.run().status.state == "finished"
    return town


@pytest.fixture
def town(whole, tmp_path):
    """A copy of it, to be spoilt."""
    shutil.copytree(whole.folder, tmp_path / "town")
    copied = Town(tmp_path / "town")
    copied.job = whole.job
    return copied


def tamper(town, party, *statements):
    """Changes a ledger as somebody would who knows SQLite."""
    with closing(sqlite3.connect(town.store(party))) as connection:
        for table in ("ledger", "ledger_signed"):
            for trigger in ("keeps", "stays"):
                connection.execute(f"DROP TRIGGER IF EXISTS {table}_{trigger}")
        for statement, values in statements:
            connection.execute(statement, values)
        connection.commit()


def rewritten(town, party, change):
    """Writes a party's rows anew, with a chain that is whole: `change` gives what each becomes."""
    with town.ledger(party) as ledger:
        rows = [row for row in map(change, ledger.rows()) if row is not None]
    statements: list[Any] = [("DELETE FROM ledger", ())]
    head = Head(0, GENESIS)
    for n, row in enumerate(rows, 1):
        values = {**vars(row), "n": n, "previous": head.hash}
        values["hash"] = row_hash(type(row)(**values))
        head = Head(n, values["hash"])
        marks = ", ".join("?" for _ in values)
        statements.append((f"INSERT INTO ledger VALUES ({marks})", tuple(values.values())))
    statements.append(("UPDATE ledger_head SET n = ?, hash = ?", (head.n, head.hash)))
    tamper(town, party, *statements)


def other(n):
    """Makes row `n` tell of another payload."""

    def change(row):
        return row if row.n != n else replace(row, sha256="0" * 64)

    return change


def without(n):
    """Leaves row `n` out."""
    return lambda row: None if row.n == n else row


def signed_by(town, party):
    """What signs as a party."""
    identity = load_identity(local.tls_of(town.folder / "cluster" / "certs", party))
    return lambda text: identity.certificate_pem + b"\0" + identity.sign(text)


# What the parties have after a job


def test_every_party_keeps_everybodys_head_of_every_round(whole):
    for party in PARTIES:
        with whole.ledger(party) as ledger:
            kept = Counter((one.party, one.job) for one in ledger.kept())
        assert kept == {(one, whole.job): ROUNDS + 1 for one in PARTIES}


def test_what_two_parties_signed_about_each_other_is_the_same(whole):
    with whole.ledger(BANK) as ledger:
        stated = [signed_heads.read_statement(one.party, one.text) for one in ledger.kept()]
    for one in stated:
        for peer, pair in one.pairs.items():
            [same] = [s for s in stated if s.party == peer and s.moment == one.moment]
            assert same.pairs[one.party] == pair
    counts = [s.pairs[TELCO].entries for s in stated if s.party == BANK]
    assert counts == [PARTS + 1] * ROUNDS + [0]


def test_two_hosts_that_sent_each_other_nothing_say_so(whole):
    with whole.ledger(TELCO) as ledger:
        told = [
            signed_heads.read_statement(k.party, k.text) for k in ledger.kept() if k.party == TELCO
        ]
    assert all(one.pairs[SHOP].entries == 0 for one in told)


def test_equal_payloads_have_other_salts_and_both_ends_the_same(whole):
    salts = []
    for party in PARTIES:
        with whole.ledger(party) as ledger:
            salts.append([row.salt for row in ledger.rows()])
    assert len(set(salts[0])) == len(salts[0])
    assert sorted(salts[0]) == sorted(salts[1] + salts[2])


# What stops a job


def dropped(party, name, request):
    """The coordinator keeps one head back."""
    if name == "commit" and request.round == 2 and party == TELCO:
        del request.heads[0]
    return request


def forged(party, name, request):
    """The coordinator writes a head itself."""
    for head in request.heads if party == TELCO else ():
        if head.party == BANK:
            head.text = head.text.replace(b'"entries":3', b'"entries":4')
    return request


def of_another(party, name, request):
    """The coordinator shows one party's head as another's."""
    if request.heads and party == TELCO:
        kept = {head.party: head for head in request.heads}
        kept[BANK].text, kept[BANK].signature = kept[SHOP].text, kept[SHOP].signature
    return request


def unasked(party, name, request):
    """The coordinator brings a head that nobody has asked for."""
    if name == "commit" and request.round == 1 and party == TELCO:
        request.heads.append(SignedHead(party=BANK, text=b"{}", signature=b""))
    return request


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (dropped, "brought no head of the ledger of bank"),
        (forged, "does not fit the signed text"),
        (of_another, "expected a signature of party bank, got party shop's"),
        (unasked, "an unexpected head"),
    ],
)
def test_a_coordinator_can_neither_write_nor_keep_back_a_head(tmp_path, spoil, words):
    town = Town(tmp_path)
    status = town.run(spoil).status
    assert status.state == "failed"
    assert words in status.reason.what


def test_a_job_stops_when_two_ledgers_do_not_agree(tmp_path):
    def meddle(nodes):
        record = nodes[TELCO].ledger.record

        def lying(*disclosures, **more):
            if disclosures[0].direction == "out" and disclosures[0].number > 3:
                return record(*[replace(one, sha256="0" * 64) for one in disclosures], **more)
            return record(*disclosures, **more)

        nodes[TELCO].ledger.record = lying

    town = Town(tmp_path)
    status = town.run(meddle=meddle).status
    assert status.state == "failed"
    assert "do not agree on the messages between them: 3 entries and 3" in status.reason.what
    code, said = town.command("diff", "--config", town.config(BANK), "--job", town.job)
    assert code == 1
    assert "attempt 1, echo 2: telco signed that 3 payloads passed between us" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"n": 2}, "the ledger of telco does not continue its earlier state: it had"),
        ({"hash": "0" * 64}, "the ledger of telco does not continue its earlier state: it had"),
        ({"pairs": {}}, "do not agree on the messages between them: 0 entries and 0"),
        ({"round": 1}, "telco signed a head of another party or moment"),
        ({"attempt": 2}, "telco signed a head of another party or moment"),
        ({"job": "another"}, "telco signed a head of another party or moment"),
        ({"party": SHOP}, "telco signed a head of another party or moment"),
    ],
    ids=lambda value: "" if not isinstance(value, dict) else "-".join(value) or "honest",
)
def test_a_head_must_be_the_peers_own_of_this_moment_and_go_on_where_it_stood(town, change, words):
    last = {}
    with town.ledger(BANK) as ledger:
        for kept in ledger.kept():
            last[kept.party] = kept
    stated = signed_heads.read_statement(TELCO, last[TELCO].text).model_copy(update=change)
    text = stated.encode()
    given = [
        SignedHead(party=TELCO, text=text, signature=signed_by(town, TELCO)(text)),
        SignedHead(party=SHOP, text=last[SHOP].text, signature=last[SHOP].signature),
    ]
    table = town.spec.parties.table()
    signed = SimpleNamespace(id=town.job, peers=(TELCO, SHOP), table=table, goes_on=False)
    work: Any = SimpleNamespace(signed=signed, attempt=1, unsure_peers=set())
    with closing(Ledger(town.store(BANK))) as ledger:
        own = signed_heads.SignedHeads(BANK, ledger, Checking(town))
        before = len(ledger.kept())
        if words is None:
            own.hear(work, given)
        else:
            with pytest.raises(PeerError) as caught:
                own.hear(work, given)
            assert words in caught.value.what
        disagrees = words is None or "moment" not in words
        assert len(ledger.kept()) == before + 2 * disagrees, "what they signed is kept as proof"


def test_who_passed_over_a_peer_says_nothing_of_it_and_does_not_hold_it_to_anything(town):
    with town.ledger(TELCO) as ledger:
        told = {k.party: signed_heads.read_statement(k.party, k.text) for k in ledger.kept()}[TELCO]
    table = town.spec.parties.table()
    signed = SimpleNamespace(id=town.job, peers=(TELCO, SHOP), table=table, goes_on=True)
    work: Any = SimpleNamespace(signed=signed, attempt=2, unsure_peers={TELCO})
    with closing(Ledger(town.store(BANK))) as ledger:
        own = signed_heads.SignedHeads(BANK, ledger, Checking(town))
        ours = signed_heads.read_statement(BANK, own.exchange_heads(work, "gbun", (1,), []).text)
        assert set(ours.pairs) == {SHOP}
        said = told.model_copy(update={"attempt": 2, "stage": "gbun", "round": 1})
        lying = said.model_copy(
            update={"pairs": {BANK: signed_heads.PairDigest(entries=9, sha256="0" * 64)}}
        )
        text = lying.encode()
        given = [SignedHead(party=TELCO, text=text, signature=signed_by(town, TELCO)(text))]
        own.hear(work, given)  # and shop, which is gone, is missing
        signed.goes_on = False
        with pytest.raises(PeerError, match="brought no head of the ledger of shop"):
            own.hear(work, given)


class Checking:
    """Signs for the bank, checks under the town's CA; implements `flow.Signer`."""

    def __init__(self, town):
        self.town = town

    def sign(self, text):
        """As the bank."""
        return signed_by(self.town, BANK)(text)

    def check(self, party, text, signature):
        """As of now."""
        self.town.check(party, text, signature, datetime.now(UTC))


# Verify


def test_verify_counts_the_signed_heads(whole):
    code, said = whole.command("verify", "--config", whole.config(BANK), "--json")
    found = json.loads(said)
    assert code == 0
    assert found["whole"] is True
    assert (found["signed"], found["signed_by_peers"]) == (ROUNDS + 1, 2 * (ROUNDS + 1))


@pytest.mark.parametrize("column", ["text", "signature", "job", "party"])
@pytest.mark.parametrize("k", [1, 2, 3 * (ROUNDS + 1)])
def test_a_changed_byte_of_a_signed_head_is_found(town, column, k):
    with closing(sqlite3.connect(town.store(BANK))) as connection:
        [old] = connection.execute(f"SELECT {column} FROM ledger_signed WHERE k = {k}").fetchone()
    place = len(old) // 2
    flipped = bytes([old[place] ^ 1]) if isinstance(old, bytes) else chr(ord(old[place]) ^ 1)
    new = old[:place] + flipped + old[place + 1 :]
    tamper(town, BANK, (f"UPDATE ledger_signed SET {column} = ? WHERE k = ?", (new, k)))
    with pytest.raises(DataError, match=r"a head of .* was changed"):
        town.command("verify", "--config", town.config(BANK))


def test_a_whole_chain_written_anew_fits_no_signature(town):
    with town.ledger(BANK) as ledger:
        ledger.verify()
    rewritten(town, BANK, other(2))
    with town.ledger(BANK) as ledger:
        ledger.verify()  # it is a chain
    with pytest.raises(DataError, match="is not the one that this party signed"):
        town.command("verify", "--config", town.config(BANK))


def test_rows_cut_off_behind_a_signature_are_missed(town):
    rewritten(town, BANK, lambda row: row if row.n < 5 else None)
    with pytest.raises(DataError, match=r"is missing, and this party has signed it"):
        town.command("verify", "--config", town.config(BANK))


# Comparing


@pytest.mark.parametrize("reader", [None, BANK])
def test_two_honest_ledgers_agree_payload_for_payload(town, reader):
    for party in (TELCO, SHOP):
        more = () if reader is None else ("--for", reader)
        file = town.exported(party, *more)
        code, said = town.command("diff", "--config", town.config(BANK), "--with", str(file))
        assert (code, said) == (0, "the ledgers agree\n")
    code, said = town.command("diff", "--config", town.config(BANK), "--job", town.job, "--json")
    assert json.loads(said) == {"agree": True, "differ": [], "on_the_way": []}
    assert code == 0


def test_a_row_for_another_peer_leaves_its_hash_alone_in_the_file(town):
    file = town.exported(BANK, "--for", TELCO)
    export = comparison.read_export(file.read_bytes(), town.check)
    assert {row.peer for row in export.shown()} == {TELCO}
    assert len(export.rows) == 2 * len(export.shown())
    assert "shop" not in json.dumps([vars(row) for row in export.rows])


def lying(town, party, change):
    """The file of a party that has rewritten its ledger and left its signed heads out."""
    rewritten(town, party, change)
    tamper(town, party, ("DELETE FROM ledger_signed", ()))
    with town.ledger(party) as ledger:
        text = comparison.export_rows(ledger, party, town.job, None, signed_by(town, party))
    file = town.folder / "lie.ledger"
    file.write_bytes(text)
    return str(file)


def test_a_peer_that_wrote_its_past_anew_is_held_to_the_heads_it_gave(town):
    code, said = town.command(
        *("diff", "--config", town.config(BANK), "--with", lying(town, TELCO, other(2)))
    )
    assert code == 1
    assert "row 3 of telco's ledger is not the one that was signed" in said
    assert "Call of step call (attempt 1, echo 1 part 1)" in said
    assert f"{'0' * 64} there" in said


def test_a_payload_that_a_peer_left_out_is_named(town):
    code, said = town.command(
        *("diff", "--config", town.config(BANK), "--with", lying(town, TELCO, without(2)))
    )
    assert code == 1
    assert "we sent it to telco, whose ledger has no row of it" in said


def test_a_payload_that_we_left_out_is_named(town):
    file = town.exported(TELCO)
    with town.ledger(BANK) as ledger:
        n = next(row.n for row in ledger.rows() if row.peer == TELCO and row.direction == "in")
    rewritten(town, BANK, without(n))
    tamper(town, BANK, ("DELETE FROM ledger_signed", ()))
    code, said = town.command("diff", "--config", town.config(BANK), "--with", str(file))
    assert code == 1
    assert "telco says that it sent it to us, and our ledger has no row of it" in said
    assert "of our ledger is not the one that was signed" in said


def test_a_payload_on_its_way_when_its_attempt_ended_is_no_difference(town):
    with town.ledger(BANK) as ledger:
        last = ledger.rows()[-1]
    values = {**vars(last), "attempt": 2, "direction": "out", "peer": TELCO}
    late = {key: values[key] for key in vars(last) if key not in ("n", "at", "previous", "hash")}
    with closing(Ledger(town.store(BANK))) as ledger:
        ledger.record(DisclosureRow(**late))
    file = town.exported(TELCO)
    code, said = town.command("diff", "--config", town.config(BANK), "--with", str(file))
    assert code == 0
    assert "on its way when its attempt ended" in said
    assert said.endswith("the ledgers agree\n")


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_a_changed_byte_of_an_exported_file_is_refused(town, place):
    file = town.exported(TELCO)
    text = bytearray(file.read_bytes())
    text[int(place * len(text))] ^= 1
    with pytest.raises((DataError, PeerError)):
        comparison.read_export(bytes(text), town.check)


def test_a_file_that_is_no_export_is_refused(town):
    for text in (b"", b"{}\n", b"x" * 100, b'{"what": "fedboost ledger export 1"}\nAAAA\n'):
        with pytest.raises(DataError, match="not an exported ledger"):
            comparison.read_export(text, town.check)


def test_an_export_names_a_job_that_there_is(town):
    with pytest.raises(DataError, match="knows no job"):
        town.command(
            *("export", "--config", town.config(BANK), "--job", "none"),
            *("--out", str(town.folder / "x")),
        )


def test_diff_asks_what_to_compare_with(town):
    with pytest.raises(ConfigError, match="nothing to compare with"):
        town.command("diff", "--config", town.config(BANK))
