"""Atoms of sets of rows, beside sets of Python: random families, changing tables, two at once."""

import random
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

from fedboost.ground.errors import StoreError
from fedboost.ground.ids import EncodedIds
from fedboost.runtime.policy.row_sets import ALL_ROWS, Atoms, RowSets, refine_atoms
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.store.store import Store
from tests import tiers
from tests.support.row_decoding import leverage

TABLE = Owned("credit", "file:credit")
NONE = Atoms(np.zeros(0, np.uint64), {})


def hashes_of(people):
    return np.array([hash(("person", one)) & (2**64 - 1) for one in people], np.uint64)


def partition(numbers_by_person, name=ALL_ROWS):
    """One job's sets: the number of each person's set; 0: in none."""
    people = list(numbers_by_person)
    numbers = np.array([numbers_by_person[one] for one in people], np.uint32)
    return Atoms.of(hashes_of(people), {name: numbers})


class NaiveAtoms:
    """The same with a list of the sets that each person was in."""

    def __init__(self):
        self.sets = []

    def atoms(self, sets):
        places = {one: [k for k, members in enumerate(sets) if one in members] for one in PEOPLE}
        found: dict[tuple[int, ...], set[int]] = {}
        for one, memberships in places.items():
            if memberships:
                found.setdefault(tuple(memberships), set()).add(one)
        return {frozenset(members) for members in found.values()}

    def add(self, numbers_by_person, least):
        """The size of the smallest atom that is made, if it is too small; else keep the sets."""
        added = [
            {one for one, number in numbers_by_person.items() if number == each}
            for each in sorted(set(numbers_by_person.values()) - {0})
        ]
        after = self.atoms(self.sets + added)
        smallest = min((len(made) for made in after - self.atoms(self.sets)), default=None)
        if smallest is not None and smallest < least:
            return smallest
        self.sets += added
        return None


PEOPLE = range(300)


def random_job(draw):
    """Training and held-out rows, or training ones alone, of a table that may lack people."""
    table = [one for one in PEOPLE if one % 50 != draw.choice((0, 1, 99)) or draw.random() < 0.5]
    if draw.random() < 0.5:
        table = list(PEOPLE)
    start, width = draw.choice((0, 50, 100, 150)), draw.choice((0, 10, 50, 51, 100))
    held = set(range(start, start + width))
    kinds = draw.choice(((1, 2), (1, 0)))
    return {one: kinds[one in held] for one in table}


@pytest.fixture
def row_sets(tmp_path):
    with Store(tmp_path / "store", "party bank", lambda: 1_700_000_000.0) as store:
        yield RowSets(store)


@pytest.mark.parametrize("seed", range(30))
def test_random_families_are_refused_and_kept_as_sets_of_python_say(row_sets, seed):
    draw, naive = random.Random(seed), NaiveAtoms()
    answers = []
    for _ in range(12):
        job, least = random_job(draw), draw.choice((1, 5, 10, 20, 50))
        smallest = row_sets.smallest_with(TABLE, partition(job))
        answers.append(row_sets.add(TABLE, partition(job), least))
        assert answers[-1] == (smallest if smallest is not None and smallest < least else None)
        assert answers[-1] == naive.add(job, least)
    assert None in answers


def test_some_random_families_are_refused_and_others_kept(row_sets):
    draw, naive = random.Random(0), NaiveAtoms()
    answers = Counter(naive.add(random_job(draw), 10) is None for _ in range(60))
    assert min(answers[True], answers[False]) > 1


def test_numbers_name_the_atoms_of_sets_of_python():
    draw, naive, atoms = random.Random(7), NaiveAtoms(), NONE
    for _ in range(6):
        job = random_job(draw)
        atoms, _ = refine_atoms(atoms, partition(job))
        naive.add(job, 1)
    numbers = dict(zip(atoms.hashes.tolist(), atoms.numbers[ALL_ROWS].tolist(), strict=True))
    found: dict[int, set[int]] = {}
    for one, hashed in zip(PEOPLE, hashes_of(PEOPLE).tolist(), strict=True):
        if numbers.get(hashed):
            found.setdefault(numbers[hashed], set()).add(one)
    assert {frozenset(members) for members in found.values()} == naive.atoms(naive.sets)


