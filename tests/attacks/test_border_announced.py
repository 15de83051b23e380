"""What a peer announces: it is bounded by our own limits before it is kept.

Candidates that no table has, columns of one bucket, messages that wait, made-up ids.
"""

import sys
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest

from fedboost.crypto.oprf.sizes import OprfSizes, announced_size
from fedboost.encrypted.cells.candidates import Shape
from fedboost.encrypted.cells.shapes import write_shapes
from fedboost.encrypted.guest.offers import HOST_COLUMNS_MAX
from fedboost.ground.errors import FedboostError, PeerError
from fedboost.ground.workers import Serial
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.protocols.federboost_vertical import buckets
from fedboost.protocols.federboost_vertical.buckets import Buckets
from fedboost.runtime.cluster import local
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.party.job.memory import PEER_BYTES_LEAST
from fedboost.runtime.party.stage.inbox import Inbox
from fedboost.runtime.party.stage.session import Session
from tests.attacks.test_border_approval import ruled
from tests.e2e import world
from tests.support.federated import GUEST, HOSTS, changing, now
from tests.unit.protocols.test_align_oprf import random_frames, room
from tests.unit.protocols.test_lattice_host_attacks import expecting
from tests.unit.runtime.party.test_session import CALL, HOST, echo, numbers, sealed

# Candidates and columns that fill the memory

CANDIDATES, JUNK = 60_000_000, bytes(1 << 20)


def announced(bytes_max):
    """A host's offer of one node with more candidates than any table has; what is kept of it."""
    offers = expecting(most=HOST_COLUMNS_MAX * 64, bytes_max=bytes_max)
    message = write_shapes([Shape(CANDIDATES)])
    message.packages.CopyFrom(pb.Ciphertexts(count=1, data=JUNK))
    with suppress(PeerError):
        offers.add(message)
    return len(offers._held)


def test_candidates_that_memory_has_no_room_for_are_refused_before_any_is_kept():
    assert announced(PEER_BYTES_LEAST) == 0


def test_candidates_without_end_are_kept_where_nobody_looks_at_memory():
    assert announced(sys.maxsize) == len(JUNK)


