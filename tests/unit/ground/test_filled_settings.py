"""Values of a daemon's file that stand in variables and files: found, or missed by name."""

import os

import pytest
from pydantic import Field

from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import Settings, load_settings, read_yaml
from fedboost.runtime.config.page import Page

SECRET = "hunter2-and-more"


class Sql(Settings):
    url: str


class Own(Settings):
    name: str = ""
    workers: int = Field(1, ge=1, le=64)
    sql: Sql | None = None
    peers: dict[str, str] = Field(default_factory=dict)
    names: list[str] = Field(default_factory=list)


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("OWN_WORD", SECRET)
    monkeypatch.setenv("OWN_NUMBER", "8")
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    monkeypatch.chdir(tmp_path)

    def read(text):
        (tmp_path / "own.yaml").write_text(text)
        return load_settings(Own, tmp_path / "own.yaml")

    return read


def test_variables_and_files_stand_for_whole_values_and_for_parts_of_them(own):
    found = own(
        "workers: ${env:OWN_NUMBER}\n"
        "sql: {url: 'db://u:${file:secret}@host/${env:OWN_NUMBER}'}\n"
        "names:\n- ${env:OWN_WORD}\n- '${env:OWN_NUMBER}'\n"
        f"peers: {{telco: '${{file:{os.getcwd()}/secret}}'}}\n"
    )
    assert found.workers == 8
    assert found.sql.url == f"db://u:{SECRET}@host/8"
    assert found.names == [SECRET, "8"]
    assert found.peers == {"telco": SECRET}


@pytest.mark.parametrize(
    ("text", "value"),
    [("$${env:OWN_WORD}", "${env:OWN_WORD}"), ("$HOME", "$HOME"), ("${HOME}", "${HOME}")],
)
def test_other_texts_stay_as_they_are(own, text, value):
    assert own(f"name: '{text}'").name == value


def test_what_a_variable_holds_is_not_read_again(own, monkeypatch):
    monkeypatch.setenv("OWN_WORD", "${file:secret}")
    assert own("name: ${env:OWN_WORD}").name == "${file:secret}"
    monkeypatch.setenv("OWN_WORD", "{name: other}")
    assert own("name: ${env:OWN_WORD}").name == "{name: other}"


def test_an_alias_is_filled_in_once(own, monkeypatch):
    monkeypatch.setenv("OWN_WORD", "$${env:OWN_NUMBER}")
    assert own("names: [&a '${env:OWN_WORD}', *a]").names == ["$${env:OWN_NUMBER}"] * 2


@pytest.mark.parametrize(
    ("text", "what", "todo"),
    [
        ("name: ${env:OWN_NONE}", "name: there is no variable OWN_NONE", "set OWN_NONE"),
        ("sql: {url: 'a ${file:none}'}", "sql.url: cannot read none: No such file", "check the"),
        ("names: [a, '${file:.}']", "names.1: cannot read .: Is a directory", "check the path"),
        ("name: ${evn:OWN_WORD}", "name: ${evn:OWN_WORD} refers to nothing", "${env:NAME}"),
        ("name: ${file:large}", "name: large is too large for one value", "check the path"),
        ("name: ${file:bytes}", "name: cannot read bytes: it holds no text", "check the path"),
    ],
)
def test_what_is_not_there_is_missed_by_key_and_name(own, tmp_path, text, what, todo):
    (tmp_path / "large").write_text("x" * 70_000)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError) as refused:
        own(text)
    assert what in refused.value.what
    assert todo in refused.value.todo
    assert refused.value.where["file"].endswith("own.yaml")


@pytest.mark.parametrize("text", ["workers: '${env:OWN_WORD}'", "peers: ['${file:secret}']",
                                  "sql: {url: a, name: '${env:OWN_WORD}'}"])  # fmt: skip
def test_an_error_says_what_stands_in_the_file_and_not_the_secret(own, text):
    with pytest.raises(ConfigError) as refused:
        own(text)
    assert SECRET not in "\n".join([*refused.value.lines(), *map(str, refused.value.args)])


def test_an_error_that_would_quote_a_value_quotes_the_reference(own, tmp_path):
    (tmp_path / "page.yaml").write_text("listen: '${env:OWN_WORD}'\nuser: ana\n")
    with pytest.raises(ConfigError) as refused:
        load_settings(Page, tmp_path / "page.yaml")
    assert "'${env:OWN_WORD}'" in refused.value.what
    assert SECRET not in str(refused.value)


def test_files_of_others_are_never_filled_in(own, tmp_path):
    """A job's file comes from somebody else."""
    (tmp_path / "job.yaml").write_text("name: '${env:OWN_WORD}'")
    assert read_yaml(tmp_path / "job.yaml") == {"name": "${env:OWN_WORD}"}
