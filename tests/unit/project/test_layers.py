"""The layers: what the design says, what imports are held to, and what is there, agree."""

import ast
import re
import tomllib

import pytest

from tests.conftest import ROOT

BLOCK = re.compile(r"```text\n((?:[a-z0-9_ |]+ {2,}.*\n)+)```")


def contracts():
    """Layers by the package that holds them, as `make lint` enforces them."""
    text = (ROOT / "pyproject.toml").read_text()
    found = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    return {one["containers"][0]: one for one in found if one["type"] == "layers"}


def drawn():
    """Layers of each table in the design, top first: the names before two spaces."""
    section = (ROOT / "docs" / "design.md").read_text().split("## Layers")[1].split("\n## ")[0]
    return [
        [re.split(r" {2,}", line)[0] for line in block.splitlines()]
        for block in BLOCK.findall(section)
    ]


@pytest.mark.parametrize(
    ("place", "package"), [(0, "fedboost"), (1, "fedboost.runtime"), (2, "fedboost.encrypted")]
)
def test_the_design_draws_the_layers_that_imports_are_held_to(place, package):
    assert drawn()[place] == contracts()[package]["layers"]


@pytest.mark.parametrize("package", contracts())
def test_every_package_and_module_has_a_layer(package):
    contract = contracts()[package]
    assert contract["exhaustive"] is True
    named = {name.strip() for layer in contract["layers"] for name in re.split("[|:]", layer)}
    folder = ROOT.joinpath(*package.split("."))
    there = {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    there |= {path.parent.name for path in folder.glob("*/__init__.py")}
    assert there - set(contract.get("exhaustive_ignores", ())) == named


def modules_of(folder):
    """Modules and packages in a package, generated ones apart."""
    modules = {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    return {name for name in modules if "_pb2" not in name} | packages


@pytest.mark.parametrize(
    "folder",
    [path.parent for path in sorted((ROOT / "fedboost").rglob("__init__.py"))],
    ids=lambda folder: str(folder.relative_to(ROOT)),
)
def test_a_package_says_what_each_of_its_modules_is_for(folder):
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    _, _, listed = text.partition("\n\nModules:\n")
    lines = [re.fullmatch(r"    (\w+) {2,}(\S.{7,})", line) for line in listed.splitlines()]
    assert all(lines), listed
    names = [line[1] for line in lines if line is not None]
    assert names == sorted(modules_of(folder))


def test_nothing_but_the_two_tables_of_states_moves_a_job():
    movers = set()
    for path in (ROOT / "fedboost").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("move", "add_job"):
                movers.add(str(path.relative_to(ROOT / "fedboost")))
    assert movers == {"runtime/coordinator/job_states.py", "runtime/party/job/states.py"}
