"""The list of attacks names tests that there are, and the page of defences the listed attacks."""

import importlib
import inspect
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedboost.runtime.config.policy import Policy
from tests.conftest import ROOT

INDEX = Path(__file__).with_name("README.md")
DEFENCES = ROOT / "docs" / "explanation" / "defences.md"
NEVER_RUN = {"skip", "long", "xfail"}  # marks of tests that do not run in every change


@dataclass(frozen=True)
class Attack:
    """One row of the list."""

    number: int
    defences: tuple[str, ...]
    fails: tuple[str, ...]  # tests with the defence
    succeeds: tuple[str, ...]  # and without it


def attacks():
    """The rows of the list, in its order."""
    found = []
    for line in INDEX.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].isdigit():
            number, _, _, defence, *tests = cells
            named = [tuple(re.findall(r"`([\w/]+::\w+)`", cell)) for cell in tests]
            found.append(Attack(int(number), tuple(defence.split(", ")), *named))
    return found


ATTACKS = attacks()


def test_there_are_thirty_attacks_and_more():
    assert [one.number for one in ATTACKS] == list(range(1, len(ATTACKS) + 1))
    assert len(ATTACKS) >= 30


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: str(one.number))
def test_an_attack_runs_with_its_defence_and_without_it(attack):
    assert attack.fails
    assert attack.succeeds
    for name in (*attack.fails, *attack.succeeds):
        path, _, function = name.partition("::")
        assert Path(path).name.startswith("test_")
        assert not path.startswith("e2e/")
        module = importlib.import_module("tests." + path.replace("/", "."))
        test = getattr(module, function)
        assert inspect.isfunction(test)
        assert function.startswith("test_")
        marks = [*getattr(test, "pytestmark", []), *_of_module(module)]
        assert not NEVER_RUN & {mark.name for mark in marks}, name


def _of_module(module):
    marks = getattr(module, "pytestmark", [])
    return marks if isinstance(marks, list) else [marks]


def test_every_test_of_this_folder_belongs_to_an_attack():
    named = {name for one in ATTACKS for name in (*one.fails, *one.succeeds)}
    for path in Path(__file__).parent.glob("test_*.py"):
        if path.name != "test_index.py":
            own = re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
            lacking = [one for one in own if f"attacks/{path.stem}::{one}" not in named]
            assert own
            assert not lacking


def defences():
    """Return what the page of defences says of each, by its name."""
    parts = re.split(r"^### (D\d+) .*$", DEFENCES.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_document_has_every_defence_with_its_attacks():
    said = defences()
    assert list(said) == [f"D{n}" for n in range(1, 16)]
    for name, text in said.items():
        [numbers] = re.findall(r"Attacked in: (.*)\.$", text, re.MULTILINE)
        own = [str(one.number) for one in ATTACKS if name in one.defences]
        assert numbers == (", ".join(own) or "nothing yet"), name


def test_the_document_names_every_key_of_a_policy():
    text = DEFENCES.read_text()
    for key in Policy.model_fields:
        assert f"`{key}`" in text, key
