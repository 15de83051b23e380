"""Kinds of tables are records of one list; nothing outside their package asks for their names."""

import ast
import importlib
import tomllib
from contextlib import nullcontext

import pyarrow as pa
import pytest

from fedboost.data import kinds
from fedboost.data.kinds import ENGINES, FORMATS, QUERY, STORAGES, UNKNOWN_FORMAT
from fedboost.data.kinds.kind import AddressScheme, SourceKind
from fedboost.data.reading import read_table
from fedboost.data.row_count import row_count_bound
from fedboost.data.sources import SourceSpec
from fedboost.data.stored import in_batches
from fedboost.ground.errors import DataError
from tests.conftest import ROOT
from tests.support.each import each

PACKAGE = ROOT / "fedboost" / "data" / "kinds"
PLACES = (*STORAGES.values(), *ENGINES.values())
LISTED = (*FORMATS.values(), QUERY, UNKNOWN_FORMAT, *PLACES)
ASKING = {"startswith", "endswith", "removeprefix", "removesuffix", "get", "index", "count", "find"}
# A logger's name, not a scheme.
ALLOWED = {("runtime/process/logs.py", "grpc")}


def known_words():
    """Names, endings, schemes and beginnings of addresses."""
    endings = {suffix for kind in FORMATS.values() for suffix in kind.suffixes}
    schemes = {word for place in PLACES for word in (place.scheme, *place.aliases)}
    begins = {f"{scheme}{sign}" for scheme in schemes for sign in (":", "://", ":///")}
    bare = {ending.removeprefix(".") for ending in endings}
    return {*FORMATS, QUERY.name, UNKNOWN_FORMAT.name} | endings | bare | schemes | begins


def texts(*nodes):
    return {
        part.value
        for node in nodes
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }


def asked_for(node):
    """The texts by which one piece of code tells things apart: compares, looks up or lists them."""
    match node:
        case ast.Compare():
            return texts(node.left, *node.comparators)
        case ast.MatchValue():
            return texts(node)
        case ast.Dict():
            return texts(*filter(None, node.keys))
        case ast.Subscript():
            return texts(node.slice)
        case ast.Tuple(elts=elts) | ast.List(elts=elts) | ast.Set(elts=elts) if len(elts) > 1:
            return texts(*elts)
        case ast.Call(func=ast.Attribute(attr=attr)) if attr in ASKING:
            return texts(*node.args)
    return set()


def branches(code, words):
    return {word for node in ast.walk(ast.parse(code)) for word in asked_for(node) & words}


def modules():
    every = (ROOT / "fedboost").rglob("*.py")
    return [path for path in every if "_pb2" not in path.name and PACKAGE not in path.parents]


def test_nothing_else_branches_on_the_name_of_a_kind():
    words = known_words()

    def has_none(path):
        place = str(path.relative_to(ROOT / "fedboost"))
        found = branches(path.read_text(encoding="utf-8"), words)
        assert {word for word in found if (place, word) not in ALLOWED} == set()

    each(modules(), has_none)


@pytest.mark.parametrize(
    "code",
    [
        "kind == 'csv'",
        "kind not in ('delta', other)",
        "match kind:\n case 'sql': pass",
        "{'.parquet': read}",
        "path.endswith(('.svm', '.txt'))",
        "address.startswith('s3://')",
        "readers['parquet']",
        "FORMATS = ['csv', 'parquet']",
    ],
)
def test_a_branch_on_a_name_is_found(code):
    assert branches(code, known_words())


def test_a_name_that_is_written_and_not_asked_for_is_no_branch():
    assert not branches("SourceSpec(path=path, format='parquet')", known_words())


def test_every_record_of_the_package_is_in_its_list_once():
    made = []
    for path in PACKAGE.glob("*.py"):
        if path.stem not in ("__init__", "kind"):
            held = vars(importlib.import_module(f"{kinds.__name__}.{path.stem}")).values()
            found = [one for one in held if isinstance(one, SourceKind | AddressScheme)]
            assert found, path
            made += found
    assert sorted(map(id, made)) == sorted(map(id, LISTED))


def test_no_ending_and_no_scheme_leads_to_two_records():
    endings = [suffix for kind in FORMATS.values() for suffix in kind.suffixes]
    schemes = [word for place in PLACES for word in (place.scheme, *place.aliases)]
    assert len(endings) == len({*endings})
    assert len(schemes) == len({*schemes})
    assert kinds.kind_of_suffix(".CSV") is FORMATS["csv"]
    assert kinds.address_scheme("mysql") == AddressScheme(scheme="mysql")


def test_records_name_settings_and_extras_that_there_are():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for one in LISTED:
        assert getattr(one, "settings", frozenset()) <= {*SourceSpec.model_fields}
        library = getattr(one, "library", None)
        assert library is None or library.extra in extras["optional-dependencies"]


def test_a_format_is_added_by_its_record(tmp_path, monkeypatch):
    """It is found by its ending, counted, and read by what its record opens."""
    table = pa.table({"id": ["a", "b"], "x": [1, 2]})

    def opened(source):
        def rows(names):
            yield from table.select(names).to_batches()

        return nullcontext(in_batches(table.schema, rows, lambda: 2))

    monkeypatch.setitem(FORMATS, "toy", SourceKind("toy", "toy", opened, (".toy",)))
    source = SourceSpec(path=str(tmp_path / "a.toy"))
    with pytest.raises(DataError, match="No such file"):
        read_table(source)
    (tmp_path / "a.toy").write_text("toy")
    assert read_table(source).equals(table)
    assert row_count_bound(source) == 2


def test_a_path_whose_ending_says_nothing_is_a_folder_in_a_storage_and_unknown_here():
    assert SourceSpec(path="s3://lake/people.v2").kind is FORMATS["parquet"]
    assert SourceSpec(path="people.v2").kind is UNKNOWN_FORMAT
    assert SourceSpec(path="people").kind is FORMATS["parquet"]
    assert SourceSpec(path="people.v2", format="csv").kind is FORMATS["csv"]
