"""Result of a job: the figures at the top of the page and the tables of the result."""

from __future__ import annotations

from fedboost.report import units
from fedboost.report.html import Html, join, tag
from fedboost.report.states import state_in_words
from fedboost.report.story import Story, fault_lines, ordered_splits
from fedboost.report.tables import (
    Band,
    Column,
    TableRow,
    absence_note,
    figure_list,
    html_table,
    section,
)
from fedboost.report.training import stop_in_words

UNFINISHED_STATES = ("waiting for approval", "queued", "running", "paused")
STOPPED = ("paused", "failed", "cancelled")
TIMES = {  # keys of the result's seconds, in words
    "total": "Whole job, without waiting",
    "waited": "Waiting for approval",
    "align": "Aligning the rows",
    "predict": "Scoring the rows",
    "train": "Training",
    "per_tree": "One tree (median)",
    "per_round": "One round (median)",
}


def trouble_banner(story: Story) -> Html:
    """Return the reason why a job has stopped, and what to do; empty if it has not stopped."""
    if story.state not in STOPPED:
        return join()
    lines = fault_lines(story.status.reason) or ("No reason was recorded.",)
    title = tag("h2", f"The job {state_in_words(story.state)}: {lines[0]}")
    return tag(
        "div", title, *(tag("p", line) for line in lines[1:]), role="alert", class_="trouble"
    )


def warning_list(story: Story) -> Html:
    """Return the warnings to the job's users, each once, in a fold; empty without any."""
    of_result = () if story.result is None else story.result.warnings
    warned = dict.fromkeys((*story.status.warnings, *of_result))
    if not warned:
        return join()
    summary = tag("summary", units.plural(len(warned), "warning"))
    return tag(
        "details", summary, tag("ul", *(tag("li", words) for words in warned)), class_="warned"
    )


def main_figures(story: Story) -> Html:
    """Return the most important figures."""
    facts: list[tuple[str, str]] = []
    final = story.final_metrics()
    split = "validation" if "validation" in final else next(iter(ordered_splits(final)), "")
    for name, value in list(final.get(split, {}).items())[:2]:
        facts.append((f"{split} {name}", units.metric_text(value)))
    facts.append(_trees_fact(story))
    result = story.result
    if result is not None and "total" in result.seconds:
        facts.append(("run time", units.in_seconds(result.seconds["total"])))
    facts += _pace_facts(story)
    sent = sum(traffic.bytes for step in story.steps for traffic in step.sent.values())
    facts.append(("between parties", units.in_bytes(sent)))
    if result is not None and result.rows:
        name = "train" if "train" in result.rows else next(iter(result.rows))
        rows = "training rows" if name == "train" else f"{name} rows"
        facts.append((rows, units.in_count(result.rows[name])))
    return figure_list(facts)


def outcome_section(story: Story) -> Html:
    """Return metrics, rows, seconds, processors, memory and bytes."""
    parts = [_metrics_table(story)]
    if story.result is not None:
        parts = [tag("div", _metrics_table(story), _parties_table(story)), _rows_and_times(story)]
    intro = ""
    if story.result is None:
        intro = (
            "The job has no result yet."
            if story.state in UNFINISHED_STATES
            else "The job has no result."
        )
        if story.final_metrics():
            intro += f" These are the metrics of {story.round_name} {story.rounds[-1].done}."
    elif stopped := stop_in_words(story):
        intro = f"Training {stopped}."
    figures = tag("div", *parts, class_="pair")
    return section("result", "Result", figures, intro=intro)


def _pace_facts(story: Story) -> list[tuple[str, str]]:
    """Return the time of a tree or a round, by the result or by the rounds so far."""
    timed = {} if story.result is None else story.result.seconds
    for name in ("round", "tree"):  # a model without trees has both keys
        if f"per_{name}" in timed:
            return [(f"a {name} (median)", units.in_seconds(timed[f"per_{name}"]))]
    took = sorted(summary.seconds for summary in story.rounds)
    if not took:
        return []
    return [(f"a {story.round_name} (median)", units.in_seconds(took[len(took) // 2]))]


def _metrics_table(story: Story) -> Html:
    final = story.final_metrics()
    if not final:
        return absence_note(
            "No metrics: the guest's policy withholds them, the protocol has none, "
            "or the job ended before its first round."
        )
    splits = ordered_splits(final)
    names = dict.fromkeys(name for split in splits for name in final[split])
    rows: list[TableRow] = [
        [name, *(units.metric_text(final[split].get(name)) for split in splits)] for name in names
    ]
    return html_table("Metrics", ["metric"], rows, numbers=splits)


def _rows_and_times(story: Story) -> Html:
    result = story.result
    assert result is not None
    rows: list[TableRow] = []
    if result.seconds:
        rows.append(Band("Time"))
        known = [key for key in TIMES if key in units.shown_seconds(result.seconds)]
        others = [key for key in result.seconds if key not in TIMES]
        for key in (*known, *others):
            rows.append([TIMES.get(key, key), units.in_seconds(result.seconds[key])])
    if result.rows:
        rows.append(Band("Rows"))
        rows += [[name, units.in_count(count)] for name, count in result.rows.items()]
    if result.ids:
        rows.append(Band("Ids that matched"))
        rows += [[party, units.matched_ids(ids)] for party, ids in result.ids.items()]
    if result.alignment:
        rows.append(["method of the alignment", result.alignment])
    rows.append(Band("Work"))
    if result.answers:
        rows.append(["hosts' encrypted sums", result.answers])
    if result.trees:
        rows.append(["trees in the model", units.in_count(result.trees)])
    if result.rounds:
        rows.append(["rounds of the model", units.in_count(result.rounds)])
    if result.earlier_rounds:
        rows.append(["rounds of the model before", units.in_count(result.earlier_rounds)])
    rows.append(["exchanges between parties", units.in_count(result.exchanges)])
    return html_table("Time, rows and work", ["what", Column("how much", "wide")], rows)


def _parties_table(story: Story) -> Html:
    result = story.result
    assert result is not None
    parties = dict.fromkeys([*story.roles, *result.cpu_seconds, *result.memory_peak_bytes])
    rows: list[TableRow] = []
    for party in parties:
        memory = result.memory_peak_bytes.get(party)
        sent = sum(n for link, n in result.bytes.items() if link.startswith(f"{party}->"))
        rows.append(
            [
                party,
                story.roles.get(party, "") + (", lost" if party in result.lost else ""),
                units.in_seconds(result.cpu_seconds.get(party)),
                units.NOTHING if memory is None else units.in_bytes(memory),
                units.in_bytes(sent),
            ]
        )
    numbers = ["processor time", "peak memory", "sent"]
    return html_table("What it cost each party", ["party", "role"], rows, numbers=numbers)


def _trees_fact(story: Story) -> tuple[str, str]:
    name = f"{story.round_name}s"
    done = story.rounds[-1].done if story.rounds else 0
    of = story.rounds[-1].of if story.rounds else story.status.progress.of
    if story.result is not None:
        kept = story.result.own_rounds
        if kept and done > kept:
            return f"{name} kept of {done}", units.in_count(kept)
        if story.result.trees:
            name, done = "trees", story.result.trees
        return name.removesuffix("s") if done == 1 else name, units.in_count(done)
    return (f"{name} of {of}", units.in_count(done)) if of else (name, units.in_count(done))
