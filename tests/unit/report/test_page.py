"""The report: complete, safe whatever the journal holds, and honest about what is absent."""

import io
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from rich.console import Console

from fedboost import protocols
from fedboost.audit.findings import Finding
from fedboost.messages.job_pb2 import (
    Event,
    JobJournal,
    JobStatus,
    LinkBytes,
    PlacedRows,
    StepCost,
    StepDone,
    Warned,
)
from fedboost.messages.reveals import REVEALS
from fedboost.report import charts, disclosure, progress, units
from fedboost.report.charts import Axis, Bar, Line, LineChart
from fedboost.report.page import SECTIONS, audit_page, render_page
from fedboost.report.story import read_story
from fedboost.report.training import stop_in_words
from tests.unit.report.test_journal import journal

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&amp;\u202e"
VOID = {"meta", "br", "line", "circle", "rect", "polyline", "path"}


class Page(HTMLParser):
    """A page taken apart; every element must be closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        self.tags.append(tag)
        self.attributes |= set(held)
        self.ids += [held["id"]] if "id" in held else []
        self.links += [held["href"]] if "href" in held else []
        if tag not in VOID or not str(self.get_starttag_text()).endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def part(page: str, name: str) -> str:
    """The text of one section."""
    start = page.index(f'<section id="{name}"')
    return " ".join(Page(page[start : page.index("</section>", start) + 10]).text.split())


@pytest.fixture(scope="module")
def full() -> str:
    return render_page(journal(kept=21))


def test_the_page_is_whole_and_every_part_can_be_reached(full):
    page = Page(full)
    assert page.tags[:2] == ["html", "head"]
    assert full.startswith("<!DOCTYPE html>")
    assert len(page.ids) == len(set(page.ids))
    there = {name for name, _ in SECTIONS} - {"forest", "audit"}
    assert {link.removeprefix("#") for link in page.links} == there <= set(page.ids)
    assert page.tags.count("h1") == 1
    assert page.tags.count("table") == page.tags.count("caption")


def test_the_page_needs_nothing_from_outside_and_runs_nothing(full):
    page = Page(full)
    assert not {"script", "link", "iframe", "img", "object", "base", "form"} & set(page.tags)
    assert not {name for name in page.attributes if name.startswith("on") or name == "src"}
    assert all(link.startswith("#") for link in page.links)
    assert "http://" not in full
    assert "https://" not in full
    assert "url(" not in full
    assert "@import" not in full
    assert "default-src &#39;none&#39;" in full


def test_every_chart_is_described_and_well_formed(full):
    drawn = re.findall(r"<svg.*?</svg>", full, re.DOTALL)
    assert len(drawn) > 20
    for svg in drawn:
        root = ElementTree.fromstring(svg)
        assert root.get("aria-label") or root.get("aria-hidden") == "true"
    assert 'aria-label="auc by tree: train from 0.7473 to 0.8563' in full


def test_the_result_is_on_the_page(full):
    result = json.loads(journal(kept=21).events[-1].finished.result)
    text = Page(full).text
    for split in ("train", "validation"):
        for value in result["metrics"][split].values():
            assert units.metric_text(value) in text
    shown = part(full, "result")
    assert "bank guest" in shown
    for party in result["cpu_seconds"]:
        assert units.in_seconds(result["cpu_seconds"][party]) in shown
        assert units.in_bytes(result["memory_peak_bytes"][party]) in shown
    assert units.in_seconds(result["seconds"]["total"]) in shown
    assert units.in_bytes(sum(result["bytes"].values())) in text


def test_a_chart_for_each_metric_curve_and_the_time_of_a_tree(full):
    titles = re.findall(r"<figcaption><b>(.*?)</b>", full)
    assert titles == [
        "auc",
        "logloss",
        "ROC",
        "Precision and recall",
        "Kolmogorov–Smirnov",
        "Seconds per tree",
    ]
    assert "21 kept" in full


def test_rounds_are_all_in_the_table_of_values(full):
    start = full.index("Metrics by round")
    rows = full[full.index("<tbody", start) : full.index("</tbody>", start)]
    assert rows.count("<tr") == 25


def test_own_columns_go_by_name_and_others_by_party(full):
    shown = part(full, "importance")
    assert "age bank 34.5 %" in shown
    assert "all its columns telco 22.4 %" in shown
    assert "all its columns shop" in shown


def test_many_columns_are_summed_up():
    shown = part(
        render_page(journal(trees=1, columns=tuple(f"c{i}" for i in range(60)))), "importance"
    )
    assert "c19 bank" in shown
    assert "c20 bank" not in shown
    assert "40 further columns bank" in shown


def test_each_message_says_what_it_reveals_and_how_often_it_was_sent(full):
    shown = part(full, "disclosure")
    told = read_story(journal(kept=21))
    listed = {one.kind: one for one in disclosure.disclosed_kinds(told)}
    assert len(listed) == 11
    for kind, one in listed.items():
        reveals, protected = REVEALS[kind]
        messages = units.in_count(sum(sent.messages for sent in one.links.values()))
        assert reveals[1:] in shown
        assert protected.startswith("not at all") or protected[1:] in shown
        assert messages in shown
    sums = listed["fedboost.encrypted.CandidateSums"]
    assert {(link.sender, link.receiver) for link in sums.links} == {
        ("telco", "bank"),
        ("shop", "bank"),
    }
    assert sum(sent.messages for sent in sums.links.values()) == 2 * 5 * 25
    assert "CandidateSums To the guest, this host's candidate sums" in shown
    assert "telco, shop → bank" in shown
    assert shown.count("in the clear") == 3


@pytest.mark.parametrize("scheme", ["plain", "paillier"])
def test_a_scheme_that_hides_nothing_is_named_beside_what_is_said_of_messages(scheme):
    page = render_page(journal(params={"encryption": {"scheme": scheme}}))
    assert (disclosure.BARE in part(page, "disclosure")) == (scheme == "plain")


def test_every_message_of_every_protocol_is_described():
    for protocol in protocols.load_all().values():
        for step in protocol.flow:
            assert step.gives is None or step.gives.DESCRIPTOR.full_name in REVEALS


def test_a_message_of_an_unknown_step_is_shown_as_unknown():
    kept = journal(trees=1)
    cost = StepCost(party="bank", sent=[LinkBytes(peer="telco", bytes=77, messages=1)])
    done = StepDone(stage="newer-protocol", step="surprise", costs=[cost])
    kept.events.append(Event(step=done))
    assert "of surprise Not known to this version of fedboost." in part(
        render_page(kept), "disclosure"
    )


@dataclass(frozen=True)
class Kept:
    """As a party's ledger has it."""

    direction: str
    kind: str
    peer: str
    bytes: int
    values: int


