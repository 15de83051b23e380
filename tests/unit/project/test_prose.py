"""Pages people finish: short, for somebody, in short sentences and standard words."""

import re
from pathlib import Path

import pytest
import textstat

from tests.conftest import ROOT
from tests.support.shown_commands import FENCE

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
# Pages of docs/reference that generators write.
GENERATED = {"cli", "disclosure", "job", "metrics", "policy", "sdk", "settings", "who-learns-what"}
WORDS_MAX, README_WORDS_MAX, ALL_WORDS_MAX = 1500, 700, 33_000
JOURNEYS = {  # what somebody reads on the way, in words
    "a first job on two machines": (2000, ["../README", "tutorials/two-machines"]),
    "to approve a job": (
        3500,
        ["../README", "explanation/privacy", "how-to/approve-a-job", "how-to/set-a-policy"],
    ),
}
SENTENCE_WORDS_MAX = 18.0  # the mean
READING_EASE_MIN = 50.0  # Flesch's, of pages that everybody reads
KINDS = ("tutorials", "how-to", "reference", "explanation", "development")
LISTING = re.compile(r'title="(fedboost|protos)/')  # of a file of the project
FOR_WHOM = re.compile(r"\AFor [^.]+\. After this page you (can|know|have) ")
# Words and phrases that documents no longer use, and what they write in their place.
RETIRED = {
    r"octets?": "bytes",
    r"Under way|under way": "running",
    r"halfway": "interrupted, or what it is",
    r"(?:is|are|be|was|were|been) told": "learns, hears",
    r"tells? (?:nothing|something|of|more|less|that)": "reveals, says",
    r"(?:is|are) taken to": "we assume that",
    r"(?:is|are) believed": "trust",
    r"what (?:comes|came|goes) over": "messages",
    r"on (?:its|the|their) way": "in flight, on its path",
    r"(?:begun?|begins?) anew": "begin again",
    r"comes? to rest": "ends",
    r"(?:deal|deals|dealt) out": "split",
    r"in earnest": "",
    r"beforehand": "before",
    r"altogether": "",
    r"who is told": "who learns",
    r"of these alone": "of these only",
    r"leaders?|arbiters?": "guest, coordinator",
    r"(?:the|a|one) (?:told|over)": "disclosure, finished",
    r"ridge|num_trees|key_length": "reg_lambda, n_estimators, key_bits",
}
TABS = r"Told|Over|Under way"  # former tabs of the pages: disclosures, finished, running
RETIRED_WORDS = re.compile(rf"\b(?:{'|'.join(RETIRED)})\b|\*\*?(?:{TABS})\*\*?")


def hand_written() -> list[Path]:
    """List the pages that people write, without the design and the benchmarks."""
    pages = [path for kind in KINDS for path in sorted((DOCS / kind).rglob("*.md"))]
    pages = [
        path for path in pages if path.stem not in GENERATED or path.parent.name != "reference"
    ]
    return [ROOT / "README.md", DOCS / "index.md", *pages]


PAGES = hand_written()
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]
EASY = [
    ROOT / "README.md",
    *sorted((DOCS / "tutorials").glob("*.md")),
    DOCS / "explanation" / "privacy.md",
]


def words(path: Path) -> int:
    """Count the words of a page, those of code and tables included, of generated parts not."""
    text = re.sub(r"<!-- generated:.*?<!-- end -->", "", path.read_text(), flags=re.DOTALL)
    found = [match for match in FENCE.finditer(text) if LISTING.search(match[2])]
    for match in found:
        text = text.replace(match[0], "")
    return sum(bool(re.search(r"\w", one)) for one in text.split())


def prose(text: str) -> str:
    """Return the sentences of a page: no code, tables, headings, pictures or link targets."""
    text = re.sub(r"<!--.*?-->", "", FENCE.sub("\n", text), flags=re.DOTALL)
    text = re.sub(r"^(#|\||!\[|    |\[\^).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"[*_]|\[\^\w+\]", "", text)
    blocks = re.split(r"\n\s*\n\s*(?:(?:-|\d+\.) )?|\n\s*(?:-|\d+\.) ", f"\n\n{text}")
    joined = [" ".join(block.split()).rstrip(":;,") for block in blocks]
    return "\n".join(one if one.endswith((".", "?", "!")) else f"{one}." for one in joined if one)


def sentences(text: str) -> list[str]:
    """Split prose into sentences."""
    return [one for one in re.split(r"(?<=[.?!])\s+", prose(text)) if re.search(r"\w", one)]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_is_short(page):
    limit = README_WORDS_MAX if page.name == "README.md" else WORDS_MAX
    assert words(page) <= limit


def test_all_pages_together_are_short():
    assert sum(words(page) for page in PAGES) <= ALL_WORDS_MAX


@pytest.mark.parametrize("journey", JOURNEYS)
def test_nobody_reads_long_before_they_can_begin(journey):
    limit, pages = JOURNEYS[journey]
    assert sum(words(DOCS / f"{page}.md") for page in pages) <= limit


@pytest.mark.parametrize("page", PAGES[1:], ids=NAMES[1:])
def test_a_page_begins_with_for_whom_it_is(page):
    _, *blocks = re.sub(r"<!--.*?-->\n*", "", page.read_text()).split("\n\n")
    assert FOR_WHOM.match(blocks[0]), blocks[0][:100]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_sentences_are_short(page):
    found = sentences(page.read_text())
    assert sum(len(one.split()) for one in found) / len(found) <= SENTENCE_WORDS_MAX


@pytest.mark.parametrize("page", EASY, ids=lambda page: page.name)
def test_what_everybody_reads_is_easy_to_read(page):
    assert textstat.flesch_reading_ease(prose(page.read_text())) >= READING_EASE_MIN


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_has_no_retired_words(page):
    found = RETIRED_WORDS.findall(FENCE.sub("", page.read_text()))
    assert not found


def test_prose_is_what_a_reader_reads():
    text = "# T\n\nOne `x` [two](a.md).\n\n| a |\n\n```text\nno.\n```\n\n- Three\n- four: five\n"
    assert prose(text) == "One code two.\nThree.\nfour: five."
    assert len(sentences(text)) == 3


def test_retired_words_are_found():
    said = "It is told that octets are under way.\n\n**Told** is a tab; we told you, bytes ran."
    assert RETIRED_WORDS.findall(said) == ["is told", "octets", "under way", "**Told**"]