def test_many_atoms_are_counted_like_few():
    people = range(5000)
    alone, _ = refine_atoms(NONE, partition({one: one + 1 for one in people}))
    again, smallest = refine_atoms(alone, partition({one: 1 + one % 700 for one in people}))
    assert smallest is None
    assert len(set(again.numbers[ALL_ROWS].tolist())) == len(people)


def test_the_same_sets_are_free_and_nothing_is_written(row_sets, monkeypatch):
    job = {one: 1 + (one < 100) for one in PEOPLE}
    assert row_sets.add(TABLE, partition(job), 20) is None
    monkeypatch.setattr(RowSets, "_replace_atoms", lambda *_: pytest.fail("nothing has changed"))
    backwards = dict(reversed(job.items()))
    assert row_sets.add(TABLE, partition(backwards), 1000) is None


def test_a_refused_job_leaves_no_trace(row_sets):
    everybody = dict.fromkeys(PEOPLE, 1)
    assert row_sets.add(TABLE, partition(everybody), 20) is None
    one_less = {one: 1 + (one == 0) for one in PEOPLE}
    assert row_sets.add(TABLE, partition(one_less), 20) == 1
    assert row_sets.add(TABLE, partition({one: 1 + (one < 20) for one in PEOPLE}), 20) is None


def test_a_table_that_gained_or_lost_a_few_rows_is_refused_until_they_are_many(row_sets):
    assert row_sets.add(TABLE, partition(dict.fromkeys(range(200), 1)), 20) is None
    for rows, smallest in ((203, 3), (197, 3), (220, None), (180, None)):
        assert row_sets.add(TABLE, partition(dict.fromkeys(range(rows), 1)), 20) == smallest


def test_classes_are_partitions_of_their_own(row_sets):
    def job(held, label):
        sets = np.array([1 + (one < held) for one in PEOPLE], np.uint32)
        classes = np.array([one % 10 == 0 for one in PEOPLE], np.uint32)
        by_class = {ALL_ROWS: sets, label: sets + 2 * classes}
        return Atoms.of(hashes_of(PEOPLE), by_class)

    assert row_sets.add(TABLE, job(0, "y"), 20) is None
    assert row_sets.add(TABLE, job(100, "y"), 20) == 10  # of 100 people ten have a 1
    assert row_sets.add(TABLE, job(100, "y"), 10) is None
    assert row_sets.add(TABLE, job(100, "other"), 20) == 10


def test_a_few_labels_that_changed_make_an_atom(row_sets):
    before = {one: 1 + one % 2 for one in PEOPLE}
    assert row_sets.add(TABLE, partition(before, "y"), 20) is None
    assert row_sets.add(TABLE, partition(before | {0: 2}, "y"), 20) == 1


def test_a_table_is_the_same_under_another_name_and_at_another_place(row_sets):
    everybody, one_less = dict.fromkeys(PEOPLE, 1), dict.fromkeys(PEOPLE[1:], 1)
    assert row_sets.add(TABLE, partition(everybody), 20) is None
    assert row_sets.add(Owned("loans", TABLE.source), partition(one_less), 20) == 1
    assert row_sets.add(Owned(TABLE.dataset, "file:moved"), partition(one_less), 20) == 1
    assert row_sets.add(Owned("loans", "file:loans"), partition(one_less), 20) is None
    # Now a job on both: the same people, of whom the second table lacks one.
    assert row_sets.add(Owned("loans", TABLE.source), partition(everybody), 20) == 1


