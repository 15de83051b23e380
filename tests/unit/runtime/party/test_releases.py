"""A merged model needs every host's consent: signed, for this model and guest, in both ledgers."""

import base64
import json
from contextlib import closing
from datetime import UTC, datetime

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedboost.cli.groups import cli
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError, DataError, FedboostError, PeerError, PolicyError
from fedboost.ground.settings import load_settings
from fedboost.model import shards
from fedboost.model.xgboost_json import xgboost_json
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.party.owner import releases
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.certificates import Leaf, Term
from tests import tiers
from tests.support.models import MODEL, PARTIES, random_model, whole

OTHER = "fraud-11111111"


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    authority.create_certificates(
        folder, [Leaf("party", name) for name in PARTIES], Term(datetime.now(UTC))
    )
    return folder


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """Certificates of the same names by a CA that nobody here trusts."""
    folder = tmp_path_factory.mktemp("strangers")
    authority.create_certificates(
        folder, [Leaf("party", name) for name in PARTIES], Term(datetime.now(UTC))
    )
    return folder


@pytest.fixture
def made():
    return random_model(21)


@pytest.fixture
def folder(made, certs, tmp_path):
    """Three parties, each with its own settings, certificate and store."""
    for party in PARTIES:
        store = tmp_path / "var" / party
        shards.save_shard(store / "models" / MODEL, made[party])
        others = [name for name in PARTIES if name != party]
        raw = {
            "name": party,
            "listen": "127.0.0.1:7101",
            "tls": {key: str(certs / file) for key, file in files_of(party).items()},
            "coordinator": {"name": "coord", "address": "127.0.0.1:7100"},
            "peers": {name: "127.0.0.1:7102" for name in others},
            "store": str(store),
            "policy": {"peers": others},
        }
        (tmp_path / f"{party}.yaml").write_text(yaml.safe_dump(raw))
    return tmp_path


def files_of(party):
    return {"ca": "ca.pem", "cert": f"{party}.pem", "key": f"{party}.key"}


def edited(folder, party, change):
    path = folder / f"{party}.yaml"
    raw = yaml.safe_load(path.read_text())
    change(raw)
    path.write_text(yaml.safe_dump(raw))


def fedboost(*args, **more):
    words = [str(arg) for arg in args]
    return CliRunner().invoke(cli, words, catch_exceptions=False, standalone_mode=False, **more)


def refused(*args, kind=ConfigError):
    with pytest.raises(kind) as caught:
        fedboost(*args)
    return caught.value


def release(folder, party, *more, to="bank", **how):
    config = ("--config", folder / f"{party}.yaml")
    out = folder / f"{party}.json"
    said = fedboost("model", "release", MODEL, *config, "--to", to, "--out", out, *more, **how)
    return out, said


def export(folder, *files):
    given = [word for file in files for word in ("--with", file)]
    out = folder / "m.json"
    fedboost("model", "export", MODEL, "--config", folder / "bank.yaml", *given, "--out", out)
    return out.read_text()


def refused_export(folder, *files, kind=ConfigError):
    given = [word for file in files for word in ("--with", file)]
    bank = ("--config", folder / "bank.yaml")
    error = refused("model", "export", MODEL, *bank, *given, "--out", folder / "m.json", kind=kind)
    assert not (folder / "m.json").exists()
    return error


def rows(folder, party):
    with closing(Ledger(folder / "var" / party / "store.sqlite")) as ledger:
        ledger.verify()
        return [row for row in ledger.rows(MODEL) if row.step == releases.STEP]


def test_all_consents_make_the_model_that_all_shards_make(made, folder):
    files = [release(folder, party, "--yes")[0] for party in PARTIES[1:]]
    found, pooled = json.loads(export(folder, *files)), json.loads(xgboost_json(whole(made)))
    names = [raw["learner"]["feature_names"] for raw in (found, pooled)]
    assert set(names[0]) <= set(names[1])
    for ours, theirs in zip(*(r["learner"]["gradient_booster"]["model"]["trees"]
                              for r in (found, pooled)), strict=True):  # fmt: skip
        both = enumerate((ours, theirs))
        asked = [[names[k][i] for i in tree["split_indices"]] for k, tree in both]
        inner = [left != -1 for left in theirs["left_children"]]
        assert [a for a, i in zip(asked[0], inner, strict=True) if i] == [
            a for a, i in zip(asked[1], inner, strict=True) if i
        ]
        for part in ("split_conditions", "categories", "default_left", "base_weights"):
            assert ours[part] == theirs[part]


