"""Tables that are odd: a job refuses before any payload leaves, or its model is the right one.

Odd numbers are trained on and compared with the pooled run; odd writing of the same numbers, ids
and names must come to the model of the plain table.
"""

import dataclasses
import functools
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedboost.ground.errors import ConfigError, DataError, FedboostError, JobError, PolicyError
from tests import tiers
from tests.support import gbun_jobs, horizontal_jobs, hybrid_jobs, secureboost_jobs, small_jobs
from tests.support.federated import PLAIN, now, run_job

REFUSALS = DataError | ConfigError | JobError | PolicyError
SMOKE = ("secureboost", "federboost-horizontal")  # some of whose cases run on each change
GUEST, HOST = small_jobs.PARTIES[:2]


# Networks of rows without a value give one margin to all, which proves nothing.
EMPTY = ("gbun", "no value at all")


def tried(cases):
    """Cases of protocols: every oddity in one of the few on each change, with `--all` in both."""
    few = [case for case in cases if case[0] in SMOKE]
    now_tried = tiers.of_each(few, itemgetter(0), itemgetter(1))
    return [
        pytest.param(*case, id="-".join(case), marks=[] if case in few else [pytest.mark.long])
        for case in cases
        if case in now_tried or case not in few
    ]


# Numbers: what is trained is what one place would have trained

HYBRID = {**PLAIN, "n_estimators": 2, "guest_depth": 2, "host_depth": 2, "max_bin": 8}
JOBS: dict[str, tuple[Any, dict[str, Any]]] = {
    "secureboost": (secureboost_jobs, {}),
    "federboost-horizontal": (horizontal_jobs, {"n_estimators": 2, "max_depth": 2}),
    "gbun": (gbun_jobs, {"n_estimators": 2, "outputs": 4}),
    "hybridtree": (hybrid_jobs, HYBRID),
}
LARGEST = float(np.finfo(np.float32).max)


def column(value):
    """The first column holds one value, or what a function makes of it."""

    def change(values):
        values[:, 0] = value(values[:, 0]) if callable(value) else value

    return change


NUMBERS = {
    "as they are": lambda _: None,
    "a constant": column(1.5),
    "a column of zeros": column(0.0),
    "a negative zero": column(lambda c: np.where(c > 0, 0.0, -0.0)),
    "a column without a value": column(np.nan),
    "a column with one value": column(lambda c: np.where(np.arange(len(c)) == 3, 1.0, np.nan)),
    "two values": column(lambda c: np.where(c > 0, 1.0, -1.0)),
    "subnormal numbers": column(lambda c: c * 1e-44),
    "neighbours": column(lambda c: np.where(c > 0, np.nextafter(np.float32(1), 2), 1.0)),
    "the largest numbers": column(lambda c: np.where(c > 0, LARGEST, -LARGEST)),
    "numbers of all sizes": column(lambda c: np.sign(c) * 10.0 ** (12 * np.abs(c) - 18)),
    "counts beyond float32": column(lambda c: np.round(c * 10) + 2.0**24),
    "every number another": column(lambda c: np.random.default_rng(3).permutation(len(c))),
    "no value at all": lambda values: values.fill(np.nan),
}


def arrays(job):
    """The tables of a job, to be changed in place."""
    return list(job.columns.values()) if hasattr(job, "columns") else [job.values]


def is_refused(job):
    """Whether the federated run refuses the tables; nothing has left anybody then."""
    room = job.room()
    try:
        now(room.walk())
    except FedboostError as error:
        refused = error
    else:
        return False
    assert isinstance(refused, REFUSALS), refused.lines()
    assert room.posted == []
    return True


def assert_pooled_or_refused(module, job):
    try:
        module.assert_pooled(job)
    except FedboostError:  # here or there
        assert is_refused(job)


@pytest.mark.some(6)
@pytest.mark.parametrize(
    ("protocol", "numbers"), tried([(p, n) for p in JOBS for n in NUMBERS if (p, n) != EMPTY])
)
def test_odd_numbers_train_the_pooled_model_or_are_refused(protocol, numbers):
    module, params = JOBS[protocol]
    job = module.made(dict(params))
    for values in arrays(job):
        NUMBERS[numbers](values)
    assert_pooled_or_refused(module, job)


ROWS = (1, 2, 3, 4, 5, 8, 13)


