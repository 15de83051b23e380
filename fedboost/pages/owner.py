"""Jobs on a party's page for its owner, and forms for decisions about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedboost.audit.findings import Finding
from fedboost.ground.errors import FedboostError
from fedboost.pages import approval, frame, parts
from fedboost.pages.approval import OwnedJobView
from fedboost.pages.asking import Asking
from fedboost.pages.audits import Running
from fedboost.pages.sessions import BrowserSession
from fedboost.report import audit, units
from fedboost.report.html import Html, join, tag
from fedboost.report.states import state_in_words
from fedboost.report.tables import Band, TableRow, absence_note, html_table, listed_names, section
from fedboost.runtime.jobs.submitted import asks_at
from fedboost.runtime.ledger.rows import Amount
from fedboost.runtime.policy.approval import Decision
from fedboost.runtime.store.store import FINAL, OVER, JobState, StoredJob

PAST_PER_PAGE = 25


@dataclass(frozen=True)
class AuditView:
    """A job's audit as the page shows it."""

    findings: Sequence[Finding]
    failure: FedboostError | None
    running: Running | None  # of any job
    can_start: bool  # there is a record that an audit can attack


def jobs_page(seen: Sequence[OwnedJobView], at: int, news: str = "") -> list[object]:
    """Show every job that this party has seen; `at` is the page of the ended jobs."""
    asking = [view for view in seen if view.waits_for_us]
    going = [view for view in seen if not view.waits_for_us and view.job.state not in OVER]
    over = [view for view in seen if view.job.state in OVER]
    first = (at - 1) * PAST_PER_PAGE
    rows: list[TableRow] = [_ended_row(view) for view in over[first : first + PAST_PER_PAGE]]
    heads, numbers = ["job", "protocol", "data set", "with", "reason"], ["last change"]
    past = html_table("Jobs that have ended", heads, rows, numbers=numbers, folds=True)
    words = units.plural(len(asking), "job asks", "jobs ask")
    cards = tag("div", *map(_waiting_card, asking), class_="cards")
    now = tag("div", *map(_running_card, going), class_="cards")
    return [
        tag("h1", "Jobs"),
        parts.success_note(news),
        parts.live_part(
            "asking",
            parts.announcement(
                f"{words} for your approval" if asking else "No job asks for approval"
            ),
            tag("h2", "For your approval"),
            cards if asking else absence_note("No job asks for your approval."),
        ),
        parts.live_part(
            "going", tag("h2", "Running"), now if going else absence_note("No job is running here.")
        ),
        section(
            "past",
            "Finished",
            parts.live_part("past", past if rows else absence_note("No job has ended yet.")),
            parts.page_links("/?", at, len(over), PAST_PER_PAGE),
        ),
    ]


def _waiting_card(view: OwnedJobView) -> Html:
    owned = view.owned
    return tag(
        "article",
        _job_heading(view),
        tag("p", approval.request_sentence(owned)),
        approval.forecast_of_job(owned),
        approval.list_of_uses(owned),
        tag("p", "asked ", parts.time_since(view.job.created), " ago", class_="facts"),
        parts.button_row(
            parts.button_link("Review and decide", f"/jobs/{owned.id}", "strong-button")
        ),
        class_="card edge-wait",
    )


def _running_card(view: OwnedJobView) -> Html:
    owned = view.owned
    reason = view.job.reason
    edge = "edge-go" if view.job.state is JobState.RUNNING else "edge-wait"
    tells = f"It has {owned.tells}." if view.job.state is not JobState.WAITING else ""
    return tag(
        "article",
        _job_heading(view),
        tag("p", f"{owned.protocol} on {owned.dataset or 'no data set'}, among ",
            listed_names(list(owned.parties)), class_="facts"),
        tag("p", reason, class_="reason") if reason else "",
        tag("p", tells) if owned.tells and tells else "",
        tag("p", f"{_state_in_words(view)} for ", parts.time_since(view.job.since), class_="facts"),
        class_=f"card {edge}",
    )  # fmt: skip


def _state_in_words(view: OwnedJobView) -> str:
    if view.job.state is JobState.WAITING and view.decision is not None:
        return f"{view.decision.verdict} by {view.decision.user}, waits"
    return view.job.state.shown


def _job_heading(view: OwnedJobView) -> Html:
    link = tag("a", view.owned.name or view.owned.id, href=f"/jobs/{view.owned.id}")
    return tag("h3", link, " ", parts.state_badge(view.job.state.shown))


def _ended_row(view: OwnedJobView) -> TableRow:
    owned = view.owned
    name = tag("a", owned.name, href=f"/jobs/{owned.id}")
    return [
        join(name, " ", parts.state_badge(view.job.state.shown)),
        owned.protocol,
        owned.dataset or units.NOTHING,
        listed_names(list(owned.parties)),
        view.job.reason or units.NOTHING,
        parts.time_to_minute(view.job.updated),
    ]


# One job


@dataclass(frozen=True)
class JobRecords:
    """A party's stored records of one job."""

    asking: Asking | FedboostError
    amounts: Sequence[Amount]
    audited: AuditView
    has_report: bool