def test_a_release_tells_the_columns_of_its_splits_and_no_others(made, folder):
    facts = {**made["telco"].facts, "columns": [*made["telco"].facts["columns"], "secret", "town"]}
    facts["categories"] = {**facts["categories"], "town": ["Ulm", "Bonn"]}
    shards.save_shard(folder / "var/telco/models" / MODEL, Artefact(facts, made["telco"].arrays))
    file, _ = release(folder, "telco", "--yes")
    told = json.loads(file.read_bytes().partition(b"\n")[0])["shard"]
    used = {split["column"] for split in told["splits"]}
    assert set(told["columns"]) == used
    assert "secret" not in file.read_text()
    assert "Ulm" not in file.read_text()
    assert set(told["categories"]) == {"city"} & used


@pytest.mark.parametrize("given", [[], ["telco"], ["shop"]], ids=str)
def test_an_export_names_every_owner_whose_consent_is_missing(folder, given):
    files = [release(folder, party, "--yes")[0] for party in given]
    error = refused_export(folder, *files)
    missing = ", ".join(party for party in PARTIES[1:] if party not in given)
    assert error.what == f"the splits of {missing} are missing: part of the model lies there"
    assert "fedboost model release" in error.todo


def test_the_owner_is_shown_what_is_told_and_asked(folder):
    out, said = release(folder, "telco", input="n\n")
    assert said.return_value == 1
    assert "telco would give bank" in said.stderr
    assert "calls" in said.stderr
    assert not out.exists()
    assert rows(folder, "telco") == []
    out, said = release(folder, "telco", input="y\n")
    assert said.return_value == 0
    assert out.stat().st_mode & 0o777 == 0o600


def test_both_ledgers_have_a_row_about_the_same_payload_once(folder):
    files = [release(folder, party, "--yes")[0] for party in PARTIES[1:]]
    export(folder, *files)
    export(folder, *files)
    (out,), came = rows(folder, "telco"), rows(folder, "bank")
    assert [(row.direction, row.peer) for row in came] == [("in", "telco"), ("in", "shop")]
    assert (out.direction, out.peer) == ("out", "bank")
    alike = ("job", "stage", "step", "number", "kind", "bytes", "values", "sha256", "salt")
    assert all(getattr(out, name) == getattr(came[0], name) for name in alike)
    assert out.reveals.startswith("to the guest, what this host's splits")


def test_a_release_that_is_not_written_down_does_not_leave(folder, monkeypatch):
    def full(*_):
        raise ConfigError("the disk is full")

    monkeypatch.setattr(Ledger, "record", full)
    with pytest.raises(ConfigError, match="the disk is full"):
        release(folder, "telco", "--yes")
    assert not (folder / "telco.json").exists()


def test_nothing_is_written_down_where_the_file_cannot_be(folder):
    args = ("--config", folder / "telco.yaml", "--to", "bank", "--out", folder / "none" / "t.json")
    error = refused("model", "release", MODEL, *args, "--yes")
    assert error.what == "the folder of --out does not exist"
    assert not (folder / "var" / "telco" / "store.sqlite").exists()


def test_a_party_signs_by_no_certificate_but_its_own(folder, certs):
    def take_shops(raw):
        raw["tls"] |= {key: str(certs / file) for key, file in files_of("shop").items()}

    edited(folder, "telco", take_shops)
    said = ("--config", folder / "telco.yaml", "--to", "bank", "--out", folder / "x.json", "--yes")
    why = refused("model", "release", MODEL, *said)
    assert why.what == "the certificate is party shop's, but the settings call us telco"
    assert rows(folder, "telco") == []


def test_a_second_release_of_a_model_is_another_row(folder):
    first = release(folder, "telco", "--yes")[0].read_bytes()
    assert release(folder, "telco", "--yes")[0].read_bytes() != first
    assert [row.number for row in rows(folder, "telco")] == [0, 1]
    twice = folder / "again.json"
    twice.write_bytes(first)
    error = refused_export(folder, twice, folder / "telco.json")
    assert error.what == "--with names telco twice"


def test_only_a_hosts_part_of_a_model_of_trees_is_released_and_to_its_guest_alone(made, folder):
    def why(party, to="bank"):
        with pytest.raises(FedboostError) as caught:
            release(folder, party, "--yes", to=to)
        return caught.value.what

    assert why("telco", to="shop").startswith("the guest of the model is bank")
    assert why("bank").startswith("bank is the model's guest")
    hybrid = {**made["telco"].facts, "kind": "hybrid"}
    shards.save_shard(folder / "var/telco/models" / MODEL, Artefact(hybrid, made["telco"].arrays))
    assert why("telco").startswith("a hybridtree model averages")
    everybodys = {**made["telco"].facts, "kind": "trees", "whole": True}
    shards.save_shard(folder / "var/telco/models" / MODEL, Artefact(everybodys, {}))
    assert why("telco").startswith("every party holds the whole model")


def test_the_policy_decides_whom_splits_may_be_told(folder):
    edited(folder, "telco", lambda raw: raw["policy"].update(peers=["shop"]))
    with pytest.raises(PolicyError) as caught:
        release(folder, "telco", "--yes")
    assert caught.value.where["key"] == "policy.peers"
    assert rows(folder, "telco") == []


