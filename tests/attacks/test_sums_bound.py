"""What a coordinator and an aggregator would get of sums whose masks and totals nobody checks."""

import asyncio
from typing import Any

import numpy as np
import pytest

from fedboost.aggregation import aggregator, standing
from fedboost.aggregation.contributor import CHECK_WORDS, Contributor
from fedboost.aggregation.standing import Tagging
from fedboost.core.growth import GrowingTree
from fedboost.flow import HISTORY, LOOP
from fedboost.ground.errors import PeerError, ProtocolError
from tests.support.columns import chosen
from tests.support.contexts import altered
from tests.support.federated import Room, frame_of, now, room_for, with_seed

STAGE = "federboost-horizontal"
PARTIES = ("bank", "telco", "shop")
ADDER = "sum"
ROWS, COLUMNS, VALUES = 700, 6, 21  # so that counts of rows and a histogram are equally long


def tables(seed=3):
    """A table of each party: whole numbers below VALUES, labels 0 and 1."""
    draw = np.random.default_rng(seed)
    found = {}
    for party in PARTIES:
        values = draw.integers(0, VALUES, (ROWS, COLUMNS))
        label = draw.random(ROWS) < 0.2 + 0.6 * (values[:, 0] > VALUES // 2)
        ids = [f"{party}{i}".encode() for i in range(ROWS)]
        found[party] = frame_of(ids, values.astype(np.float32), label)
    return found


def room_of(frames, **params):
    """A job over discrete columns, whose first histograms anybody can read."""
    domains = {f"c{i}": [float(v) for v in range(VALUES)] for i in range(COLUMNS)}
    own = {"n_estimators": 2, "max_depth": 2, "max_bin": VALUES, "base_score": 0.5}
    return room_for(STAGE, frames, {**own, "domains": domains, **params}, aggregator=ADDER)


# Masks that hang on a number alone: contributors at different places of one job


async def opened_apart(target):
    """The second attempt, which a coordinator opens for the target behind what it has kept, and for
    the others at the start."""
    frames = tables()
    first = await room_of(frames).until("sum_histograms")
    kept = await first.sessions[target].snapshot()
    again = with_seed(room_of(frames), b"again")
    contexts = {
        name: altered(one, attempt={"digest": b"\1" * 32}) for name, one in again.contexts.items()
    }
    at = {LOOP: kept.facts[HISTORY]}
    contexts[target] = altered(contexts[target], attempt={"place": LOOP, "kept": at})
    for name in set(PARTIES) - {target}:
        contexts[name] = altered(contexts[name], attempt={"kept": at})
    room = Room(again.protocol, contexts)
    for name, session in room.sessions.items():
        await session.open(kept if name == target else None)
    await room.call("show_columns", "bank")
    await room.call("match_columns", "telco", "shop")
    for step in ("tell_standing", "compare_standings", "offer_keys", "hear_keys"):
        await room.call(step, *PARTIES)
    return frames, room


async def histogram_of(target):
    """What the aggregator reads of the target's own rows, by value of the first column: how many
    rows there are, and how many of label 1; and what is true."""
    frames, room = await opened_apart(target)
    others = [name for name in PARTIES if name != target]
    room.number += 1
    await asyncio.gather(
        *(room.call("count_rows", name) for name in others), room.call("sum_histograms", target)
    )
    given = [
        np.frombuffer(posted.message.words.data, "<u8")
        for posted in room.posted
        if posted.envelope.step in ("count_rows", "sum_histograms")
    ]
    words = np.sum(given, axis=0)
    cells = words[:-CHECK_WORDS].view(np.int64).copy()
    # What anybody knows of the two others' counts: all rows, all present, largest values of 1.
    flags = np.array([len(others) if e < 0 else 0 for e in range(-64, 64)], np.int64)
    known = [ROWS * len(others), 0, *[ROWS * len(others)] * COLUMNS]
    cells -= np.concatenate([known, flags, flags])
    sums = cells.reshape(COLUMNS, VALUES + 1, 2)[0, :VALUES]
    unit = sums[:, 1].sum() / ROWS  # of h, the same for all rows at p = 1/2
    read = [(round(h / unit), round(h / unit / 2 - g / unit)) for g, h in sums.tolist()]
    own, label = frames[target].values[:, 0], frames[target].label
    true = [(int(np.sum(own == v)), int(label[own == v].sum())) for v in range(VALUES)]
    return read, true


@pytest.mark.parametrize("target", PARTIES)
def test_contributors_at_different_places_do_not_add_up(target):
    """Whoever refuses first: the target, or those that were sent back."""
    says = "has not kept place|another record of the sums|the contributors have all kept"
    with pytest.raises((PeerError, ProtocolError), match=says):
        now(opened_apart(target))


@pytest.fixture
def unlike(monkeypatch):
    """Contributors hear where the others stand, and go on wherever that is."""
    guests = lambda context, got: got[PARTIES[0]].tag_key if PARTIES[0] in got else b""  # noqa: E731
    monkeypatch.setattr(standing, "agreed_tag_key", guests)
    monkeypatch.setattr(standing, "check_same_history", lambda *_: None)


@pytest.mark.usefixtures("unlike")
@pytest.mark.parametrize("target", PARTIES)
def test_a_contributor_at_another_place_is_hidden_though_nobody_compares(target):
    """Masks hang on what is summed and on all totals before."""
    read, true = now(histogram_of(target))
    assert sum(own == theirs for own, theirs in zip(read, true, strict=True)) <= 1


@pytest.mark.usefixtures("unlike")
@pytest.mark.parametrize("target", PARTIES)
def test_a_contributor_at_another_place_is_read_where_masks_hang_on_a_number(target, monkeypatch):
    monkeypatch.setattr(Contributor, "_mask_context", lambda me, _: me.number.to_bytes(32, "big"))
    read, true = now(histogram_of(target))
    assert read == true


# An aggregator that tells everybody the same false totals


class Steering:
    """An aggregator that leads a tree to one person, of whom it knows three columns.

    It grows the tree from its own false sums and puts them in the place of the true ones, whose
    cells it reads.
    """

    def __init__(self, known):
        self.path = [
            (column, bin_, side)
            for column in range(3)
            for bin_, side in ((known[column], "left"), (known[column] - 1, "right"))
        ]
        self.rules: Any = None
        self.tree: Any = None
        self.read: Any = None
        self.node = self.depth = self.whole = self.total = 0

    def lie(self, parts):
        """The words to tell in place of the true ones."""
        whole = np.concatenate(parts)
        if self.rules is None:
            return whole
        if self.tree is None:
            empty = np.asfortranarray(np.zeros((0, COLUMNS), np.uint8))
            rows, usable = np.empty(0, np.int32), np.arange(COLUMNS, dtype=np.int32)
            gh = np.zeros((0, 2), np.int64)
            self.tree = GrowingTree(self.rules, empty, gh, rows, chosen(usable))
        tree = self.tree
        if tree.is_over or len(whole) - CHECK_WORDS != int(np.prod(tree.shape)):
            return whole
        true = whole[:-CHECK_WORDS].view(np.int64).reshape(tree.shape)
        if self.node in tree.asked:
            self.read = true[tree.asked.index(self.node)].copy()
        false = np.zeros(tree.shape, np.int64)
        if self.depth < len(self.path):
            self._divide(false, true)
        tree.take(false)
        self.depth += 1
        return np.concatenate([false.ravel().view(np.uint64), whole[-CHECK_WORDS:]])

    def _divide(self, false, true):
        """Sums by which the node of the person divides next where it lies."""
        column, bin_, side = self.path[self.depth]
        if not self.depth:
            self.whole = int(true[0, 0, :, 1].sum())
        small = self.whole * 45 // 100
        large, self.whole = self.whole - small, small
        ours = -self.total if self.total else self.whole
        others = 2 * self.total if self.total else -self.whole
        self.total = ours
        cell = false[self.tree.asked.index(self.node)]
        here, there = (bin_, bin_ + 1) if side == "left" else (bin_ + 1, bin_)
        cell[column, here], cell[column, there] = (ours, small), (others, large)
        for other in set(range(COLUMNS)) - {column}:
            cell[other, 0] = cell[column].sum(axis=0)
        self.node = 2 * self.node + (1 if side == "left" else 2)


async def steered(monkeypatch):
    """What a steering aggregator reads of a person's columns and label, and what is true."""
    frames = tables(seed=5)
    people = [
        (*map(int, row), int(y))
        for one in frames.values()
        for row, y in zip(one.values.tolist(), one.label.tolist(), strict=True)
    ]
    seen = [person[:3] for person in people]
    target = next(
        p for p in people[800:] if seen.count(p[:3]) == 1 and all(0 < v < VALUES - 1 for v in p[:3])
    )
    steering, real = Steering(target), aggregator._total_messages
    monkeypatch.setattr(
        aggregator, "_total_messages", lambda number, parts: real(number, [steering.lie(parts)])
    )
    room = room_of(frames, n_estimators=1, max_depth=7)
    await room.until("sum_histograms")
    steering.rules = room.state("bank").training.rules
    for _ in range(7):
        for step in ("sum_histograms", "split_nodes"):
            await room.call(step, *PARTIES)
            if step == "sum_histograms":
                await room.call("add_up", ADDER)
    rows = (steering.read[:, :, 1] > 0).sum(axis=1)
    values = [int(np.flatnonzero(h)[0]) for h in steering.read[:, :, 1]]
    label = int(steering.read[0, :, 0].sum() < 0)
    return (*values, label), target, rows.tolist()


def test_an_aggregator_that_steers_is_named_with_its_first_lie(monkeypatch):
    with pytest.raises(PeerError, match="sum sent a total that is not the sum") as caught:
        now(steered(monkeypatch))
    assert caught.value.where["party"] == ADDER


def test_an_aggregator_steers_to_one_person_where_nobody_checks_totals(monkeypatch):
    monkeypatch.setattr(Tagging, "fits_total", lambda *_: True)
    read, true, rows = now(steered(monkeypatch))
    assert rows == [1] * COLUMNS
    assert read == true
