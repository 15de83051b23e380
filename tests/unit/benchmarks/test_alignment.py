"""The alignment benchmark draws the sets that it says, and counts what a line and a floor are."""

import numpy as np
import pytest

from benchmarks import alignment, alignment_jobs
from benchmarks.alignment_jobs import CASES, ECDH, OPRF, Case
from benchmarks.links import Link

SMALL = Case("3_hosts", 40, (60, 50, 70), 30)


def row(method, sizes, seconds, **more):
    parties = ("guest", "host1", "host2")[: len(sizes)]
    return {
        "case": "1m", "method": method, "sizes": dict(zip(parties, sizes, strict=True)),
        "seconds": seconds, "cpu": dict(zip(parties, (1.0, 2.0, 3.0), strict=False)),
        "peak": dict(zip(parties, (1e9, 2e9, 3e9), strict=False)), "link": None,
        "kinds": {"BlindedSet of guest": 300}, "floors": {"clear": 0.5}, **more,
    }  # fmt: skip


def test_all_share_the_common_ids_and_no_two_any_other():
    sets = [set(SMALL.numbers(place).tolist()) for place in range(4)]
    assert [len(one) for one in sets] == [40, 60, 50, 70]
    assert len(set.intersection(*sets)) == 30
    assert len(set.union(*sets)) == 30 + 10 + 30 + 20 + 40
    assert SMALL.numbers(0).tolist() != sorted(SMALL.numbers(0).tolist())


def test_cases_are_cut_in_proportion():
    uneven = next(case for case in CASES if case.name == "uneven").cut(1000)
    assert (uneven.guest, uneven.hosts, uneven.common) == (10, (1000,), 5)
    assert SMALL.cut(1000) == SMALL


def test_the_floor_in_the_clear_finds_the_common_ids():
    assert alignment_jobs.in_clear(SMALL)["seconds"] > 0


def test_a_multiplication_takes_microseconds_and_each_party_does_one_an_id():
    assert 1e-6 < alignment_jobs.multiplication_s() < 1e-2
    assert alignment_jobs.multiplications({"guest": 10, "host": 20}) == 60


def test_the_busiest_line_counts_both_links_of_a_party():
    sent = {"guest->host1": 1000, "guest->host2": 2000, "host1->guest": 500, "host2->guest": 600}
    assert alignment_jobs.line_seconds(sent, Link(8000.0, 0.0)) == 3.0


@pytest.mark.parametrize("text", ["20mbit,50ms", "0.5mbit,0ms"])
def test_a_link_is_read_as_it_is_written(text):
    assert str(Link.parse(text)) == text


@pytest.mark.parametrize("text", ["", "20mbit", "20mbit,50ms,", "fastmbit,1ms"])
def test_what_is_no_link_is_refused(text):
    with pytest.raises(ValueError, match="expected for example"):
        Link.parse(text)


def test_figures_compare_methods_by_the_id():
    rows = [
        row(OPRF, (10, 10, 30), 3.0, link="8mbit,50ms", floors={"clear": 0.5, "link": 2.0}),
        row(ECDH, (1, 1, 3), 30.0),
    ]
    found = alignment.figures(rows)
    assert found["times_faster_an_id.1m"] == pytest.approx(100.0)
    assert found["cpu_host.1m.oprf"] == 3.0
    assert found["gb_host.1m.oprf"] == 3.0
    assert found["bytes_per_id.1m.oprf"] == 10.0
    assert found["target_link.1m.oprf"] == pytest.approx(12.4)
    assert "target_link.1m.ecdh" not in found
    assert np.isfinite(list(found.values())).all()


def test_a_job_says_its_method_unless_it_leaves_it_open():
    assert alignment_jobs.job(SMALL, alignment_jobs.UNSAID).alignment is None
