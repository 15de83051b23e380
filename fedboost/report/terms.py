"""Terms of the job, its user, and its timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedboost.report import units
from fedboost.report.html import Html, join, tag
from fedboost.report.story import Moment, Story
from fedboost.report.tables import TableRow, details, html_table, section
from fedboost.report.training import effective_params

DEPTH_MAX = 8  # of nested settings; deeper ones are shown as one text


def terms_section(story: Story) -> Html:
    """Return parties, their data, the encryption with its reason, and the settings; defaults are
    folded.
    """
    given = dict(flat_settings(story.said_params))
    effective = dict(flat_settings(effective_params(story)))
    validation = story.spec.get("validation")
    held = dict(flat_settings(validation, "validation.")) if isinstance(validation, dict) else {}
    if (alignment := story.spec.get("alignment")) is not None:
        held |= dict(flat_settings({"alignment": alignment}))
    if story.spec.get("replayable"):
        held["replayable"] = True
    settings: list[TableRow] = [
        [tag("code", key), value_text(value)] for key, value in given.items()
    ]
    settings += [[tag("code", key), value_text(value)] for key, value in held.items()]
    defaults: list[TableRow] = [
        [tag("code", key), value_text(value)]
        for key, value in effective.items()
        if key not in given
    ]
    heads = ["setting", "value"]
    parts = [_parties_table(story)]
    if story.status.encryption:
        parts.append(tag("p", tag("b", "Encryption: "), f"{story.status.encryption}."))
    if settings:
        parts.append(html_table("What the job says", heads, settings))
    more = (
        details(f"Defaults ({len(defaults)})", html_table("Defaults that apply", heads, defaults))
        if defaults
        else ""
    )
    return section("settings", "Parties and settings", tag("div", *parts, class_="pair"), more)


def timeline_section(story: Story) -> Html:
    """Return every change of state with its reason, and finished stages, with durations."""
    items = []
    day = ""
    for moment in story.moments:
        if units.date_text(moment.at) != day:
            day = units.date_text(moment.at)
            items.append(tag("li", day, class_="day"))
        items.append(_timeline_item(moment))
    foot = tag("p", "Times are UTC.", class_="note")
    return section("timeline", "Timeline", tag("ol", *items, class_="timeline"), foot)


def value_text(value: object) -> str:
    """Return a setting's value as written in a file."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(value_text(entry) for entry in value) or "none"
    return str(value)


def flat_settings(
    settings: Mapping[str, Any], prefix: str = "", *, deepest: int = DEPTH_MAX
) -> Iterator[tuple[str, Any]]:
    """Yield settings, nested ones under names with dots, `deepest` layers of them at most."""
    for key, value in settings.items():
        if isinstance(value, dict) and value and deepest:
            yield from flat_settings(value, f"{prefix}{key}.", deepest=deepest - 1)
        else:
            yield f"{prefix}{key}", value


def _parties_table(story: Story) -> Html:
    data = story.spec.get("data")
    data = data if isinstance(data, dict) else {}
    rows: list[TableRow] = []
    for party, role in story.roles.items():
        uses = data.get(party)
        uses = uses if isinstance(uses, dict) else {}
        cells = [uses.get("dataset"), uses.get("id"), uses.get("label")]
        rows.append([party, role, *("" if cell is None else value_text(cell) for cell in cells)])
    return html_table("Parties", ["party", "role", "data set", "id", "label"], rows)


def _timeline_item(moment: Moment) -> Html:
    clock = units.clock_time(moment.at)
    at = clock
    if clock != units.NOTHING:
        at = tag("time", clock, datetime=units.iso_time(moment.at))
    lines = join(*(tag("span", line, class_="detail") for line in moment.details))
    return tag("li", at, tag("div", tag("b", moment.what), lines), class_=moment.tone or None)
