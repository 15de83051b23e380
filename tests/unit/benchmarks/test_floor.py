"""The floor of encrypted training: counts are what jobs really do, prices of right arithmetic."""

import secrets

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import floor, tables
from benchmarks.floor import Counts, HostTable, Layers, Mini, Packing
from fedboost.core import fixed_point
from fedboost.core.gradient_bits import BITS_ENCRYPTED
from fedboost.crypto import residues
from fedboost.crypto.packing import GhLayout
from tests import tiers
from tests.support import federated

MINI = Mini.fresh(512)
N = int(MINI.n)
numbers = st.lists(st.integers(0, 2**300), min_size=1, max_size=5)


@settings(max_examples=tiers.examples(25), deadline=None)
@given(numbers)
def test_the_small_paillier_reads_what_it_wrote(plaintexts):
    written = MINI.encrypt(plaintexts)
    assert [MINI.decrypt(c) for c in written] == plaintexts
    assert MINI.encrypt(plaintexts) != written


@settings(max_examples=tiers.examples(25), deadline=None)
@given(numbers)
def test_products_add_and_powers_shift(plaintexts):
    written = MINI.encrypt(plaintexts)
    total = written[0]
    for c in written[1:]:
        total = total * c % MINI.n2
    assert MINI.decrypt(total) == sum(plaintexts) % N
    shifted = pow(written[0], 1 << 125, MINI.n2)
    assert MINI.decrypt(shifted) == (plaintexts[0] << 125) % N


@settings(max_examples=tiers.examples(25), deadline=None)
@given(numbers)
def test_one_inverse_subtracts_them_all(plaintexts):
    a, b = MINI.encrypt(plaintexts), MINI.encrypt(plaintexts[::-1])
    expected = [(x - y) % N for x, y in zip(plaintexts, plaintexts[::-1], strict=True)]
    assert [MINI.decrypt(c) for c in MINI.subtract(a, b)] == expected


def test_blinding_changes_every_bit_but_the_package():
    plaintexts = [secrets.randbits(300) for _ in range(20)]
    written = MINI.encrypt(plaintexts)
    blinded = MINI.blind(written, 300)
    assert not set(written) & set(blinded)
    read = [int(MINI.decrypt(c)) for c in blinded]
    assert [m % 2**300 for m in read] == plaintexts
    assert len({m >> 300 for m in read}) == 20
    assert max(read) < N


def test_exponents_keep_below_the_order_and_use_all_their_digits():
    below, windows = 2**100 - 3, 9
    digits = np.array(MINI._digits(below, windows, 500))
    assert digits.shape == (windows, 500)
    read = [sum(int(d) << 12 * i for i, d in enumerate(column)) for column in digits.T]
    assert max(read) < below
    assert max(read) > below * 9 // 10
    assert len(set(read)) == 500


def test_a_batch_of_each_primitive_does_as_many_as_it_says():
    packing = Packing(h_bits=40, capacity=5)
    todo = floor.batches(MINI, packing, columns=2, bins=3)
    assert tuple(todo) == floor.NAMES
    rows = 16 * floor.BATCH
    expected = [floor.BATCH, 2 * rows, floor.BATCH, rows, floor.BATCH, 256, 64]
    assert [do() for do in todo.values()] == expected


# A tree counted by hand: 10 rows; host columns with 3 and 2 bins; rows 0 and 9 miss the second.
#
#             0: 10 rows
#        1: 4 rows      2: 6 rows          layer 2
#                    5: 3      6: 3        layer 3, the last
HOST = HostTable(np.array([3, 2]), np.zeros((10, 2), bool))
HOST.missing[[0, 9], 1] = True
ROWS = np.arange(10)
NODES = {
    0: (ROWS, 2.5),
    1: (ROWS[:4], 1.0),
    2: (ROWS[4:], 1.5),
    5: (ROWS[4:7], 0.9),
    6: (ROWS[7:], 0.6),
}


