"""All jobs of a coordinator in a filtered and sorted list, and comparisons of them."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedboost import protocols
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.pages import choosing, frame, parts
from fedboost.pages.asking import settings_in_words
from fedboost.pages.choosing import Choice
from fedboost.pages.sessions import BrowserSession
from fedboost.report import units
from fedboost.report.benefit import metric_alone
from fedboost.report.charts import Axis, Line, LineChart, Point, line_chart
from fedboost.report.html import Html, join, tag
from fedboost.report.story import COLOURS
from fedboost.report.tables import Column, TableRow, absence_note, details, html_table, section
from fedboost.report.training import better_direction
from fedboost.runtime.jobs.manifest import read_outline
from fedboost.runtime.store.store import FINAL, JobState, StoredJob

PATH, COMPARED_PATH = "/runs", "/runs/compare"
SELECTS = ("state", "tag", "protocol")
RUNS_PER_PAGE = 50
METRICS_SHOWN = 3  # columns of the list; all of them can be sorted by
COMPARED_PER_PAGE = 100  # more lines on a chart are indistinguishable
SETTINGS = ("params", "validation", "data", "parties", "alignment")

Datasets = Mapping[str, Mapping[str, str]]  # of each party by name, with its label
RoundCurves = Mapping[tuple[str, str], Sequence[Point]]  # by metric and split


@dataclass(frozen=True)
class ListedRun:
    """One job in the list: from its stored summary, without its journal."""

    job: StoredJob
    protocol: str
    submitter: str
    spec: Mapping[str, Any]
    tags: Sequence[str] = ()
    is_mine: bool = False

    @property
    def result(self) -> Mapping[str, Any]:
        """Return its result; empty if there is none."""
        return self.job.result or {}

    @property
    def metrics(self) -> dict[str, float]:
        """Return its metrics by names such as ``validation auc``."""
        by_split = self.result.get("metrics") or {}
        return {f"{split} {name}": v for split in by_split for name, v in by_split[split].items()}

    @property
    def rehearsal(self) -> Mapping[str, Any]:
        """Return its dress rehearsal; empty without one."""
        return self.result.get("rehearsal") or {}

    @property
    def took(self) -> float | None:
        """Seconds from its submission to its end."""
        return self.job.since - self.job.created if self.job.state in FINAL else None

    @property
    def searched_texts(self) -> tuple[str, ...]:
        """Return the texts that the filter searches."""
        settings = [f"{key}={value}" for key, value in settings_in_words(self._spec_fields)]
        return (self.job.id, self.job.name, self.protocol, self.submitter, *self.tags, *settings)

    @property
    def _spec_fields(self) -> dict[str, Any]:
        return {key: self.spec[key] for key in SETTINGS if self.spec.get(key)}

    @property
    def settings(self) -> dict[str, str]:
        """Return every setting by name, with defaults if this version knows the protocol."""
        kept = self._spec_fields
        try:
            model = protocols.load_protocol(self.protocol).params
            params = parse_settings(model, kept.get("params", {}), section="params")
            kept["params"] = params.model_dump(mode="json", exclude_none=True)
        except ConfigError:  # of another version
            pass
        return {"protocol": self.protocol, **dict(settings_in_words(kept))}


def run_of(job: StoredJob) -> ListedRun:
    """Return a job of the store for the list, without its tags."""
    terms, spec = read_outline(job.outline), json.loads(job.manifest)["spec"]
    return ListedRun(job, terms.protocol, terms.submitter, spec)


def curves_of(run: ListedRun, rounds: Iterable[Mapping[str, Any]]) -> RoundCurves:
    """Return a job's metrics by round, from its journal; a repeated round counts once."""
    by_metric: dict[tuple[str, str], dict[float, float]] = defaultdict(dict)
    for done in rounds:
        if done.get("stage") != run.protocol:
            continue
        at = float(done.get("progress", {}).get("done", 0))
        for metric in done.get("metrics", ()):
            value = float(metric.get("value", 0.0))  # which the journal leaves out where it is 0
            if math.isfinite(value):
                by_metric[metric["name"], metric["split"]][at] = value
    return {key: sorted(points.items()) for key, points in by_metric.items()}


def chosen_runs(runs: Sequence[ListedRun], choice: Choice) -> list[ListedRun]:
    """Return the runs selected by an address, in its order."""
    state, label, protocol = (choice.picked.get(name, "") for name in SELECTS)
    fitting = [
        run
        for run in runs
        if (not state or run.job.state == state)
        and (not label or label in run.tags)
        and (not protocol or run.protocol == protocol)
        and (not choice.words or choice.matches_words(*run.searched_texts))
    ]
    return choosing.sorted_rows(choice, fitting, _sort_keys(runs))


def _sort_keys(runs: Sequence[ListedRun]) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "job": lambda run: run.job.name,
        "tags": lambda run: ", ".join(run.tags) or None,
        "protocol": lambda run: run.protocol,
        "took": lambda run: run.took,
        "changed": lambda run: run.job.updated,
    }
    for name in _metric_names(runs):
        keys[name] = lambda run, name=name: run.metrics.get(name)
    return keys


