"""Shared work: results are the same with threads, which take parts of it where they pay."""

from dataclasses import replace

import numpy as np
import pytest

from fedboost.core import histogram, local, threads
from fedboost.core.rules import Rules
from fedboost.ground.errors import JobError
from fedboost.runtime.process.threads import ThreadWorkers
from tests.unit.core.test_growth import job


def test_work_is_cut_where_it_pays_and_results_keep_their_order(monkeypatch):
    def parts(crew, items, work):
        return threads.run_shared(crew, lambda own: own, lambda part: (part,), items, work)

    with ThreadWorkers(3) as crew:
        assert parts(crew, 10, 0) == parts(None, 10, 1 << 30) == [slice(0, 10)]
        assert parts(crew, 10, 2 * threads.WORK_MIN) == [slice(0, 5), slice(5, 10)]
        assert parts(crew, 2, 1 << 30) == [slice(0, 1), slice(1, 2)]
        assert [part.start for part in parts(crew, 9, 1 << 30)] == [0, 3, 6]


def test_an_error_of_a_thread_is_raised():
    def fails(part):
        raise JobError(f"part {part.start} fails")

    with ThreadWorkers(2) as crew, pytest.raises(JobError, match="part"):
        threads.run_shared(crew, fails, lambda part: (part,), 10, 1 << 30)


@pytest.mark.parametrize("outputs", [1, 2])
def test_sums_encodings_margins_and_trees_are_the_same_on_threads(outputs, monkeypatch):
    monkeypatch.setattr(threads, "WORK_MIN", 1)
    own = job(3, outputs, (1,))
    bins = own.rules.binning.transform(own.values)
    columns = np.array([0, 1, 3], np.int32)
    rows = [own.rows[::2], own.rows[1::3]]
    draw = np.random.default_rng(4)
    g, h = draw.uniform(-1, 1, (2, len(bins), outputs)) * 0.01
    tree = local.grow_tree(own.growing())
    with ThreadWorkers(2) as crew:
        for crews in (None, crew):
            rules = Rules(own.rules.params, own.rules.binning, own.rules.fixed, threads=crews)
            sums = histogram.build(bins, rows, own.gh, 9, columns, crews)
            encoded = rules.fixed.encode(g, abs(h), None, crews)
            margin = np.zeros((len(bins), outputs))
            tree.add_to_margin(margin, bins, rules.binning.missing, crews)
            again = local.grow_tree(replace(own, rules=rules).growing())
            found = [sums, encoded, margin, *again.to_arrays().values()]
            if crews is None:
                alone = found
    assert all(np.array_equal(one, other) for one, other in zip(alone, found, strict=True))
    with ThreadWorkers(2) as crew, pytest.raises(JobError, match="left the bounds"):
        own.rules.fixed.encode(g + 1e9, abs(h), None, crew)
