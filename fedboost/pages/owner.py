"""What a party's page shows its owner of jobs, and how it asks for decisions about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedboost.audit.findings import Finding
from fedboost.errors import FedboostError
from fedboost.messages.party_pb2 import OwnedJob
from fedboost.pages import frame, parts
from fedboost.pages.asking import Asking, Rule, in_words
from fedboost.pages.audits import Running
from fedboost.pages.sessions import BrowserSession
from fedboost.report import audit, units
from fedboost.report.disclosure import protection
from fedboost.report.html import Html, join, tag
from fedboost.report.tables import Band, Column, Row, absent, details, names, section, table
from fedboost.runtime.ledger.rows import Amount
from fedboost.runtime.policy.decisions import REASON_CHARS_MAX, Decision
from fedboost.runtime.store.store import FINAL, OVER, JobState, StoredJob

PAST_PER_PAGE = 25


@dataclass(frozen=True)
class OwnedJobView:
    """A job of the party's store, and what its owner may read of it."""

    job: StoredJob
    owned: OwnedJob
    decision: Decision | None  # of its owner

    @property
    def waits_for_us(self) -> bool:
        """True if nobody here has approved it yet."""
        return self.job.state is JobState.WAITING and self.decision is None


@dataclass(frozen=True)
class AuditView:
    """A job's audit as the page shows it."""

    findings: Sequence[Finding]
    failure: FedboostError | None
    running: Running | None  # of any job
    can_start: bool  # there is a record, and somebody to attack it


def jobs(seen: Sequence[OwnedJobView], at: int, said: str = "") -> list[object]:
    """Every job that this party has seen, `at` being the page of those that are over."""
    asking = [one for one in seen if one.waits_for_us]
    going = [one for one in seen if not one.waits_for_us and one.job.state not in OVER]
    over = [one for one in seen if one.job.state in OVER]
    first = (at - 1) * PAST_PER_PAGE
    rows: list[Row] = [_past(one) for one in over[first : first + PAST_PER_PAGE]]
    heads = [Column("job"), Column("protocol"), Column("data set"), Column("with")]
    heads += [Column("reason"), Column("last change", "number")]
    past = table("Jobs that are over", heads, rows, folds=True)
    words = units.plural(len(asking), "job asks", "jobs ask")
    asked = tag("div", *map(_asking, asking), class_="cards")
    now = tag("div", *map(_going, going), class_="cards")
    return [
        tag("h1", "Jobs"),
        parts.note(said) if said else "",
        parts.live(
            "asking",
            parts.announced(f"{words} for your approval" if asking else "No job asks for approval"),
            tag("h2", "For your approval"),
            asked if asking else absent("No job asks for your approval."),
        ),
        parts.live("going", tag("h2", "Running"), now if going else absent("No job runs here.")),
        section(
            "past",
            "Finished",
            parts.live("past", past if rows else absent("No job is over yet.")),
            parts.pages("/?", at, len(over), PAST_PER_PAGE),
        ),
    ]


def _asking(one: OwnedJobView) -> Html:
    owned = one.owned
    return tag(
        "article",
        _name(one),
        tag("p", _wants(owned)),
        _uses(owned),
        tag("p", f"It {owned.tells}.") if owned.tells else "",
        tag("p", "asked ", parts.since(one.job.created), " ago", class_="facts"),
        parts.actions(parts.link("Look at it and decide", f"/jobs/{owned.id}", "strong-button")),
        class_="card edge-wait",
    )


def _wants(owned: OwnedJob) -> Html:
    """Say in a sentence who asks, or asked, for what."""
    verb = " wanted to run " if owned.state in OVER else " wants to run "
    who, what = (owned.submitter, owned.coordinator), (owned.protocol, owned.dataset)
    user, coordinator, protocol, dataset = (tag("b", name or "nobody") for name in (*who, *what))
    on = join(" on ", dataset) if owned.dataset else " without a data set of ours"
    parties = names(list(owned.parties))
    return join(user, " at ", coordinator, verb, protocol, on, f" among {parties}.")


