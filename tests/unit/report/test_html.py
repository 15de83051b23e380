"""HTML that cannot be injected, numbers as people read them, and axes."""

import math
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.report import units
from fedboost.report.html import Html, join, tag, to_html
from fedboost.report.ticks import tick_labels, tick_values, widened_range

finite = st.floats(-1e12, 1e12, allow_nan=False)


class Reader(HTMLParser):
    """What a browser would take out of one element."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[dict[str, str | None]] = []
        self.words = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append(dict(attrs))

    def handle_data(self, data):
        self.words += data


# Browsers read these as other characters, and so do we: they are replaced.
plain = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cf")))


@given(plain, plain)
def test_a_browser_reads_back_what_went_in_and_no_more(content, attribute):
    read = Reader(tag("p", content, title=attribute))
    assert read.tags == ["p"]
    assert read.words == content
    assert read.attributes == [{"title": attribute}]


def test_html_is_not_escaped_twice():
    assert tag("p", tag("b", "<")) == "<p><b>&lt;</b></p>"
    assert isinstance(join("a", Html("<br/>")), Html)


def test_text_that_is_added_to_html_is_escaped():
    assert to_html(Html("<b>") + "<i>") == "<b>&lt;i&gt;"


def test_absent_attributes_are_left_out_and_names_get_their_hyphens():
    assert tag("a", class_="x", aria_label="y", href=None) == '<a class="x" aria-label="y"></a>'


@pytest.mark.parametrize("mark", ["\x00", "\x1b", "\x85", "\u202e", "\u2066", "\ud800", "\u2028"])
def test_characters_that_hide_or_turn_text_are_replaced(mark):
    assert to_html(f"a{mark}b") == "a\ufffdb"
    to_html(f"a{mark}b").encode("utf-8")


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (1500, "1.5 KB"),
        (999_960, "1 MB"),
        (34_120_000, "34.1 MB"),
        (2_000_000_000, "2 GB"),
        (7.5e15, "7500 TB"),
    ],
)
def test_bytes(count, said):
    assert units.in_bytes(count) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0 s"),
        (0.00001, "< 0.1 ms"),
        (0.0032, "3.2 ms"),
        (0.32, "320 ms"),
        (0.9999, "1 s"),
        (4.211, "4.21 s"),
        (59.96, "1 min 00 s"),
        (200.4, "3 min 20 s"),
        (3599.9, "1 h 00 min"),
        (7500.0, "2 h 05 min"),
        (float("nan"), "–"),
        (-1.0, "–"),
    ],
)
def test_seconds(seconds, said):
    assert units.in_seconds(seconds) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.84314, "0.8431"), (0.0, "0.0000"), (12.3456, "12.35"), (0.00001234, "1.234e-05"),
     (123456.78, "123,456.8"), (float("nan"), "–"), (float("inf"), "–")],
)  # fmt: skip
def test_metrics(value, said):
    assert units.metric_text(value) == said


def test_shares_plurals_and_moments():
    assert units.in_percent(1, 4) == "25.0 %"
    assert units.in_percent(1, 4000) == "< 0.1 %"
    assert units.in_percent(0, 4) == "0.0 %"
    assert units.in_percent(1, 0) == "–"
    assert units.plural(1, "tree") == "1 tree"
    assert units.plural(1200, "tree") == "1,200 trees"
    assert units.date_and_time(1_772_442_000.0) == "2026-03-02 09:00:00"
    assert (
        units.date_and_time(0.0)
        == units.date_and_time(1e300)
        == units.date_and_time(float("nan"))
        == "–"
    )


@given(finite, finite, st.integers(2, 9), st.booleans())
def test_ticks_are_few_round_evenly_spaced_and_inside(low, width, most, whole):
    high = low + abs(width)
    if not high - low > 1e-9 * max(1.0, abs(low), abs(high)):
        return
    found = tick_values(low, high, most, whole=whole)
    slack = 1e-6 * (high - low) + 1e-9 * max(abs(low), abs(high))
    assert len(found) <= most
    assert all(low - slack <= value <= high + slack for value in found)
    gaps = [b - a for a, b in pairwise(found)]
    assert all(math.isclose(gap, gaps[0], rel_tol=1e-3) for gap in gaps)
    if whole:
        assert all(value == round(value) for value in found)


@given(finite, st.floats(1e-3, 1e6))
def test_an_axis_has_at_least_two_ticks(low, width):
    if abs(low) < 1e6:
        assert len(tick_values(low, low + width, 6)) >= 2


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.0, 1.0, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0.7312, 0.8562, ["0.74", "0.76", "0.78", "0.80", "0.82", "0.84"]),
        (1.0, 25.0, ["5", "10", "15", "20", "25"]),
        (0.2, 1.3, ["0.2", "0.4", "0.6", "0.8", "1.0", "1.2"]),
        (0.0, 12_000.0, ["0", "5,000", "10,000"]),
    ],
)
def test_labels_of_an_axis(low, high, said):
    assert tick_labels(tick_values(low, high, 6)) == said


@given(finite)
def test_one_value_gets_a_range_around_it(value):
    low, high = widened_range(value, value)
    assert low < value < high
