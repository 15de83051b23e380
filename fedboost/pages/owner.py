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
from fedboost.report.tables import Band, Row, absent, names, section, table
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


def jobs(seen: Sequence[OwnedJobView], at: int, news: str = "") -> list[object]:
    """Show every job that this party has seen; `at` is the page of the ended jobs."""
    asking = [view for view in seen if view.waits_for_us]
    going = [view for view in seen if not view.waits_for_us and view.job.state not in OVER]
    over = [view for view in seen if view.job.state in OVER]
    first = (at - 1) * PAST_PER_PAGE
    rows: list[Row] = [_past(view) for view in over[first : first + PAST_PER_PAGE]]
    heads, numbers = ["job", "protocol", "data set", "with", "reason"], ["last change"]
    past = table("Jobs that have ended", heads, rows, numbers=numbers, folds=True)
    words = units.plural(len(asking), "job asks", "jobs ask")
    cards = tag("div", *map(_asking, asking), class_="cards")
    now = tag("div", *map(_going, going), class_="cards")
    return [
        tag("h1", "Jobs"),
        parts.note(news),
        parts.live(
            "asking",
            parts.announced(f"{words} for your approval" if asking else "No job asks for approval"),
            tag("h2", "For your approval"),
            cards if asking else absent("No job asks for your approval."),
        ),
        parts.live("going", tag("h2", "Running"), now if going else absent("No job runs here.")),
        section(
            "past",
            "Finished",
            parts.live("past", past if rows else absent("No job has ended yet.")),
            parts.pages("/?", at, len(over), PAST_PER_PAGE),
        ),
    ]


def _asking(view: OwnedJobView) -> Html:
    owned = view.owned
    return tag(
        "article",
        _name(view),
        tag("p", approval.wants(owned)),
        approval.forecast(owned),
        approval.uses(owned),
        tag("p", "asked ", parts.since(view.job.created), " ago", class_="facts"),
        parts.actions(parts.link("Look at it and decide", f"/jobs/{owned.id}", "strong-button")),
        class_="card edge-wait",
    )


def _going(view: OwnedJobView) -> Html:
    owned = view.owned
    reason = view.job.reason
    edge = "edge-go" if view.job.state is JobState.RUNNING else "edge-wait"
    tells = f"It has {owned.tells}." if view.job.state is not JobState.WAITING else ""
    return tag(
        "article",
        _name(view),
        tag("p", f"{owned.protocol} on {owned.dataset or 'no data set'}, among ",
            names(list(owned.parties)), class_="facts"),
        tag("p", reason, class_="reason") if reason else "",
        tag("p", tells) if owned.tells and tells else "",
        tag("p", f"{_for(view)} for ", parts.since(view.job.since), class_="facts"),
        class_=f"card {edge}",
    )  # fmt: skip


def _for(view: OwnedJobView) -> str:
    if view.job.state is JobState.WAITING and view.decision is not None:
        return f"{view.decision.verdict} by {view.decision.user}, waits"
    return view.job.state.shown


def _name(view: OwnedJobView) -> Html:
    link = tag("a", view.owned.name or view.owned.id, href=f"/jobs/{view.owned.id}")
    return tag("h3", link, " ", parts.badge(view.job.state.shown))


def _past(view: OwnedJobView) -> Row:
    owned = view.owned
    name = tag("a", owned.name, href=f"/jobs/{owned.id}")
    return [
        join(name, " ", parts.badge(view.job.state.shown)),
        owned.protocol,
        owned.dataset or units.NOTHING,
        names(list(owned.parties)),
        view.job.reason or units.NOTHING,
        parts.moment(view.job.updated),
    ]


# One job


@dataclass(frozen=True)
class Known:
    """A party's stored records of one job."""

    asking: Asking | FedboostError
    amounts: Sequence[Amount]
    audited: AuditView
    has_report: bool


