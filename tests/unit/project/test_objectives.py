"""Objectives: their records alone know their names, so nothing else can tell them apart."""

import ast

import pytest

from fedboost.core.objectives import OBJECTIVES
from tests.conftest import ROOT

HOME = "fedboost/core/objectives/"
# Files that may name an objective, and why.
NAMING = {"fedboost/pages/coordinator.py": "an example of a job, in a process without numpy"}


def texts(tree):
    """Texts of a module in which code can look for a name: all but docstrings."""
    said = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            said.add(first.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said:
            yield node.lineno, node.value


def branches(text):
    """Lines that name an objective or begin as the names of a family do."""
    parts = {name.partition(":")[0] for name in OBJECTIVES}
    families = {f"{part}:" for part in parts}
    for line, said in texts(ast.parse(text)):
        if said in families or any(name in said for name in OBJECTIVES):
            yield line
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "startswith":
            begun = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
            if begun & parts:
                yield node.lineno


@pytest.mark.parametrize(
    "text",
    [
        'x = objective == "binary:logistic"',
        'x = name in ("reg:gamma", "")',
        'x = objective.startswith(("binary", "multi"))',
        'raise ValueError("use reg:squarederror")',
        'x = name.startswith("reg:")',
    ],
)
def test_a_branch_on_the_name_of_an_objective_is_found(text):
    assert set(branches(text)) == {1}
    assert not list(branches(f'def f():\n    """Ask: {list(OBJECTIVES)}."""\n    return "other"'))


def test_no_module_but_their_records_names_an_objective():
    found = {}
    for path in sorted((ROOT / "fedboost").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if not name.startswith(HOME) and (lines := sorted(branches(path.read_text()))):
            found[name] = lines
    assert {name: lines for name, lines in found.items() if name not in NAMING} == {}
    assert set(NAMING) <= set(found), "no longer an exception"


def test_every_record_is_in_a_module_of_its_own():
    modules = {
        path.stem: path.read_text()
        for path in (ROOT / HOME).glob("*.py")
        if "RECORD = ObjectiveRecord(" in path.read_text()
    }
    assert len(modules) == len(OBJECTIVES)
    for name in OBJECTIVES:
        assert sum(f'name="{name}"' in text for text in modules.values()) == 1
