"""The pages of decisions: short, and of one form."""

import re

from tests.conftest import ROOT
from tests.support.each import each

FOLDER = ROOT / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
WORDS_MAX = 200
DESIGN_WORDS_MAX = 2500
STATUS = re.compile(r"accepted\.|superseded by \[\d+\]\((\d{4}-[a-z0-9-]+\.md)\)\.")


def test_a_decision_has_its_parts_and_is_short():
    each(PAGES, has_its_parts)


def has_its_parts(page):
    text = page.read_text()
    number = PAGES.index(page) + 1
    assert text.startswith(f"# {number}. ")
    assert page.name.startswith(f"{number:04d}-")
    assert re.findall(r"(?m)^## (.+)$", text) == ["Context", "Decision", "Consequences"]
    [status] = re.findall(r"(?m)^Status: (.+)$", text)
    found = STATUS.fullmatch(status)
    assert found
    assert found[1] is None or (FOLDER / found[1]).exists()
    assert len(text.split()) <= WORDS_MAX


def test_the_design_is_short():
    assert len((ROOT / "docs" / "design.md").read_text().split()) <= DESIGN_WORDS_MAX
