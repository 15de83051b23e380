"""Learning curves of the model, its separation of classes, and the importance of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedboost.core import objectives
from fedboost.core.metrics import METRICS
from fedboost.core.params import BoostingParams, TreeParams
from fedboost.messages.job_pb2 import Importance
from fedboost.report import units
from fedboost.report.charts import SQUARE, Axis, Bar, Line, LineChart, Point, bar_list, line_chart
from fedboost.report.html import Html, join, tag
from fedboost.report.story import Drawn, Story, ordered_splits
from fedboost.report.tables import Column, TableRow, absence_note, details, html_table, section

COLOUR_OF = {"validation": 1, "train": 2}
OTHER_COLOUR = 3
IMPORTANCES_MAX = 20  # of the guest, shown with a bar each; the rest is summed

CURVES = {  # name: title, x axis, y axis
    "roc": ("ROC", "false positive rate", "true positive rate"),
    "pr": ("Precision and recall", "recall", "precision"),
    "ks": ("Kolmogorov–Smirnov", "share of rows called positive", "true − false positive rate"),
}


def learning_section(story: Story) -> Html:
    """Draw one chart for each metric, training and validation in it, and the values as a table."""
    title = "Learning curve"
    charts = [chart for name in story.metric_names if (chart := _metric_chart(story, name))]
    if not charts:
        why = f"{story.guest}'s policy withholds the metrics of single rounds."
        if not story.rounds:
            why = f"The job has not finished a {story.round_name}."
        return section("learning", title, absence_note(why))
    values = details("The values as a table", _values_table(story))
    return section("learning", title, tag("div", *charts, class_="charts two"), values)


def has_separation(story: Story) -> bool:
    """Return True if there may be curves: there are none if scores lie with many parties."""
    return bool(story.curves) or not story.is_whole


def separation_section(story: Story) -> Html:
    """Return ROC, precision-recall and KS."""
    if not has_separation(story):
        return join()
    title = "ROC, precision and KS"
    charts = []
    for name in CURVES:
        named = (curve for curve in story.curves if curve.name == name and curve.points)
        drawn = {curve.split: curve for curve in named}
        if drawn:
            charts.append(
                _curve_chart(story, name, [drawn[split] for split in ordered_splits(drawn)])
            )
    if charts:
        return section("curves", title, tag("div", *charts, class_="charts three"))
    objective = effective_params(story).get("objective")
    known = objectives.OBJECTIVES.get(objective or "")
    if objective is not None and (known is None or not known.has_chances):
        why = f"These curves exist for two classes only; the job's objective is {objective}."
    elif story.result is None:
        why = "These curves come with the finished model; the job has none."
    else:
        why = f"{story.guest}'s policy withholds these curves."
    return section("curves", title, absence_note(why))


def has_splits(story: Story) -> bool:
    """Return True if columns can have importances; columns of networks have none."""
    params = story.params
    return isinstance(params, TreeParams) or not isinstance(params, BoostingParams)


def importance_section(story: Story) -> Html:
    """Return the gain of the guest's columns by name, and of every other party as a whole."""
    title = "What the model uses"
    if not has_splits(story):
        return join()
    shares = sorted(story.told.importance, key=lambda s: (-s.gain, s.party, s.feature))
    total = sum(share.gain for share in shares)
    if not shares or total <= 0.0:
        why = (
            "Shown once the model is finished."
            if story.result is None
            else "No split was reported."
        )
        return section("importance", title, absence_note(why))
    named = [share for share in shares if share.feature]
    listed = [share for share in shares if not share.feature or share in named[:IMPORTANCES_MAX]]
    most = max(share.gain for share in listed)
    rows = [_importance_row(story, share, total, most) for share in listed]
    if rest := named[IMPORTANCES_MAX:]:
        gain = sum(share.gain for share in rest)
        splits = sum(share.splits for share in rest)
        bar = bar_list([Bar(gain, story.colour_of(rest[0].party))], max(most, gain))
        what = units.plural(len(rest), "further column")
        rows.append(
            [what, rest[0].party, bar, units.in_percent(gain, total), units.in_count(splits)]
        )
    heads = [Column("column"), Column("party"), Column("", "wide")]
    whose = (
        f"{story.guest} sees its own columns by name; "
        "the columns of others stay theirs, so each other party is one bar."
    )
    if story.is_whole:
        heads, rows = heads[:1] + heads[2:], [row[:1] + row[2:] for row in rows]
        whose = "All parties have these columns, and each holds the whole model."
    intro = f"Total gain of all splits. {whose}"
    numbers = ["share of gain", "splits"]
    drawn = html_table("Importance by gain", heads, list(rows), numbers=numbers, folds=True)
    return section("importance", title, drawn, intro=intro)


def effective_params(story: Story) -> dict[str, Any]:
    """Return the job's parameters with defaults; the given ones if they are unreadable."""
    params = story.params
    return story.said_params if params is None else params.model_dump(mode="json")


