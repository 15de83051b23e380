"""Content of the coordinator's page: its jobs, and one job in detail."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedboost.ground.errors import FedboostError
from fedboost.messages.job_pb2 import JobJournal, JobStatus
from fedboost.pages import frame, parts
from fedboost.pages.sessions import BrowserSession
from fedboost.report import costs, outcome, story, terms, training, units
from fedboost.report.html import Html, join, tag
from fedboost.report.states import person_of, state_in_words
from fedboost.report.story import Story
from fedboost.report.tables import (
    TableRow,
    absence_note,
    details,
    html_table,
    listed_names,
    section,
)
from fedboost.runtime.jobs.manifest import read_outline
from fedboost.runtime.jobs.submitted import SUBMISSION_KEY_BYTES
from fedboost.runtime.store.store import FINAL, JobState, StoredJob

ENDED_SHOWN = 10
MENDED = ("unreachable", "store", "policy", "internal")  # errors whose cause may be gone later
ENDED_METRICS_SHOWN = 2


@dataclass(frozen=True)
class EarlierUses:
    """The user's own earlier jobs, for the submit form.

    Parties reveal no more of their data sets to the coordinator than a job needs. So the form asks
    no party, and knows a data set once a job of this user has named it.
    """

    datasets: Mapping[str, Mapping[str, str]]  # of each party: by name, with its label
    jobs: Sequence[tuple[str, str]]  # ids and names, the newest first


@dataclass(frozen=True)
class May:
    """Rights of the page's user."""

    submit: bool
    cancel: bool


def jobs_page(
    active: Sequence[JobStatus], ended: Sequence[StoredJob], may: May, news: str = ""
) -> list[object]:
    """Show the active jobs as cards, and the latest ended jobs."""
    head = tag("h1", "Jobs")
    submit = (
        parts.button_row(parts.button_link("Submit a job", "/submit", "strong-button"))
        if may.submit
        else ""
    )
    cards = [_job_card(status) for status in active]
    now = tag("div", *cards, class_="cards") if cards else absence_note("No job is running now.")
    rows: list[TableRow] = [_ended_row(job) for job in ended]
    heads, numbers = ["job", "protocol", "parties", "result"], ["took", "ended"]
    past = html_table("Jobs that have ended", heads, rows, numbers=numbers, folds=True)
    return [
        tag("div", head, submit, class_="head"),
        parts.success_note(news),
        parts.live_part("active", parts.announcement(_active_in_words(active)), now),
        section(
            "ended",
            "Ended",
            parts.live_part("ended", past if rows else absence_note("No job has ended yet.")),
            tag("p", tag("a", "All runs: filter, tag, compare", href="/runs")),
        ),
    ]


def _active_in_words(active: Sequence[JobStatus]) -> str:
    states = [f"{status.name} {state_in_words(status.state)}" for status in active]
    return f"{units.plural(len(active), 'active job')}. {'; '.join(states)}"


def _job_card(status: JobStatus) -> Html:
    name = tag(
        "h2", tag("a", status.name, href=f"/jobs/{status.id}"), " ", parts.state_badge(status.state)
    )
    by = join(
        status.protocol,
        " · by ",
        person_of(status.submitter),
        " · ",
        parts.time_to_minute(status.created),
    )
    reason = status.reason.what
    return tag(
        "article",
        name,
        tag("p", by, class_="facts"),
        parts.progress_of_job(status),
        tag("p", reason, class_="reason") if reason else "",
        parts.awaited_parties(status),
        class_="card edge-go" if status.state == JobState.RUNNING else "card edge-wait",
    )


def _ended_row(job: StoredJob) -> TableRow:
    terms = read_outline(job.outline)
    return [
        join(tag("a", job.name, href=f"/jobs/{job.id}"), " ", parts.state_badge(job.state)),
        terms.protocol,
        listed_names(terms.parties),
        _outcome_in_words(job),
        units.in_seconds(float(round(job.since - job.created))),
        parts.time_to_minute(job.since),
    ]