def test_a_ledger_is_summed_by_message_direction_and_peer():
    kind = "fedboost.secureboost.Frontier"
    ledger = [Kept("out", kind, "telco", 1500, 40), Kept("out", kind, "telco", 500, 2)]
    ledger += [Kept("in", kind, EVIL, 7, 1)]
    shown = part(render_page(journal(trees=1), ledger), "disclosure")
    assert "secureboost.Frontier to telco 2 42 2 KB" in shown
    assert "ledger" not in part(render_page(journal(trees=1)), "disclosure")


def test_whatever_users_write_is_text_and_never_markup():
    hosts = ("<b>telco</b>", "shop")
    kept = journal(name=EVIL, hosts=hosts, columns=(EVIL, "</table>"), trees=2, failed_after=None)
    kept.status.id = kept.status.submitter = EVIL
    spec = json.loads(kept.spec)
    spec["params"][EVIL] = {EVIL: [EVIL]}
    spec["data"]["bank"]["label"] = EVIL
    kept.spec = json.dumps(spec).encode()
    clean = set(Page(render_page(journal(trees=2))).tags)
    page = Page(render_page(kept))
    assert set(page.tags) <= clean
    assert not {name for name in page.attributes if name.startswith("on") or name == "src"}
    assert EVIL.replace("\u202e", "\ufffd") in page.text


def test_error_texts_are_text_and_never_markup():
    kept = journal(failed_after=2, paused_after=None)
    kept.status.reason.what = kept.status.reason.todo = EVIL
    kept.events[-1].state.reason.what = EVIL
    for event in kept.events:
        for metric in event.round.metrics:
            metric.split = metric.name = EVIL
    page = Page(render_page(kept))
    assert "script" not in page.tags
    assert "img" not in page.tags