def test_a_release_for_another_model_is_refused(made, folder):
    facts = {**made["telco"].facts, "job": OTHER}
    shards.save_shard(folder / "var/telco/models" / OTHER, Artefact(facts, made["telco"].arrays))
    telco, out = ("--config", folder / "telco.yaml"), folder / "telco.json"
    fedboost("model", "release", OTHER, *telco, "--to", "bank", "--out", out, "--yes")
    error = refused_export(folder, out)
    assert error.what == f"the splits of telco are of the model {OTHER}, not of {MODEL}"


def test_a_release_to_somebody_else_is_refused(folder):
    file, _ = release(folder, "telco", "--yes")
    config = load_settings(PartyConfig, folder / "shop.yaml")
    with pytest.raises(ConfigError, match="has released its splits to bank, not to shop"):
        releases.read_release(config, file.read_bytes(), MODEL)


def resigned(folder, party, signer, change):
    """A release of a party that somebody has changed and signed anew."""
    text = json.loads(release(folder, party, "--yes")[0].read_bytes().partition(b"\n")[0])
    change(text)
    text = json.dumps(text, sort_keys=True, separators=(",", ":")).encode()
    made = folder / "changed.json"
    made.write_bytes(text + b"\n" + base64.b64encode(signer(text)) + b"\n")
    return made


def signer_of(party, certs):
    from fedboost.runtime.policy.judgement import SEPARATOR
    from fedboost.runtime.transport.tls import TlsFiles, load_identity

    tls = TlsFiles(**{key: certs / file for key, file in files_of(party).items()})
    identity = load_identity(tls)
    return lambda text: identity.certificate_pem + SEPARATOR + identity.sign(text)


def test_what_another_party_or_a_stranger_has_signed_is_no_consent(folder, certs, strangers):
    by_shop = resigned(folder, "telco", signer_of("shop", certs), lambda text: None)
    error = refused_export(folder, by_shop, kind=PeerError)
    assert error.what == "expected a signature of party telco, got party shop's"
    by_guest = resigned(folder, "telco", signer_of("bank", certs), lambda text: None)
    assert "got party bank's" in refused_export(folder, by_guest, kind=PeerError).what
    unknown = resigned(folder, "telco", signer_of("telco", strangers), lambda text: None)
    assert "not signed by our CA" in refused_export(folder, unknown, kind=PeerError).what


def test_a_changed_release_is_refused(folder):
    file, _ = release(folder, "telco", "--yes")
    text, line, signature = file.read_bytes().partition(b"\n")
    file.write_bytes(text.replace(b'"missing":"left"', b'"missing":"right"', 1) + line + signature)
    error = refused_export(folder, file, kind=PeerError)
    assert "does not fit the signed text" in error.what
    assert error.where == {"file": str(file)}
    assert rows(folder, "bank") == []


def test_a_host_that_lies_about_its_shard_is_refused(folder, certs):
    own = signer_of("telco", certs)
    other = resigned(folder, "telco", own, lambda text: text["shard"].update(party="shop"))
    assert (
        "belong to another model or party than the release names"
        in refused_export(folder, other, kind=DataError).what
    )
    twice = resigned(folder, "telco", own, lambda text: text["shard"]["splits"].append(
        text["shard"]["splits"][0]))  # fmt: skip
    assert "splits one node twice" in refused_export(folder, twice, kind=DataError).what
    more = resigned(folder, "telco", own, lambda text: text.update(more=1))
    assert "no release of a model" in refused_export(folder, more).what


def test_a_revoked_certificate_consents_to_nothing(folder, tmp_path_factory):
    certs = tmp_path_factory.mktemp("revoking")
    authority.create_certificates(
        certs, [Leaf("party", name) for name in PARTIES], Term(datetime.now(UTC))
    )
    for party in PARTIES:
        files = {key: str(certs / file) for key, file in files_of(party).items()}
        edited(folder, party, lambda raw, files=files: raw.update(tls=files))
    file, _ = release(folder, "telco", "--yes")
    authority.revoke_certificates(certs, "telco", datetime.now(UTC))
    error = refused_export(folder, file, kind=PeerError)
    assert "has been revoked" in error.what


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=tiers.examples(60)
)
@given(draw=st.data())
def test_no_damage_to_a_release_passes_or_breaks_the_reader(folder, draw):
    config = load_settings(PartyConfig, folder / "bank.yaml")
    file = folder / "telco.json"
    if not file.exists():
        release(folder, "telco", "--yes")
    good = file.read_bytes()
    place = draw.draw(st.integers(0, len(good) - 1))
    damaged = bytearray(good)
    damaged[place : place + draw.draw(st.integers(1, 40))] = draw.draw(st.binary(max_size=8))
    if damaged == good:
        assert releases.read_release(config, good, MODEL).release.party == "telco"
    else:
        with pytest.raises(FedboostError):
            releases.read_release(config, bytes(damaged), MODEL)