def _metric_names(runs: Sequence[ListedRun]) -> list[str]:
    """Return the metrics that any run has, those of held-out rows first."""
    names = dict.fromkeys(name for run in runs for name in run.metrics)
    return sorted(names, key=lambda name: not name.startswith("validation "))


def list_page(
    runs: Sequence[ListedRun], choice: Choice, session: BrowserSession, news: Html | str = ""
) -> list[object]:
    """Show the list, in a form that tags and compares."""
    fitting = chosen_runs(runs, choice)
    shown, further = choosing.rows_of_page(choice, fitting, RUNS_PER_PAGE)
    states = {run.job.state for run in runs}
    selects: dict[str, tuple[str, Sequence[str]]] = {
        "state": ("State", [str(state) for state in JobState if state in states]),
        "tag": ("Tag", sorted({label for run in runs for label in run.tags})),
        "protocol": ("Protocol", sorted({run.protocol for run in runs})),
    }
    filters = choosing.filter_form(choice, selects, {key: key for key in _sort_keys(runs)})
    count = units.plural(len(fitting), "run")
    fact = count if choice.is_all else f"{count} of {len(runs)}"
    compare = parts.button_link(
        f"Compare all {units.in_count(len(fitting))}", f"{COMPARED_PATH}?{choice.query}"
    )
    return [
        tag("div", tag("h1", "Runs"), compare if len(fitting) > 1 else "", class_="head"),
        news,
        filters,
        tag("p", fact, class_="facts", role="status"),
        _runs_form(shown, choice, session) if shown else absence_note("No job matches."),
        further,
    ]


def _runs_form(shown: Sequence[ListedRun], choice: Choice, session: BrowserSession) -> Html:
    metrics = _metric_names(shown)[:METRICS_SHOWN]
    has_rehearsal = any(run.rehearsal for run in shown)
    heads = [choosing.sortable_column(choice, key, key) for key in ("job", "tags", "protocol")]
    heads += [choosing.sortable_column(choice, name, name, "number") for name in metrics]
    heads += [Column("between organisations")] if has_rehearsal else []
    heads += [choosing.sortable_column(choice, key, key, "number") for key in ("took", "changed")]
    rows: list[TableRow] = []
    for run in shown:
        row = [_run_name(run), _tag_links(run), run.protocol]
        row += [units.metric_text(run.metrics.get(name)) for name in metrics]
        row += [_accepted_in_words(run)] if has_rehearsal else []
        took = units.NOTHING if run.took is None else units.in_seconds(float(round(run.took)))
        rows.append([*row, took, parts.time_to_minute(run.job.updated)])
    field = tag(
        "input", type="text", name="tags", autocomplete="off", spellcheck="false",
        aria_label="Tags, with spaces between them", placeholder="tags",
    )  # fmt: skip
    acts = {"compare": "Compare", "tag": "Add tags", "untag": "Remove tags"}
    compare, *others = (
        tag("button", words, type="submit", name="act", value=act) for act, words in acts.items()
    )
    return frame.post_form(
        PATH,
        session.csrf,
        frame.hidden_field("back", choice.query),
        tag("div", compare, field, *others, class_="actions with-chosen"),
        html_table("Runs", heads, rows, folds=True),
        class_="runs",
    )


def _run_name(run: ListedRun) -> Html:
    box = tag(
        "input", type="checkbox", name="job", value=run.job.id, aria_label=f"Choose {run.job.id}"
    )
    short = tag("span", run.job.id.rpartition("-")[2], class_="note")
    link = tag("a", run.job.name, href=f"/jobs/{run.job.id}")
    return tag(
        "span", box, link, " ", short, " ", parts.state_badge(run.job.state), class_="chosen"
    )


def _tag_links(run: ListedRun) -> Html:
    links = (tag("a", label, href=f"{PATH}?tag={label}", class_="pill tag") for label in run.tags)
    return join(*(join(link, " ") for link in links))


def datasets_of_runs(runs: Iterable[ListedRun]) -> dict[str, dict[str, str]]:
    """Return the data sets that a user's own jobs have named, of each party by name with its
    label, the one used last first.
    """
    by_party: dict[str, dict[str, str]] = {}
    for run in runs:
        for party, use in (run.spec.get("data") or {}).items():
            if run.is_mine and use.get("dataset"):
                by_party.setdefault(party, {}).setdefault(use["dataset"], use.get("label") or "")
    return by_party


# Compared


def comparison_page(
    runs: Sequence[ListedRun],
    curves: Mapping[str, RoundCurves],
    count: int = 0,
    further: Html | str = "",
) -> list[object]:
    """Show runs beside each other: curves in one chart per metric, differing settings, results.

    The runs are one page of `count`; `further` has the links to the others.
    """
    kicker = tag("p", tag("a", "Runs", href=PATH), class_="kicker")
    head = tag("h1", f"{units.plural(max(count, len(runs)), 'run')} compared")
    if not runs:
        return [kicker, head, absence_note("Choose runs in the list first.")]
    return [
        kicker,
        head,
        further,
        _overlaid_charts(runs, curves),
        _results_table(runs),
        _rehearsals_table(runs),
        _differing_settings(runs),
        further,
    ]