def test_a_failed_job_says_why_and_shows_how_far_it_came():
    page = render_page(journal(failed_after=7, paused_after=3))
    text = Page(page).text
    assert "The job failed: telco sent 31 packages, its counts need 32" in text
    assert "To do: ask telco's operators for their log" in text
    assert "The job has no result. These are the metrics of tree 7." in part(page, "result")
    assert "come with the finished model; the job has none" in part(page, "curves")
    assert page.count("<polyline") == 5
    shown = part(page, "timeline")
    assert shown.index("Paused") < shown.index("Resumed") < shown.index("Failed")


def test_a_job_that_failed_before_its_first_tree_has_a_page_too():
    page = render_page(journal(failed_after=0, paused_after=None))
    assert "The job has not finished a tree." in part(page, "learning")
    assert "<polyline" not in page
    assert "trees of 25 0" in " ".join(Page(page).text.split())


def test_a_running_job_has_no_result_yet():
    kept = journal(failed_after=4, paused_after=None)
    del kept.events[-1]
    kept.status.state = "running"
    kept.status.ClearField("reason")
    page = render_page(kept)
    assert "The job has no result yet." in part(page, "result")
    assert 'role="alert"' not in page


def test_an_empty_journal_has_a_page():
    page = Page(
        render_page(JobJournal(status=JobStatus(id="j", name="n", state="waiting for approval")))
    )
    assert "No step has run." in page.text
    assert "No message was sent." in page.text


def test_what_the_guest_keeps_back_is_said_and_not_drawn():
    page = render_page(journal(told=(), paused_after=None))
    assert "bank's policy withholds the metrics of single rounds." in part(page, "learning")
    assert "bank's policy withholds these curves" in part(page, "curves")
    assert "No metrics: the guest's policy withholds them" in part(page, "result")


def test_regression_has_no_curves_of_two_classes_and_says_so():
    page = render_page(journal(objective="reg:squarederror", trees=4, paused_after=None))
    assert "the job's objective is reg:squarederror" in part(page, "curves")
    assert re.findall(r"<figcaption><b>(.*?)</b>", page) == ["rmse", "Seconds per tree"]


def test_one_round_is_a_point_and_not_a_line():
    page = render_page(journal(trees=1, paused_after=None))
    start = page.index("<figcaption><b>auc</b>")
    figure = page[start : page.index("</figure>", start)]
    assert figure.count('class="dot') == 2
    assert "nan" not in figure


def test_a_metric_that_is_not_finite_is_left_out_of_the_line():
    kept = journal(trees=3, paused_after=None)
    rounds = [event.round for event in kept.events if event.HasField("round")]
    rounds[1].metrics[0].value = float("nan")
    page = render_page(kept)
    assert not re.search(r'"[^"]*\bnan\b[^"]*"', page)
    assert "–" in part(page, "learning")


def test_many_parties_share_the_last_bar():
    page = render_page(journal(hosts=tuple(f"clinic-{i}" for i in range(30)), trees=1))
    assert "26 others, at most" in part(page, "time")
    assert "26 other links, at most" in part(page, "bytes")
    assert "other links" in part(page, "bytes")
    assert "clinic-0, clinic-1, clinic-2, clinic-3 and 26 more → bank" in part(page, "disclosure")


def test_a_protocol_of_another_version_still_has_its_page():
    kept = journal(trees=2, paused_after=None)
    kept.status.protocol = "from-the-future"
    assert "n_estimators" in part(render_page(kept), "settings")


def test_settings_are_flat_and_defaults_are_apart(full):
    shown = part(full, "settings")
    said, defaults = shown.split("Defaults (")
    assert "encryption.key_bits 2048" in said
    assert "validation.fraction 0.3" in said
    assert "max_depth 5" in said
    assert "reg_lambda 1.0" in defaults
    assert "max_depth" not in defaults


def test_lines_end_where_their_last_point_is():
    lines = [Line("a", ((0.0, 0.0), (10.0, 1.0)), 1), Line("b", ((0.0, 0.0), (10.0, 0.99)), 2)]
    drawn = charts.line_chart(
        LineChart("t", lines, Axis("x", (0.0, 10.0)), Axis("y", (0.0, 1.0)), end_labels=True)
    )
    svg = ElementTree.fromstring(drawn[drawn.index("<svg") : drawn.index("</svg>") + 6])
    ways = [line.get("points", "").split() for line in svg.iter("polyline")]
    assert float(ways[0][-1].split(",")[1]) == charts.TOP
    assert float(ways[0][0].split(",")[1]) == charts.WIDE[1] - charts.BOTTOM
    heights = [
        float(t.get("y", "")) for t in svg.iter("text") if t.get("class", "").startswith("strong")
    ]
    assert heights[1] - heights[0] >= charts.LABEL_GAP - 0.11


