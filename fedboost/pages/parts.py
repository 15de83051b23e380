"""Small parts of pages: badges, times that tick, buttons, live regions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from fedboost.messages.job_pb2 import JobStatus
from fedboost.pages.frame import hidden_field, post_form
from fedboost.report import units
from fedboost.report.html import Html, join, tag
from fedboost.report.seen import RECENT_ROUNDS
from fedboost.report.steps import step_title
from fedboost.report.story import RoundSummary, tone_of
from fedboost.report.tables import listed_names

RUNNING = "running"


def live_part(name: str, *content: object) -> Html:
    """Return a part of the page that is updated regularly."""
    return tag("div", *content, id=f"live-{name}", class_="live")


def state_badge(state: str) -> Html:
    """Show a job's state."""
    tone = tone_of(state) or ("go" if state == RUNNING else "wait" if "waiting" in state else "")
    return tag("span", state or "unknown", class_=f"badge {tone}".strip())


def time_since(at: float) -> Html:
    """Show the time since a moment, in seconds since 1970; scripts update it."""
    ago = units.in_seconds(float(round(max(0.0, time.time() - at))))
    return tag(
        "time", ago, class_="since", data_since=f"{at:.0f}", datetime=units.iso_time(at),
        title=f"since {units.date_and_time(at)} UTC",
    )  # fmt: skip


def time_until(at: float) -> Html:
    """Show the time until a moment; scripts update it."""
    left = units.in_seconds(float(round(max(0.0, at - time.time()))))
    return tag("time", left, class_="until", data_until=f"{at:.0f}", datetime=units.iso_time(at))


def time_to_minute(at: float) -> Html:
    """Show a moment, to the minute."""
    words = units.date_and_time(at)
    return tag("time", words[:16], datetime=units.iso_time(at), title=f"{words} UTC")


def progress_of_job(status: JobStatus, rounds: Sequence[RoundSummary] = ()) -> Html:
    """Show a job's progress, and when it will end if the next rounds are like the last ones."""
    done, of = status.progress.done, status.progress.of
    if not of:
        return join()
    name = status.progress.round or "round"
    words = f"{units.in_count(done)} of {units.plural(of, name)}"
    drawn = tag("progress", words, value=done, max=of, aria_label=f"{words} done")
    left = _estimated_end(status, rounds)
    facts: list[object] = [tag("b", words)]
    if left is not None:
        facts += [" · about ", time_until(left), f" left, until {units.clock_time(left)[:5]} UTC"]
    return tag("div", drawn, tag("p", *facts, class_="progress-words"), class_="progress")


def awaited_parties(status: JobStatus) -> Html:
    """Show the awaited parties with step and time: a line for each step."""
    steps: dict[str, list[tuple[str, float]]] = {}
    for entry in status.waiting:
        steps.setdefault(entry.step, []).append((entry.party, entry.since))
    lines = []
    for step, who in steps.items():
        parties = [tag("b", listed_names([party for party, _ in who]))]
        first = min(at for _, at in who)
        lines.append(
            tag("li", "waits for ", *parties, f", {step_title(step)}, ", time_since(first))
        )
    return tag("ul", *lines, class_="waits") if lines else join()


def button_form(
    words: str, action: str, csrf: str, *, tone: str = "", fields: Sequence[tuple[str, str]] = ()
) -> Html:
    """Return a form of one button."""
    sent = [hidden_field(name, value) for name, value in fields]
    return post_form(action, csrf, *sent, tag("button", words, type="submit", class_=tone or None))


def job_title(id_: str, name: str, facts: Sequence[object]) -> Html:
    """Show a job's name, with the link back above it and some facts below."""
    return tag(
        "div",
        tag("p", tag("a", "Jobs", href="/"), " / ", tag("code", id_), class_="kicker"),
        tag("h1", name or id_),
        tag("p", *facts, class_="facts"),
        class_="title",
    )


def button_link(words: str, to: str, tone: str = "") -> Html:
    """Return a link that looks like a button."""
    return tag("a", words, href=to, class_=f"button {tone}".strip())


def button_row(*parts: object) -> Html:
    """Return buttons beside each other; nothing if there are none."""
    shown = [part for part in parts if part]
    return tag("div", *shown, class_="actions") if shown else join()


def fact_list(rows: Sequence[tuple[object, object]]) -> Html:
    """Return a list of names with values."""
    items = (join(tag("dt", name), tag("dd", value)) for name, value in rows if value != "")
    return tag("dl", *items, class_="facts-list")


def sentence_with_code(words: str) -> Html:
    """Return a message's definition as a sentence, with names of settings set as code."""
    pieces = (words[:1].upper() + words[1:]).split("`")
    return join(*(tag("code", piece) if place % 2 else piece for place, piece in enumerate(pieces)))


def success_note(words: str) -> Html:
    """Show a finished action; nothing without words."""
    return tag("p", words, role="status", class_="done-note") if words else join()


def announcement(words: str) -> Html:
    """Announce words to screen readers whenever they change."""
    return tag("p", words, role="status", class_="hidden", id="said")


def page_links(path: str, at: int, count: int, per_page: int) -> Html:
    """Return links to the pages of a long list; `at` counts from 1."""
    last = max(1, -(-count // per_page))
    if last == 1:
        return join()
    newer = tag("a", "← Previous", href=f"{path}page={at - 1}", rel="prev") if at > 1 else ""
    older = tag("a", "Next →", href=f"{path}page={at + 1}", rel="next") if at < last else ""
    where = tag("span", f"page {at} of {last}")
    return tag("nav", newer, where, older, class_="pages", aria_label="Further pages")


def _estimated_end(status: JobStatus, rounds: Sequence[RoundSummary]) -> float | None:
    """Estimate when the last round will end, in seconds since 1970."""
    took = [summary.seconds for summary in rounds[-RECENT_ROUNDS:]]
    left = status.progress.of - status.progress.done
    if not took or left <= 0 or status.state != RUNNING or rounds[-1].done != status.progress.done:
        return None
    each = statistics.median(took)
    return max(rounds[-1].at + each, time.time()) + (left - 1) * each
