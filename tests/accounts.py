"""What one job may tell of a data set, as a party's account notes it."""

from fedboost.runtime.account import Entry

SUMS = Entry(
    job="j1", at="", dataset="credit", guest="bank", protocol="secureboost", rows=1000,
    planned=0.08, round=0.004, counted=0.0, epsilon=0.0, told=0, state="",
)  # fmt: skip
