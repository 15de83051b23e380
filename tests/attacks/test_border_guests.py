"""Guests that compare notes: each would get a budget of its own of one table's sums.

The defence is `Policy.together`, by which what all guests got of a table adds up, by any name.
"""

import os
from contextlib import closing, suppress
from dataclasses import replace

import pytest

from fedboost.flow import DisclosureInfo
from fedboost.ground.errors import PolicyError
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.ledger.rows import Noted
from fedboost.runtime.policy.account import Account
from fedboost.runtime.policy.same_tables import OwnTables
from fedboost.runtime.policy.spending import Spending
from fedboost.runtime.store.store import Store
from tests.support import accounts

MOST, EACH = 0.15, 0.1  # of the table; what a message tells
GUESTS = ("bank", "shop")


def told(folder, names=("credit", "credit"), **keys):
    """What the guests get together, each in a job on a name of one table."""
    policy = Policy(disclosure_max=MOST, **keys)
    with Store(folder, "party telco") as store, closing(Account(store.database)) as account:
        own = OwnTables(account.changes, dict)
        spending, got = Spending("telco", lambda: policy, own, account), 0.0
        for guest, name in zip(GUESTS, names, strict=True):
            spending._jobs[guest] = replace(accounts.SUMS, job=guest, guest=guest, dataset=name)
            envelope = Envelope(job=guest, receiver=guest, payload_sha256=os.urandom(32))
            about = DisclosureInfo(charges=(accounts.sums(EACH),))
            with suppress(PolicyError), account.changes() as sql:
                spending.charge([Noted(envelope, envelope, about)], sql)
                got += EACH
        return got


@pytest.mark.parametrize("names", [("credit", "credit"), ("credit", "loans")])
def test_guests_that_compare_notes_get_one_budget(tmp_path, names):
    assert told(tmp_path, names) == EACH


def test_guests_that_compare_notes_get_a_budget_each_where_each_counts_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(Policy, "together", lambda _, guest: guest.__eq__)
    assert told(tmp_path / "one by one") > MOST
    monkeypatch.undo()
    assert told(tmp_path / "the owner says so", disclosure_apart=GUESTS) > MOST
