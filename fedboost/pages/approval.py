"""A job that asks for its owner's approval: a verdict in plain words first, then folded tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedboost.messages.party_pb2 import OwnedJob
from fedboost.pages import frame, parts
from fedboost.pages.asking import Asking, PolicyRule, settings_in_words
from fedboost.pages.records import EARLIER, SPENT
from fedboost.pages.sessions import BrowserSession
from fedboost.report import units
from fedboost.report.charts import Bar, budget_meter
from fedboost.report.disclosure import protection
from fedboost.report.html import Html, join, tag
from fedboost.report.tables import (
    Band,
    TableRow,
    absence_note,
    details,
    html_table,
    listed_names,
    section,
)
from fedboost.runtime.jobs.submitted import asks_at
from fedboost.runtime.policy.approval import REASON_CHARS_MAX, Decision, Risk
from fedboost.runtime.policy.planned import Planned
from fedboost.runtime.store.store import OVER, JobState, StoredJob

TONES = {Risk.LOW: "good", Risk.MEDIUM: "wait", Risk.HIGH: "bad"}
COLUMNS_MAX = 60  # listed by name
RECKONED = (
    "This forecast uses only your own settings and records. A similar job is one you approved "
    "that did not fail, with the same person, protocol, parties, data set, columns, label and "
    "noise. The budget is the number of sums per bin and row that your policy allows over all "
    "jobs. High risk: the policy refuses the job, nothing hides what leaves, or all jobs together "
    "pass your warning level. Medium: something is new, the job takes over a tenth of the budget, "
    "or the amount is unknown. Your policy’s limits apply in any case."
)


@dataclass(frozen=True)
class OwnedJobView:
    """A job of the party's store, with the details its owner may read."""

    job: StoredJob
    owned: OwnedJob
    decision: Decision | None  # of its owner

    @property
    def waits_for_us(self) -> bool:
        """Return True if the owner has not decided about it yet."""
        return self.job.state is JobState.WAITING and self.decision is None


def forecast_of_job(owned: OwnedJob, *, explains: bool = False) -> Html:
    """Show the verdict on a waiting job with its reasons; nothing for other jobs."""
    if not owned.risk:
        return join()
    tone = TONES[Risk(owned.risk)]
    mark = tag("span", f"{owned.risk} risk", class_=f"pill {tone}")
    because = [tag("li", parts.sentence_with_code(reason)) for reason in owned.because]
    return tag(
        "div",
        tag("p", mark, " ", parts.sentence_with_code(owned.forecast), "."),
        tag("ul", *because) if because else "",
        details("How this is computed", tag("p", RECKONED)) if explains else "",
        class_=f"forecast {tone}",
    )


def request_sentence(owned: OwnedJob) -> Html:
    """Describe in a sentence the user, the coordinator and the request."""
    verb = " wanted to run " if owned.state in OVER else " wants to run "
    who = asks_at(owned.submitter or "nobody", owned.coordinator or "nobody")
    asker, protocol, dataset = (tag("b", words) for words in (who, owned.protocol, owned.dataset))
    on = join(" on ", dataset) if owned.dataset else " without any data of yours"
    parties = listed_names(list(owned.parties))
    return join(asker, verb, protocol, on, f" among {parties}.")


def list_of_uses(owned: OwnedJob, columns: Sequence[str] = ()) -> Html:
    """List the job's uses of this party's data, with the names of its `columns` if known."""
    facts: list[tuple[object, object]] = []
    for use in owned.uses:
        says: object = use.says
        if use.about == "columns" and columns:
            more = f" and {len(columns) - COLUMNS_MAX} more" * (len(columns) > COLUMNS_MAX)
            says = f"{', '.join(columns[:COLUMNS_MAX])}{more} ({len(columns)} in all)"
        facts.append((use.about.capitalize(), says))
    return parts.fact_list(facts)


def technical_tables(asking: Asking) -> list[object]:
    """Show the policy's verdict, the outgoing messages and the settings, each table folded."""
    return [_verdict_table(asking), _message_table(asking), _manifest_table(asking)]


def _verdict_table(asking: Asking) -> Html:
    """Show the policy's verdict, key by key."""
    refused = "" if asking.refusal is None else asking.refusal.where.get("key", "")
    heads = ["about", "the job asks", "your policy", "verdict"]
    rows: list[TableRow] = [
        [
            join(rule.about, tag("code", rule.key, class_="key")),
            rule.asked,
            rule.allowed,
            _verdict_mark(rule, asking.refusal is not None, rule.key == refused),
        ]
        for rule in asking.rules
    ]
    drawn = html_table("Your policy and this job", heads, rows, folds=True) if rows else ""
    verdict = tag("p", tag("b", "Your policy allows this job."), " Some limits are checked later.")
    if asking.budget is not None and asking.budget.is_over:
        verdict = _excess(asking.budget)
    if asking.refusal is not None:
        verdict = frame.error_box(asking.refusal, "Your policy refuses this job")
    folded = details(f"{units.plural(len(rows), 'key')} of your policy, one by one", drawn)
    return section("verdict", "What your policy says", verdict, folded if rows else "")


def budget_of_job(budget: Planned | None) -> Html:
    """Draw the budget with marks for earlier jobs, this job and the limit; nothing if unknown."""
    if budget is None or budget.limit == math.inf:
        return join()
    shown = [
        Bar(budget.before, EARLIER, f"earlier jobs: {budget.before:.2g}"),
        Bar(budget.ratio, SPENT, f"this job: {budget.ratio:.2g}"),
    ]
    title = tag("p", tag("b", "Budget"), " of sums per bin and row, over all jobs")
    return tag("div", title, budget_meter(shown, budget.limit, f"limit: {budget.limit:g}"))