def _uses(owned: OwnedJob) -> Html:
    """Say in words what the job uses of this party."""
    return parts.facts([(use.about.capitalize(), use.says) for use in owned.uses])


def _going(one: OwnedJobView) -> Html:
    owned = one.owned
    reason = one.job.reason
    edge = "edge-go" if one.job.state is JobState.RUNNING else "edge-wait"
    told = f"It has {owned.tells}." if one.job.state is not JobState.WAITING else ""
    return tag(
        "article",
        _name(one),
        tag("p", f"{owned.protocol} on {owned.dataset or 'no data set'}, among ",
            names(list(owned.parties)), class_="facts"),
        tag("p", reason, class_="reason") if reason else "",
        tag("p", told) if owned.tells and told else "",
        tag("p", f"{_for(one)} for ", parts.since(one.job.since), class_="facts"),
        class_=f"card {edge}",
    )  # fmt: skip


def _for(one: OwnedJobView) -> str:
    if one.job.state is JobState.WAITING and one.decision is not None:
        return f"{one.decision.verdict} by {one.decision.user}, waits"
    return one.job.state.shown


def _name(one: OwnedJobView) -> Html:
    link = tag("a", one.owned.name or one.owned.id, href=f"/jobs/{one.owned.id}")
    return tag("h3", link, " ", parts.badge(one.job.state.shown))


def _past(one: OwnedJobView) -> Row:
    owned = one.owned
    return [
        join(tag("a", owned.name, href=f"/jobs/{owned.id}"), " ", parts.badge(one.job.state.shown)),
        owned.protocol,
        owned.dataset or units.NOTHING,
        names(list(owned.parties)),
        one.job.reason or units.NOTHING,
        parts.moment(one.job.updated),
    ]


# One job


@dataclass(frozen=True)
class Known:
    """A party's stored records of one job."""

    asking: Asking | FedboostError
    amounts: Sequence[Amount]
    audited: AuditView
    has_report: bool


def job(one: OwnedJobView, known: Known, session: BrowserSession, said: str = "") -> list[object]:
    """Show everything that the owner may know of one job."""
    stored, asking, here = one.job, known.asking, f"/jobs/{one.job.id}"
    since = parts.since(stored.since)
    state = tag("p", parts.badge(stored.state.shown), " for ", since, class_="state-line")
    said_why = tag("p", stored.reason, class_="reason") if stored.reason else ""
    by = "" if one.decision is None else _decided(one.decision)
    wants = join(tag("p", _wants(one.owned)), _uses(one.owned))
    spoken = parts.announced(f"{stored.name} is {stored.state.shown}")
    shown: list[object]
    if isinstance(asking, Asking):
        shown = [_verdict(asking), leaving(asking), _terms(asking)]
    else:
        shown = [frame.refusal(asking, "This version cannot read what the job asks")]
    return [
        _head(one),
        parts.note(said) if said else "",
        parts.live("state", tag("div", spoken, state, wants, said_why, by, class_="now")),
        parts.live("actions", _decisions(one, here, has_report=known.has_report)),
        *shown,
        parts.live("passed", _passed(stored.id, known.amounts)),
        parts.live("audit", _audit(stored, known.audited, session)),
    ]  # fmt: skip


def _decided(decision: Decision) -> Html:
    who = f"{decision.verdict.capitalize()} by {decision.user} on "
    why = f": {decision.reason}" if decision.reason else "."
    return tag("p", who, parts.moment(decision.at), why)


def _head(one: OwnedJobView) -> Html:
    owned = one.owned
    by = f"by {owned.submitter} at {owned.coordinator}" if owned.submitter else ""
    words = [f"{fact} · " for fact in (owned.protocol, by) if fact]
    return tag(
        "div",
        tag("p", tag("a", "Jobs", href="/"), " / ", tag("code", owned.id), class_="kicker"),
        tag("h1", owned.name or owned.id),
        tag("p", *words, parts.moment(one.job.created), class_="facts"),
        class_="title",
    )


