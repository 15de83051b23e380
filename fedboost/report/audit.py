"""Findings of a party's attacks on itself: bars of their success beside chance."""

from __future__ import annotations

from collections.abc import Sequence

from fedboost.audit.findings import SUMS, Finding
from fedboost.report import units
from fedboost.report.charts import Bar, bar_list
from fedboost.report.html import Html, join, tag
from fedboost.report.tables import Column, TableRow, html_table, section

NAME, TITLE = "audit", "What the others could have learnt"
FOUND, CHANCE = 1, 6  # colours, as in the style sheet
LINKED = {
    "none": "each sum by itself",
    "neighbours": "linked within a tree",
    "all": "linked across all trees",
}
INTRO = (
    "A party attacks its own record of the job. Precision: of the rows "
    "that an attacker names, the share that is right. AUC: of a row with and one without, how "
    "often the first is ranked before the second. Guessing is the lower bar."
)


def findings_section(findings: Sequence[Finding], party: str = "") -> Html:
    """Return a section with a row for each attack; empty if none has run."""
    if not findings:
        return join()
    rows: list[TableRow] = [_finding_row(finding) for finding in findings]
    heads = [Column("attack on"), Column("found, and by chance", "wide")]
    of = f" of {party}" if party else ""
    drawn = html_table(
        f"Attacks on the record{of}", heads, rows, numbers=["at worst", "tried"], folds=True
    )
    sentences = tag("ul", *(tag("li", finding.sentence()) for finding in findings))
    return section(NAME, TITLE, drawn, sentences, intro=INTRO)


def _finding_row(finding: Finding) -> list[object]:
    about = LINKED.get(finding.linking, finding.about) if finding.attack == SUMS else finding.about
    name = join(finding.attack, tag("span", about, class_="way note") if about else "")
    reached = Bar(finding.value, FOUND, f"{finding.measure} {finding.value:.3f}")
    chance = Bar(finding.chance, CHANCE, f"{finding.chance:.3f} by chance")
    drawn, tried = bar_list([reached, chance], 1.0), units.in_count(finding.tried)
    return [name, drawn, f"{finding.worst:.3f}", tried]
