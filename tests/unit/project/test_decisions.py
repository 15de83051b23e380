"""The pages of decisions: short, of one form, and each with the state that later pages give it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.conftest import ROOT
from tests.support.each import each

FOLDER = ROOT / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
WORDS_MAX = 200
DESIGN_WORDS_MAX = 2500
LINK = r"\[\d+\]\(\d{4}-[a-z0-9-]+\.md\)"
LINKS = rf"{LINK}(?:, {LINK})*(?: and {LINK})?"
# A head: the state of the decision, then what it changes of earlier ones.
HEAD = re.compile(
    rf"Status: (?:accepted|amended by (?P<amended>{LINKS})|superseded by (?P<superseded>{LINKS}))\."
    rf"(?:\nAmends (?P<amends>{LINKS})\.)?"
    rf"(?:\nSupersedes (?P<supersedes>{LINKS})\.)?"
)
CITED = re.compile(r"decisions/(\d{4})|\bdecisions? \[?(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Head:
    """What the head of a decision says: numbers of the decisions in each of its sentences."""

    amended: frozenset[int]
    superseded: frozenset[int]
    amends: frozenset[int]
    supersedes: frozenset[int]


def read_head(text: str) -> Head:
    """Return what a page's head says; an AssertionError where its form is another."""
    found = HEAD.fullmatch(text.split("\n\n")[1].strip())
    assert found, f"the head has another form: {text[:200]}"
    said = {}
    for key, links in found.groupdict().items():
        pairs = re.findall(r"\[(\d+)\]\((\S+?)\)", links or "")
        for number, name in pairs:
            assert (FOLDER / name).exists()
            assert int(name[:4]) == int(number)
        numbers = [int(number) for number, _ in pairs]
        assert numbers == sorted(set(numbers))
        said[key] = frozenset(numbers)
    return Head(**said)


def contradictions(heads: Mapping[int, Head]) -> list[str]:
    """List the states without a counterpart in the head of the other decision."""
    claims = {
        (verb, old, new)
        for new, head in heads.items()
        for verb, numbers in (("amended", head.amends), ("superseded", head.supersedes))
        for old in numbers
    }
    states = {
        (verb, old, new)
        for old, head in heads.items()
        for verb, numbers in (("amended", head.amended), ("superseded", head.superseded))
        for new in numbers
    }
    found = [f"{new} does not say that {old} is {verb}" for verb, old, new in states - claims]
    found += [f"{old} does not say: {verb} by {new}" for verb, old, new in claims - states]
    found += [f"{old} is not older than {new}" for _, old, new in claims | states if old >= new]
    return sorted(found)


def cited(text: str) -> set[int]:
    """Return the numbers of the decisions that a text refers to."""
    return {int(page or number) for page, number in CITED.findall(text)}


def test_a_decision_has_its_parts_and_is_short():
    each(PAGES, has_its_parts)


def has_its_parts(page):
    text = page.read_text()
    number = PAGES.index(page) + 1
    assert text.startswith(f"# {number}. ")
    assert page.name.startswith(f"{number:04d}-")
    assert re.findall(r"(?m)^## (.+)$", text) == ["Context", "Decision", "Consequences"]
    assert len(re.findall(r"(?m)^(?:Status|Amends|Supersedes)\b", text)) == len(
        text.split("\n\n")[1].splitlines()
    )
    read_head(text)
    assert len(text.split()) <= WORDS_MAX


def test_states_of_decisions_have_their_counterparts():
    heads = {number: read_head(page.read_text()) for number, page in enumerate(PAGES, 1)}
    assert not contradictions(heads)


def test_only_the_head_says_that_a_decision_changes_another():
    for page in PAGES:
        body = page.read_text().split("\n\n", 2)[2]
        assert not re.search(r"\b([Aa]mends?|[Ss]upersedes?|no longer:) ", body), page.name


def test_no_superseded_decision_is_cited_as_a_reason():
    superseded = {
        number for number, page in enumerate(PAGES, 1) if read_head(page.read_text()).superseded
    }
    assert superseded
    citing = [ROOT / "docs" / "design.md", *sorted((ROOT / "fedboost").rglob("*.py"))]
    assert not {
        str(path.relative_to(ROOT)): numbers
        for path in citing
        if (numbers := cited(path.read_text()) & superseded)
    }


@pytest.mark.parametrize(
    "head",
    [
        "Status: accepted. Amends [1](0001-sums-are-exact-integers.md).",
        "Status: proposed.",
        "Status: amended by 188.",
        "Status: amended by [1](0001-sums-are-exact-integers.md)",
        "Status: amended by [2](0001-sums-are-exact-integers.md).",
        "Status: superseded by [1](0001-no-such-page.md).",
    ],
)
def test_a_head_of_another_form_is_refused(head):
    with pytest.raises(AssertionError):
        read_head(f"# 3. Title\n\n{head}\n\n## Context\n")


def test_states_without_a_counterpart_are_found():
    none = frozenset[int]()
    heads = {
        1: Head(frozenset({2}), none, none, none),
        2: Head(none, none, none, frozenset({1})),
    }
    assert contradictions(heads) == [
        "1 does not say: superseded by 2",
        "2 does not say that 1 is amended",
    ]
    later = {1: Head(none, none, frozenset({2}), none), 2: Head(frozenset({1}), none, none, none)}
    assert contradictions(later) == ["2 is not older than 1"]


def test_citations_of_decisions_are_found():
    text = "[why](decisions/0097-a-host.md); see decision 12, decisions [13](x) and 120 rows."
    assert cited(text) == {97, 12, 13}


def test_the_design_is_short():
    assert len((ROOT / "docs" / "design.md").read_text().split()) <= DESIGN_WORDS_MAX
