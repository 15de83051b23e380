"""Sets of rows of honest jobs that by themselves are large, and together leave a single person.

Everybody is stock, and owners keep their default minima; what attackers combine is what anybody
reads who takes part. The defence is `Judge.judge_row_sets`, in every protocol and at every party.
"""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedboost.aggregation.contributor import Contributor
from fedboost.core import sampling
from fedboost.core.params import TreeParams
from fedboost.data.holdout import fold_rows, validation_rows
from fedboost.data.ids import encode_ids
from fedboost.data.sources import SourceSpec
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial
from fedboost.job import JobSpec
from fedboost.runtime.cluster import local
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.policy.judgement import Judge
from fedboost.runtime.transport import faults
from tests.support import small_jobs
from tests.support.federated import PLAIN, job_spec, now

DEFAULT = Policy()
FOLDS, VALUES = 6, 8
TWO_FOLDS_LESS_ONE_ROW = 2 / FOLDS - 0.0008
HELD = [
    {"fold": 0, "folds": FOLDS},
    {"fold": 1, "folds": FOLDS},
    {"fraction": TWO_FOLDS_LESS_ONE_ROW},
]


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A function that runs jobs on tables, one after the other, and gives how each stands.

    Parties have the minima that `owners` names by party, and those of everybody else are 1.
    """

    def run(tables, specs, owners, between=lambda: None):
        permissive = local.permissive_policy

        def policy(name, *args, **kwargs):
            return permissive(name, *args, **kwargs).model_copy(update=owners.get(name, {}))

        monkeypatch.setattr(local, "permissive_policy", policy)
        sources = {}
        for party, table in tables.items():
            path = tmp_path / f"{party}.parquet"
            pq.write_table(pa.table(table), path)
            sources[party] = SourceSpec(path=str(path))

        async def all_of_them():
            journals = []
            async with local.open_cluster(tmp_path / "c", specs[0], sources, Serial()) as cluster:
                for spec in specs:
                    journals.append(await cluster.run(spec))
                    between()
            return journals

        return now(all_of_them())

    return run


def rows_of(held, ids):
    """Which rows a job holds out, as everybody can tell who knows the ids."""
    coded = encode_ids([pa.chunked_array([pa.array(ids)])], ["id"])
    if "fold" in held:
        return fold_rows(coded, held["fold"], held["folds"], 0)
    return validation_rows(coded, held["fraction"], 0)


def the_one_row(ids):
    """The row that two folds hold out and the share of nearly two folds does not."""
    first, second, share = (rows_of(held, ids) for held in HELD)
    [row] = np.flatnonzero((first | second) & ~share)
    return row


def refusal(journal):
    """Where the error stands by which a job was refused, and that nothing was told before."""
    assert journal.status.state == "failed"
    assert not any(event.WhichOneof("what") == "round" for event in journal.events)
    return faults.error_of_fault(journal.status.reason)


# Four jobs of three parties add up to one row of one of them


SIZES = {"aa": 600, "bb": 600, "cc": 720}  # of the others the share rounds to both folds
COLUMNS = ("x0", "x1", "x2")
CELLS = len(COLUMNS) * (VALUES + 1) * 2
HORIZONTAL = [None, *HELD]


def horizontal_tables():
    draw = np.random.default_rng(3)
    return {
        name: {
            "id": [f"{name}{i:04d}" for i in range(rows)],
            "y": draw.integers(0, 2, rows),
            **{column: draw.integers(0, VALUES, rows).astype(float) for column in COLUMNS},
        }
        for name, rows in SIZES.items()
    }


def horizontal(held, **more):
    params = {
        **more, "n_estimators": 1, "max_depth": 1, "max_bin": VALUES, "base_score": 0.5,
        "domains": {column: [float(v) for v in range(VALUES)] for column in COLUMNS},
    }  # fmt: skip
    data = {name: {"label": "y"} for name in SIZES}
    stage = "federboost-horizontal"
    spec = job_spec(stage, list(SIZES), data=data, params=params, validation=held)
    return spec.model_copy(
        update={"parties": spec.parties.model_copy(update={"aggregator": "sum"})}
    )


@pytest.fixture
def roots(monkeypatch):
    """The first total that the guest reads in each job: every root's, of all parties."""
    seen, real = {}, Contributor.total

    def total(self, parts, most):
        read = real(self, parts, most)
        if self.party == "aa" and self._fresh == 0 and read is not None:
            whole = read[: len(read) // CELLS * CELLS]
            seen[self._context.job] = whole.reshape(-1, len(COLUMNS), VALUES + 1, 2).copy()
        return read

    monkeypatch.setattr(Contributor, "total", total)
    return seen


def by_default(*keys):
    return {key: getattr(DEFAULT, key) for key in keys}


OWNERS = dict.fromkeys(SIZES, by_default("holdout_rows_min", "own_rows_min"))


def test_four_horizontal_jobs_do_not_leave_one_person(ran, roots):
    specs = [horizontal(held) for held in HORIZONTAL]
    journals = ran(horizontal_tables(), [*specs, specs[1]], OWNERS)
    states = [journal.status.state for journal in journals]
    assert states == ["finished", "finished", "finished", "failed", "finished"]
    error = refusal(journals[3])
    assert (error.where["party"], error.where["key"]) == ("cc", "policy.holdout_rows_min")
    assert journals[3].status.id not in roots
    assert "earlier job" in error.todo


def test_four_horizontal_jobs_left_one_person_where_sets_were_not_taken_together(
    ran, roots, monkeypatch
):
    monkeypatch.setattr(Judge, "judge_row_sets", lambda *_: lambda: None)
    tables = horizontal_tables()
    journals = ran(tables, [horizontal(held) for held in HORIZONTAL], OWNERS)
    everybody, first, second, share = (roots[journal.status.id][0] for journal in journals)
    row = the_one_row(tables["cc"]["id"])
    assert_is_person(everybody + share - first - second, tables["cc"], row)


def assert_is_person(alone, table, row):
    """The sums of one row tell its columns and its label."""
    cells = np.abs(alone[:, :, 1]).argmax(axis=1)
    assert cells.tolist() == [table[column][row] for column in COLUMNS]
    assert int(alone[0, cells[0], 0] < 0) == table["y"][row]


# The metrics of three sets of held-out rows are one label


PEOPLE = [f"p{n:04d}" for n in range(720)]
LABELS = np.random.default_rng(3).integers(0, 2, len(PEOPLE))
BANK, TELCO = "bank", "telco"
SURE = {"base_score": 0.9, "learning_rate": 1e-6}  # a label of 0 costs much more than one of 1
PARAMS = {"n_estimators": 1, "max_depth": 1, "max_bin": 8, **SURE, **PLAIN}
VALUES_OF_X = np.random.default_rng(4).integers(0, 8, len(PEOPLE)) * 1.0
VERTICAL = {BANK: {"id": PEOPLE, "y": LABELS}, TELCO: {"id": PEOPLE, "x": VALUES_OF_X}}


def vertical(held):
    params = {**PARAMS, "eval_metric": ["logloss"]}
    return job_spec("secureboost", [BANK, TELCO], params=params, validation=held)


def losses(journals):
    """The logloss of the held-out rows of each job."""
    for journal in journals:
        told = [e.round.metrics for e in journal.events if e.WhichOneof("what") == "round"]
        yield [m.value for one in told for m in one if m.split == "validation"][-1]


def test_metrics_of_three_sets_do_not_leave_one_label(ran):
    specs = [vertical(held) for held in HELD]
    journals = ran(VERTICAL, specs, {BANK: by_default("holdout_rows_min")})
    assert [journal.status.state for journal in journals] == ["finished", "finished", "failed"]
    error = refusal(journals[2])
    assert (error.where["party"], error.where["key"]) == (BANK, "policy.holdout_rows_min")


def test_metrics_of_three_sets_left_one_label_where_sets_were_not_taken_together(ran, monkeypatch):
    monkeypatch.setattr(Judge, "judge_row_sets", lambda *_: lambda: None)
    owners = {BANK: by_default("holdout_rows_min")}
    first, second, share = losses(ran(VERTICAL, [vertical(held) for held in HELD], owners))
    counts = [int(rows_of(held, PEOPLE).sum()) for held in HELD]
    loss = counts[0] * first + counts[1] * second - counts[2] * share
    assert int(loss < -math.log(0.5)) == LABELS[the_one_row(PEOPLE)]


# A host's sums over all rows, and over all but one


ALL_BUT = [{"fraction": rows / len(PEOPLE)} for rows in (100, 101)]


def test_a_host_sums_no_rows_that_differ_by_one_person_from_an_earlier_jobs(ran, heard):
    specs = [vertical(held) for held in (*ALL_BUT, ALL_BUT[0])]
    journals = ran(VERTICAL, specs, {TELCO: by_default("group_rows_min")})
    assert [journal.status.state for journal in journals] == ["finished", "failed", "finished"]
    error = refusal(journals[1])
    assert (error.where["party"], error.where["key"]) == (TELCO, "policy.group_rows_min")


def test_a_hosts_sums_left_one_person_where_it_did_not_look_at_sets(ran, heard, monkeypatch):
    """The guest puts the sums of the root in order by their hessians, and takes the differences."""
    monkeypatch.setattr(Judge, "judge_row_sets", lambda *_: lambda: None)
    roots = []

    def note_the_root():
        roots.append(np.sort(heard[0][:, 1]))
        heard.clear()

    owners = {TELCO: by_default("group_rows_min")}
    ran(VERTICAL, [vertical(held) for held in ALL_BUT], owners, note_the_root)
    more, fewer = roots
    cut = int(np.flatnonzero(more != fewer)[0])
    fewer_held, more_held = (rows_of(held, PEOPLE) for held in ALL_BUT)
    [person] = np.flatnonzero(more_held & ~fewer_held)
    assert cut == VALUES_OF_X[person]


# Two trees with equal gradients, whose rows differ by one person


NEARLY_ALL = 0.9995
PAIRS = {
    "trees of a round": [{"forest": {"n_trees": 2, "subsample": NEARLY_ALL}}],
    "first trees of two jobs": [{}, {"subsample": NEARLY_ALL}],
}


def left_out(says, seed, counts):
    """The rows that each tree of the first round leaves out, of each party that draws."""
    params = TreeParams(**says, seed=seed)
    drawn = [sampling.tree_rows(params, n, 0, 0, party) for party, n in enumerate(counts)]
    every = [np.arange(n) for n in counts]
    return [list(map(np.setdiff1d, every, part)) for part in zip(*drawn, strict=True)]


def searched(says, counts):
    """A seed by which the round's last tree leaves out one row of the last party, and no other tree
    any; and that row.
    """
    expected = [[0] * len(counts)] * (len(left_out(says, 0, counts)) - 1)
    expected.append([0] * (len(counts) - 1) + [1])
    for seed in range(10_000):
        trees = left_out(says, seed, counts)
        if [[len(part) for part in tree] for tree in trees] == expected:
            return seed, int(trees[-1][-1][0])
    raise AssertionError("no seed leaves out one row")


def horizontal_pair(pair):
    seed, row = searched(pair[-1], list(SIZES.values()))
    return [horizontal(None, seed=seed, **says) for says in pair], row


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_contributors_sum_no_two_trees_that_differ_by_one_person(pair, ran, roots):
    specs, _ = horizontal_pair(pair)
    journals = ran(horizontal_tables(), specs, OWNERS)
    assert [journal.status.state for journal in journals[:-1]] == ["finished"] * (len(pair) - 1)
    error = refusal(journals[-1])
    assert (error.where["party"], error.where["key"]) == ("cc", "policy.holdout_rows_min")
    assert journals[-1].status.id not in roots
    assert "another seed" in error.todo


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_two_trees_of_contributors_left_one_person_where_draws_were_not_counted(
    pair, ran, roots, monkeypatch
):
    monkeypatch.setattr(sampling, "check_draws", lambda *_, **__: None)
    tables, (specs, row) = horizontal_tables(), horizontal_pair(pair)
    journals = ran(tables, specs, OWNERS)
    more, fewer = np.concatenate([roots[journal.status.id] for journal in journals])
    assert_is_person(more - fewer, tables["cc"], row)


def vertical_pair(pair):
    seed, row = searched(pair[-1], [len(PEOPLE)])
    specs = [vertical(None) for _ in pair]
    params = [{**spec.params, **says, "seed": seed} for spec, says in zip(specs, pair, strict=True)]
    return [s.model_copy(update={"params": p}) for s, p in zip(specs, params, strict=True)], row


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_a_host_sums_no_two_trees_that_differ_by_one_person(pair, ran):
    specs, _ = vertical_pair(pair)
    journals = ran(VERTICAL, specs, {TELCO: by_default("group_rows_min")})
    assert [journal.status.state for journal in journals[:-1]] == ["finished"] * (len(pair) - 1)
    error = refusal(journals[-1])
    assert (error.where["party"], error.where["key"]) == (TELCO, "policy.group_rows_min")


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_two_trees_of_a_host_left_one_person_where_draws_were_not_counted(
    pair, ran, heard, monkeypatch
):
    monkeypatch.setattr(sampling, "check_draws", lambda *_, **__: None)
    specs, row = vertical_pair(pair)
    ran(VERTICAL, specs, {TELCO: by_default("group_rows_min")})
    more, fewer = (np.sort(root[:, 1]) for root in heard)
    read = np.append(more != fewer, True).argmax()  # no sum of a left side has the last bin
    assert read == VALUES_OF_X[row]


# Every protocol, at everybody whose rows are summed or measured


BOTH = {"holdout_rows_min": 10, "group_rows_min": 10}
GUEST, HOST = small_jobs.PARTIES[:2]
LABELLED, SUMMED = "policy.holdout_rows_min", "policy.group_rows_min"


def toy(name, held):
    return parse_settings(
        JobSpec, {**small_jobs.raw(name), "validation": {"fraction": held, "seed": 7}}
    )


@pytest.mark.parametrize(
    ("name", "party", "key"),
    [
        ("secureboost", GUEST, LABELLED),
        ("secureboost", HOST, SUMMED),
        ("hybridtree", GUEST, LABELLED),
        ("hybridtree", HOST, SUMMED),
        ("federboost-vertical", GUEST, LABELLED),
        ("federboost-horizontal", GUEST, LABELLED),
        ("federboost-horizontal", HOST, LABELLED),
        ("gbun", GUEST, LABELLED),
        ("gbun", HOST, LABELLED),
    ],
)
def test_a_job_that_leaves_few_rows_is_refused_in_every_protocol(ran, name, party, key):
    """Rows held out are a fifth and another, a fifth and nearly as many, and a fifth again."""
    specs = [toy(name, held) for held in (0.2, 0.5, 0.21, 0.2)]
    journals = ran(small_jobs.tables(name), specs, {party: BOTH})
    states = [journal.status.state for journal in journals]
    assert states == ["finished", "finished", "failed", "finished"]
    error = refusal(journals[2])
    assert (error.where["party"], error.where["key"]) == (party, key)


def test_a_host_that_sums_nothing_looks_at_no_sets(ran):
    specs = [toy("federboost-vertical", held) for held in (0.2, 0.21)]
    journals = ran(small_jobs.tables("federboost-vertical"), specs, {HOST: BOTH})
    assert [journal.status.state for journal in journals] == ["finished", "finished"]


def test_a_job_that_another_party_refuses_leaves_no_sets(ran):
    """The guest would refuse the third job's, had it kept the second one's: they differ by ten."""
    owners = {GUEST: {"holdout_rows_min": 15}, HOST: {"group_rows_min": 50}}
    specs = [toy("secureboost", rows / small_jobs.ROWS) for rows in (60, 105, 115)]
    journals = ran(small_jobs.tables("secureboost"), specs, owners)
    assert [journal.status.state for journal in journals] == ["finished", "failed", "finished"]
    assert refusal(journals[1]).where["party"] == HOST


@pytest.mark.parametrize(
    ("name", "party", "key"),
    [
        ("secureboost", HOST, SUMMED),
        ("hybridtree", HOST, SUMMED),
        ("federboost-horizontal", GUEST, LABELLED),
        ("federboost-horizontal", HOST, LABELLED),
    ],
)
def test_a_job_whose_trees_leave_out_few_rows_is_refused_in_every_protocol(ran, name, party, key):
    """Trees leave out a fiftieth of the training rows, goss a hundredth, and trees half of them."""
    few: list[small_jobs.Raw] = [
        {"subsample": 0.98},
        {"goss": {"top_rate": 0.5, "other_rate": 0.49}},
    ]
    specs = [small_jobs.spec(name, **says) for says in (*few, {"subsample": 0.5})]
    journals = ran(small_jobs.tables(name), specs, {party: BOTH})
    assert [journal.status.state for journal in journals] == ["failed", "failed", "finished"]
    for journal in journals[:2]:
        error = refusal(journal)
        assert (error.where["party"], error.where["key"]) == (party, key)