def _decisions(one: OwnedJobView, here: str, *, has_report: bool) -> Html:
    waits = one.job.state is JobState.WAITING
    may_deny = one.job.state not in FINAL
    return parts.actions(
        parts.link("Approve…", f"{here}/approve", "strong-button") if one.waits_for_us else "",
        parts.link("Deny…" if waits else "Deny from here on…", f"{here}/deny", "danger")
        if may_deny
        else "",
        parts.link("Full report", f"{here}/report") if has_report else "",
        parts.link("Its rows in the ledger", f"/ledger?job={one.job.id}"),
    )


def _verdict(asking: Asking) -> Html:
    """Show the policy's verdict, key by key."""
    refused = "" if asking.refusal is None else asking.refusal.where.get("key", "")
    heads = [Column("about"), Column("the job asks"), Column("your policy"), Column("verdict")]
    rows: list[Row] = [
        [
            join(rule.about, tag("code", rule.key, class_="key")),
            rule.asked,
            rule.allowed,
            _mark(rule, asking.refusal is not None, rule.key == refused),
        ]
        for rule in asking.rules
    ]
    drawn = table("Your policy and this job", heads, rows, folds=True) if rows else ""
    if asking.refusal is None:
        said = tag(
            "p",
            tag("b", "Your policy allows this job."),
            " What can be judged only when "
            "the table is read, or when the rows in common are known, is judged then.",
        )
    else:
        said = frame.refusal(asking.refusal, "Your policy refuses this job")
    return section("verdict", "What your policy says", said, drawn)  # fmt: skip


def _mark(rule: Rule, is_refused: bool, is_reason: bool) -> Html:
    if is_reason:
        return tag("span", "✗ refused", class_="pill bad")
    if rule.is_later:
        return tag("span", "judged later", class_="pill wait")
    return join() if is_refused else tag("span", "✓ allowed", class_="pill good")


def leaving(asking: Asking) -> Html:
    """Every kind of message that would leave, to whom, what it tells and what protects it."""
    rows: list[Row] = []
    stage = ""
    for one in asking.leaving:
        if one.stage != stage:
            stage = one.stage
            rows.append(Band(stage))
        name = tag("span", one.name, class_="kind")
        rows.append([name, names(one.to), parts.sentence(one.reveals), protection(one.protected)])
    heads = [Column(head) for head in ("message", "to", "reveals", "protected")]
    drawn = table("What leaves this party", heads, rows, folds=True) if rows else absent("Nothing.")
    tells = tag("p", tag("b", "In numbers: "), f"the job {asking.tells}.") if asking.tells else ""
    intro = (
        "These kinds of messages and no others leave this daemon in the job; the ledger gets a "
        "row for each."
    )
    told = tag("p", asking.told, class_="note")
    return section("leaving", "What leaves", drawn, tells, told, intro=intro)


def _terms(asking: Asking) -> Html:
    """The manifest in words: parties, what is used of our table, the settings."""
    spec = asking.terms.spec
    table_of = spec.parties.table()
    who: list[Row] = []
    for party in spec.parties.everybody:
        roles, uses = " and ".join(table_of.roles_of(party)), spec.data.get(party)
        said = "" if uses is None else uses.dataset or ""
        columns = "" if uses is None else _columns(uses.columns, uses.ignore)
        label = "" if uses is None else uses.label or ""
        who.append([party, roles, said, columns, label])
    heads = [Column(h) for h in ("party", "role", "data set", "columns", "label")]
    raw = spec.model_dump(mode="json", include={"params", "validation"}, exclude_none=True)
    settings: list[Row] = [
        [tag("code", key.removeprefix("params.")), words] for key, words in in_words(raw)
    ]
    chosen = table("Settings", [Column("setting"), Column("value")], settings) if settings else ""
    signed = parts.facts([("SHA-256 of the manifest", tag("code", asking.digest))])
    return section(
        "terms",
        "What the job says",
        tag("div", table("Parties", heads, who, folds=True), chosen, class_="pair"),
        details("What every party signs", signed),
    )


def _columns(named: Sequence[str] | None, ignored: Sequence[str]) -> str:
    if named is not None:
        return names(list(named))
    return f"all but {names(list(ignored))}" if ignored else "all"


