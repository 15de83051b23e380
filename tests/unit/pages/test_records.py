"""What the owner's pages draw of accounts."""

from fedboost.pages import records
from fedboost.report.html import join
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.policy.account import AccountEntry
from fedboost.runtime.store.store import JobState


def entry(job, dataset, *, planned=0.0, epsilon=0.0):
    return AccountEntry(
        job, "", dataset, "", "bank", "p", 10, planned, epsilon, state=JobState.RUNNING
    )


def test_the_noise_of_a_jobs_own_data_set_is_drawn_against_its_limit():
    entries = [
        entry("a", "calls", epsilon=2.0), entry("b", "calls", epsilon=1.0),
        entry("c", "calls", planned=0.1), entry("d", "loans", epsilon=5.0),
    ]  # fmt: skip
    (drawn,) = records.noise_totals(entries, "calls", Policy(epsilon_row_max=4.0))
    assert "ε 3 per row" in join(drawn)
    assert "refused above 4" in join(drawn)
    assert records.noise_totals([entry("c", "calls", planned=0.1)], "calls", Policy()) == []
