"""Terms of the job, its user, and its timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedboost.report import units
from fedboost.report.html import Html, join, tag
from fedboost.report.story import Moment, Story
from fedboost.report.tables import Row, details, section, table
from fedboost.report.training import effective_params

DEPTH_MAX = 8  # of nested settings; deeper ones are shown as one text


def terms(story: Story) -> Html:
    """Return parties, their data, the encryption with its reason, and the settings; defaults are
    folded.
    """
    given = dict(flat(story.said_params))
    effective = dict(flat(effective_params(story)))
    validation = story.spec.get("validation")
    held = dict(flat(validation, "validation.")) if isinstance(validation, dict) else {}
    if (alignment := story.spec.get("alignment")) is not None:
        held |= dict(flat({"alignment": alignment}))
    if story.spec.get("replayable"):
        held["replayable"] = True
    settings: list[Row] = [[tag("code", key), shown(value)] for key, value in given.items()]
    settings += [[tag("code", key), shown(value)] for key, value in held.items()]
    defaults: list[Row] = [
        [tag("code", key), shown(value)] for key, value in effective.items() if key not in given
    ]
    heads = ["setting", "value"]
    parts = [_parties(story)]
    if story.status.encryption:
        parts.append(tag("p", tag("b", "Encryption: "), f"{story.status.encryption}."))
    if settings:
        parts.append(table("What the job says", heads, settings))
    more = (
        details(f"Defaults ({len(defaults)})", table("What it leaves to defaults", heads, defaults))
        if defaults
        else ""
    )
    return section("settings", "Parties and settings", tag("div", *parts, class_="pair"), more)


def timeline(story: Story) -> Html:
    """Return every change of state with its reason, and finished stages, with durations."""
    items = []
    day = ""
    for moment in story.moments:
        if units.day(moment.at) != day:
            day = units.day(moment.at)
            items.append(tag("li", day, class_="day"))
        items.append(_item(moment))
    foot = tag("p", "Times are UTC.", class_="note")
    return section("timeline", "Timeline", tag("ol", *items, class_="timeline"), foot)


def shown(value: object) -> str:
    """Return a setting's value as written in a file."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(shown(entry) for entry in value) or "none"
    return str(value)


def flat(
    settings: Mapping[str, Any], prefix: str = "", *, deepest: int = DEPTH_MAX
) -> Iterator[tuple[str, Any]]:
    """Yield settings, nested ones under names with dots, `deepest` layers of them at most."""
    for key, value in settings.items():
        if isinstance(value, dict) and value and deepest:
            yield from flat(value, f"{prefix}{key}.", deepest=deepest - 1)
        else:
            yield f"{prefix}{key}", value


def _parties(story: Story) -> Html:
    data = story.spec.get("data")
    data = data if isinstance(data, dict) else {}
    rows: list[Row] = []
    for party, role in story.roles.items():
        uses = data.get(party)
        uses = uses if isinstance(uses, dict) else {}
        cells = [uses.get("dataset"), uses.get("id"), uses.get("label")]
        rows.append([party, role, *("" if cell is None else shown(cell) for cell in cells)])
    return table("Parties", ["party", "role", "data set", "id", "label"], rows)


def _item(moment: Moment) -> Html:
    clock = units.clock_time(moment.at)
    at = clock
    if clock != units.NOTHING:
        at = tag("time", clock, datetime=units.stamp(moment.at))
    lines = join(*(tag("span", line, class_="detail") for line in moment.details))
    return tag("li", at, tag("div", tag("b", moment.what), lines), class_=moment.tone or None)
