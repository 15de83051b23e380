"""A head that the coordinator keeps back, in a job that goes on without hosts that are gone.

So that what the host has sent is held to no signature. The defence is `Heads._has_stated`: whoever
has sent something since was there.
"""

import pytest

from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.ledger.signed_heads import SignedHeads
from tests.unit.runtime.ledger.test_signed_heads import BANK, TELCO, Town


@pytest.fixture(autouse=True)
def goes_on(monkeypatch):
    """Heads of hosts may be missing, as far as each party judges by the job's params."""
    monkeypatch.setattr(SignedJob, "goes_on", True)


def without(whose):
    """A coordinator that brings all heads of the second round but one."""

    def spoil(party, name, request):
        if name == "commit" and request.round == 2 and party != whose:
            kept = [head for head in request.heads if head.party != whose]
            del request.heads[:]
            request.heads.extend(kept)
        return request

    return spoil


@pytest.mark.parametrize("whose", [BANK, TELCO], ids=["guest", "host"])
def test_the_head_of_who_is_there_is_not_kept_back(tmp_path, whose):
    status = Town(tmp_path).run(without(whose)).status
    assert status.state == "failed"
    assert f"brought no head of the ledger of {whose}" in status.reason.what


def test_the_head_of_who_is_there_is_kept_back_where_any_may_be_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(SignedHeads, "_has_stated", lambda *_: False)
    for whose in (BANK, TELCO):
        folder = tmp_path / whose
        folder.mkdir()
        assert Town(folder).run(without(whose)).status.state == "finished"