def test_counts_of_a_small_tree_equal_a_hand_count():
    # Opened: 0, 2 (cover 1.5 ≥ 2 · 0.75) and no other: 1 is too light, 5 and 6 lie too deep.
    layers = Layers(max_depth=2, min_child_weight=0.75)
    assert floor.opened_nodes(NODES, layers) == [0, 2]
    # 2 is opened, but its sibling is smaller and is added up for it.
    assert floor.added_nodes(NODES, [0, 2]) == {0, 1}
    # Candidates of 0 and of 2: column one 2, column two, with missing rows, 3: 5 in 3 packages.
    expected = Counts(
        encryptions=10,
        additions=(10 + 4) * 2,
        subtractions=3 + 2 + 1,  # the cells of node 2, one of them for missing rows
        prefix_sums=2 * (1 + 1 + 1),  # one a column, and missing rows with one running sum
        shifts=2 * (5 - 3),
        blindings=2 * 3,
        decryptions=2 * 3,
    )
    assert floor.count_tree(NODES, layers, HOST, capacity=2) == expected


def test_a_column_with_one_bin_and_nothing_missing_needs_rows_alone():
    host = HostTable(np.array([1]), np.zeros((10, 1), bool))
    found = floor.count_tree(NODES, Layers(1, 1.0), host, capacity=4)
    assert found == Counts(encryptions=10, additions=10)


@pytest.fixture
def asked(monkeypatch):
    """What a job asks of its keys, by primitive; scheme plain."""
    done = dict.fromkeys(["encrypted", "added", "released", "packages", "decrypted", "capacity"], 0)

    def watch(owner, name, note):
        method = getattr(owner, name)

        def watched(self, *args, **kwargs):
            note(*args, **kwargs)
            return method(self, *args, **kwargs)

        monkeypatch.setattr(owner, name, watched)

    def count(**more):
        for key, number in more.items():
            done[key] += number

    watch(residues.ResiduePrivate, "encrypt", lambda gh, *_: count(encrypted=len(gh)))
    watch(residues.ResiduePrivate, "decrypt", lambda packages, *_: count(decrypted=len(packages)))
    watch(residues.ResiduePublic, "segment_sum", lambda _, rows, cells, n: count(added=cells.size))

    def released(sums, layout, blinders, counts, masks):
        done["capacity"] = layout.lanes[0].capacity
        count(released=len(sums), packages=len(layout.packages(counts)))

    watch(residues.ResiduePublic, "release", released)
    return done


def small_table(rows):
    draw = np.random.default_rng(3)
    values = draw.normal(size=(rows, 4)).astype(np.float32).round(1)
    values[draw.random((rows, 4)) < 0.1] = np.nan
    y = (np.nan_to_num(values).sum(axis=1) + draw.normal(size=rows) > 0).astype(np.int64)
    id_ = np.arange(rows) + 10**6  # as many digits each: sorted as text and as numbers alike
    return tables.Table("small", id_, y, values, ("a", "b", "c", "d"))


def test_counts_from_the_trees_are_what_the_job_asked_for(tmp_path, asked):
    table = small_table(400)
    columns = {"bank": ("a", "b"), "telco": ("c", "d")}
    sources = tables.deal(table, columns, tmp_path / "data")
    read = {party: pq.read_table(source.path) for party, source in sources.items()}
    params = {"n_estimators": 3, "max_depth": 4, "max_bin": 8, **federated.PLAIN}
    params["sparse_histograms"] = False  # the floor adds every row up
    spec = federated.job_spec("secureboost", tuple(columns), params=params)
    done = federated.run_job(tmp_path / "job", read, spec)
    assert done.state == "finished"

    host = HostTable.of(table.values[:, 2:], 8)
    trees = floor.tree_rows(done.shards["bank"], done.shards["telco"], "telco", table.values)
    counts = Counts()
    for nodes in trees:
        counts += floor.count_tree(nodes, Layers(4, 1.0), host, asked["capacity"])
    assert len(trees) == 3
    assert counts.subtractions > 0
    assert {
        "encrypted": counts.encryptions,
        "added": counts.additions,
        "released": counts.shifts + counts.blindings,
        "packages": counts.blindings,
        "decrypted": counts.decryptions,
        "capacity": asked["capacity"],
    } == asked


@pytest.mark.parametrize("rows", [2, 400, 512, 513, 21_000, 73_531, 10**6])
def test_sums_are_packed_as_jobs_pack_them(rows):
    found = Packing.for_rows(rows, 2048)
    bits = fixed_point.encoding_for_rows(rows, BITS_ENCRYPTED, 1.0, 0.25).bits
    layout = GhLayout(bits, rows, 2047)
    assert (found.h_bits, found.capacity) == (layout.h_bits, layout.lanes[0].capacity)
    assert found.field_bits == layout.n_bit
