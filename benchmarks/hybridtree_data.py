"""Tables of HybridTree, dealt to one label holder and many hosts; and its stages in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import tables
from benchmarks.room import TERMS, Params, Place, Room, Shards, contexts
from benchmarks.tables import GUEST, SEED
from fedboost import flow
from fedboost.core import local
from fedboost.data.frame import Frame
from fedboost.data.loading import frame_of
from fedboost.data.selection import Selection
from fedboost.data.sheet import Sheet
from fedboost.data.split import PartyColumns, SplitPlan, split_table
from fedboost.flow import MODEL, Artefact
from fedboost.ground.errors import ConfigError

DATA = ("adult", "covtype")
OWN_TEST = {"adult": ("adult_train", "adult_test")}
TEST = 2 / 7  # of the rows, where there is no file for it
LABEL = "y"
TRAINING, PREDICTION, ALIGNMENT = "hybridtree", "predict-hybrid", "align-pairs"

Rows = NDArray[np.int64]
Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class Dealing:
    """How rows and columns are dealt; the guest draws half of the columns by `seed`."""

    hosts: int = 5
    seed: int = 0
    skew: float | None = None  # see SplitPlan; so are `overlap` and `drop_columns`
    skewed_test: bool = True  # whether a skew deals the test rows, too, or each host gets as many
    overlap: float = 0.0
    drop_columns: float = 0.0
    guest_rows: float = 1.0  # share of the training rows that the guest has
    guest_columns: float = 1.0  # share of its half of the columns that it has


@dataclass(frozen=True, eq=False)
class Pooled:
    """Training and test rows of one table, in one piece."""

    name: str
    frame: Frame
    columns: pa.Table  # the same with id and label, as their files have them
    test: Bits  # (n,)

    def sample(self, train: int, test: int) -> Pooled:
        """So many rows of each part at most, kept in order."""
        rng = np.random.default_rng(SEED)
        kept = np.sort(
            np.concatenate(
                [
                    rng.permutation(np.flatnonzero(self.test == held))[:most]
                    for held, most in ((False, train), (True, test))
                ]
            )
        )
        own = replace(self, frame=self.frame.take(kept), columns=self.columns.take(kept))
        return replace(own, test=self.test[kept])


@dataclass(frozen=True, eq=False)
class Parties:
    """What everybody has of some of the guest's rows."""

    guest: Frame  # with the labels
    hosts: Mapping[str, Frame]
    indices: Mapping[str, Rows]  # by host: which of the guest's rows it has, in its own order

    @property
    def y(self) -> NDArray[np.float64]:
        """The labels, float64 (n,)."""
        assert self.guest.label is not None
        return self.guest.label

    def take(self, rows: Rows) -> Parties:
        """Some of the guest's rows, int64 ascending, and what the hosts have of them."""
        number = np.full(self.guest.n_rows, -1)
        number[rows] = np.arange(len(rows))
        kept = {host: np.flatnonzero(number[own] >= 0) for host, own in self.indices.items()}
        return Parties(
            self.guest.take(rows),
            {host: frame.take(kept[host]) for host, frame in self.hosts.items()},
            {host: number[own[kept[host]]] for host, own in self.indices.items()},
        )

    def with_host(self, host: str) -> local.TrainingTable:
        """The guest's rows, with the host's columns behind its own, missing where it has no row."""
        return self._table(_widened(self.guest, [(self.indices[host], self.hosts[host])]))

    def alone(self) -> local.TrainingTable:
        """The guest's rows and columns."""
        return self._table(_widened(self.guest, []))

    def whole(self) -> local.TrainingTable:
        """What all parties have together; a cell is missing where nobody has it."""
        held = [(self.indices[host], frame) for host, frame in self.hosts.items()]
        return self._table(_widened(self.guest, held))

    def _table(self, wide: tuple[NDArray[np.float32], tuple[int, ...]]) -> local.TrainingTable:
        return local.TrainingTable(wide[0], self.y, categorical=wide[1])


