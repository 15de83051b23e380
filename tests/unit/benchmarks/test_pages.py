"""Pages of benchmarks: what they claim is what was measured, and where it is to be found."""

import importlib

import pytest

from benchmarks import pages

NAMES = list(pages.claims())
WORDS_MAX = 500


def test_every_page_has_claims_and_every_record_a_page():
    there = {path.stem for path in pages.FOLDER.glob("*.md")}
    assert there == set(NAMES)
    shown = {one.record or name for name, own in pages.claims().items() for one in own}
    texts = [page.read_text() for page in pages.pages()]
    shown |= {found[2] for text in texts for found in pages.TABLES.finditer(text)}
    assert shown == {path.stem for path in (pages.FOLDER / "data").glob("*.json")}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_says_what_was_measured(name):
    page = pages.FOLDER / f"{name}.md"
    assert page.read_text() == pages.filled(page), "run: make docs"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_short_and_names_its_command(name):
    importlib.import_module(f"benchmarks.{name}")
    text = (pages.FOLDER / f"{name}.md").read_text()
    words = pages.TABLES.sub("", pages.BLOCK.sub("", text)).split()
    assert len(words) <= WORDS_MAX
    assert text.split("\n\n")[1].startswith("For ")


def test_a_record_has_what_a_page_needs():
    for path in (pages.FOLDER / "data").glob("*.json"):
        found = pages.record(path.stem)
        assert {"name", "machine", "settings", "figures", "tables"} <= set(found)
        assert all(len(row) == len(t["heads"]) for t in found["tables"] for row in t["rows"])


def test_a_claim_without_a_figure_is_an_error():
    with pytest.raises(KeyError):
        pages.Claim("speed", ["no_such_figure"]).row("gbun")
