"""Every step has a title for people, and no title is left over."""

from fedboost import protocols
from fedboost.report.steps import TITLES, step_title

WAITS = {"approval", "its return", "begin", "open", "close", "finish"}  # of no protocol


def test_every_step_has_a_title_and_every_title_a_step():
    flows = (protocols.load_protocol(name).flow for name in protocols.all_names())
    assert {step.name for flow in flows for step in flow} | WAITS == set(TITLES)


def test_a_title_is_a_phrase_and_no_name_of_a_function():
    for name, title in TITLES.items():
        assert "_" not in title, name
        assert title[0].islower(), name


def test_an_unknown_step_is_shown_in_words():
    assert step_title("sum_of_later_versions") == "sum of later versions"
