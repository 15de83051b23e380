"""Results of a sweep, as sections of a page: the best settings, every trial, every job."""

from __future__ import annotations

from fedboost.report import units
from fedboost.report.charts import Axis, Line, LineChart, line_chart
from fedboost.report.html import Html, join, tag
from fedboost.report.tables import Column, TableRow, absence_note, figure_list, html_table, section
from fedboost.sweep.plan import settings_in_words
from fedboost.sweep.record import FINISHED, TRAIN, VALIDATION, SweepRecord, TrialResult

HELD_OUT, TRAINED = 1, 6  # colours, as in the style sheet


def sweep_figures(record: SweepRecord) -> Html:
    """Return the figures at the top."""
    standings = record.standings()
    best = standings[0]
    facts = [("trials", units.in_count(len(standings)))]
    if record.sweep.settings.folds:
        facts.append(("folds", units.in_count(record.sweep.settings.folds)))
    if best.rank is not None:
        facts.append((f"best {record.sweep.metric}", units.metric_text(best.mean)))
    facts.append(("in all", units.in_seconds(sum(standing.seconds for standing in standings))))
    return figure_list(facts)


def trials_section(record: SweepRecord) -> Html:
    """Return every trial, the best one first."""
    metric = record.sweep.metric
    standings = record.standings()
    intro = (
        f"{metric} on rows held out, mean ± standard deviation over folds; "
        f"{'higher' if record.sweep.bigger_is_better else 'lower'} is better. "
        "Each stroke is a fold, the dot their mean."
    )
    if standings[0].rank is None:
        return section("trials", "Trials", absence_note("No trial has finished yet."), intro=intro)
    best = tag("p", "Best: ", tag("b", settings_in_words(standings[0].trial.values)), ".")
    finished = [standing for standing in standings if standing.is_whole]
    shown = [value for standing in finished for value in standing.values(VALIDATION)]
    span = Column(f"{min(shown):.4g} to {max(shown):.4g}", "wide")
    heads, numbers = [Column("rank", "number"), Column("settings"), span], [metric, "train", "time"]
    rows: list[TableRow] = [
        _trial_row(standing, (min(shown), max(shown))) for standing in standings
    ]
    drawn = html_table("Trials, the best one first", heads, rows, numbers=numbers, folds=True)
    return section("trials", "Trials", best, drawn, _setting_curve(record), intro=intro)


def _trial_row(standing: TrialResult, shown: tuple[float, float]) -> list[object]:
    rank = units.NOTHING if standing.rank is None else str(standing.rank)
    values, took = settings_in_words(standing.trial.values), units.in_seconds(standing.seconds)
    if not standing.is_whole:
        missing = sorted({entry.state for entry in standing.entries} - {FINISHED})
        return [rank, values, "", tag("span", ", ".join(missing), class_="pill"), "", took]
    mean = units.metric_text(standing.mean)
    if len(standing.entries) > 1:
        mean = f"{mean} ± {units.metric_text(standing.std)}"
    return [
        rank,
        values,
        _fold_strip(standing, shown),
        mean,
        units.metric_text(standing.mean_of(TRAIN)),
        took,
    ]


def _fold_strip(standing: TrialResult, shown: tuple[float, float]) -> Html:
    """Draw a trial's folds between the least and the greatest of all, and their mean."""
    low, high = shown
    wide = high - low

    def percent_along(value: float) -> str:
        return f"{2.0 + 96.0 * ((value - low) / wide if wide else 0.5):.2f}%"

    marks = [
        tag("rect", x=percent_along(value), y=2, width=2, height=13, rx=1, class_=f"f{TRAINED}")
        for value in standing.values(VALIDATION)
    ]
    mean = tag("circle", cx=percent_along(standing.mean), cy=8.5, r=5, class_=f"f{HELD_OUT}")
    line = tag("line", x1="2%", x2="98%", y1=8.5, y2=8.5, class_="grid")
    return tag("svg", line, *marks, mean, class_="bars", height=17, aria_hidden="true")


def _setting_curve(record: SweepRecord) -> Html:
    """Return a curve over the one setting that varies, if it is a number."""
    names = list(record.sweep.settings.params)
    finished = [standing for standing in record.standings() if standing.is_whole]
    if len(names) != 1 or len(finished) < 3:
        return join()
    values = [standing.trial.values[names[0]] for standing in finished]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return join()
    by_value = sorted(zip(values, finished, strict=True), key=lambda pair: pair[0])
    held = [(float(value), standing.mean) for value, standing in by_value]
    trained = [(float(value), standing.mean_of(TRAIN)) for value, standing in by_value]
    lines = [Line("held out", held, HELD_OUT), Line("train", trained, TRAINED, dashed=True)]
    metric = record.sweep.metric
    chart = LineChart(f"{metric} by {names[0]}", lines, Axis(names[0]), Axis(metric))
    return line_chart(chart)


def jobs_section(record: SweepRecord) -> Html:
    """Return every job with its state and its error, if any."""
    metric = record.sweep.metric
    heads = [Column("job"), Column("settings"), Column("fold", "number"), Column("state")]
    rows: list[TableRow] = []
    for member in record.sweep.members:
        entry = record.of(member)
        fold = units.NOTHING if member.fold is None else str(member.fold + 1)
        value, took = units.NOTHING, units.NOTHING
        if entry.state == FINISHED:
            value = units.metric_text(entry.value(metric))
            took = units.in_seconds(entry.seconds)
        why = (entry.error or {}).get("what", "")
        state = join(entry.state, tag("span", why, class_="way note") if why else "")
        name = tag("code", entry.job or member.key)
        rows.append([name, settings_in_words(member.trial.values), fold, state, value, took])
    intro = "Each job has its own report: fedboost job report JOB."
    drawn = html_table("Jobs", heads, rows, numbers=[metric, "time"], folds=True)
    return section("jobs", "Jobs", drawn, intro=intro)


def disclosure_section(record: SweepRecord) -> Html:
    """Show the shared parts of the jobs, and the total of the hosts' released sums."""
    items = []
    if record.earlier.alignment is not None:
        job = tag("code", record.earlier.alignment)
        items.append(tag("li", "The shared rows were found once, by ", job, "."))
    if record.earlier.reuse is not None:
        first = tag("code", record.earlier.reuse)
        items.append(
            tag("li", "Everything that hosts disclosed to ", first, " served every later job.")
        )
    sums: dict[str, float] = {}
    for entry in record.entries.values():
        for host, count in entry.released.items():
            sums[host] = sums.get(host, 0.0) + count
    for host, count in sums.items():
        words = f"{host} has released {units.metric_text(count)} sums per bin and row in all jobs."
        items.append(tag("li", words))
    if not items:
        return join()
    return section("told", "What the jobs disclosed together", tag("ul", *items))
