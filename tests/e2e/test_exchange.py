"""The echo protocol over real links: many parts, large messages, several receivers, all counted."""

from typing import Any

import pytest

from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.party.stage import step_work
from tests.e2e import world

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("town")]

SIZES: dict[str, dict[str, Any]] = {
    "many-parts": {"rounds": 2, "parts": 64, "numbers": 10},
    "large": {"rounds": 1, "parts": 3, "numbers": 1 << 17},
    "many-large": {"rounds": 1, "parts": 16, "numbers": 1 << 16},
}


def rows(town, party, id_):
    ledger = Ledger(town.store(party) / "store.sqlite", read_only=True)
    try:
        return ledger.rows(id_)
    finally:
        ledger.close()


def links(town, id_, direction):
    """(sender, receiver, step, hash) of everything that left or came, sorted."""
    found = []
    for party in ("bank", "telco", "shop"):
        for row in rows(town, party, id_):
            ends = (party, row.peer) if row.direction == "out" else (row.peer, party)
            if row.direction == direction:
                found.append((*ends, row.kind, row.sha256, row.bytes))
    return sorted(found)


@pytest.mark.parametrize("size", SIZES)
def test_every_part_reaches_every_host_once_and_both_ledgers_say_so(town, size):
    params = SIZES[size]
    journal = world.run(town, world.echo(**params))
    found = world.result(journal)
    id_ = journal.status.id
    calls = params["rounds"] * params["parts"]
    out, came = links(town, id_, "out"), links(town, id_, "in")
    assert out == came
    assert len(out) == 2 * calls + 2 * params["rounds"]
    for host in ("telco", "shop"):
        called = [link for link in out if link[:2] == ("bank", host)]
        assert len(called) == calls
        assert sum(link[4] for link in called) == found["bytes"][f"bank->{host}"]
        assert found["bytes"][f"bank->{host}"] >= 8 * calls * params["numbers"]
    rounds = [e.round for e in journal.events if e.WhichOneof("what") == "round"]
    assert [r.progress.done for r in rounds] == list(range(1, params["rounds"] + 1))


def test_the_sizes_put_pressure_on_the_stream():
    """A stream longer than what may be in flight and lie at the receiver together."""
    assert SIZES["many-parts"]["parts"] > 4 * step_work.PARTS_IN_FLIGHT_MAX
    assert 8 * SIZES["many-large"]["numbers"] * SIZES["many-large"]["parts"] >= 8 << 20


def test_several_jobs_share_the_daemons(town):
    ids = [world.submit(town, world.echo(rounds=5, parts=8, numbers=1000)) for _ in range(3)]
    for id_ in ids:
        world.watch(town, id_)
        world.result(world.call(town, "journal", id_))
        assert links(town, id_, "out") == links(town, id_, "in")
