"""Pages people finish: short, for somebody, in short sentences and standard words.

The prose of the code has ceilings for what a reader stumbles over: see `product_prose`.
"""

import ast
import re
from pathlib import Path

import pytest
import textstat

from tests.conftest import ROOT
from tests.support.ratchet import check_ceilings
from tests.support.shown_commands import FENCE
from tests.unit.project import product_prose
from tests.unit.project.product_prose import FOUND, IDIOMS, comments_in, has_opening, sentences_in

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
# Pages of docs/reference that generators write.
GENERATED = {"cli", "disclosure", "job", "metrics", "policy", "sdk", "settings", "who-learns-what"}
WORDS_MAX, README_WORDS_MAX = 1500, 700
USERS_WORDS_MAX, DEVELOPMENT_WORDS_MAX = 32_000, 2320  # of all pages; two kinds of readers
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

# Ceilings of each package, which may only fall. `python -m tests.unit.project.product_prose` prints
# what is measured; a ceiling stands a quarter to three quarters above it.
IDIOMS_MAX = {  # in 1,000 words
    "aggregation": 5.0,
    "audit": 3.0,
    "cli": 3.5,
    "core": 1,
    "crypto": 0.5,
    "data": 2,
    "encrypted": 0.5,
    "flow": 1,
    "ground": 1,
    "model": 1,
    "oblivious": 2.5,
    "pages": 3.5,
    "protocols": 2.0,
    "report": 3.0,
    "runtime": 1.5,
    "sdk": 4.0,
    "sweep": 4.5,
}
COMMITS_MAX = 14  # of the last subjects, how many have an idiom


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
    development = {page for page in PAGES if page.parent == DOCS / "development"}
    assert sum(words(page) for page in development) <= DEVELOPMENT_WORDS_MAX
    assert sum(words(page) for page in PAGES if page not in development) <= USERS_WORDS_MAX


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


def test_code_has_no_more_idioms_than_it_had():
    measured = product_prose.idioms_each(product_prose.passages())
    check_ceilings(measured, IDIOMS_MAX, product_prose.COMMAND)


def test_docstrings_open_with_a_verb_or_a_noun():
    check_ceilings(product_prose.openings_each(), {}, product_prose.COMMAND)


def test_subjects_of_commits_have_no_more_idioms_than_they_had():
    subjects = product_prose.commits()
    if not subjects:
        pytest.skip("there is no repository")
    found = [subject.text for subject in subjects if subject.idioms]
    assert len(found) <= COMMITS_MAX, f"see: {product_prose.COMMAND} commits"


@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom_is_found_and_its_plain_words_are_not(name):
    assert FOUND[name].search(IDIOMS[name].example)
    assert not [other for other, pattern in FOUND.items() if pattern.search(IDIOMS[name].plain)]


def test_plain_sentences_have_no_idiom():
    text = "Say what to do. A party whose key is lost pauses the job, and its own table stays."
    assert not [name for name, pattern in FOUND.items() if pattern.search(text)]


def test_prose_of_code_is_found_where_it_stands():
    source = """
# First line
# and second.
x = 1  # beside x
y = 2  # noqa: E501
raise PolicyError(f"{party} refused", key="what", todo="ask" if x else "wait")
raise ValueError("not ours")
log.info("%s of %d rows", name, n)
form.error("no log")
"""
    comments = [(line, " ".join(text.split())) for line, text in comments_in(source)]
    assert comments == [(2, "First line and second."), (4, "beside x"), (5, "")]
    said = list(sentences_in(ast.walk(ast.parse(source)), {"PolicyError"}))
    assert sorted(said) == [
        (6, "error", "N refused"),
        (6, "error", "ask"),
        (6, "error", "wait"),
        (8, "log", "N of N rows"),
    ]


@pytest.mark.parametrize(
    ("text", "opens"),
    [
        ("Return the rows.\n\nMore.", True),
        ("The rows of a table.\n\nMore.", True),
        ("`rows` of a table.\n\nMore.", True),
        ("What a row is.", True),  # one line
        ("What a row is.\n\nMore.", False),
        ("By which rows are\nsorted.", False),
    ],
)
def test_openings_are_judged_by_the_first_word(text, opens):
    assert has_opening(text) == opens


def test_ceilings_hold_and_have_to_fall():
    check_ceilings({"core": 9.0, "data": 0.5}, {"core": 10.0, "data": 2.0}, "command")
    with pytest.raises(AssertionError, match=r"core: 11 is above 10\nsee: command"):
        check_ceilings({"core": 11.0}, {"core": 10.0}, "command")
    with pytest.raises(AssertionError, match="flow: 1 is above 0"):
        check_ceilings({"flow": 1.0}, {}, "command")
    with pytest.raises(AssertionError, match="core: 7 is far below 10; lower the ceiling"):
        check_ceilings({"core": 7.0}, {"core": 10.0}, "command")