def job(view: OwnedJobView, known: Known, session: BrowserSession, news: str = "") -> list[object]:
    """Show everything that the owner may know of one job."""
    stored, asking, here = view.job, known.asking, f"/jobs/{view.job.id}"
    since = parts.since(stored.since)
    state = tag("p", parts.badge(stored.state.shown), " for ", since, class_="state-line")
    said_why = tag("p", stored.reason, class_="reason") if stored.reason else ""
    by = "" if view.decision is None else _decided(view.decision)
    wants = join(tag("p", approval.wants(view.owned)), approval.uses(view.owned))
    spoken = parts.announced(f"{stored.name} is {stored.state.shown}")
    shown: list[object]
    if isinstance(asking, Asking):
        shown = approval.technical(asking)
    else:
        shown = [frame.refusal(asking, "This version cannot read what the job asks")]
    return [
        _head(view),
        parts.note(news),
        parts.live("state", tag("div", spoken, state, wants, said_why, by, class_="now")),
        parts.live("forecast", approval.forecast(view.owned, explains=True)),
        parts.live("actions", _decisions(view, here, has_report=known.has_report)),
        *shown,
        parts.live("passed", _passed(stored.id, known.amounts)),
        parts.live("audit", _audit(stored, known.audited, session)),
    ]  # fmt: skip


def _decided(decision: Decision) -> Html:
    who = f"{decision.verdict.capitalize()} by {decision.user} on "
    why = f": {decision.reason}" if decision.reason else "."
    return tag("p", who, parts.moment(decision.at), why)


def _head(view: OwnedJobView) -> Html:
    owned = view.owned
    by = f"by {asks_at(owned.submitter, owned.coordinator)}" if owned.submitter else ""
    words = [f"{fact} · " for fact in (owned.protocol, by) if fact]
    return parts.title(owned.id, owned.name, [*words, parts.moment(view.job.created)])


def _decisions(view: OwnedJobView, here: str, *, has_report: bool) -> Html:
    waits = view.job.state is JobState.WAITING
    may_deny = view.job.state not in FINAL
    return parts.actions(
        parts.link("Approve…", f"{here}/approve", "strong-button") if view.waits_for_us else "",
        parts.link("Deny…" if waits else "Deny from here on…", f"{here}/deny", "danger")
        if may_deny
        else "",
        parts.link("Full report", f"{here}/report") if has_report else "",
        parts.link("Its rows in the ledger", f"/ledger/rows?job={view.job.id}"),
    )


def _passed(job: str, amounts: Sequence[Amount]) -> Html:
    """Show the messages sent and received so far, by kind and peer."""
    title = "Sent and received"
    if not amounts:
        return section("passed", title, absent("Nothing was sent or received yet."))
    rows: list[Row] = []
    for direction, words in (("out", "Left"), ("in", "Came")):
        chosen = [amount for amount in amounts if amount.direction == direction]
        if chosen:
            rows.append(Band(f"{words}: {units.in_bytes(sum(amount.bytes for amount in chosen))}"))
        for amount in chosen:
            way = f"to {amount.peer}" if direction == "out" else f"from {amount.peer}"
            counts = (units.in_count(amount.messages), units.in_count(amount.values))
            kind = tag("span", amount.kind.rpartition(".")[2], class_="kind", title=amount.kind)
            rows.append([kind, way, *counts, units.in_bytes(amount.bytes)])
    numbers = ["messages", "values", "bytes"]
    drawn = table("By kind and peer", ["message", "way"], rows, numbers=numbers, folds=True)
    more = tag("p", tag("a", "Every row of it in the ledger", href=f"/ledger/rows?job={job}"))
    return section("passed", title, drawn, more)


def _audit(stored: StoredJob, audited: AuditView, session: BrowserSession) -> Html:
    """Show the findings of attacks on the party's own record, and a button to run them."""
    findings = audit.audit(audited.findings)
    start: Html | str = ""
    if audited.running is not None and audited.running.job == stored.id:
        start = tag("p", "The audit is running, for ", parts.since(audited.running.since), ".",
                    role="status", class_="working")  # fmt: skip
    elif audited.can_start and audited.running is None:
        words = "Audit it again" if audited.findings else "Audit it"
        start = parts.actions(parts.button(words, f"/jobs/{stored.id}/audit", session.csrf))
    failed = "" if audited.failure is None else frame.refusal(audited.failure, "No audit")
    if audited.findings:
        return join(findings, start, failed)
    why = (
        "No audit of this job has run. It attacks what this party has kept of the job, here, and "
        "asks nobody."
        if audited.can_start
        else "This party has kept no record of the job that could be attacked."
    )
    return section(audit.NAME, audit.TITLE, absent(why), start, failed)
