"""A party's ledger for its owner: sums by job and kind of message, and single rows."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from fedboost.pages import choosing, parts
from fedboost.pages.choosing import Choice
from fedboost.pages.sessions import BrowserSession
from fedboost.report import units
from fedboost.report.html import Html, join, tag
from fedboost.report.tables import Band, Column, TableRow, absence_note, details, html_table
from fedboost.runtime.ledger.rows import Amount, Head
from fedboost.runtime.ledger.rows import Row as LedgerRow

PATH, ROWS_PATH = "/ledger", "/ledger/rows"
LEDGER_SELECTS = ("way", "peer", "kind")
WAYS = {"out": "sent", "in": "received"}
JOBS_PER_PAGE, ROWS_PER_PAGE = 20, 50


def ledger_page(
    amounts: Sequence[Amount],
    choice: Choice,
    head: Head,
    session: BrowserSession,
    news: Html | str = "",
) -> list[object]:
    """Show every job, the newest first, and in each the kinds of messages that left and came."""
    verify = parts.button_form("Verify the ledger", "/ledger/verify", session.csrf)
    intro = (
        "A row for each payload sent or received, chained by hashes, here added up by job and "
        "kind. It never holds the payload itself."
    )
    kinds = sorted({_short_kind(amount) for amount in amounts})
    peers = sorted({amount.peer for amount in amounts})
    selects = {"way": ("Way", [*WAYS.values()]), "peer": ("Peer", peers), "kind": ("Kind", kinds)}
    by_job: dict[str, list[Amount]] = {}
    for amount in filter(lambda amount: _matches_choice(amount, choice), amounts):
        by_job.setdefault(amount.job, []).append(amount)
    newest = sorted(by_job, key=lambda job: max(a.last for a in by_job[job]), reverse=True)
    shown, further = choosing.rows_of_page(choice, newest, JOBS_PER_PAGE)
    is_open = len(newest) == 1 or not choice.is_all
    cards = [_job_card(job, by_job[job], is_open=is_open) for job in shown]
    none = "Nothing was sent or received." if choice.is_all else "No row matches the filter."
    facts = (f"{units.plural(head.n, 'row')}, head ", tag("code", head.hash[:16], title=head.hash))
    return [
        tag("div", tag("h1", "Ledger"), parts.button_row(verify), class_="head"),
        tag("p", intro, class_="intro"),
        news,
        tag("p", *facts, class_="facts"),
        choosing.filter_form(choice, selects, {}) if amounts else "",
        tag("div", *cards, class_="groups") if cards else absence_note(none),
        further,
        tag("p", tag("a", "The rows of all jobs", href=ROWS_PATH)) if amounts else "",
    ]


def _matches_choice(amount: Amount, choice: Choice) -> bool:
    has = {"way": WAYS[amount.direction], "peer": amount.peer, "kind": _short_kind(amount)}
    picked = all(choice.picked.get(name, "") in ("", has[name]) for name in LEDGER_SELECTS)
    return picked and choice.matches_words(amount.job, *has.values())


def _job_card(job: str, amounts: Sequence[Amount], *, is_open: bool) -> Html:
    totals, rows = [], list[TableRow]()
    for direction, word in WAYS.items():
        chosen = [amount for amount in amounts if amount.direction == direction]
        if not chosen:
            continue
        size = units.in_bytes(sum(amount.bytes for amount in chosen))
        messages = units.plural(sum(amount.messages for amount in chosen), "message")
        totals.append(f"{word}: {messages}, {size}")
        rows += [Band(f"{word.capitalize()}: {size}"), *(_amount_row(amount) for amount in chosen)]
    heads, numbers = ["message", "peer"], ["messages", "values", "bytes"]
    last = max(amount.last for amount in amounts)[:16].replace("T", " ")
    summary = join(
        tag("b", job), " ", tag("span", " · ".join([*totals, f"last {last}"]), class_="note")
    )
    links = tag(
        "p",
        tag("a", "The job", href=f"/jobs/{job}"),
        " · ",
        tag("a", "All its rows", href=f"{ROWS_PATH}?{urlencode({'job': job})}"),
    )
    return tag(
        "details",
        tag("summary", summary),
        html_table(f"Sent and received in {job}", heads, rows, numbers=numbers, folds=True),
        links,
        class_="group",
        open="" if is_open else None,
    )


def _amount_row(amount: Amount) -> TableRow:
    link = f"{ROWS_PATH}?{urlencode({'job': amount.job, 'kind': amount.kind})}"
    kind = tag("a", _short_kind(amount), href=link, class_="kind", title=amount.kind)
    counts = (units.in_count(amount.messages), units.in_count(amount.values))
    return [kind, amount.peer, *counts, units.in_bytes(amount.bytes)]


def _short_kind(row: Amount | LedgerRow) -> str:
    return row.kind.rpartition(".")[2]


def rows_page(entries: Sequence[LedgerRow], job: str, kind: str, head: Head) -> list[object]:
    """Show one page of the ledger's rows, the newest first."""
    about = [tag("code", word) for word in (job, kind.rpartition(".")[2]) if word]
    title = tag("h1", "Rows", *(part for word in about for part in (" of ", word)))
    drawn: Html = absence_note("Nothing was sent or received.")
    if entries:
        heads = [Column("n", "number"), Column("at"), Column("way"), Column("message")]
        numbers, listed = (
            ["bytes", "values", "rows", "smallest group"],
            [*map(_ledger_row, entries)],
        )
        drawn = html_table("Rows, newest first", heads, listed, numbers=numbers, folds=True)
    filters = {key: value for key, value in (("job", job), ("kind", kind)) if value}
    links: list[object] = []
    if entries and entries[0].n < head.n:
        links.append(tag("a", "Newest", href=f"{ROWS_PATH}?{urlencode(filters)}"))
    if len(entries) == ROWS_PER_PAGE and entries[-1].n > 1:
        older = urlencode({**filters, "before": entries[-1].n})
        links.append(tag("a", "Older →", href=f"{ROWS_PATH}?{older}", rel="next"))
    further = tag("nav", *links, class_="pages", aria_label="Further rows") if links else ""
    kicker = tag("p", tag("a", "Ledger", href=PATH), class_="kicker")
    everything = tag("p", tag("a", "The rows of all jobs", href=ROWS_PATH)) if filters else ""
    return [kicker, title, everything, drawn, further]


def _ledger_row(row: LedgerRow) -> TableRow:
    way = f"to {row.peer}" if row.direction == "out" else f"from {row.peer}"
    name = tag("span", row.kind.rpartition(".")[2], class_="kind", title=row.kind)
    message = details(name, tag("p", row.sentence), _row_details(row))
    counts = (row.rows, row.smallest_group)
    known = ["" if count is None else units.in_count(count) for count in counts]
    at = row.at[:19].replace("T", " ")
    return [
        str(row.n),
        at,
        way,
        message,
        units.in_bytes(row.bytes),
        units.in_count(row.values),
        *known,
    ]


def _row_details(row: LedgerRow) -> Html:
    job = tag("a", row.job, href=f"/jobs/{row.job}")
    place = f"{row.stage}, {row.step}, attempt {row.attempt}"
    return parts.fact_list([("Job", job), ("Step", place), ("SHA-256", tag("code", row.sha256))])