@dataclass(frozen=True, eq=False)
class Dealt:
    """A table dealt to parties: rows to learn from, and rows to test with."""

    train: Parties
    test: Parties


def load(name: str) -> Pooled:
    """A table by its name; a ConfigError where its files are absent."""
    if name in OWN_TEST:
        parts = [_read(file) for file in OWN_TEST[name]]
        test = np.repeat([False, True], [part.num_rows for part in parts])
        whole = pa.concat_tables(parts)
    else:
        whole = _read(name)
        test = np.zeros(whole.num_rows, np.bool_)
        chosen = np.random.default_rng(SEED).permutation(len(test))[: round(TEST * len(test))]
        test[chosen] = True
    if name in tables.ONE_CLASS:
        y = (whole[LABEL].to_numpy() == tables.ONE_CLASS[name]).astype(np.int64)
        whole = whole.set_column(whole.column_names.index(LABEL), LABEL, pa.array(y))
    chosen_columns = Selection(label=LABEL, categorical=texts(whole))
    return Pooled(name, frame_of(Sheet(whole), chosen_columns, needs_features=True), whole, test)


def _read(file: str) -> pa.Table:
    path = tables.data_folder() / f"{file}.parquet"
    if not path.exists():
        raise ConfigError(
            f"the data set {file}.parquet is not there", todo="set FEDBOOST_DATA to its folder"
        )
    return pq.read_table(path)


def texts(table: pa.Table) -> list[str]:
    """The columns whose cells are texts: they are categories."""
    kinds = (pa.types.is_string, pa.types.is_large_string)
    return [field.name for field in table.schema if any(kind(field.type) for kind in kinds)]


