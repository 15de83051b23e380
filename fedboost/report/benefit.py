"""Benefit of a federation: the model of the guest alone beside the model of all parties.

Only jobs whose parties all run here know both, from their rehearsal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedboost.core.metrics import METRICS
from fedboost.ground.printable import printable
from fedboost.report import units
from fedboost.report.charts import Bar, bar_list
from fedboost.report.html import Html, join, tag
from fedboost.report.story import Story
from fedboost.report.tables import section

ALONE, TOGETHER = 2, 1  # colours, as in the style sheet


def benefit_section(story: Story) -> Html:
    """Return both models' metric in words and as bars; empty where the job knows only one."""
    rehearsed = None if story.result is None else story.result.rehearsal
    if rehearsed is None or rehearsed.federated is None:
        return join()
    said = rehearsed.model_dump()
    which, single = metric_alone(said)
    if single is None:
        return join()
    name, together = printable(rehearsed.metric or "metric"), rehearsed.federated
    shown = [
        Bar(single, ALONE, f"{which}: {units.metric_text(single)}"),
        Bar(together, TOGETHER, f"all parties together: {units.metric_text(together)}"),
    ]
    words = _comparison_in_words(name, which, single, together)
    picture = bar_list(shown, max(single, together))
    verdict = tag("p", " ".join(rehearsal_lines(said)[2:]), class_="note")
    return section("benefit", "Alone and together", picture, verdict, intro=words)


def _comparison_in_words(name: str, which: str, single: float, together: float) -> str:
    known = METRICS.get(name)
    gain = together - single
    if known is not None and not known.bigger_is_better:
        gain = -gain
    how = "a better" if gain > 0 else "a worse" if gain < 0 else "an equally good"
    both = f"{name} {units.metric_text(together)}, against {units.metric_text(single)}"
    who = "guest" if which.startswith("guest") else "average party"
    return f"All parties together get {how} model: {both} for the {who} alone."


def rehearsal_lines(rehearsal: Mapping[str, Any]) -> list[str]:
    """Return the benefit of a federation and the verdict of default policies, three lines or
    four.
    """
    metric = printable(rehearsal.get("metric") or "metric")
    which, single = metric_alone(rehearsal)
    federated = f"federated: {metric} {units.metric_text(rehearsal.get('federated'))}"
    if rehearsal.get("group_rows_min"):
        federated += (
            f" (measured without the default group_rows_min of {rehearsal['group_rows_min']}, "
            "which may change it)"
        )
    lines = [f"{which}: {metric} {units.metric_text(single)}", federated]
    left = rehearsal.get("jobs_left")
    if rehearsal["accepted"]:
        more = "any number of" if left is None else left
        return [*lines, f"With default policies this job is accepted, and {more} more like it."]
    party, _, key = printable(rehearsal["refused_by"]).partition(": ")
    lines.append(f"With default policies {party} would refuse this job ({key}).")
    if rehearsal.get("change"):
        change = f"{printable(rehearsal['change'])} ({printable(rehearsal['cost'])})"
        return [*lines, f"Smallest change that helps: {change}"]
    return [*lines, "A smaller job does not help: the owner must allow it."]


def metric_alone(rehearsal: Mapping[str, Any]) -> tuple[str, float | None]:
    """Return the metric without a federation from a rehearsal, with its description."""
    several = [value for value in (rehearsal.get("alone") or {}).values() if value is not None]
    if several:
        return "each party alone, on average", sum(several) / len(several)
    return "guest alone", rehearsal.get("guest_alone")