def _overlaid_charts(runs: Sequence[ListedRun], curves: Mapping[str, RoundCurves]) -> Html:
    """Draw a chart for each metric; of a run its rows held out, or else those it learns from."""
    names = dict.fromkeys(name for run in runs for name, _ in curves[run.job.id])
    charts = []
    for name in names:
        lines = []
        for place, run in enumerate(runs):
            by_metric = curves[run.job.id]
            points = by_metric.get((name, "validation")) or by_metric.get((name, "train"))
            if points:
                dashed = place // COLOURS % 2 == 1
                lines.append(Line(_run_label(run), points, place % COLOURS + 1, dashed=dashed))
        if lines:
            note = better_direction(name)
            chart = LineChart(name, lines, Axis("round", whole=True), Axis(name), note)
            charts.append(line_chart(chart))
    intro = "By round, on rows held out where a job has them. Hover over a point for its value."
    drawn = (
        tag("div", *charts, class_="charts two")
        if charts
        else absence_note("No curve was reported.")
    )
    return section("curves", "Curves", drawn, intro=intro)


def _run_label(run: ListedRun) -> str:
    return " ".join((run.job.id, *(f"#{label}" for label in run.tags)))


def _results_table(runs: Sequence[ListedRun]) -> Html:
    names = _metric_names(runs)
    numbers = [*names, "trees", "worked", "bytes"]
    rows: list[TableRow] = []
    for run in runs:
        values = [units.metric_text(run.metrics.get(name)) for name in names]
        name = tag("a", run.job.id, href=f"/jobs/{run.job.id}")
        worked = (run.result.get("seconds") or {}).get("total")
        sent = sum((run.result.get("bytes") or {}).values())
        rows.append(
            [
                join(name, " ", parts.state_badge(run.job.state), " ", _tag_links(run)),
                *values,
                str(run.result.get("trees") or units.NOTHING),
                units.in_seconds(worked),
                units.in_bytes(sent) if sent else units.NOTHING,
            ]
        )
    drawn = html_table("Result of each run", ["job"], rows, numbers=numbers, folds=True)
    return section("results", "Results", drawn)


def _rehearsals_table(runs: Sequence[ListedRun]) -> Html:
    """Show the four lines of each dress rehearsal beside each other."""
    rows: list[TableRow] = []
    for run in runs:
        rehearsal = run.rehearsal
        if rehearsal:
            (_, single), joint = (
                metric_alone(rehearsal),
                _value_in_words(rehearsal.get("federated")),
            )
            change = "; ".join(
                _value_in_words(rehearsal[k]) for k in ("change", "cost") if rehearsal.get(k)
            )
            rows.append(
                [
                    run.job.id,
                    _value_in_words(rehearsal.get("metric")),
                    _value_in_words(single),
                    joint,
                    _accepted_in_words(run),
                    change,
                ]
            )
    if not rows:
        return join()
    heads = [Column("job"), Column("metric"), Column("alone", "number")]
    heads += [Column("together", "number"), Column("between organisations")]
    heads += [Column("smallest change that helps")]
    intro = "The verdict of default policies; no owner was asked."
    drawn = html_table("Rehearsals", heads, rows, folds=True)
    return section("rehearsal", "Between organisations", drawn, intro=intro)


def _accepted_in_words(run: ListedRun) -> str:
    rehearsal = run.rehearsal
    if not rehearsal:
        return units.NOTHING
    if rehearsal.get("accepted"):
        left, placed = (
            rehearsal.get("jobs_left"),
            max((rehearsal.get("placed") or {}).values(), default=0),
        )
        words = f"accepted, {'any number of' if left is None else left} more like it"
        return words + f"; an attack could place {placed:.0%} of a host's rows" * (placed > 0)
    return f"refused by {rehearsal.get('refused_by') or 'the default policy'}"


def _value_in_words(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return units.metric_text(value)
    return units.NOTHING if value is None else str(value)


def _differing_settings(runs: Sequence[ListedRun]) -> Html:
    """Show the settings that are not the same in all runs."""
    every = [run.settings for run in runs]
    names = dict.fromkeys(name for settings in every for name in settings)
    differ = [name for name in names if len({settings.get(name) for settings in every}) > 1]
    same: list[TableRow] = [[tag("code", n), every[0][n]] for n in names if n not in differ]
    heads = ["job", *(name.removeprefix("params.") for name in differ)]
    rows: list[TableRow] = [
        [run.job.id, *(settings.get(name, units.NOTHING) for name in differ)]
        for run, settings in zip(runs, every, strict=True)
    ]
    drawn = html_table("Settings that differ", heads, rows, folds=True) if differ else absence_note(
        "Every setting is the same in all of them."
    )  # fmt: skip
    listed = html_table("Settings that are the same", ["setting", "value"], same)
    folded = details(f"{units.plural(len(same), 'setting')} the same in all", listed)
    return section("settings", "What differs", drawn, folded if same else "")