def guest_columns(names: Sequence[str], dealing: Dealing) -> list[str]:
    """Half of the columns, or of these the dealing's share, in order; one at least."""
    rng = np.random.default_rng(dealing.seed)
    drawn = rng.permutation(len(names))[: len(names) // 2]
    count = max(1, round(dealing.guest_columns * len(drawn)))
    return [names[place] for place in np.sort(drawn[:count])]


def plan(names: Sequence[str], dealing: Dealing) -> SplitPlan:
    """As `fedboost data split --layout hybrid` takes it."""
    whole = guest_columns(names, replace(dealing, guest_columns=1.0))
    rest = [name for name in names if name not in whole]
    guest = PartyColumns(name=GUEST, columns=guest_columns(names, dealing))
    hosts = [
        PartyColumns(name=name, columns=rest) for name in tables.party_names(dealing.hosts + 1)[1:]
    ]
    return SplitPlan(
        layout="hybrid", parties=[guest, *hosts], label=LABEL, seed=dealing.seed,
        skew=dealing.skew, overlap=dealing.overlap if dealing.hosts > 1 else 0.0,
        drop_columns=dealing.drop_columns,
    )  # fmt: skip


def files(pooled: Pooled, dealing: Dealing) -> dict[str, pa.Table]:
    """What each party's file holds of the training rows."""
    train = pooled.columns.filter(pa.array(~pooled.test))
    return split_table(train, plan(pooled.frame.columns, dealing))


def deal(pooled: Pooled, dealing: Dealing) -> Dealt:
    """Training and test rows are dealt alike; with a skew, who has a test row tells of its class.

    Unless the dealing says that test rows are not skewed.
    """
    everybody = _parties(pooled, dealing)
    tested = everybody if dealing.skewed_test else _parties(pooled, replace(dealing, skew=None))
    train, rng = np.flatnonzero(~pooled.test), np.random.default_rng(dealing.seed)
    if dealing.guest_rows < 1.0:
        train = np.sort(rng.permutation(train)[: round(dealing.guest_rows * len(train))])
    return Dealt(everybody.take(train), tested.take(np.flatnonzero(pooled.test)))


def _parties(pooled: Pooled, dealing: Dealing) -> Parties:
    found = split_table(pooled.columns, plan(pooled.frame.columns, dealing))
    place = {one: i for i, one in enumerate(pooled.columns["id"].to_pylist())}
    rows = {
        party: np.array([place[one] for one in own["id"].to_pylist()], np.int64)
        for party, own in found.items()
    }
    frames = {
        party: _columns(pooled.frame.take(rows[party]), own, labelled=party == GUEST)
        for party, own in found.items()
    }
    guest = frames.pop(GUEST)
    return Parties(guest, frames, {host: rows[host] for host in frames})


def _columns(frame: Frame, own: pa.Table, *, labelled: bool) -> Frame:
    names = tuple(name for name in frame.columns if name in own.column_names)
    indices = [frame.columns.index(name) for name in names]
    return replace(
        frame,
        values=np.asfortranarray(np.asarray(frame.values)[:, indices]),
        columns=names,
        label=frame.label if labelled else None,
        categories={name: frame.categories[name] for name in names if name in frame.categories},
    )


def _widened(
    guest: Frame, held: Sequence[tuple[Rows, Frame]]
) -> tuple[NDArray[np.float32], tuple[int, ...]]:
    """Values float32 (n, columns) of the guest and of hosts behind it, and which are categories."""
    others = list(dict.fromkeys(name for _, frame in held for name in frame.columns))
    names = [*guest.columns, *others]
    values = np.full((guest.n_rows, len(names)), np.nan, np.float32, order="F")
    values[:, : len(guest.columns)] = guest.values
    kinds = set(guest.categories)
    for rows, frame in held:
        own = np.asarray(frame.values)
        for place, name in enumerate(frame.columns):
            values[rows, names.index(name)] = own[:, place]
        kinds |= set(frame.categories)
    return values, tuple(place for place, name in enumerate(names) if name in kinds)


# Stages with all parties in one process: real sessions and messages, rows aligned already


@dataclass(frozen=True)
class Done:
    """One stage: what everybody is left with, and what it took."""

    left: Shards
    seconds: float
    sent: int  # payload bytes of all parties


def train(parties: Parties, given: Params) -> Done:
    """A model of all the guest's rows; with scheme `plain` its trees are those of any scheme."""
    done = _stage(TRAINING, parties, given, {})
    guest = done.left[GUEST]
    named = Artefact({**guest.facts, "hosts": list(parties.hosts)}, guest.arrays)  # a store's part
    return replace(done, left={**done.left, GUEST: named})


def predict(model: Shards, parties: Parties) -> Done:
    """Probabilities, see `probabilities`."""
    given = {"model": TERMS.job, "split": model[GUEST].facts["split"]}
    return _stage(PREDICTION, parties, given, model)


def probabilities(done: Done) -> NDArray[np.float64]:
    """float64 (n,) of the guest's rows."""
    return done.left[GUEST].arrays["prediction"].astype(np.float64)[:, 0]


def _stage(name: str, parties: Parties, given: Params, model: Shards) -> Done:
    table = flow.Table(GUEST, tuple(parties.hosts), None)
    rows = {"rows": np.arange(parties.guest.n_rows)}
    with_hosts = {f"with_{host}": indices for host, indices in parties.indices.items()}
    left = {GUEST: Artefact(arrays={**rows, **with_hosts})}
    left |= {
        host: Artefact(arrays={"rows": np.arange(frame.n_rows)})
        for host, frame in parties.hosts.items()
    }
    indices = {
        party: Place(
            frame=parties.guest if party == GUEST else parties.hosts[party],
            artefacts={ALIGNMENT: aligned, **({MODEL: model[party]} if party in model else {})},
        )
        for party, aligned in left.items()
    }
    room = Room(*contexts(name, table, given, indices))
    found = asyncio.run(room.walk())
    return Done(found, sum(room.seconds.values()), sum(room.sent.values()))