def stop_in_words(story: Story) -> str:
    """Return where early stopping ended the job, and why; empty if it did not."""
    patience = effective_params(story).get("early_stopping_rounds")
    if story.result is None or not patience or not story.rounds:
        return ""
    last, kept = story.rounds[-1], story.result.own_rounds
    if last.done >= last.of:
        return ""
    words = f"stopped at {last.done} of {units.plural(last.of, story.round_name)}: "
    words += f"no better for {units.plural(patience, 'round')}"
    return words + f"; the first {kept} are kept" * (0 < kept < last.done)


def kept_rule(story: Story, last: int) -> tuple[float, str] | None:
    """Return where early stopping has cut the `last` rounds, for a chart; None if it has not."""
    kept = 0 if story.result is None else story.result.own_rounds
    return (float(kept), f"{kept} kept") if 0 < kept < last else None


def better_direction(name: str) -> str:
    """Return the better direction of a metric; empty for an unknown metric."""
    known = METRICS.get(name)
    return "" if known is None else f"{'higher' if known.bigger_is_better else 'lower'} is better"


def whole_range(rounds: Sequence[int]) -> tuple[float, float]:
    """Return the axis of these rounds; a single round is in its middle."""
    first, last = float(min(rounds)), float(max(rounds))
    return (first, last) if last > first else (first - 1.0, first + 1.0)


def _metric_chart(story: Story, name: str) -> Html | None:
    lines = []
    for split in ordered_splits(
        {split: 0 for summary in story.rounds for _, split in summary.metrics}
    ):
        points = story.metric_curve(name, split)
        if points:
            lines.append(Line(split, points, _split_colour(split), dashed=split == "train"))
    if not lines:
        return None
    rounds = [summary.done for summary in story.rounds]
    return line_chart(
        LineChart(
            title=name,
            lines=lines,
            x=Axis(story.round_name, whole_range(rounds), whole=True),
            y=Axis(name),
            note=better_direction(name),
            rule=kept_rule(story, rounds[-1]),
            end_labels=True,
        )
    )


def _values_table(story: Story) -> Html:
    keys = list(dict.fromkeys(key for summary in story.rounds for key in summary.metrics))
    metrics = [f"{split} {name}" for name, split in keys]
    rows: list[TableRow] = []
    for summary in story.rounds:
        values = (units.metric_text(summary.metrics.get(key)) for key in keys)
        rows.append([summary.done, *values, units.in_seconds(summary.seconds)])
    return html_table("Metrics by round", [], rows, numbers=[story.round_name, *metrics, "took"])


def _curve_chart(story: Story, name: str, drawn: Sequence[Drawn]) -> Html:
    title, across, up = CURVES[name]
    lines = [_chance_line(name, drawn)] if name != "ks" else []
    final = story.final_metrics()
    metric = {"roc": "auc", "pr": "aucpr", "ks": "ks"}[name]
    for curve in drawn:
        value = final.get(curve.split, {}).get(metric)
        label = (
            curve.split if value is None else f"{curve.split}, {metric} {units.metric_text(value)}"
        )
        points = _from_origin(name, curve.points)
        lines.append(Line(label, points, _split_colour(curve.split), dashed=curve.split == "train"))
    low = min(0.0, *(y for line in lines for _, y in line.points))
    return line_chart(
        LineChart(
            title=title,
            lines=lines,
            x=Axis(across, (0.0, 1.0)),
            y=Axis(up, (low, 1.0)),
            note=up if name == "ks" else f"{up}; dotted: by chance",
            mark=_farthest_point(drawn) if name == "ks" else None,
            size=SQUARE,
        )
    )


def _chance_line(name: str, drawn: Sequence[Drawn]) -> Line:
    """Return the line of a random guess: the diagonal, or the share of positive rows."""
    if name == "roc":
        return Line("by chance", ((0.0, 0.0), (1.0, 1.0)), 6, faint=True)
    share = drawn[-1].points[-1][1]
    return Line("by chance", ((0.0, share), (1.0, share)), 6, faint=True)


def _from_origin(name: str, points: Sequence[Point]) -> Sequence[Point]:
    """Return the points with the origin of ROC and KS, which need not have been sent."""
    return points if name == "pr" or points[0] == (0.0, 0.0) else ((0.0, 0.0), *points)


def _farthest_point(drawn: Sequence[Drawn]) -> tuple[Point, str]:
    """Find the point where the last curve, validation if there is one, is farthest from chance."""
    point = max(drawn[-1].points, key=lambda xy: abs(xy[1]))
    return point, f"KS {abs(point[1]):.3f} at {100 * point[0]:.0f} %"


def _importance_row(story: Story, share: Importance, total: float, most: float) -> list[object]:
    name: object = share.feature or tag("i", "all its columns")
    bar = bar_list([Bar(share.gain, story.colour_of(share.party))], most)
    return [
        name,
        share.party,
        bar,
        units.in_percent(share.gain, total),
        units.in_count(share.splits),
    ]


def _split_colour(split: str) -> int:
    return COLOUR_OF.get(split, OTHER_COLOUR)