def _outcome_in_words(job: StoredJob) -> str:
    """Return the main metrics, or the reason of their absence."""
    if job.result is None:
        return job.reason or units.NOTHING
    metrics = job.result.get("metrics") or {}
    split = "validation" if "validation" in metrics else next(iter(metrics), "")
    shown = list(metrics.get(split, {}).items())[:ENDED_METRICS_SHOWN]
    return (
        ", ".join(f"{split} {name} {units.metric_text(value)}" for name, value in shown) or "done"
    )


# One job


def job_page(
    journal: JobJournal, session: BrowserSession, may: May, news: str = ""
) -> list[object]:
    """Show everything about one job; an error where its journal cannot be read."""
    try:
        facts = story.read_story(journal)
    except FedboostError as error:
        return [
            _job_head(journal.status, None),
            frame.error_box(error, "The journal cannot be read"),
        ]
    status = journal.status
    return [
        _job_head(status, facts),
        parts.success_note(news),
        parts.live_part("actions", _action_buttons(status, session, may)),
        parts.live_part("state", _state_panel(facts)),
        parts.live_part("figures", outcome.main_figures(facts)),
        parts.live_part("learning", training.learning_section(facts)),
        parts.live_part("time", costs.times_section(facts)),
        parts.live_part("bytes", costs.traffic_section(facts)),
        parts.live_part("timeline", terms.timeline_section(facts)),
        terms.terms_section(facts),
    ]


def _job_head(status: JobStatus, facts: Story | None) -> Html:
    parties = "" if facts is None else listed_names(list(facts.roles))
    by = f"by {person_of(status.submitter)}" if status.submitter else ""
    known = [status.protocol, parties, by]
    words: list[object] = [f"{fact} · " for fact in known if fact]
    attempt = f" · attempt {status.attempt}" if status.attempt > 1 else ""
    return parts.job_title(
        status.id, status.name, [*words, parts.time_to_minute(status.created), attempt]
    )


def may_help_to_resume(status: JobStatus) -> bool:
    """Return whether another attempt at a job may succeed: a denial is final, and a job's settings
    and tables stay as they are.
    """
    if status.state != JobState.FAILED:
        return status.state == JobState.PAUSED
    reason = status.reason
    by_limit = any(place.key == "key" for place in reason.where)
    return reason.code in MENDED and (reason.code != "policy" or by_limit)


def _action_buttons(status: JobStatus, session: BrowserSession, may: May) -> Html:
    here = f"/jobs/{status.id}"
    resume = may.submit and may_help_to_resume(status)
    return parts.button_row(
        parts.button_form("Resume", f"{here}/resume", session.csrf, tone="strong-button")
        if resume
        else "",
        parts.button_link("Full report", f"{here}/report"),
        parts.button_link("Submit again…", f"/submit?from={status.id}") if may.submit else "",
        parts.button_link("Cancel…", f"{here}/cancel", "danger")
        if may.cancel and status.state not in FINAL
        else "",
    )


def _state_panel(facts: Story) -> Html:
    """Show the job's state, the awaited parties and the warnings to owners."""
    status = facts.status
    state = tag("p", parts.state_badge(facts.state), *_age_of_state(status), class_="state-line")
    warned = [tag("li", warning) for warning in status.warnings]
    warnings = (
        tag(
            "section",
            tag("h2", "Warnings", id="warnings-title"),
            tag("ul", *warned),
            class_="warnings",
            aria_labelledby="warnings-title",
        )
        if warned
        else ""
    )
    sentence = f"{status.name} {state_in_words(facts.state)}"
    if status.waiting:
        sentence += ", waiting for " + listed_names(
            list(dict.fromkeys(w.party for w in status.waiting))
        )
    how_far, waits = parts.progress_of_job(status, facts.rounds), parts.awaited_parties(status)
    now = tag("div", state, how_far, waits, class_=f"now {facts.state}")
    # A screen reader does not announce each step of a running job.
    spoken = parts.announcement(facts.state if facts.state == parts.RUNNING else sentence)
    return join(spoken, now, outcome.trouble_banner(facts), warnings)