def job_page(
    view: OwnedJobView, known: JobRecords, session: BrowserSession, news: str = ""
) -> list[object]:
    """Show everything that the owner may know of one job."""
    stored, asking, here = view.job, known.asking, f"/jobs/{view.job.id}"
    since = parts.time_since(stored.since)
    state = tag("p", parts.state_badge(stored.state.shown), " for ", since, class_="state-line")
    said_why = tag("p", stored.reason, class_="reason") if stored.reason else ""
    by = "" if view.decision is None else _decision_in_words(view.decision)
    columns = asking.columns if isinstance(asking, Asking) else ()
    uses = approval.list_of_uses(view.owned, columns)
    wants = join(tag("p", approval.request_sentence(view.owned)), uses)
    spoken = parts.announcement(f"{stored.name} {state_in_words(stored.state.shown)}")
    shown: list[object]
    budget: Html | str = ""
    if isinstance(asking, Asking):
        shown = approval.technical_tables(asking)
        budget = approval.budget_of_job(asking.budget) if view.waits_for_us else ""
    else:
        shown = [frame.error_box(asking, "This version cannot read what the job asks")]
    return [
        _job_head(view),
        parts.success_note(news),
        parts.live_part("state", tag("div", spoken, state, wants, said_why, by, class_="now")),
        parts.live_part("forecast", approval.forecast_of_job(view.owned, explains=True)),
        budget,
        parts.live_part("actions", _decision_buttons(view, here, has_report=known.has_report)),
        *shown,
        parts.live_part("passed", _messages_table(stored.id, known.amounts)),
        parts.live_part("audit", _audit_panel(stored, known.audited, session)),
    ]  # fmt: skip


def _decision_in_words(decision: Decision) -> Html:
    who = f"{decision.verdict.capitalize()} by {decision.user} on "
    why = f": {decision.reason}" if decision.reason else "."
    return tag("p", who, parts.time_to_minute(decision.at), why)


def _job_head(view: OwnedJobView) -> Html:
    owned = view.owned
    by = f"by {asks_at(owned.submitter, owned.coordinator)}" if owned.submitter else ""
    words = [f"{fact} · " for fact in (owned.protocol, by) if fact]
    return parts.job_title(owned.id, owned.name, [*words, parts.time_to_minute(view.job.created)])


def _decision_buttons(view: OwnedJobView, here: str, *, has_report: bool) -> Html:
    waits = view.job.state is JobState.WAITING
    may_deny = view.job.state not in FINAL
    return parts.button_row(
        parts.button_link("Approve…", f"{here}/approve", "strong-button")
        if view.waits_for_us
        else "",
        parts.button_link("Deny…" if waits else "Stop this job…", f"{here}/deny", "danger")
        if may_deny
        else "",
        parts.button_link("Full report", f"{here}/report") if has_report else "",
        parts.button_link("Ledger rows", f"/ledger/rows?job={view.job.id}"),
    )


def _messages_table(job: str, amounts: Sequence[Amount]) -> Html:
    """Show the messages sent and received so far, by kind and peer."""
    title = "Sent and received"
    if not amounts:
        return section("passed", title, absence_note("Nothing was sent or received yet."))
    rows: list[TableRow] = []
    for direction, words in (("out", "Sent"), ("in", "Received")):
        chosen = [amount for amount in amounts if amount.direction == direction]
        if chosen:
            rows.append(Band(f"{words}: {units.in_bytes(sum(amount.bytes for amount in chosen))}"))
        for amount in chosen:
            way = f"to {amount.peer}" if direction == "out" else f"from {amount.peer}"
            counts = (units.in_count(amount.messages), units.in_count(amount.values))
            kind = tag("span", amount.kind.rpartition(".")[2], class_="kind", title=amount.kind)
            rows.append([kind, way, *counts, units.in_bytes(amount.bytes)])
    numbers = ["messages", "values", "bytes"]
    drawn = html_table("By kind and peer", ["message", "way"], rows, numbers=numbers, folds=True)
    more = tag("p", tag("a", "All its ledger rows", href=f"/ledger/rows?job={job}"))
    return section("passed", title, drawn, more)


def _audit_panel(stored: StoredJob, audited: AuditView, session: BrowserSession) -> Html:
    """Show the findings of attacks on the party's own record, and a button to run them."""
    findings = audit.findings_section(audited.findings)
    start: Html | str = ""
    if audited.running is not None and audited.running.job == stored.id:
        start = tag("p", "The audit is running, for ", parts.time_since(audited.running.since), ".",
                    role="status", class_="working")  # fmt: skip
    elif audited.can_start and audited.running is None:
        words = "Run the audit again" if audited.findings else "Run an audit"
        start = parts.button_row(parts.button_form(words, f"/jobs/{stored.id}/audit", session.csrf))
    failed = "" if audited.failure is None else frame.error_box(audited.failure, "No audit")
    if audited.findings:
        return join(findings, start, failed)
    why = (
        "No audit of this job has run. An audit attacks this party’s own record of the job and "
        "contacts nobody."
        if audited.can_start
        else "This party has no record of the job to audit."
    )
    return section(audit.NAME, audit.TITLE, absence_note(why), start, failed)
