"""Names: a search for a public one finds one thing, and it says what the thing is."""

import ast
from collections import defaultdict

import pytest

from tests.conftest import ROOT
from tests.support.ratchet import check_ceilings
from tests.unit.project import product_names
from tests.unit.project.product_names import exists, is_reference, is_short
from tests.unit.project.product_prose import product_files, tree_of

ROLES = {"Guest", "Host", "Aggregator", "Party"}  # each protocol's folder has its own

# Ceilings of each package, which may only fall. `python -m tests.unit.project.product_names` prints
# what is measured.
SHORT_MAX = {  # per cent of functions: one word of six letters at most
    "aggregation": 16,
    "audit": 3,
    "cli": 24,
    "core": 25,
    "crypto": 16,
    "data": 13,
    "encrypted": 27,
    "flow": 45,
    "ground": 22,
    "model": 12,
    "oblivious": 35,
    "pages": 15,
    "protocols": 17,
    "report": 9,
    "runtime": 24,
    "sdk": 21,
    "sweep": 33,
}


def defined():
    """Modules that define a public class, by its name; generated messages apart."""
    found = defaultdict(list)
    for path in product_files():
        module = path.relative_to(ROOT)
        for node in tree_of(path).body:
            is_role = "protocols" in module.parts and getattr(node, "name", "") in ROLES
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not is_role:
                found[node.name].append(str(module))
    return found


def test_no_public_class_name_is_defined_twice():
    assert not {name for name, modules in defined().items() if len(modules) > 1}


def test_no_type_and_no_constant_has_a_conflicting_definition():
    assert not {
        name: [str(one.path) for one in several]
        for name, several in product_names.conflicts().items()
    }


def test_no_more_functions_have_short_names_than_had():
    check_ceilings(product_names.short_each(), SHORT_MAX, product_names.COMMAND)


def test_every_name_in_backticks_exists():
    assert not product_names.unknown_references()


def test_conflicting_definitions_are_found(tmp_path, monkeypatch):
    texts = {
        "a.py": "Rows = NDArray[np.int32]\nCounts = int\n_Own = 1\nT = TypeVar('T')\nSIZE = 1\n",
        "b.py": "Rows = NDArray[np.int64]\nCounts = int\n_Own = 2\nT = TypeVar('T', bound=int)\n",
        "c.py": "SIZE: Final = 2\nclass Shards: pass\nFLOW = ()\n",
        "d.py": "Shards = list[int]\nFLOW = (1,)\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    files = tuple(sorted(tmp_path.iterdir()))
    monkeypatch.setattr(product_names, "product_files", lambda: files)
    assert list(product_names.conflicts()) == ["Rows", "SIZE", "Shards"]
    assert [name for name in product_names.conflicts() if product_names.is_type(name)] == [
        "Rows",
        "Shards",
    ]


@pytest.mark.parametrize(
    ("name", "short"),
    [("given", True), ("_told", True), ("of", True), ("numbers", False), ("rows_of", False)],
)
def test_short_names_are_one_word_of_six_letters(name, short):
    assert is_short(name) == short


@pytest.mark.parametrize(
    "name",
    [
        "max_depth",  # a setting
        "prediction_0",  # made by a f-string
        "crypto.schemes",  # a module
        "product.error_bound",  # a function of a module
        "core.tree.Tree",
        "Policy.judge_sums",
        "GuestTree.divide",
        "goss.top_rate",  # a setting in a setting
        "xgboost.Booster.load_model",  # of a library
        "result.json",  # a file
        "Exchange.Post",  # of a service
        "PARTY.COLUMN",
    ],
)
def test_names_of_the_code_are_known(name):
    assert exists(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_deepness",
        "crypto.no_schemes",
        "product.error_limit",
        "core.tree.Bush",
        "Policy.judge_nothing",
        "nowhere.load",
        "goss.rate_on_top",
    ],
)
def test_names_that_nothing_defines_are_not_known(name):
    assert not exists(name)


def test_variables_of_the_file_have_attributes():
    assert not exists("judge.config")
    assert exists("judge.config", {"judge"})


def test_words_of_prose_are_no_references():
    assert [name for name in ("rows", "a_b", "a.b", "_x", "__init__") if is_reference(name)] == [
        "a_b",
        "a.b",
    ]
