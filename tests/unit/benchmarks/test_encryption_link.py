"""Trees over a line: cases and splits, what is left out, lines of one machine, figures, tables."""

import json
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import encryption, encryption_link, encryption_link_tables, encryption_trips, tables
from benchmarks.encryption_link import CASES, LATTICE, PAILLIER, SPLITS, Case
from benchmarks.encryption_plan import PLAIN, Plan
from benchmarks.links import Lines, Link
from fedboost.ground.errors import ConfigError

LINK = Link.parse_round_trip("20mbit,50ms")
QUICK = Plan.of(quick=True, link=LINK)
UNKNOWN = Case({"scheme": "lattice", "answers": "shouted"})


def toy(name="give_credit", columns=("age", "x", "DebtRatio", "MonthlyIncome")):
    draw = np.random.default_rng(5)
    values = np.asfortranarray(draw.normal(size=(60, len(columns))).astype(np.float32))
    y = (values.sum(axis=1) > 0.0).astype(np.int64)
    return tables.Table(name, np.arange(60), y, values, columns)


def spent(wall_s, sent=1e6):
    both = {"guest": 1.0, "host": wall_s}
    return {"trees": 1, "wall_s": wall_s, "sent": sent, "cpu_s": both,
            "peak": {"guest": 3e8, "host": 4e8}, "others": 0.0, "load": [0.1]}  # fmt: skip


@pytest.fixture
def measured(monkeypatch):
    """The rows of a data set whose cases take as many seconds as their names have letters."""
    asked = []

    @contextmanager
    def daemons(table, parts, case, plan):
        (name,) = (name for name, own in CASES.items() if own is case)

        def train(trees):
            asked.append((name, trees))
            return spent(float(len(name)))

        yield train

    monkeypatch.setitem(CASES, "lattice, loud", UNKNOWN)
    monkeypatch.setattr(encryption_link, "_daemons", daemons)
    monkeypatch.setattr(tables, "load", lambda name: toy())
    plan = replace(QUICK, link_repeats=2, link_trees=3)
    return encryption_link.measure("give_credit", plan), asked


def test_cases_take_turns_on_daemons_of_their_own(measured):
    rows, asked = measured
    names = list(dict.fromkeys(name for name, _ in asked))
    assert {PLAIN, PAILLIER, LATTICE} <= set(names)
    assert [name for name, _ in asked] == 2 * names
    assert all(trees == 1 + 3 * CASES[name].cycle for name, trees in asked)
    assert len([row for row in rows if row["what"] == "link"]) == len(asked)


def test_a_case_whose_settings_nobody_knows_is_left_out_and_says_why(measured):
    rows, asked = measured
    assert "lattice, loud" not in {name for name, _ in asked}
    with pytest.raises(ConfigError):
        encryption_link.job(toy(), 1, UNKNOWN, 2)
    (left_out,) = (row for row in rows if row.get("case") == "lattice, loud")
    assert "answers" in left_out["why"]
    (drawn,) = encryption_link_tables.shown(rows)
    assert f"Left out: lattice, loud ({left_out['why']})." in drawn.note


def test_figures_are_seconds_bytes_and_how_many_times_a_lattice_is_faster(measured):
    rows, _ = measured
    trips = {"what": "trips", "data": "give_credit", "coordinator": "the guest's",
             "a_layer": 2.0, "a_tree_more": 4.0}  # fmt: skip
    found = encryption_link_tables.figures([*rows, trips])
    assert found["link_s.give_credit.lattice"] == len(LATTICE)
    assert found["link_mb.give_credit.paillier-2048"] == 1.0
    ratio = found["link_ratio.give_credit.paillier.lattice"]
    assert ratio == pytest.approx(len(PAILLIER) / len(LATTICE))
    assert found["round_trips.the_guests"] == 2.0
    drawn = encryption_link_tables.shown([*rows, trips])
    assert drawn[-1].rows == [("the guest's", "2.00", "4.0")]
    assert {len(row) for row in drawn[0].rows} == {len(drawn[0].heads)}


def test_the_host_has_the_first_ten_columns_or_the_last_thirteen():
    table = toy("default_credit", (*tables.HOST_COLUMNS["default_credit"],
                                   *(f"c{i}" for i in range(13))))  # fmt: skip
    first, last = (split.of(table) for split in SPLITS.values() if split.data == table.name)
    assert first["host"] == table.columns[:10] == last["guest"]
    assert last["host"] == table.columns[-13:] == first["guest"]


@pytest.mark.some(3, of="benchmarks that train")
def test_what_a_tree_takes_comes_from_those_behind_the_first():
    """On real daemons without latency."""
    parts = {"guest": ("x",), "host": ("age", "DebtRatio")}
    plan = replace(QUICK, link=Link(1e12, 0.0), depth=2)
    with encryption_link._daemons(toy(), parts, CASES[PLAIN], plan) as train:
        found = train(3)
    assert found["trees"] == 2
    assert found["wall_s"] > 0
    assert 60 * 2 < found["sent"] < 100_000
    assert set(found["cpu_s"]) == set(found["peak"]) == {"guest", "host"}


def test_round_trips_are_what_a_layer_waits_more_for_on_a_longer_line(monkeypatch):
    def seconds(table, where, rtt_s, trees):
        calls = 7 if where == "of its own" else 3
        return {d: 0.2 + d * (0.01 + 2 * rtt_s) + calls * rtt_s for d in encryption_trips.DEPTHS}

    monkeypatch.setattr(encryption_trips, "_trees", seconds)
    monkeypatch.setattr(tables, "load", lambda name: toy())
    own, guests = encryption_trips.measure("give_credit", QUICK)
    assert own["a_layer"] == pytest.approx(2.0)
    assert (own["a_tree_more"], guests["a_tree_more"]) == pytest.approx((7.0, 3.0))


def test_daemons_on_one_machine_share_its_lines_and_have_none_between_them():
    lines = Lines(LINK, together=("coordinator", "guest"))
    assert lines.of("coordinator", "host") == lines.of("guest", "host")
    assert not lines.are_between("guest", "coordinator")
    assert lines.are_between("guest", "host")


def test_a_line_is_said_by_what_goes_there_and_back():
    assert Link(20e6, 0.025) == LINK
    assert LINK.words == "20 Mbit/s each way, 50 ms there and back"
    with pytest.raises(ValueError, match="for example"):
        Link.parse_round_trip("fast")


def test_parts_over_a_line_are_measured_with_one_alone(monkeypatch, tmp_path):
    asked = encryption.BENCHMARK.options(["--link", "20mbit,50ms"])
    assert (asked.link, tuple(asked.part)) == (LINK, encryption.LINK_PARTS)
    assert not set(encryption.BENCHMARK.options([]).part) & set(encryption.LINK_PARTS)
    with pytest.raises(SystemExit):
        encryption.BENCHMARK.options(["--part", "link"])

    def measure(name, plan):
        return [{"what": "link", "data": name, "split": name, "case": PLAIN,
                 "rows": 60, "host_columns": 2, **spent(2.0)}]  # fmt: skip

    monkeypatch.setitem(encryption.MEASURES, "link", (("give_credit",), measure))
    file = tmp_path / "record.json"
    given = ["--quick", "--link", "20mbit,50ms", "--part", "link", "--record", str(file)]
    encryption.BENCHMARK.main(given)
    record = json.loads(file.read_text())
    assert record["name"] == encryption.LINKED
    assert record["figures"] == {"link_s.give_credit.plain": 2.0, "link_mb.give_credit.plain": 1.0}
    assert record["settings"]["link"] == LINK.words