def test_long_lines_are_thinned_and_keep_both_ends():
    points = tuple((float(x), float(x % 7)) for x in range(5000))
    drawn = charts.line_chart(LineChart("t", [Line("a", points, 1)], Axis("x"), Axis("y")))
    way = re.findall(r'points="(.*?)"', drawn)[0].split()
    assert len(way) == charts.POINTS_MAX
    assert drawn.count("<title>") == charts.HITS_MAX
    assert "at 0<" in drawn
    assert "at 4999<" in drawn


def test_bars_are_in_proportion_and_never_wider_than_the_longest():
    drawn = charts.bar_list([Bar(5.0, 1), Bar(10.0, 2), Bar(0.0, 3)], most=10.0)
    assert re.findall(r'width="(.*?)%"', drawn) == ["50.00", "100.00"]
    drawn = charts.bar_list([Bar(10.0, 1, "ten")], most=10.0)
    assert f'width="{charts.BAR_SHARE:.2f}%"' in drawn
    assert 'aria-label="ten"' in drawn


# A job that continued a model


def behind_eight(**how):
    """The journal of a job whose model has eight rounds of an earlier one before its own."""
    kept = journal(**how)
    found = json.loads(kept.events[-1].finished.result)
    found |= {"trees": found["trees"] + 8, "earlier_rounds": 8}
    kept.events[-1].finished.result = json.dumps(found).encode()
    return kept


def test_rounds_of_an_earlier_model_are_told_and_drawn_apart():
    page = render_page(behind_eight(kept=21))
    assert "21 kept" in part(page, "learning")
    assert "29 kept" not in page
    assert "trees kept of 25" in page
    assert "rounds of the model before" in part(page, "result")


def test_a_whole_continuation_is_not_shown_as_one_that_stopped_early():
    page = render_page(behind_eight())
    assert "kept" not in part(page, "learning")
    assert "kept of" not in page
    assert "rounds of the model before" not in render_page(journal())


# A job with a forest in every round


def with_forest(forest, of_round=2, **how):
    """The journal of a job whose rounds have so many trees each, the result says."""
    params = {"forest": forest, **how.pop("params", {})}
    return journal(params=params, round_name="round", of_round=of_round, **how)


def ways_of(page: str) -> dict[str, list[tuple[float, float]]]:
    """The points of the section's charts in user units, by title."""
    start = page.index('<section id="forest"')
    drawn = page[start : page.index("</section>", start)]
    found = re.findall(r"<figcaption><b>(.*?)</b>.*?<polyline points=\"(.*?)\"", drawn)
    return {
        title: [(float(x), float(y)) for x, y in (point.split(",") for point in way.split())]
        for title, way in found
    }


def in_values(way, top: float) -> list[float]:
    """Heights in user units as values, where the axis goes from nought to `top`."""
    floor = charts.WIDE[1] - charts.BOTTOM
    return [top * (floor - y) / (floor - charts.TOP) for _, y in way]


def test_a_moving_forest_is_drawn_round_by_round():
    dynamic = {"n_trees": [5, 2], "subsample": [0.1, 0.3]}
    page = render_page(with_forest({"dynamic": dynamic}, trees=5))
    ways = ways_of(page)
    assert list(ways) == ["Trees per round", "Share of the rows that a tree sees"]
    trees, share = ways.values()
    assert in_values(trees, 5.0) == pytest.approx([5, 5, 5, 4, 2], abs=0.02)
    sines = [0.0, 0.382683, 0.707107, 0.92388, 1.0]  # of 0, π/8, … π/2
    assert in_values(share, 0.3) == pytest.approx([0.1 + 0.2 * one for one in sines], abs=0.001)
    for way in (trees, share):
        steps = [right - left for (left, _), (right, _) in pairwise(way)]
        assert steps == pytest.approx([(way[-1][0] - way[0][0]) / 4] * 4, abs=0.11)
        assert 0.0 < way[0][0] < way[-1][0] < charts.WIDE[0]
    shown = part(page, "forest")
    assert "21 trees in 5 rounds, which together see as many rows as" in shown
    assert "4 4 28.5 % 5 2 30.0 %" in shown