def test_a_job_counts_what_a_peer_may_send_by_its_owners_memory(tmp_path, monkeypatch):
    rooms, stock = set(), Session.open

    async def noting(session, checkpoint):
        rooms.add((session.context.party, session.context.services.peer_bytes_max))
        return await stock(session, checkpoint)

    async def run():
        spec = world.spec(world.job("bank", ("telco", "shop")))
        tables = {"bank": world.toy(label=True), "telco": world.toy(columns=3), "shop": world.toy()}
        sources = {n: world.write(tmp_path / f"{n}.parquet", t) for n, t in tables.items()}
        async with local.open_cluster(tmp_path / "c", spec, sources, Serial()) as cluster:
            journal = await cluster.run(spec)
            free = {p: node.parts.memory._free.memory for p, node in cluster.parties.items()}
        return journal.status.state, free

    monkeypatch.setattr(Session, "open", noting)
    state, free = now(run())
    assert state == "finished"
    assert rooms == {(p, max(PEER_BYTES_LEAST, int(most) // 2)) for p, most in free.items()}


COLUMNS, ROWS = 1 << 18, 4000


def columns_read(bytes_max):
    """Columns of a single bucket, which take no byte on the wire; how many cells they become."""
    one = np.ones(COLUMNS, np.int32)
    none = np.zeros(COLUMNS, np.bool_)
    message = buckets.write_message(Buckets(one, none, none, np.zeros((0, COLUMNS), np.uint8)))
    assert message.ByteSize() < 5 * COLUMNS
    return buckets.read_message(message, ROWS, HOST, bytes_max).ids.size


def test_columns_of_no_bytes_do_not_become_a_table():
    with pytest.raises(PeerError, match="there is memory for"):
        columns_read(PEER_BYTES_LEAST)


def test_columns_of_no_bytes_become_a_table_where_nobody_looks_at_memory():
    assert columns_read(sys.maxsize) == COLUMNS * ROWS


# Messages that wait


async def waiting(parts=6):
    """How many messages of a stream without its first part a host with little memory keeps."""
    made = await echo(parts=parts + 1, peer_bytes_max=3 * len(numbers())).open()
    host = made.sessions[HOST]
    for part in range(1, parts + 1):
        with suppress(PeerError):
            await host.accept(sealed(numbers(), part=part, last=False), numbers())
    return host._inbox.waiting(CALL, GUEST)


def test_no_more_bytes_of_a_peer_wait_than_memory_has_room_for():
    assert now(waiting()) == 3


def test_any_bytes_of_a_peer_wait_where_nobody_looks_at_memory(monkeypatch):
    monkeypatch.setattr(Inbox, "check_room", lambda *_: None)
    assert now(waiting()) == 6


# Made-up ids

IDS_A_DAY = 150


async def aligned(folder, jobs=3):
    """Jobs of a guest with 60 ids, one after the other, at a host that takes 150 a day; how each
    ended.
    """
    spec = world.spec(world.job("bank", ("telco",)))
    tables = {"bank": world.toy(label=True), "telco": world.toy(columns=3)}
    sources = {n: world.write(folder / f"{n}.parquet", table) for n, table in tables.items()}
    async with local.open_cluster(folder / "c", spec, sources, Serial()) as cluster:
        ruled(cluster.parties["telco"], peer_ids_max=IDS_A_DAY)
        ended = []
        for number in range(jobs):
            status = (await cluster.run(spec.model_copy(update={"name": f"job-{number}"}))).status
            where = {place.key: place.value for place in status.reason.where}
            ended.append((status.state, where.get("key")))
        return ended


def test_made_up_ids_are_counted_over_all_alignments_of_a_day(tmp_path):
    refused = ("failed", "policy.peer_ids_max")
    assert now(aligned(tmp_path)) == [("finished", None), ("finished", None), refused]


def test_made_up_ids_are_brought_without_end_where_nobody_judges_them(tmp_path, monkeypatch):
    monkeypatch.setattr(Policy, "judge_peer_ids", lambda *_: None)
    assert now(aligned(tmp_path)) == [("finished", None)] * 3


@pytest.mark.parametrize("said", ["ecdh", "oprf"])
@pytest.mark.parametrize("protocol", ["align", "align-pairs"])
@pytest.mark.parametrize("party", [GUEST, HOSTS[0]])
def test_one_alignment_with_more_ids_than_a_day_has_is_refused(protocol, said, party):
    made = room(protocol, random_frames(3, 2), said=said, **{party: {"peer_ids_max": 299}})
    with pytest.raises(FedboostError) as refused:
        now(made.walk())
    assert refused.value.where["key"] == "policy.peer_ids_max"
    kinds = Counter(posted.message.DESCRIPTOR.name for posted in made.posted)
    assert not kinds.keys() & {"Named", "CommonDigests", "Tags"}


# A size that no host has: more and smaller parts, each padded


GUESTS, ASKS = 600_000, 1 << 30


def test_a_false_size_of_the_largest_set_asks_for_more_ids_than_the_guest_declares():
    honest, false = (OprfSizes(GUESTS, 1000, announced_size(GUESTS, n)) for n in (1000, ASKS))
    assert honest.guest_room < 1.05 * GUESTS
    assert false.guest_room > 1.4 * GUESTS


def lied(hosts, **rules):
    """A guest tells its first host of a set as large as any; how the alignment ended."""

    def lie(start):
        start.largest = ASKS

    frames = random_frames(3, 1 + hosts, count=1500, of=1600)
    made = room("align-pairs", frames, alter=changing("Start", lie), **{HOSTS[0]: rules})
    with pytest.raises(FedboostError) as refused:
        now(made.walk())
    return refused.value


def test_a_false_size_is_refused_by_a_host_that_knows_better():
    assert "cuts its parts by a wrong size" in lied(1).what


def test_a_false_size_counts_by_what_it_asks_for():
    assert lied(2, peer_ids_max=1600).where["key"] == "policy.peer_ids_max"


def test_a_false_size_asks_for_more_than_a_day_has_where_declared_ids_count(monkeypatch):
    monkeypatch.setattr(OprfSizes, "guest_room", property(lambda sizes: sizes.guest_ids))
    assert OprfSizes(1500, 1500, ASKS).bins * OprfSizes(1500, 1500, ASKS).guest_cap > 1600
    # The guest itself goes on with honest parts, which is as far as this test lies.
    assert "policy.peer_ids_max" not in lied(2, peer_ids_max=1600).where.values()
