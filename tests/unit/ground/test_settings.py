"""Files become frozen settings; whatever they should not say is refused by name and line."""

from typing import Any

import pytest
from pydantic import Field

from fedboost.core.params import TreeParams
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import (
    SETTINGS_BYTES_MAX,
    Settings,
    load_settings,
    parse_settings,
    parse_yaml,
    read_yaml,
)
from fedboost.job import JobSpec, Parties
from fedboost.protocols import load_all, load_protocol
from fedboost.runtime.transport.tls import TlsFiles


class Inner(Settings):
    depth: int = 3
    rate: float = Field(0.3, gt=0.0)


class Outer(Settings):
    name: str
    inner: Inner = Inner()
    parts: list[Inner] = Field(default_factory=list)
    named: dict[str, Inner | None] = Field(default_factory=dict)


def refused(raw, **where):
    with pytest.raises(ConfigError) as error:
        parse_settings(Outer, raw, **where)
    return error.value


@pytest.mark.parametrize(
    ("raw", "key", "nearest"),
    [
        ({"name": "a", "nam": 1}, "nam", "name"),
        ({"name": "a", "INNER": 1}, "INNER", "inner"),
        ({"name": "a", "inner": {"dept": 1}}, "inner.dept", "depth"),
        ({"name": "a", "parts": [{}, {"raet": 1}]}, "parts.1.raet", "rate"),
        ({"name": "a", "named": {"x": {"deep": 1}}}, "named.x.deep", "depth"),
        ({"name": "a", "named": {"rate": {"deep": 1}}}, "named.rate.deep", "depth"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(raw, key, nearest):
    error = refused(raw, file="job.yaml")
    assert error.what == f"unknown key '{key}'"
    assert error.todo == f"did you mean '{nearest}'?"
    assert error.where == {"file": "job.yaml"}


@pytest.mark.parametrize(
    ("raw", "todo"),
    [
        ({"name": 3}, "put it in quotes: YAML reads No, 1 and 12:30 otherwise"),
        ({"name": "a", "inner": {"rate": 0.0}}, "change 'rate'"),
        ({}, "add 'name'"),
    ],
)
def test_every_refusal_says_what_to_do(raw, todo):
    assert refused(raw).todo == todo


def test_a_word_that_is_no_choice_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match="'guest' or 'host'") as error:
        parse_settings(SourceSpec, {"path": "t.csv", "roles": ["gest"]})
    assert error.value.todo == "write one of: guest, host"


def test_a_key_that_is_like_no_other_is_refused_with_those_there_are():
    error = refused({"name": "a", "zzz": 1})
    assert error.todo == "remove it, or write one of: name, inner, parts, named"


def test_a_mistyped_key_is_said_before_the_one_that_is_missing():
    error = refused({"nam": "a"})
    assert error.what == "unknown key 'nam' (and 1 more)"
    assert error.todo == "did you mean 'name'?"


def test_a_value_in_a_list_is_mended_by_the_lists_key():
    with pytest.raises(ConfigError) as one:
        parse_settings(TreeParams, {"eval_metric": ["AUC"]})
    assert one.value.todo == "change 'eval_metric'"
    with pytest.raises(ConfigError) as alone:
        parse_settings(Parties, {"guest": "a", "hosts": "b"})
    assert alone.value.todo == "write a list: hosts: [first, second]"


def test_a_missing_key_is_named():
    assert refused({}).what == "the key 'name' is missing"


@pytest.mark.parametrize(
    "raw",
    [
        {"name": 3},
        {"name": None},
        {"name": "a", "inner": {"depth": "3"}},
        {"name": "a", "inner": {"depth": 3.0}},
        {"name": "a", "inner": {"depth": True}},
        {"name": "a", "inner": {"rate": 0}},
        {"name": "a", "inner": {"rate": float("nan")}},
        {"name": "a", "inner": []},
    ],
    ids=repr,
)
def test_values_are_not_bent_into_shape(raw):
    assert refused(raw).what


@pytest.mark.parametrize("raw", [None, [], "text", 3], ids=repr)
def test_a_file_that_is_no_mapping_is_refused(raw):
    assert refused(raw).what.startswith("expected keys and values")


def test_settings_cannot_be_changed():
    settings = parse_settings(Inner, {})
    with pytest.raises(ValueError):
        settings.depth = 4  # type: ignore[misc]


# YAML


def written(tmp_path, text):
    path = tmp_path / "job.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("name: a\nname: b\n", "name", 2),
        ("name: a\ninner:\n  depth: 1\n  rate: 0.1\n  depth: 2\n", "depth", 5),
        ("name: a\nparts:\n- {depth: 1, depth: 1}\n", "depth", 3),
        ("1: a\n1: b\n", "1", 2),
        ("a: 1\n'a': 2\n", "a", 2),
    ],
)
def test_a_key_that_stands_twice_is_refused(tmp_path, text, key, line):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        read_yaml(path)
    assert error.value.what == f"the key {key!r} occurs twice"
    assert error.value.where == {"line": str(line), "file": str(path)}


def test_a_merged_key_may_be_overridden(tmp_path):
    text = "one: &one {depth: 1, rate: 0.5}\ntwo:\n  <<: *one\n  depth: 2\n"
    content = read_yaml(written(tmp_path, text))
    assert isinstance(content, dict)
    assert content["two"] == {"depth": 2, "rate": 0.5}