def test_a_still_forest_is_a_level_line():
    ways = ways_of(render_page(with_forest({"n_trees": 4, "subsample": 0.5}, trees=6)))
    assert all(len({y for _, y in way}) == 1 for way in ways.values())
    assert in_values(ways["Trees per round"], 4.0) == pytest.approx([4.0] * 6)


def test_classes_count_in_the_trees_of_a_round():
    classes = {"objective": "multi:softprob", "num_class": 3, "eval_metric": ["mlogloss"]}
    page = render_page(with_forest({"n_trees": 4}, of_round=12, trees=6, params=classes))
    assert "72 trees in 6 rounds" in part(page, "forest")


def test_one_forest_is_two_points():
    page = render_page(with_forest({"n_trees": 2}, trees=1, paused_after=None))
    assert [len(way) for way in ways_of(page).values()] == [1, 1]
    assert "nan" not in page[page.index('id="forest"') : page.index('id="curves"')]


def test_where_a_forest_stopped_early_is_drawn_into_its_schedule():
    page = render_page(with_forest({"n_trees": 2}, kept=21))
    assert part(page, "forest").count("21 kept") == 2
    assert "kept" not in part(render_page(with_forest({"n_trees": 2})), "forest")


def test_a_job_without_a_forest_has_no_schedule(full):
    assert 'id="forest"' not in full
    kept = with_forest({"n_trees": 2})
    kept.status.protocol = "from-the-future"
    assert 'id="forest"' not in render_page(kept)
    kept = with_forest({"n_trees": 0})  # which this version refuses
    assert 'id="forest"' not in render_page(kept)


def test_the_schedule_can_be_reached():
    page = Page(render_page(with_forest({"n_trees": 2})))
    there = {name for name, _ in SECTIONS} - {"audit"}
    assert {link.removeprefix("#") for link in page.links} == there


def test_rounds_of_several_trees_are_called_rounds():
    page = render_page(with_forest({"n_trees": 2}, failed_after=7, paused_after=3))
    assert "The job has no result. These are the metrics of round 7." in part(page, "result")
    assert "Seconds per round" in page
    assert "rounds of 25 7" in " ".join(Page(page).text.split())
    assert "a round (median)" in page


def test_trees_and_rounds_of_a_result_are_told_apart():
    kept = with_forest({"n_trees": 2})
    text = " ".join(Page(render_page(kept)).text.split())
    assert "trees 50" in text
    assert "rounds of the model 25" in text
    took = json.loads(kept.events[-1].finished.result)["seconds"]["per_tree"]
    assert f"a tree (median) {units.in_seconds(took)}" in text
    assert "rounds kept of 25 21" in " ".join(
        Page(render_page(with_forest({"n_trees": 2}, kept=21))).text.split()
    )
    out = io.StringIO()
    result = json.loads(kept.events[-1].finished.result)
    Console(file=out, width=200).print(progress.result_summary(result))
    assert "finished with 50 trees of 25 rounds in" in out.getvalue()


def test_released_sums_stand_beside_the_limits_of_their_owners():
    metered = journal(kept=21)
    metered.events.add(at=metered.events[0].at).warned.CopyFrom(
        Warned(party="telco", warning="by the end, bank may hold 0.13 sums")
    )
    told = metered.events[-2].finished.told.released
    told.add(party="telco", planned=0.08, counted=0.07, before=0.05, warn=0.06, max=0.15)
    told.add(party="shop", planned=0.02, counted=0.01, warn=float("inf"), max=float("inf"))
    for host, placed in zip(told[-2:], (1.0, 0.4), strict=True):
        host.placed.CopyFrom(PlacedRows(planned=1.0, counted=placed, max=1.0))
    page = render_page(metered)
    shown = part(page, "disclosure")
    assert "Released sums per bin and row" in shown
    assert "telco 0.080 0.070 0.050 100% 0.120 warned above 0.06 refused above 0.15" in shown
    assert "shop 0.020 0.010 – 40% 0.010" in shown
    assert "Warning about telco by the end, bank may hold" in part(page, "timeline")
    assert "Released sums" not in part(render_page(journal(kept=21)), "disclosure")


def test_a_warning_is_shown_once_wherever_it_was_said():
    warned = journal(kept=21)
    finished = warned.events[-1].finished
    told = json.loads(finished.result) | {"warnings": ["said at the end", "said by both"]}
    finished.result = json.dumps(told).encode()
    warned.status.warnings.append("said by both")
    page = render_page(warned)
    fold = page[page.index('<details class="warned"><summary>2 warnings</summary>') :]
    fold = fold[: fold.index("</details>")]
    assert fold.count("said by both") == fold.count("said at the end") == 1


