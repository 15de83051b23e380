"""Data sets and their disclosures on a party's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from fedboost.data.outline import Outline
from fedboost.ground.errors import FedboostError
from fedboost.pages import frame, parts
from fedboost.pages.sessions import BrowserSession
from fedboost.report import units
from fedboost.report.charts import Bar, bar_list
from fedboost.report.html import Html, tag
from fedboost.report.story import COLOURS
from fedboost.report.tables import Column, TableRow, absence_note, details, html_table
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.policy.account import AccountEntry, totals_by_dataset

COLUMNS_LISTED_MAX = 300  # listed of a data set
SPENT, EARLIER, LIMIT = 1, 2, COLOURS  # colours, as in the style sheet


def datasets_page(
    config: PartyConfig,
    shapes: Mapping[str, Outline | FedboostError | None],
    session: BrowserSession,
) -> list[object]:
    """Show each data set's name, kind, columns and rows; never a cell."""
    cards = [_dataset_card(name, config, shapes[name]) for name in config.datasets]
    again = (
        parts.button_row(parts.button_form("Read again", "/data", session.csrf)) if cards else ""
    )
    intro = "Names, types and counts. Values of cells are never shown."
    shown = tag("div", *cards, class_="cards") if cards else absence_note(
        "The settings declare no data set: this party only adds up other parties' messages."
    )  # fmt: skip
    return [
        tag("div", tag("h1", "Data sets"), again, class_="head"),
        tag("p", intro, class_="intro"),
        parts.live_part("sets", shown),
    ]


def _dataset_card(name: str, config: PartyConfig, shape: Outline | FedboostError | None) -> Html:
    source = config.datasets[name]
    allowed = name in config.policy.datasets
    mark = (
        tag("span", "✓ jobs may use it", class_="pill good")
        if allowed
        else tag("span", "no job may use it", class_="pill wait")
    )
    rows: list[tuple[object, object]] = [("Kind", source.kind.name), ("From", source.name)]
    if isinstance(shape, Outline):
        rows += [
            ("Rows", units.in_count(shape.rows)),
            ("Columns", units.in_count(len(shape.columns))),
        ]
    body: object = tag("p", "reading …", role="status", class_="working")
    if isinstance(shape, FedboostError):
        body = frame.error_box(shape, "It cannot be read")
    elif isinstance(shape, Outline):
        listed: list[TableRow] = [
            [tag("code", column), words] for column, words in shape.columns[:COLUMNS_LISTED_MAX]
        ]
        if len(shape.columns) > COLUMNS_LISTED_MAX:
            listed.append(
                [f"and {units.in_count(len(shape.columns) - COLUMNS_LISTED_MAX)} more", ""]
            )
        body = details("Columns", html_table(f"Columns of {name}", ["column", "type"], listed))
    return tag(
        "article", tag("h2", name), tag("p", mark), parts.fact_list(rows), body, class_="card"
    )


def accounts_page(entries: Sequence[AccountEntry], policy: Policy) -> list[object]:
    """Show the releases of each data set, beside the limits of the policy."""
    intro = (
        "Each released sum is an equation about the rows of a bin. Sums count per row, for the "
        "column with most released bins, together for all guests that may cooperate. ε per row "
        "adds up over all jobs. An unfinished job counts with its expected releases. Placed "
        "rows are rows whose bins an attacking guest could have found."
    )
    head = [tag("h1", "Disclosures"), tag("p", intro, class_="intro")]
    if not entries:
        return [*head, absence_note("No job has released anything of any data set.")]
    rows: list[TableRow] = [
        [
            total.dataset,
            total.guest or "anybody",
            f"{total.placed:.0%}" if total.guest else "",
            spent_beside_limits(total.told, policy, sums=bool(total.guest)),
        ]
        for total in totals_by_dataset(entries, policy.disclosure_apart)
    ]
    heads = [Column("data set"), Column("released to"), Column("placed", "number")]
    heads.append(Column("so far, and the limits", "wide"))
    listed: list[TableRow] = [_entry_row(entry) for entry in reversed(entries)]
    columns = ["job", "data set", "guest", "at", "state"]
    numbers = ["sums", "expected", "placed", "ε per row"]
    return [
        *head,
        html_table("Total", heads, rows, folds=True),
        html_table("By job, newest first", columns, listed, numbers=numbers, folds=True),
    ]


def noise_totals(entries: Sequence[AccountEntry], dataset: str, policy: Policy) -> list[Html]:
    """Show the total of a data set's noisy values, if there are any."""
    used = [entry for entry in entries if entry.dataset == dataset]
    sums = totals_by_dataset(used, policy.disclosure_apart)
    return [
        spent_beside_limits(total.told, policy, sums=False) for total in sums if not total.guest
    ]


def spent_beside_limits(amount: float, policy: Policy, *, sums: bool) -> Html:
    """Show the amount released, in sums or in ε, beside the policy's limits."""
    if sums:
        words = f"{amount:.3g} sums per bin and row"
        limits = [
            ("warned above", policy.disclosure_warn),
            ("refused above", policy.disclosure_max),
        ]
    else:
        words = "without noise" if amount == inf else f"ε {amount:g} per row"
        most = policy.epsilon_row_max
        limits = [("refused above", inf if most is None else most)]
    shown = [(what, limit) for what, limit in limits if limit < inf]
    most = max([amount if amount < inf else 1.0, *(limit for _, limit in shown)], default=1.0)
    group = [Bar(min(amount, most), SPENT, words)]
    group += [Bar(limit, LIMIT, f"{what} {limit:g}") for what, limit in shown]
    return bar_list(group, most)


def _entry_row(entry: AccountEntry) -> TableRow:
    sums = (f"{entry.counted:.3g}", f"{entry.planned:.3g}") if entry.sums else ("", "")
    epsilon = "" if not entry.noise else "no noise" if entry.noise == inf else f"{entry.noise:g}"
    at, state = entry.at[:19].replace("T", " "), entry.state or "deleted"
    job = tag("a", entry.job, href=f"/jobs/{entry.job}") if entry.state else entry.job
    placed = f"{entry.placed:.0%}" if entry.placed else ""
    return [job, entry.dataset, entry.guest, at, parts.state_badge(state), *sums, placed, epsilon]
