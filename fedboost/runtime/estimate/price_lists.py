"""A batch of every primitive that protocols count (`fedboost.needs`), on made-up tables."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedboost import needs
from fedboost.core import binning, gbun, histogram, local
from fedboost.core.local import TrainingTable
from fedboost.core.networks import Network
from fedboost.core.params import TreeParams
from fedboost.crypto import id_digests, intersection, noise
from fedboost.crypto.masking import add_stream
from fedboost.crypto.secrets import Secrets
from fedboost.crypto.workers import Serial
from fedboost.data.loading import load_with_ids
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.protocols.gbun import needs as networks
from fedboost.runtime.estimate import price_ciphers, price_daemons
from fedboost.runtime.estimate.price_ciphers import Found, Timed

IDS, ROWS, COLUMNS, BINS = 512, 20_000, 8, 32
FSYNC = "wait for the disk"  # seconds


def measure(name: str, timed: Timed) -> Found:
    """The price of a primitive and of others that come with it; empty for an unknown one."""
    head, _, shape = name.partition(": ")
    if name in price_daemons.NAMES:
        return price_daemons.measure()
    if head in _PLAIN:
        return _PLAIN[head](timed)
    if head in (networks.PASSES, networks.SYSTEM, networks.SOLVE):
        return _network(head, shape, timed)
    return price_ciphers.measure(head, timed) if shape else {}


def _points(timed: Timed) -> Found:
    ids = [f"row {number}".encode() for number in range(IDS)]
    points = intersection.hash_to_points(ids, b"estimate", Serial())
    exponent = intersection.Exponent.random()
    blinded = intersection.multiply(points, exponent, Serial())
    key = id_digests.fresh_key()
    many = ids * 16

    def done(work: Callable[[], object], count: int) -> float:
        work()
        return count

    hashed = partial(intersection.hash_to_points, ids, b"estimate", Serial())
    moved = partial(intersection.multiply, points, exponent, Serial())
    checked = partial(intersection.check_points, blinded, Serial())
    named = partial(id_digests.digests, many, key)
    return {
        needs.HASH: timed(lambda: done(hashed, IDS)),
        needs.MULTIPLY: timed(lambda: done(moved, IDS)),
        needs.CHECK: timed(lambda: done(checked, IDS)),
        needs.DIGEST: timed(lambda: done(named, len(many))),
    }


def _table(rows: int, columns: int) -> pa.Table:
    draw = np.random.default_rng(1)
    cells = {f"x{c}": draw.normal(size=rows) for c in range(columns)}
    return pa.table({"id": [f"row {n}" for n in range(rows)], **cells})


def _reading(timed: Timed) -> Found:
    """A file with few columns and one with many tell rows and cells apart."""

    def read(file: Path) -> float:
        frame, _ = load_with_ids(
            SourceSpec(path=str(file)),
            Selection(dataset="data"),
            party="estimate",
            needs_label=False,
            needs_features=True,
        )
        frame.digest()
        return 1.0

    with tempfile.TemporaryDirectory() as folder:
        took = []
        for columns in (1, 21):
            file = Path(folder) / f"{columns}.parquet"
            pq.write_table(_table(ROWS, columns), file)
            took.append(timed(partial(read, file)) / ROWS)
    cell = max(1e-10, (took[1] - took[0]) / 20)
    return {needs.READ_CELL: cell, needs.READ_ROW: max(1e-10, took[0] - cell)}


def _binned(timed: Timed) -> Found:
    values = np.random.default_rng(1).normal(size=(ROWS, COLUMNS)).astype(np.float32)

    def fit() -> float:
        binning.fit(values, BINS).transform(values)
        return values.size

    return {needs.FIT: timed(fit)}


def _histogram(timed: Timed) -> Found:
    draw = np.random.default_rng(1)
    bins = np.asfortranarray(draw.integers(0, BINS, (100_000, COLUMNS)), dtype=np.uint8)
    gh = draw.integers(-1000, 1000, (len(bins), 2), dtype=np.int64)
    rows = np.arange(len(bins), dtype=np.int32)

    def add() -> float:
        histogram.build(bins, [rows], gh, BINS + 1)
        return bins.size

    return {needs.HISTOGRAM: timed(add)}


def _trees(timed: Timed) -> Found:
    """Jobs of few and of many rows tell what a node takes from what a row does."""
    params = TreeParams(n_estimators=4, max_depth=5, max_bin=BINS)
    draw = np.random.default_rng(1)

    def grow(rows: int) -> float:
        values = np.round(draw.normal(size=(rows, COLUMNS)), 2).astype(np.float32)
        y = (values[:, 0] + draw.normal(size=rows) > 0).astype(np.float64)
        trained = local.train(TrainingTable(values, y), params)
        return float(sum(~tree.is_leaf[0] + len(tree.node) for (tree,) in trained.rounds))

    few, many = 1000, 30_000
    known = _histogram(timed) | _binned(timed)
    node = timed(partial(grow, few))
    started = timed(lambda: float(grow(many) > 0))
    trees, layers = params.n_estimators, 1.0 + 0.3 * (params.max_depth - 1)
    cells = many * COLUMNS * (known[needs.FIT] * 2 + trees * layers * known[needs.HISTOGRAM])
    nodes = trees * 40.0 * node
    row = max(5e-8, (started - cells - nodes) / (many * trees))
    return {**known, needs.NODE: node / (COLUMNS * BINS), needs.TREE_ROW: row}


def _masks(timed: Timed) -> Found:
    words = np.zeros(1 << 16, np.uint64)
    key = os.urandom(32)

    def mask() -> float:
        add_stream(words, key, 1)
        return len(words)

    def add() -> float:
        np.add(words, words, out=words)
        words.tobytes()
        return len(words)

    return {needs.MASK: timed(mask), needs.WORDS: 4 * timed(add)}


def _noisy(timed: Timed) -> Found:
    ids = np.random.default_rng(1).integers(0, 16, ROWS).astype(np.uint8)
    of_ids = noise.IdNoise(Secrets.from_os(), (b"row %d" % number for number in range(ROWS)))

    def draw() -> float:
        of_ids.randomised(ids, 16, 4.0, 0)
        return len(ids)

    return {needs.NOISY: timed(draw)}


def _disk(timed: Timed) -> Found:
    del timed
    octets = os.urandom(1 << 20)
    waits = []
    with tempfile.TemporaryFile() as file:
        for _ in range(5):
            started, spent = time.perf_counter(), time.process_time()
            file.write(octets[:4096])
            file.flush()
            os.fsync(file.fileno())
            waits.append(time.perf_counter() - started - (time.process_time() - spent))
        started = time.process_time()
        file.write(octets * 8)
        file.flush()
        os.fsync(file.fileno())
        each = (time.process_time() - started) / (8 * len(octets))
    return {FSYNC: max(0.0, min(waits)), needs.DISK: each}


def _network(head: str, shape: str, timed: Timed) -> Found:
    sizes = [int(text) for text in shape.split("x")]
    outputs, draw = sizes[-1], np.random.default_rng(1)
    if head == networks.SOLVE:
        a = draw.normal(size=(outputs, outputs))
        squares = (a @ a.T + np.eye(outputs))[None]
        params = gbun.GbunParams(outputs=outputs)
        pull = draw.normal(size=(1, outputs))
        return {f"{head}: {shape}": timed(lambda: float(len(gbun.solved(squares, pull, params).T)))}
    columns = sizes[0] if head == networks.PASSES else 2
    rows = max(256, min(ROWS, (1 << 22) // outputs, (1 << 23) // columns))
    values = draw.normal(size=(rows, columns)).astype(np.float32)
    scale = gbun.Scale.of_values(values)
    inputs, network = scale.inputs(values), Network(0, 1, outputs)
    normal = gbun.Normal.of_sums(rows, *gbun.output_sums(inputs, network))
    g, h = draw.normal(size=(rows, 2)), np.abs(draw.normal(size=(rows, 2)))

    def passed() -> float:
        gbun.output_sums(inputs, network)
        return rows

    def squared(classes: int) -> float:
        gbun.system(inputs, network, normal, (g[:, :classes], h[:, :classes]))
        return rows

    if head == networks.PASSES:
        return {f"{head}: {shape}": timed(passed)}
    two, one = timed(lambda: squared(2)), timed(lambda: squared(1))
    return {f"{head}: {shape}": max(1e-9, two - one)}


_PLAIN: Mapping[str, Callable[[Timed], Found]] = {
    **dict.fromkeys((needs.HASH, needs.MULTIPLY, needs.CHECK, needs.DIGEST), _points),
    **dict.fromkeys((needs.READ_ROW, needs.READ_CELL), _reading),
    needs.FIT: _binned,
    needs.HISTOGRAM: _histogram,
    **dict.fromkeys((needs.NODE, needs.TREE_ROW), _trees),
    **dict.fromkeys((needs.MASK, needs.WORDS), _masks),
    needs.NOISY: _noisy,
    **dict.fromkeys((needs.DISK, FSYNC), _disk),
}