def stopped_early(kept: int, last: int, patience: int) -> JobJournal:
    """The journal of a job that early stopping ended after `last` of 25 trees."""
    stopped = journal(kept=kept, paused_after=None, params={"early_stopping_rounds": patience})
    fitting = [e for e in stopped.events if not e.round.progress.done > last]
    del stopped.events[:]
    stopped.events.extend(fitting)
    return stopped


def test_a_report_and_the_terminal_say_where_early_stopping_ended_the_job():
    story = read_story(stopped_early(17, 22, 5))
    words = stop_in_words(story)
    assert words == "stopped at 22 of 25 trees: no better for 5 rounds; the first 17 are kept"
    assert f"Training {words}." in part(render_page(stopped_early(17, 22, 5)), "result")
    out = io.StringIO()
    Console(file=out, width=200).print(progress.result_summary({"name": "credit"}, words))
    assert words in out.getvalue()
    assert stop_in_words(read_story(stopped_early(25, 25, 5))) == ""
    assert stop_in_words(read_story(journal(kept=21))) == ""


REHEARSAL = {
    "metric": "auc",
    "guest_alone": 0.71,
    "federated": 0.78,
    "accepted": False,
    "refused_by": "telco: disclosure_max",
    "jobs_left": 0,
    "change": None,
    "cost": None,
    "placed": {"telco": 0.4},
}


def rehearsed(**changes) -> JobJournal:
    """The journal of a job on one machine, with its rehearsal."""
    ended = journal()
    finished = ended.events[-1].finished
    told = json.loads(finished.result) | {"rehearsal": REHEARSAL | changes}
    finished.result = json.dumps(told).encode()
    return ended


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "get a better model: auc 0.7800, against 0.7100 for the guest alone."),
        ({"federated": 0.7}, "get a worse model: auc 0.7000, against 0.7100"),
        ({"metric": "logloss"}, "get a worse model: logloss 0.7800"),
        ({"alone": {"bank": 0.7, "shop": 0.6}}, "against 0.6500 for the average party alone."),
    ],
)
def test_the_first_thing_on_a_report_is_what_the_federation_brings(changes, words):
    page = render_page(rehearsed(**changes))
    assert words in part(page, "benefit")
    assert page.index('id="benefit"') < page.index('class="figures"') < page.index("<nav")
    assert "telco would refuse this job (disclosure_max)." in part(page, "benefit")


@pytest.mark.parametrize("unknown", [{"federated": None}, {"guest_alone": None}])
def test_a_report_without_both_models_compares_nothing(unknown):
    assert 'id="benefit"' not in render_page(rehearsed(**unknown))


FOUND = [
    Finding("sums of bins", "all", "precision", 0.211, 0.031, 0.4, 12),
    Finding("row groupings", "", "auc", 0.81, 0.5, 0.84, 10, about=EVIL),
]


def test_what_an_audit_found_stands_beside_chance_and_can_be_reached(full):
    page = render_page(journal(kept=21), findings=FOUND)
    assert "#audit" in Page(page).links
    assert 'id="audit"' not in full
    shown = part(page, "audit")
    assert "linked across all trees precision 0.211 0.031 by chance 0.400 12" in shown
    assert "of 100 rows that it names for one of our bins 21 are right" in shown
    assert "<script>" not in page


def test_an_audit_has_a_page_of_its_own():
    page = audit_page("credit-1a2b3c4d", EVIL, FOUND)
    assert "<script>" not in page
    assert Page(page).ids == ["audit", "audit-title"]
    assert "default-src" in page
    assert "Audit of credit-1a2b3c4d – fedboost" in Page(page).text


def test_noise_is_told_host_by_host_and_its_absence_as_well():
    noisy = journal(kept=21)
    told = noisy.events[-1].finished.told.privacy
    told.add(party="telco", noise=True, epsilon_element=4.0, epsilon_row=40.0, moved=0.2156)
    told.add(party="shop", noise=False)
    shown = part(render_page(noisy), "disclosure")
    assert "Local differential privacy, given the cut points" in shown
    assert "telco 4 40 21.6%" in shown
    assert "shop no bound no bound 0.0%" in shown
    assert "Local differential privacy" not in part(render_page(journal(kept=21)), "disclosure")