@pytest.mark.parametrize(
    "text",
    [
        "a: [1, 2",
        "a: b: c",
        "\tx: 1",
        "a: !!python/object/apply:os.system ['true']",
        "a: !!python/name:os.system",
        "a: !unknown 3",
        "when: 2024-13-45",
        "? [a]\n: 1",
        b"a: \xff\xfe\xff",
        "a: " + "[" * 5000,
        "--- 1\n--- 2\n",
    ],
    ids=lambda text: repr(text)[:24],
)
def test_what_is_not_plain_yaml_is_refused(tmp_path, text):
    with pytest.raises(ConfigError, match="not valid YAML") as error:
        read_yaml(written(tmp_path, text))
    assert error.value.where["file"]


def test_a_file_that_is_absent_or_too_large_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the file"):
        read_yaml(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="too many for settings"):
        read_yaml(written(tmp_path, b"#" * (SETTINGS_BYTES_MAX + 1)))


def test_a_file_becomes_settings(tmp_path):
    settings = load_settings(Outer, written(tmp_path, "name: a\ninner: {depth: 5}\n"))
    assert (settings.name, settings.inner.depth, settings.inner.rate) == ("a", 5, 0.3)


# Jobs

JOB: dict[str, Any] = {
    "name": "credit",
    "protocol": "secureboost",
    "parties": {"guest": "bank", "hosts": ["telco"]},
    "data": {"bank": {"dataset": "d", "label": "y"}, "telco": {"dataset": "d"}},
}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"parties": {"guest": "bank", "hosts": ["bank"]}}, "named twice"),
        ({"parties": {"guest": "bank", "hosts": ["telco", "telco"]}}, "named twice"),
        ({"parties": {"guest": "bank", "hosts": []}}, "parties.hosts"),
        ({"parties": {"guest": "../x", "hosts": ["telco"]}}, "is no name"),
        ({"name": "a" * 64}, "is no name"),
        ({"data": {"bank": {"dataset": "d"}}}, "no data set for telco"),
        ({"data": {**JOB["data"], "shop": {}}}, "neither guest nor host"),
        ({"validation": {"fraction": 1.0}}, "validation.fraction"),
        ({"validation": {"fraction": 0.5, "sed": 1}}, "unknown key 'validation.sed'"),
        ({"data": {**JOB["data"], "bank": {"dataset": "d", "labl": "y"}}}, "data.bank.labl"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_job_that_makes_no_sense_is_refused(change, says):
    with pytest.raises(ConfigError) as error:
        parse_settings(JobSpec, {**JOB, **change})
    assert says in error.value.what


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"max_dept": 3}, "unknown key 'max_dept'"),
        ({"encryption": {"shceme": "plain"}}, "unknown key 'encryption.shceme'"),
        ({"encryption": {"scheme": "rot13"}}, "encryption.scheme"),
        ({"subsample": 0.5, "goss": {}}, "goss and subsample"),
        ({"objective": "multi:softprob"}, "num_class is missing"),
        ({"trees_per_party": 2}, "trees_per_party is for mode mix"),
        ({"mode": "mix", "host_depth": 2}, "host_depth is for mode layered"),
        ({"mode": "layered", "max_depth": 4}, "leave max_depth out"),
        ({"mode": "layered", "host_depth": 8, "guest_depth": 8}, "make 16 layers"),
        ({"encryption": {"scheme": "iterative-affine", "key_bits": 1024}}, "is broken"),
        ({"reg_lambda": float("nan")}, "reg_lambda"),
    ],
    ids=repr,
)
def test_params_that_secureboost_does_not_know_are_refused(params, says):
    with pytest.raises(ConfigError) as error:
        parse_settings(load_all()["secureboost"].params, params)
    assert says in error.value.what


def test_an_unknown_protocol_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError) as error:
        load_protocol("secure_boost")
    assert error.value.todo == "did you mean 'secureboost'?"


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (SourceSpec, {"path": "bank\0.csv"}),
        (SourceSpec, {"sql": "SELECT 1", "connection": {"url": "sqlite:///bank\0.db"}}),
        (TlsFiles, {"ca": "ca.pem", "cert": "bank.pem", "key": "bank\0.key"}),
    ],
)
def test_a_path_that_no_file_can_have_is_refused(kind, raw):
    with pytest.raises(ConfigError, match="a zero byte is in no path"):
        parse_settings(kind, raw)


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("No", "a word for true or false"),
        ("1", "a number"),
        ("1.5", "a number"),
        ("12:30", "a number"),
        ("2024-01-31", "a date"),
        ("2024-01-31 12:30:00", "a date"),
    ],
)
def test_a_text_that_yaml_reads_otherwise_is_to_be_quoted(text, read_as):
    with pytest.raises(ConfigError) as refused:
        parse_settings(Selection, parse_yaml(f"label: {text}".encode()))
    assert refused.value.what == f"label: expected a text, got {read_as}"
    assert "quotes" in refused.value.todo
    assert parse_settings(Selection, parse_yaml(f"label: '{text}'".encode())).label == text


@pytest.mark.parametrize(("text", "number"), [("1e-1", 0.1), ("-2E3", -2000.0), ("1.e1", 10.0)])
def test_numbers_with_an_exponent_are_numbers(text, number):
    assert parse_settings(Selection, parse_yaml(f"missing: {text}".encode())).missing == number
    assert parse_yaml(b"[1e, e1, 1e-, v1e1, '1e1']") == ["1e", "e1", "1e-", "v1e1", "1e1"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nid: [x\nlabel: y\nweight: w\n", 2),
        ("a: {b: 1\nc: d\n", 1),
        ("a: 'x\nb: c\nd: e\n", 1),
        ("a: 1\n b: 2\n", 2),
        ("a: 1\nb: @x\nc: 1\n", 2),
        ("a:\n\tb: 1\n", 2),
    ],
)
def test_a_fault_of_yaml_is_said_at_its_line(text, line):
    with pytest.raises(ConfigError, match="not valid YAML") as refused:
        parse_yaml(text.encode())
    assert refused.value.where["line"] == str(line)
