"""Schemas of files: the shipped ones fit, mistakes do not."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from fedboost.cli import schema as command
from fedboost.runtime.client import schemas

jsonschema: Any = pytest.importorskip("jsonschema")
ROOT = Path(__file__).resolve().parents[4]
SHIPPED = sorted([*(ROOT / "configs").glob("*.yaml"), *(ROOT / "deploy/configs").glob("*.yaml")])
KINDS = ("client", "coordinator", "job", "relay")  # others: parties


def kind_of(path):
    kind = path.stem.partition("-")[0]
    return kind if kind in KINDS else "party"


def wrong(kind, raw):
    """What is wrong with a file, by the places of its keys."""
    checker = jsonschema.Draft202012Validator(schemas.json_schema(kind))
    return ["/".join(map(str, error.path)) for error in checker.iter_errors(raw)]


@pytest.mark.parametrize("kind", schemas.FILES)
def test_the_command_prints_a_schema_of_each_file(kind):
    said = CliRunner().invoke(command.schema, [kind])
    assert said.exit_code == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(said.output))
    assert set(command.SETTINGS_FILES) == set(schemas.FILES)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name} {path.stem}")
def test_the_shipped_files_fit(path):
    raw = yaml.safe_load(path.read_text())
    assert wrong(kind_of(path), raw) == []
    assert wrong(kind_of(path), {**raw, "colour": "red"}) == [""]


def shipped(name):
    return yaml.safe_load((ROOT / "configs" / f"{name}.yaml").read_text())


def test_a_job_is_checked_by_its_own_protocol():
    raw = shipped("job-credit")
    assert wrong("job", {**raw, "params": {**raw["params"], "max_depth": "deep"}}) == [
        "params/max_depth"
    ]
    assert wrong("job", {**raw, "params": {**raw["params"], "objective": "reg:huber"}}) == [
        "params/objective"
    ]
    assert wrong("job", {**raw, "protocol": "gbun"}) == ["params"]
    assert "protocol" in wrong("job", {**raw, "protocol": "none"})


def test_a_daemon_s_file_may_refer_to_variables_and_files_everywhere():
    raw = shipped("party-bank")
    timers = {"step_s": "${env:STEP}"}
    assert wrong("party", {**raw, "workers": "${env:N}", "timers": timers}) == []
    assert wrong("party", {**raw, "logs": "${file:/run/logs}"}) == []
    assert wrong("party", {**raw, "workers": "many"}) == ["workers"]
    assert wrong("party", {**raw, "logs": "loud"}) == ["logs"]
    assert wrong("job", {**shipped("job-credit"), "validation": {"seed": "${env:N}"}}) != []
