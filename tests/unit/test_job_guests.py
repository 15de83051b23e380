"""A job that names several guests: what it must say, and the job that it becomes for each."""

import json
from typing import Any

import pytest

from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec, Parties
from fedboost.protocols import load_all
from fedboost.runtime.cluster import local
from fedboost.runtime.cluster.local import complete_spec
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.manifest import Manifest
from fedboost.runtime.jobs.submitted import check_spec, read_spec

PARTIES: dict[str, Any] = {"guests": ["bank", "fund"], "hosts": ["telco", "shop"]}
JOB: dict[str, Any] = {
    "name": "fraud",
    "protocol": "hybridtree",
    "parties": PARTIES,
    "data": {
        "bank": {"dataset": "cards", "label": "y"},
        "fund": {"dataset": "trades", "label": "bad", "id": ["key"]},
        "telco": {"dataset": "calls"},
        "shop": {"dataset": "baskets"},
    },
    "validation": {"fraction": 0.5, "seed": 3},
    "params": {"n_estimators": 2},
}
ALONE = {"guest": "bank", "hosts": ["telco"]}


def job(**change):
    return parse_settings(JobSpec, {**JOB, **change})


def as_sent(spec):
    return spec.model_dump_json().encode()


@pytest.mark.parametrize(
    ("parties", "says"),
    [
        ({"hosts": ["telco"]}, "the key 'guest' is missing"),
        ({"guest": None, "guests": None, "hosts": ["telco"]}, "the key 'guest' is missing"),
        ({**PARTIES, "guest": "bank"}, "exclude each other"),
        ({**PARTIES, "guests": []}, "parties.guests"),
        ({**PARTIES, "guests": ["bank"]}, "parties.guests"),
        ({**PARTIES, "guests": ["bank", "bank"]}, "named twice"),
        ({**PARTIES, "guests": ["bank", "shop"]}, "named twice"),
        ({**PARTIES, "guests": ["bank", "../fund"]}, "is no name"),
        ({**PARTIES, "guests": "bank"}, "parties.guests"),
    ],
    ids=str,
)
def test_a_job_names_one_guest_or_several_that_differ(parties, says):
    with pytest.raises(ConfigError) as error:
        job(parties=parties)
    assert says in error.value.what


def test_each_guest_has_a_job_with_its_data_and_the_hosts():
    ours, theirs = job().split_by_guest()
    assert (ours.name, theirs.name) == ("fraud-bank", "fraud-fund")
    for one, guest in ((ours, "bank"), (theirs, "fund")):
        assert one.parties == Parties(guest=guest, hosts=["telco", "shop"])
        assert list(one.data) == [guest, "telco", "shop"]
        assert one.data[guest] == job().data[guest]
        assert (one.protocol, one.params) == ("hybridtree", {"n_estimators": 2})
        assert one.validation == job().validation
        assert parse_settings(JobSpec, json.loads(as_sent(one))) == one
        assert read_spec(as_sent(one)) == one


def test_a_job_with_one_guest_is_its_own_and_only_one():
    data = {party: JOB["data"][party] for party in ("bank", "telco")}
    spec = job(parties=ALONE, data=data)
    assert spec.split_by_guest() == (spec,)


def test_what_parties_sign_does_not_change_with_jobs_that_name_several_guests():
    data = {party: JOB["data"][party] for party in ("bank", "telco")}
    spec = job(parties=ALONE, data=data)
    assert spec.model_dump(mode="json")["parties"] == {**ALONE, "aggregator": None}
    assert json.loads(as_sent(job()))["parties"] == {**PARTIES, "aggregator": None}


def test_guests_data_and_the_aggregator_are_known_to_all_who_ask():
    parties = parse_settings(Parties, {**PARTIES, "aggregator": "sum"})
    assert parties.parties_with_data == ("bank", "fund", "telco", "shop")
    assert parties.everybody == (*parties.parties_with_data, "sum")
    adding = parse_settings(Parties, {**ALONE, "aggregator": "bank"})
    assert adding.everybody == ("bank", "telco")
    policy = local.permissive_policy("telco", job())
    assert policy.peers == ("bank", "fund", "shop")
    assert policy.predict.peers == policy.peers


def test_every_guest_needs_a_table_and_strangers_have_none():
    with pytest.raises(ConfigError, match="no data set for fund"):
        job(data={k: v for k, v in JOB["data"].items() if k != "fund"})
    with pytest.raises(ConfigError, match="neither guest nor host"):
        job(data={**JOB["data"], "mill": {"dataset": "d"}})


def test_a_name_must_leave_room_for_each_guests():
    long = "f" * (63 - len("-bank"))
    assert job(name=long).split_by_guest()[0].name == f"{long}-bank"
    with pytest.raises(ConfigError, match="is no name"):
        job(name=f"{long}f")


@pytest.mark.parametrize("text", [b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_no_job(text):
    with pytest.raises(ConfigError, match="the job is not JSON"):
        read_spec(text)


def test_a_coordinator_takes_a_job_of_one_guest_alone():
    with pytest.raises(ConfigError, match="several guests") as error:
        read_spec(as_sent(job()))
    assert "fedboost job submit" in error.value.todo
    assert error.value.where == {"key": "parties.guests"}


def test_a_party_finds_no_part_in_a_manifest_with_several_guests():
    terms = Manifest(job="j-1", coordinator="coord", submitter="ann", spec=job(), members=[])
    told = manifest.decode_manifest(terms.encode())
    with pytest.raises(ConfigError, match="several guests"):
        told.spec.parties.table()


def test_only_protocols_that_bag_may_have_several_guests():
    assert [name for name, one in load_all().items() if one.several_guests] == ["hybridtree"]
    check_spec(job())
    with pytest.raises(ConfigError, match="secureboost trains with one guest") as error:
        check_spec(job(protocol="secureboost"), file="job.yaml")
    assert "hybridtree" in error.value.todo
    assert error.value.where == {"key": "parties.guests", "file": "job.yaml"}


def test_what_each_job_says_is_checked_before_the_first_begins():
    with pytest.raises(ConfigError, match="unknown key 'guest_dept'"):
        check_spec(job(params={"guest_dept": 2}), file="job.yaml")
    with pytest.raises(ConfigError, match="has no part for an aggregator"):
        check_spec(job(parties={**PARTIES, "aggregator": "sum"}))


def test_every_guest_has_a_label_and_a_table_of_a_local_cluster():
    sources = {party: SourceSpec(path=f"{party}.csv") for party in JOB["data"]}
    raw = {key: value for key, value in JOB.items() if key != "data"}
    spec = complete_spec(raw, sources)
    assert {party: one.label for party, one in spec.data.items()} == {
        **{"bank": "y", "fund": "y"},
        **{"telco": None, "shop": None},
    }
    named = complete_spec({**raw, "data": {"fund": {"label": "bad"}}}, sources)
    assert (named.data["bank"].label, named.data["fund"].label) == ("y", "bad")
    del sources["fund"]
    with pytest.raises(ConfigError, match="--data is missing for fund"):
        complete_spec(raw, sources)