def _excess(budget: Planned) -> Html:
    """Warn that an approval may change nothing."""
    words = f" {budget.excess_in_words()} To allow it, raise policy.disclosure_max."
    refuses = "Your policy will probably refuse this job once it runs, even if you approve it."
    return tag("p", tag("b", refuses), words, role="alert")


def _verdict_mark(rule: PolicyRule, is_refused: bool, is_reason: bool) -> Html:
    if is_reason:
        return tag("span", "✗ refused", class_="pill bad")
    if rule.is_later:
        return tag("span", "judged later", class_="pill wait")
    return join() if is_refused else tag("span", "✓ allowed", class_="pill good")


def _message_table(asking: Asking) -> Html:
    """List every kind of outgoing message with its receivers, content and protection."""
    rows: list[TableRow] = []
    stage = ""
    for message in asking.leaving:
        if message.stage != stage:
            stage = message.stage
            rows.append(Band(stage))
        name, reveals = (
            tag("span", message.name, class_="kind"),
            parts.sentence_with_code(message.reveals),
        )
        rows.append([name, listed_names(message.to), reveals, protection(message.protected)])
    heads = ["message", "to", "reveals", "protected"]
    drawn = absence_note("Nothing.")
    if rows:
        to = listed_names(sorted({peer for message in asking.leaving for peer in message.to}))
        kinds = units.plural(len(asking.leaving), "kind of message", "kinds of messages")
        listed = html_table("What leaves this party", heads, rows, folds=True)
        drawn = details(f"{kinds} to {to}: what each reveals, and what protects it", listed)
    tells = tag("p", tag("b", "In numbers: "), f"the job {asking.tells}.") if asking.tells else ""
    intro = (
        "Only these kinds of messages leave this daemon in the job; the ledger records every one."
    )
    status = tag("p", asking.told, class_="note")
    return section("leaving", "What leaves", drawn, tells, status, intro=intro)


def _manifest_table(asking: Asking) -> Html:
    """Describe the manifest: parties, uses of our table, settings."""
    spec = asking.terms.spec
    table_of = spec.parties.table()
    who: list[TableRow] = []
    for party in spec.parties.everybody:
        roles, uses = " and ".join(table_of.roles_of(party)), spec.data.get(party)
        dataset = "" if uses is None else uses.dataset or ""
        columns = "" if uses is None else _columns_in_words(uses.columns, uses.ignore)
        label = "" if uses is None else uses.label or ""
        who.append([party, roles, dataset, columns, label])
    heads = ["party", "role", "data set", "columns", "label"]
    shown = {"params", "validation", "replayable"}
    raw = spec.model_dump(mode="json", include=shown, exclude_none=True)
    settings: list[TableRow] = [
        [tag("code", key.removeprefix("params.")), words] for key, words in settings_in_words(raw)
    ]
    chosen = html_table("Settings", ["setting", "value"], settings) if settings else ""
    signed = parts.fact_list([("SHA-256 of the manifest", tag("code", asking.digest))])
    pair = tag("div", html_table("Parties", heads, who, folds=True), chosen, class_="pair")
    folded = details("Parties, settings, and the text that every party signs", pair, signed)
    return section("terms", "What the job says", folded)


def _columns_in_words(named: Sequence[str] | None, ignored: Sequence[str]) -> str:
    if named is not None:
        return listed_names(list(named))
    return f"all but {listed_names(list(ignored))}" if ignored else "all"


# Deciding


def approve_form(view: OwnedJobView, asking: Asking, session: BrowserSession) -> list[object]:
    """Show the outgoing messages once more, and ask for approval."""
    here = f"/jobs/{view.job.id}"
    read = tag(
        "label",
        tag("input", type="checkbox", name="read", value="yes", required=""),
        " I have read what will leave.",
        class_="check",
    )
    yes = tag("button", "Approve", type="submit", class_="strong-button")
    sent = frame.hidden_field("digest", asking.digest)
    buttons = parts.button_row(yes, parts.button_link("Not now", here))
    form = frame.post_form(f"{here}/approve", session.csrf, sent, read, buttons, class_="decide")
    return [
        tag("h1", f"Approve {view.owned.name}?"),
        tag("p", request_sentence(view.owned), class_="intro"),
        forecast_of_job(view.owned, explains=True),
        list_of_uses(view.owned, asking.columns),
        "" if asking.refusal is None else frame.error_box(asking.refusal, "Your policy refuses it"),
        budget_of_job(asking.budget),
        _excess(asking.budget) if asking.budget is not None and asking.budget.is_over else "",
        _message_table(asking),
        form,
    ]


def deny_form(view: OwnedJobView, session: BrowserSession) -> list[object]:
    """Ask for confirmation before a job is refused."""
    here = f"/jobs/{view.job.id}"
    words = (
        "The job fails for every party, and all of them read that you denied it. This cannot be "
        "undone; a new job has to be submitted."
    )
    limit = str(REASON_CHARS_MAX)
    reason = tag(
        "label",
        "Reason, shown to all parties of the job (optional) ",
        tag("input", type="text", name="reason", maxlength=limit, autocomplete="off"),
    )
    yes = tag("button", "Deny it", type="submit", class_="danger")
    buttons = parts.button_row(yes, parts.button_link("Not now", here))
    form = frame.post_form(f"{here}/deny", session.csrf, reason, buttons, class_="decide")
    return [tag("h1", f"Deny {view.owned.name}?"), tag("p", words, class_="intro"), form]