def test_of_two_jobs_at_once_not_both_pass(row_sets, monkeypatch):
    """Each alone leaves 20 rows or more; together they leave one."""
    jobs = [{one: 1 + (one < 100) for one in PEOPLE}, {one: 1 + (one < 101) for one in PEOPLE}]
    both_have_read, read = threading.Barrier(2), RowSets._read_parts
    begun = threading.local()

    def reads_beside_the_other(self, table):
        kept = read(self, table)
        if not getattr(begun, "has_read", False):
            begun.has_read = True
            both_have_read.wait(10)
        return kept

    monkeypatch.setattr(RowSets, "_read_parts", reads_beside_the_other)
    answers = []
    threads = [
        threading.Thread(target=lambda j=job: answers.append(row_sets.add(TABLE, partition(j), 20)))
        for job in jobs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(answers) == {None: 1, 1: 1}


def test_rows_of_many_parts_are_read_as_they_were_written(row_sets, monkeypatch):
    monkeypatch.setattr("fedboost.runtime.policy.row_sets.PART_ROWS", 64)
    naive, draw = NaiveAtoms(), random.Random(3)
    for _ in range(8):
        job = random_job(draw)
        assert row_sets.add(TABLE, partition(job), 10) == naive.add(job, 10)


def test_changed_cells_are_a_damaged_store(row_sets, tmp_path):
    row_sets.add(TABLE, partition(dict.fromkeys(PEOPLE, 1)), 1)
    with row_sets._store.transaction() as sql:
        sql.execute("UPDATE atoms SET cells = zeroblob(length(cells))")
    with pytest.raises(StoreError, match="damaged"):
        row_sets.add(TABLE, partition(dict.fromkeys(PEOPLE, 1)), 1)


def test_ids_are_kept_as_hashes_under_a_key_of_the_store(tmp_path):
    ids = EncodedIds.of([b"anna", b"ben"])
    found = []
    for name in ("one", "two"):
        for _ in range(2):
            with Store(tmp_path / name, "party bank", lambda: 0.0) as store:
                found.append(RowSets(store).hashes(ids).tolist())
    assert found[0] == found[1] != found[2] == found[3]
    assert len({*found[0], *found[2]}) == 4


def leaning_job(draw, tried, people):
    """Sets by someone who wants few people: sets tried before, combined, with a few rows moved.

    Returns the set's number of each person: a job trains on one part and may hold out the other.
    """
    inside = np.zeros(people, np.bool_)
    for members in draw.sample(tried, min(len(tried), draw.randint(0, 3))):
        inside = draw.choice((np.logical_xor, np.logical_and, np.logical_or))(inside, members)
    start, width = draw.randrange(people), draw.choice((0, 1, 2, 5, 20, people // 2))
    inside[np.arange(start, start + width) % people] ^= True
    tried.append(inside)
    return np.where(inside, 1, draw.choice((0, 2))).astype(np.uint32)


SCHEDULES = 10_000 if tiers.runs(tiers.Tier.LONG) else 60
PEOPLE_FEW, JOBS = 80, 12


def leaned(row_sets, seed, least):
    """What an observer makes of the sums of a schedule's jobs, and how many were taken."""
    draw, tried, summed = random.Random(seed), list[Any](), list[Any]()
    table, taken = Owned(f"t{seed}-{least}", f"file:t{seed}-{least}"), 0
    hashes = hashes_of(range(PEOPLE_FEW))
    for _ in range(JOBS):
        numbers = leaning_job(draw, tried, PEOPLE_FEW)
        if row_sets.add(table, Atoms.of(hashes, {ALL_ROWS: numbers}), least) is None:
            taken += 1
            summed += [numbers == each for each in (1, 2) if (numbers == each).any()]
    return leverage(summed).max() if summed else 0.0, taken


def test_no_combination_of_the_sums_of_allowed_jobs_is_about_few_rows(row_sets):
    """Integer combinations are among all combinations, so one rank answers for every decoder."""
    most: Counter[int] = Counter()
    for seed in range(SCHEDULES):
        least = (5, 10, 20)[seed % 3]
        found, taken = leaned(row_sets, seed, least)
        assert found <= 1 / least + 1e-9, seed
        most[min(taken, 3)] += 1
    assert most[3] > SCHEDULES / 4  # jobs were taken, so there was something to combine


def test_the_observer_finds_single_rows_where_no_atom_is_refused(row_sets):
    found = [leaned(row_sets, seed, 1)[0] > 1 - 1e-9 for seed in range(60)]
    assert np.mean(found) > 0.7
