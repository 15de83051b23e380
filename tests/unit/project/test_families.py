"""The table of families in the page of tests is true, and each tier holds those before it."""

import re

import pytest

from tests import families, tiers
from tests.families import FAMILIES, family_of
from tests.tiers import Tier


def test_the_table_says_how_many_cases_this_run_has(request):
    config = request.config
    is_whole = config.args == config.getini("testpaths") and not config.option.ignore
    chosen = config.option.keyword or config.option.markexpr or config.option.shard != "1/1"
    if not is_whole or chosen:
        pytest.skip("this run is a part of the suite")
    tier = max(tier for tier in Tier if tiers.runs(tier))
    counted = families.by_family(re.split("::|@", item.nodeid)[0] for item in request.session.items)
    rows = families.known()
    wrong = {
        name: (count, rows[name].cases[tier])
        for name, count in counted.items()
        if not families.fits(count, rows[name].cases[tier])
    }
    assert not wrong, "run: make docs"


def test_every_family_has_its_row_with_as_many_cases_in_each_further_tier():
    rows = families.known()
    assert list(rows) == list(FAMILIES)
    for row in rows.values():
        assert list(row.cases) == sorted(row.cases)


@pytest.mark.parametrize(
    ("path", "family"),
    [
        ("tests/unit/core/test_tree.py", "unit: core"),
        ("tests/unit/runtime/transport/test_channel.py", "unit: runtime"),
        ("tests/unit/protocols/test_secureboost_keys.py", "unit: protocols"),
        ("tests/faults/test_family_kills.py", "faults: kills"),
        ("tests/faults/test_crashes.py", "faults: others"),
        ("tests/e2e/test_documents.py", "documents"),
    ],
)
def test_a_file_belongs_to_the_first_family_that_it_fits(path, family):
    assert family_of(path) == family
