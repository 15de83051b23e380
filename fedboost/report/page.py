"""A job's journal as one self-contained HTML file: no network, no scripts."""

from __future__ import annotations

from collections.abc import Sequence

from fedboost import __version__
from fedboost.audit.findings import Finding
from fedboost.messages.job_pb2 import JobJournal
from fedboost.report import (
    audit,
    benefit,
    costs,
    disclosure,
    outcome,
    schedule,
    sweep,
    terms,
    training,
    units,
)
from fedboost.report.disclosure import LedgerLine
from fedboost.report.html import Html, join, style_sheet, tag
from fedboost.report.states import person_of
from fedboost.report.story import Story, read_story, tone_of
from fedboost.report.tables import listed_names
from fedboost.sweep.record import SweepRecord

# The page may not load or run anything, whatever its content.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

SECTIONS = (
    ("result", "Result"),
    ("learning", "Learning curve"),
    (schedule.NAME, "Forests"),  # of a job that has some
    ("curves", "ROC, PR, KS"),
    ("importance", "Importance"),
    ("time", "Time"),
    ("bytes", "Traffic"),
    ("disclosure", "Who learned what"),
    (audit.NAME, audit.TITLE),  # where one has run
    ("settings", "Settings"),
    ("timeline", "Timeline"),
)
FACT_CHARS = 30  # of a fact that stays on one line, on a phone too


def render_page(
    journal: JobJournal, ledger: Sequence[LedgerLine] = (), findings: Sequence[Finding] = ()
) -> str:
    """Return the page for a job in any state, as text for UTF-8.

    `ledger` is one party's rows for this job, and `findings` the results of its audit, if it wants
    them on the page. Raise PeerError if the journal's spec, result or curves are malformed.
    """
    story = read_story(journal)
    main = tag(
        "main",
        outcome.trouble_banner(story),
        benefit.benefit_section(story),
        outcome.main_figures(story),
        outcome.warning_list(story),
        _contents(story, is_audited=bool(findings)),
        outcome.outcome_section(story),
        training.learning_section(story),
        schedule.schedule_section(story),
        training.separation_section(story),
        training.importance_section(story),
        costs.times_section(story),
        costs.traffic_section(story),
        disclosure.disclosure_section(story, ledger),
        audit.findings_section(findings),
        terms.terms_section(story),
        terms.timeline_section(story),
    )
    body = tag("body", _head_of_page(story), main, _page_foot(story))
    return _html_page(_job_title(story), body)


def audit_page(job: str, party: str, findings: Sequence[Finding]) -> str:
    """Return a page with the findings of a party's audit alone."""
    kicker = tag("p", "fedboost audit", class_="kicker")
    head = tag("header", kicker, tag("h1", tag("code", job)), tag("p", party, class_="facts"))
    body = tag("body", head, tag("main", audit.findings_section(findings, party)))
    return _html_page(f"Audit of {job}", body)


def sweep_page(record: SweepRecord) -> str:
    """Return a page with a sweep's results, in any state."""
    base, state = record.sweep.base, record.state
    badge = tag("span", state, class_=f"badge {tone_of(state)}".strip())
    head = tag(
        "header",
        tag("p", "fedboost sweep report", class_="kicker"),
        tag("h1", base.name, " ", badge),
        tag(
            "p", *_separated([base.protocol, listed_names(base.parties.everybody)]), class_="facts"
        ),
    )
    main = tag(
        "main",
        sweep.sweep_figures(record),
        sweep.trials_section(record),
        sweep.jobs_section(record),
        sweep.disclosure_section(record),
    )
    return _html_page(f"Sweep {base.name}", tag("body", head, main))


def _html_page(title: str, body: Html) -> str:
    page = tag("html", _html_head(title), body, lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _html_head(title: str) -> Html:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} – fedboost"),
        style_sheet("page.css"),
    )


def _head_of_page(story: Story) -> Html:
    hosts = [party for party in story.roles if party != story.guest]
    with_whom = f"{story.guest} with {listed_names(hosts)}" if hosts else story.guest
    by = f"by {person_of(story.status.submitter)}" if story.status.submitter else ""
    facts = [story.status.protocol, with_whom, by, units.date_text(story.status.created)]
    tone = f"badge {tone_of(story.state)}".strip()
    badge = tag("span", story.state or "unknown", class_=tone)
    purpose = story.spec.get("purpose")
    return tag(
        "header",
        tag("p", "fedboost job report", class_="kicker"),
        tag("h1", _job_title(story), " ", badge),
        tag("p", *_separated([fact for fact in facts if fact]), class_="facts"),
        tag("p", f"Purpose: {purpose}") if isinstance(purpose, str) else "",
        tag("p", tag("code", story.status.id), class_="facts"),
    )


def _separated(facts: Sequence[str]) -> list[object]:
    """Return facts with dots between them; lines with short facts break at the dots only."""
    parts: list[object] = []
    for fact in facts:
        parts += [" · "] if parts else []
        parts.append(tag("span", fact) if len(fact) <= FACT_CHARS else fact)
    return parts


def _contents(story: Story, *, is_audited: bool) -> Html:
    drawn = {
        audit.NAME: is_audited,
        schedule.NAME: schedule.is_drawn(story),
        "curves": training.has_separation(story),
        "importance": training.has_splits(story),
    }
    left_out = [name for name, is_there in drawn.items() if not is_there]
    shown = [(name, words) for name, words in SECTIONS if name not in left_out]
    links = [tag("li", tag("a", words, href=f"#{name}")) for name, words in shown]
    return tag("nav", tag("ul", *links), aria_label="Sections of this page")


def _page_foot(story: Story) -> Html:
    model = story.result.model if story.result is not None else ""
    lines = [f"Written by fedboost {__version__} from the job's journal."]
    if model:
        lines.append(f"The model: {model}.")
    if story.status.attempt > 1:
        lines.append(f"Attempt {story.status.attempt}.")
    return tag("footer", tag("p", join(" ".join(lines))))


def _job_title(story: Story) -> str:
    return story.status.name or story.status.id or "A job"