def _age_of_state(status: JobStatus) -> tuple[object, ...]:
    """Show the time since the job was submitted or paused."""
    if status.state in (JobState.RUNNING, JobState.QUEUED, JobState.WAITING):
        return (" submitted ", parts.time_since(status.created), " ago")
    return (" for ", parts.time_since(status.updated)) if status.state == JobState.PAUSED else ()


def cancel_form(status: JobStatus, session: BrowserSession) -> list[object]:
    """Ask for confirmation before a job is cancelled."""
    done = status.progress.done
    kept = (
        f" {units.plural(done, status.progress.round or 'round')} done so far will be lost."
        if done
        else ""
    )
    yes = parts.button_form(
        "Cancel the job", f"/jobs/{status.id}/cancel", session.csrf, tone="danger"
    )
    no = parts.button_link("Keep it", f"/jobs/{status.id}")
    return [
        tag("h1", f"Cancel {status.name}?"),
        tag(
            "p",
            f"The job ends for good, and every party deletes its files of the job.{kept} "
            "The ledgers stay as they are.",
            class_="intro",
        ),
        parts.button_row(yes, no),
    ]


def _job_text_field(text: str) -> Html:
    """Show the field for a job's file."""
    return tag(
        "textarea",
        # A browser takes away the first line break.
        "\n" + text,
        id="text",
        name="text",
        rows=24,
        spellcheck="false",
        autocapitalize="off",
        autocomplete="off",
        aria_describedby="text-note",
    )


def submit_form(
    text: str,
    session: BrowserSession,
    known: Mapping[str, str],
    earlier: EarlierUses,
    news: Html | str = "",
) -> list[object]:
    """Return the form for a job's file; `known` is each protocol's sentence."""
    listed = [(tag("code", name), words) for name, words in known.items()]
    sets = [(party, _datasets_in_words(datasets)) for party, datasets in earlier.datasets.items()]
    begin = [(tag("a", name, href=f"/submit?from={id_}"), id_) for id_, name in earlier.jobs]
    aside = tag(
        "aside",
        tag("h2", "Parties, and data sets of your earlier jobs"),
        parts.fact_list(sets),
        details("Begin with an earlier job", parts.fact_list(begin)) if begin else "",
        details("Protocols", parts.fact_list(listed)),
        class_="aside",
    )
    kicker = tag("p", tag("a", "Jobs", href="/"), class_="kicker")
    body = tag("div", _job_form(text, session), aside, class_="beside")
    return [kicker, tag("h1", "Submit a job"), news, body]


def _datasets_in_words(datasets: Mapping[str, str]) -> Html:
    """Return the data sets of a party, each with its label."""
    named = (
        tag("div", tag("code", name), f", label {label}" * bool(label))
        for name, label in datasets.items()
    )
    return join(*named) or join("–")


def _job_form(text: str, session: BrowserSession) -> Html:
    return frame.post_form(
        "/submit",
        session.csrf,
        frame.hidden_field(
            "key", secrets.token_hex(SUBMISSION_KEY_BYTES)
        ),  # a form sent twice is one job
        tag("label", "A file", for_="file"),
        tag(
            "input",
            type="file",
            id="file",
            name="file",
            accept=".yaml,.yml,.json",
            data_into="text",
        ),
        tag("label", "or its text", for_="text"),
        _job_text_field(text),
        tag(
            "p", "YAML, as for ", tag("code", "fedboost job submit"), id="text-note", class_="note"
        ),
        tag(
            "div",
            tag(
                "button",
                "Submit",
                type="submit",
                name="act",
                value="submit",
                class_="strong-button",
            ),
            tag("button", "Only check", type="submit", name="act", value="check"),
            class_="actions",
        ),
        enctype="multipart/form-data",
        class_="submit",
    )
