"""What a guest has opened that is not in its own set, and points of one job in another."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedboost.crypto import intersection
from fedboost.crypto.intersection import Exponent, as_keys
from fedboost.data.sources import SourceSpec
from fedboost.flow import DisclosureInfo, Out, Spent
from fedboost.ground.errors import PeerError, UnreachableError
from fedboost.ground.workers import Serial
from fedboost.messages.protocol.align_pb2 import CommonSet
from fedboost.protocols.align import guest, host, ring
from fedboost.protocols.align_pairs import guest as pairs_guest
from fedboost.protocols.align_pairs import host as pairs_host
from fedboost.runtime.cluster.local import open_cluster
from tests.support.contexts import altered
from tests.support.federated import GUEST, HOSTS, PLAIN, Room, frame_of, job_spec, now, room_for
from tests.unit.crypto.test_intersection import taken_off

TELCO = HOSTS[0]
OWN, THEIRS = 5, 12  # ids of the guest, all of them the host's, and of the host
GUESSES = [b"%03d" % number for number in range(40)]  # whom the host may know


def room():
    values = np.zeros((THEIRS, 1), np.float32)
    ids = GUESSES[3 : 3 + THEIRS]
    return room_for(
        "align", {GUEST: frame_of(ids[:OWN], values[:OWN]), TELCO: frame_of(ids, values)}
    )


def ids_opened(at):
    """The host's ids that a guest finds which sends the host's own set back to be opened.

    What returns bears the guest's exponent alone: without it, it is the hash of an id, and every
    guess can be tried on it.
    """

    def intersect(state, _):
        wanted = sorted(as_keys(state.kept))  # the host's whole set, blinded by both
        state.shared = len(wanted)
        return Out(send={TELCO: CommonSet(points=len(wanted), data=b"".join(wanted))})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guest, "intersect", intersect)
        patch.setattr(guest, "bytes_max", lambda *_: 1 << 20)
        now(at.until("name_rows"))
    [opened] = [p.message for p in at.posted if p.envelope.step == "unblind"]
    bare = np.frombuffer(opened.data, np.uint8).reshape(-1, 32)
    points = as_keys(taken_off(bare, at.state(GUEST).exponent))
    hashed = as_keys(
        intersection.hash_to_points(GUESSES, ring.domain_of(at.contexts[GUEST]), Serial())
    )
    name = dict(zip(hashed, GUESSES, strict=True))
    return sorted(name[point] for point in points if point in name)


def test_a_guest_has_nothing_opened_that_is_not_of_its_own_set():
    """The defence is `host.points_as_received`: a host has no inverse, it looks up what it has
    blinded.
    """
    at = room()
    with pytest.raises(PeerError, match="not of the guest's set"):
        ids_opened(at)
    assert not [p for p in at.posted if p.envelope.step == "unblind"]


def test_a_guest_has_the_hosts_own_set_opened_where_any_point_is_unblinded(monkeypatch):
    monkeypatch.setattr(
        host, "points_as_received", lambda me, points: taken_off(points, me.exponent)
    )
    assert ids_opened(room()) == GUESSES[3 : 3 + THEIRS]


# The points of one job in another


def known_again(context):
    """How many of a host's points of one job a party knows again in a job of another context.

    The worst case: a host whose exponent is the same in both.
    """
    drawn = Exponent.from_seed(bytes(32))
    sets: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Exponent, "random", lambda: drawn)
        for one in (room(), room()):
            at = one
            if sets:
                contexts = {
                    p: altered(c, attempt={"digest": context}) for p, c in one.contexts.items()
                }
                at = Room(one.protocol, contexts)
            now(at.walk())
            [sent] = [
                p.message.data
                for p in at.posted
                if p.envelope.step == "blind_ids" and p.envelope.sender == TELCO
            ]
            sets.append(set(as_keys(np.frombuffer(sent, np.uint8).reshape(-1, 32))))
    return len(sets[0] & sets[1])


def test_points_of_one_job_are_not_known_again_in_another():
    """The defence is `ring.domain_of`: the seat's context is in what ids hash to."""
    assert known_again(bytes(32)) == 0


def test_points_of_one_job_are_known_again_in_another_where_all_hash_alike(monkeypatch):
    monkeypatch.setattr(ring, "domain_of", lambda _: ring.RING_DOMAIN)
    assert known_again(bytes(32)) == THEIRS


# The ids of a pair, by a guest that leaves once it has them

SHARED = 30
PAIR = job_spec(
    "hybridtree", ("bank", "telco"), params={"n_estimators": 1, "guest_depth": 1, **PLAIN}
)


def left_with_ids(folder, monkeypatch):
    """How many ids a guest can open that names none, and how many the host's account says."""
    meet = pairs_guest.meet
    opened: list[int] = []

    def leaves(state, got):
        meet(state, got)
        opened.extend(len(meeting.common) for meeting in state.meetings.values())
        raise UnreachableError("the guest has what it wants", party="bank")

    monkeypatch.setattr(pairs_guest, "meet", leaves)
    sources = {}
    for first, party, column in ((0, "bank", "y"), (10, "telco", "x")):
        ids = [f"p{row}" for row in range(first, first + SHARED + 10)]
        table = pa.table({"id": ids, column: [row % 2 for row in range(len(ids))]})
        pq.write_table(table, folder / f"{party}.parquet")
        sources[party] = SourceSpec(path=str(folder / f"{party}.parquet"))

    async def work():
        async with open_cluster(folder / "c", PAIR, sources, Serial()) as made_of:
            await made_of.run(PAIR)
            entries = made_of.parties["telco"].spending.account.entries()
            return sum(sum(one.charged.get(Spent.IDS, {}).values()) for one in entries)

    charged = now(work())
    return sum(opened), charged


def test_ids_that_a_pair_can_open_are_charged_though_nobody_names_them(tmp_path, monkeypatch):
    """The defence is the charge in `align_pairs.host.blind_again`."""
    opened, charged = left_with_ids(tmp_path, monkeypatch)
    assert opened == SHARED
    assert charged == SHARED + 10  # all that could be


def test_ids_that_a_pair_can_open_are_free_where_only_named_ones_are_charged(tmp_path, monkeypatch):
    returned = pairs_host.blind_again
    monkeypatch.setattr(
        pairs_host, "blind_again", lambda *given: replace(returned(*given), about=DisclosureInfo())
    )
    opened, charged = left_with_ids(tmp_path, monkeypatch)
    assert (opened, charged) == (SHARED, 0)