@pytest.mark.parametrize(
    "rows", [pytest.param(n, marks=[] if n < 4 else [pytest.mark.long]) for n in ROWS]
)
def test_few_rows_train_the_pooled_model_or_are_refused(rows):
    for held in (None, 0.5):
        job = secureboost_jobs.made({}, rows=rows, held=held)
        assert_pooled_or_refused(secureboost_jobs, dataclasses.replace(job, held=held))


# Whole jobs: what is refused leaves nothing, what is only written otherwise changes nothing


def every(change):
    """A change of everybody's table."""
    return lambda tables: {party: change(table) for party, table in tables.items()}


def at(party, change):
    """A change of one party's table."""
    return lambda tables: {**tables, party: change(tables[party])}


def with_column(name, make):
    """A table in which a column is another."""

    def change(table):
        made = make(table[name].to_pylist())
        values = made if isinstance(made, pa.Array) else pa.array(made)
        return table.set_column(table.column_names.index(name), name, values)

    return change


def first(name_of):
    """A change of the first column of numbers."""
    return lambda table: name_of(next(n for n in table.column_names if n.startswith("x")))(table)


def renamed(made):
    """A table whose first column of numbers has another name."""

    def change(table):
        old = next(n for n in table.column_names if n.startswith("x"))
        return table.rename_columns([made if n == old else n for n in table.column_names])

    return change


def doubled(table):
    """The same column twice."""
    name = next(n for n in table.column_names if n.startswith("x"))
    return table.append_column(name, table[name])


def replaced(values, place, value):
    return [*values[:place], value, *values[place + 1 :]]


def labels(make):
    """A change of the guest's labels."""
    return at(GUEST, with_column("y", make))


def texts(values):
    return pa.array(None if v is None else repr(v) for v in values)


SAME = {
    "numbers as text": every(first(lambda n: with_column(n, texts))),
    "numbers as doubles of text": at(HOST, first(lambda n: with_column(n, texts))),
    "coded numbers": every(
        first(lambda n: with_column(n, lambda v: pa.array(v).dictionary_encode()))
    ),
    "labels as numbers": labels(lambda y: list(map(float, y))),
    "labels as truth values": labels(lambda y: list(map(bool, y))),
    "labels as text": labels(lambda y: list(map(str, y))),
    "labels in a byte": labels(lambda y: pa.array(y, pa.int8())),
    "rows in another order": every(
        lambda table: table.take(np.random.default_rng(5).permutation(len(table)))
    ),
    "coded ids": every(with_column("id", lambda v: pa.array(v).dictionary_encode())),
    "ids of large text": every(with_column("id", lambda v: pa.array(v, pa.large_string()))),
    "columns read from chunks": every(
        lambda table: pa.concat_tables([table.slice(0, 100), table.slice(100)])
    ),
}
BAD = {
    "an infinite number": at(HOST, first(lambda n: with_column(n, lambda v: [*v[:-1], np.inf]))),
    "a number beyond float32": at(
        HOST, first(lambda n: with_column(n, lambda v: replaced(v, 2, 1e39)))
    ),
    "words among numbers": at(
        HOST, first(lambda n: with_column(n, lambda v: ["many", *map(str, v[1:])]))
    ),
    "a column of dates": at(
        HOST, first(lambda n: with_column(n, lambda v: pa.array([1] * len(v), pa.date32())))
    ),
    "a column of lists": at(HOST, first(lambda n: with_column(n, lambda v: [[1.0]] * len(v)))),
    "no rows": at(HOST, lambda table: table.slice(0, 0)),
    "no rows at the guest": at(GUEST, lambda table: table.slice(0, 0)),
    "no ids": at(HOST, lambda table: table.drop_columns(["id"])),
    "an id twice": at(HOST, with_column("id", lambda v: [v[1], *v[1:]])),
    "an id twice at the guest": at(GUEST, with_column("id", lambda v: [v[1], *v[1:]])),
    "a missing id": at(HOST, with_column("id", lambda v: [None, *v[1:]])),
    "ids that are numbers with a point": at(
        HOST, with_column("id", lambda v: [0.5 + n for n in range(len(v))])
    ),
    "no labels": at(GUEST, lambda table: table.drop_columns(["y"])),
    "a missing label": labels(lambda y: [None, *y[1:]]),
    "a label that is no number": labels(lambda y: [float("nan"), *map(float, y[1:])]),
    "an infinite label": labels(lambda y: [float("inf"), *map(float, y[1:])]),
    "one class": labels(lambda y: [1] * len(y)),
    "three classes": labels(lambda y: [2, *y[1:]]),
    "a negative class": labels(lambda y: [-1, *y[1:]]),
    "half a class": labels(lambda y: [0.5, *map(float, y[1:])]),
    "labels that are words": labels(lambda y: ["good" if v else "bad" for v in y]),
    "a column twice": at(HOST, doubled),
    "a column without a name": at(HOST, renamed("")),
    "a column named by a blank": at(HOST, renamed("  ")),
    "no columns": at(HOST, lambda table: table.select(["id"])),
}
NAMES = {
    "a path": "../../etc/passwd",
    "a class": "os.system",
    "a formula": "=1+1; DROP TABLE jobs",
    "a long name": "x" * 300,
    "another script": "größe 身長",
    "a line break": "x\ny",
    "a NUL": "x\0y",
    "a number": "0",
    "a word of ours": "margin",
}