def _passed(job: str, amounts: Sequence[Amount]) -> Html:
    """Show what has been sent and received so far, by kind and peer."""
    title = "What has left and come"
    if not amounts:
        return section("passed", title, absent("Nothing has left or come yet."))
    rows: list[Row] = []
    for direction, words in (("out", "Left"), ("in", "Came")):
        own = [one for one in amounts if one.direction == direction]
        if own:
            rows.append(Band(f"{words}: {units.in_bytes(sum(one.bytes for one in own))}"))
        for one in own:
            way = f"to {one.peer}" if direction == "out" else f"from {one.peer}"
            counts = (units.in_count(one.messages), units.in_count(one.values))
            kind = tag("span", one.kind.rpartition(".")[2], class_="kind", title=one.kind)
            rows.append([kind, way, *counts, units.in_bytes(one.bytes)])
    heads = [Column("message"), Column("way")]
    heads += [Column(head, "number") for head in ("messages", "values", "bytes")]
    more = tag("p", tag("a", "Every row of it in the ledger", href=f"/ledger?job={job}"))
    return section("passed", title, table("By kind and peer", heads, rows, folds=True), more)


def _audit(stored: StoredJob, audited: AuditView, session: BrowserSession) -> Html:
    """Show what attacks on the party's own record have found, and how to run them."""
    found = audit.audit(audited.findings)
    start: Html | str = ""
    if audited.running is not None and audited.running.job == stored.id:
        start = tag("p", "The audit is at work, for ", parts.since(audited.running.since), ".",
                    role="status", class_="working")  # fmt: skip
    elif audited.can_start and audited.running is None:
        words = "Audit it again" if audited.findings else "Audit it"
        start = parts.actions(parts.button(words, f"/jobs/{stored.id}/audit", session.csrf))
    failed = "" if audited.failure is None else frame.refusal(audited.failure, "No audit")
    if audited.findings:
        return join(found, start, failed)
    why = (
        "No audit of this job has run. It attacks what this party has kept of the job, here, and "
        "asks nobody."
        if audited.can_start
        else "This party has kept no record of the job that could be attacked."
    )
    return section(audit.NAME, audit.TITLE, absent(why), start, failed)


# Deciding


def approve(one: OwnedJobView, asking: Asking, session: BrowserSession) -> list[object]:
    """Shows once more exactly what would leave, and asks whether it may."""
    here = f"/jobs/{one.job.id}"
    read = tag(
        "label",
        tag("input", type="checkbox", name="read", value="yes", required=""),
        " I have read what will leave.",
        class_="check",
    )
    yes = tag("button", "Approve", type="submit", class_="strong-button")
    sent = (frame.hidden("csrf", session.csrf), frame.hidden("digest", asking.digest))
    buttons = tag("div", yes, parts.link("Not now", here), class_="actions")
    form = tag(
        "form", *sent, read, buttons, method="post", action=f"{here}/approve", class_="decide"
    )
    return [
        tag("h1", f"Approve {one.owned.name}?"),
        tag("p", _wants(one.owned), class_="intro"),
        _uses(one.owned),
        "" if asking.refusal is None else frame.refusal(asking.refusal, "Your policy refuses it"),
        leaving(asking),
        form,
    ]


def deny(one: OwnedJobView, session: BrowserSession) -> list[object]:
    """Asks whether a job shall be refused."""
    here = f"/jobs/{one.job.id}"
    words = (
        "It fails for every party, and says that this party’s owner denied it. That cannot be "
        "taken back: another job has to be submitted."
    )
    limit = str(REASON_CHARS_MAX)
    reason = tag(
        "label",
        "Why, for everybody in the job (may stay empty) ",
        tag("input", type="text", name="reason", maxlength=limit, autocomplete="off"),
    )
    yes = tag("button", "Deny it", type="submit", class_="danger")
    buttons = tag("div", yes, parts.link("Not now", here), class_="actions")
    form = tag(
        "form", frame.hidden("csrf", session.csrf), reason, buttons,
        method="post", action=f"{here}/deny", class_="decide",
    )  # fmt: skip
    return [tag("h1", f"Deny {one.owned.name}?"), tag("p", words, class_="intro"), form]