# Only all parties together can tell that nobody has a row of another class.
BAD_OF = [
    (protocol, how)
    for protocol in small_jobs.TOYS
    for how in BAD
    if how != "one class" or small_jobs.TOYS[protocol].rows != "own"
]


@functools.cache
def plain(protocol, folder):
    """The job on the plain tables."""
    return run_job(
        folder / f"{protocol}-plain", small_jobs.tables(protocol), small_jobs.spec(protocol)
    )


def outcome(protocol, change, tmp_path):
    """The job on changed tables."""
    tables = change(small_jobs.tables(protocol))
    return run_job(tmp_path / "job", tables, small_jobs.spec(protocol))


def assert_same(done, expected):
    """All parties hold the model of the plain tables, but for its name and its columns' names.

    Nodes of hybrid trees are numbered in a secret order that is another one in every job; without
    scores their splits are drawn, so that only rows can be compared.
    """
    assert done.state == "finished", done.error.lines()
    if done.journal.status.name == "hybridtree-unscored":
        assert done.result["rows"] == expected.result["rows"]
        return
    assert done.shards.keys() == expected.shards.keys()
    is_hybrid = done.journal.status.protocol == "hybridtree"
    for party, shard in () if is_hybrid else done.shards.items():
        other = expected.shards[party]
        assert shard.arrays.keys() == other.arrays.keys()
        for name, array in shard.arrays.items():
            np.testing.assert_array_equal(array, other.arrays[name], strict=True)
    for key in ("rows", "metrics"):
        assert repr(done.result.get(key)) == repr(expected.result.get(key))


def assert_refused(done):
    """A typed error that names a party, and not a payload in anybody's ledger."""
    assert done.state == "failed"
    assert isinstance(done.error, REFUSALS), done.error.lines()
    assert done.error.what
    assert [row for rows in done.ledgers.values() for row in rows] == []
    assert done.shards == {}


@pytest.fixture(scope="session")
def plain_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("plain")


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("protocol", "how"), tried([(p, h) for p in small_jobs.TOYS for h in SAME])
)
def test_the_same_numbers_written_otherwise_train_the_same_model(
    protocol, how, tmp_path, plain_folder
):
    change = SAME[how]
    if "labels" in how and small_jobs.TOYS[protocol].rows == "own":
        change = every(change_of_labels(how))
    assert_same(outcome(protocol, change, tmp_path), plain(protocol, plain_folder))


def change_of_labels(how):
    """The same change of one table; where everybody has labels, of everybody's."""
    return lambda table: SAME[how]({GUEST: table})[GUEST]


@pytest.mark.some(12)
@pytest.mark.parametrize(("protocol", "how"), tried(BAD_OF))
def test_a_table_that_no_job_can_use_is_refused_before_anything_leaves(protocol, how, tmp_path):
    assert_refused(outcome(protocol, BAD[how], tmp_path))


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("protocol", "how"), tried([(p, h) for p in small_jobs.TOYS for h in NAMES])
)
def test_a_columns_name_is_only_a_name(protocol, how, tmp_path, plain_folder):
    own = small_jobs.TOYS[protocol].rows == "own"
    change = (every if own else functools.partial(at, HOST))(renamed(NAMES[how]))
    done = outcome(protocol, change, tmp_path)
    if done.state == "failed":
        assert_refused(done)
    else:
        assert_same(done, plain(protocol, plain_folder))
