"""Are trees under the lattice schemes those of the same integers unencrypted? Bit for bit."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csc_array

from fedboost.encrypted.host import tree as host_tree
from fedboost.encrypted.lattice import answers as lattice_answers
from fedboost.encrypted.scheme.host_noise import HostNoise
from fedboost.messages.protocol import encrypted_pb2 as pb
from tests.equivalence.test_warm_start_jobs import assert_same_model
from tests.support import hybrid_jobs
from tests.support.contexts import altered
from tests.support.federated import GUEST, HOSTS, Room, now, with_seed
from tests.support.lattice_jobs import (
    LATTICE,
    LATTICE_4096,
    LATTICE_LARGE,
    RINGS,
    assert_as_plain,
    assert_plain_twin,
    plain_as,
    under,
)
from tests.support.secureboost_jobs import CLASSES, SAMPLES, VECTORS, Job, made

pytestmark = pytest.mark.usefixtures("eager")

MANY = {"objective": "multi:softprob", "num_class": 6}


def of_many_classes(job):
    """Labels of all six classes."""
    pull = np.nansum(np.concatenate(list(job.columns.values()), axis=1), axis=1)
    y = np.digitize(pull, np.quantile(pull, np.arange(1, 6) / 6)).astype(np.float64)
    return replace(job, y=y)


MODES = {
    "default": {},
    "mix": {"mode": "mix", "n_estimators": 4},
    "mix of pairs": {"mode": "mix", "trees_per_party": 2, "n_estimators": 6},
    "layered": {"mode": "layered", "host_depth": 2, "guest_depth": 1},
}
LEARNED = {
    "binary": {},
    "classes": CLASSES,
    "vectors": VECTORS,
    "squared errors": {"objective": "reg:squarederror"},
    "medians": {"objective": "reg:absoluteerror"},
    "counts": {"objective": "count:poisson"},
}


ANSWERS = ("vectors", "packed")


@pytest.mark.once
@pytest.mark.parametrize("answers", ANSWERS)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("learned", LEARNED.values(), ids=LEARNED)
def test_every_mode_and_objective_grows_the_plain_trees(mode, learned, answers):
    job = made({"n_estimators": 2, **mode, **learned}, weighted=True)
    done = assert_as_plain(job, answers=answers)
    assert done.room.state(GUEST).side.answers_in_words().startswith(answers)
    assert sum(len(done.shards[host].arrays["tree"]) for host in HOSTS[:2])


def test_the_twin_is_another_job_without_the_lattices_integers():
    job = made({"n_estimators": 2, "precision_bits": None})
    plain, lattice = now(job.room().walk()), now(under(job, LATTICE).room().walk())
    values = [shards[GUEST].arrays["value"] for shards in (plain, lattice)]
    assert values[0].shape != values[1].shape or (values[0] != values[1]).any()


SAMPLED = {
    **SAMPLES,
    "goss with classes": {**SAMPLES["goss"], **CLASSES},
    "goss with vectors": {**SAMPLES["goss"], **VECTORS},
    "forest": {"forest": {"n_trees": 3, "subsample": 0.6}},
    "moving forest": {
        "forest": {"dynamic": {"n_trees": [3, 1], "subsample": [0.5, 1.0]}},
        "n_estimators": 4,
    },
    "forest of classes": {"forest": {"n_trees": 2, "colsample_bytree": 0.7}, **CLASSES},
    "forest of vectors": {"forest": {"n_trees": 2, "subsample": 0.8}, **VECTORS},
}


SHARED = {
    "trees": {"n_estimators": 5},
    "mix": {"mode": "mix", "n_estimators": 8},
    "classes": {"n_estimators": 2, **CLASSES},
    "forest": {"forest": {"n_trees": 2, "subsample": 0.6}, "n_estimators": 3},
}


@pytest.mark.some(2)
@pytest.mark.parametrize("answers", ANSWERS)
@pytest.mark.parametrize("params", SHARED.values(), ids=SHARED)
def test_trees_under_one_secret_grow_the_plain_trees(params, answers):
    done = assert_as_plain(made(params), answers=answers, key_trees=4)
    sent = [p for p in done.room.posted if isinstance(p.message, pb.EncryptedGradients)]
    keys = [len(p.message.tree_key) for p in sent if p.message.tree_key]
    assert (min(keys) < max(keys)) == (answers == "packed")
    assert min(keys) == 28672 + 32


def test_trees_of_the_ring_for_many_rows_share_a_secret_and_take_noise(monkeypatch):
    done = assert_as_plain(made({"n_estimators": 3}), LATTICE_LARGE, key_trees=2)
    sent = [p for p in done.room.posted if isinstance(p.message, pb.EncryptedGradients)]
    keys = {len(p.message.tree_key) for p in sent if p.message.tree_key}
    assert keys == {32 + 2 * 4096 * 8}  # a nonce and b' of each output: nothing to pack with
    # Other ciphertexts meet other noise: it is the same where it goes by the question alone.
    monkeypatch.setattr(HostNoise, "bound_to", lambda noise, *_: noise)
    assert_as_plain(made({"n_estimators": 2, "host_noise": 1.0}), LATTICE_LARGE)


def test_hosts_of_hybridtree_share_the_trees_of_a_secret():
    job = hybrid_jobs.made({"n_estimators": 4})
    assert_as_plain(job, answers="packed", key_trees=3)


@pytest.mark.some(2)
@pytest.mark.parametrize("answers", ANSWERS)
@pytest.mark.parametrize("params", SAMPLED.values(), ids=SAMPLED)
def test_samples_and_forests_grow_the_plain_trees(params, answers):
    assert_as_plain(made({"n_estimators": 3, **params}, rows=200), answers=answers)


@pytest.mark.parametrize("scheme", [LATTICE, LATTICE_4096])
@pytest.mark.parametrize("answers", ANSWERS)
@pytest.mark.parametrize("trees", [{}, {"multi_output": True}], ids=["trees", "vectors"])
def test_more_outputs_than_share_a_vector_grow_the_plain_trees(trees, scheme, answers):
    job = of_many_classes(made({**MANY, **trees, "n_estimators": 2, "max_depth": 2}))
    done = assert_as_plain(job, scheme, answers=answers)
    assert done.room.state(GUEST).outputs_of_tree == (6 if trees else 1)


@pytest.mark.some(2)
@pytest.mark.parametrize("scheme", RINGS)
@pytest.mark.parametrize("missing", [0.0, 0.3], ids=["whole", "missing"])
@pytest.mark.parametrize("categories", [0, 6], ids=["numbers", "categories"])
def test_missing_values_and_categories_grow_the_plain_trees(missing, categories, scheme):
    job = made({}, rows=150, missing=missing, categories=categories)
    done = assert_as_plain(job, scheme)
    grouped = [p.message.HasField("columns") for p in done.room.posted if offers(p)]
    assert any(grouped) == bool(categories)


def offers(posted):
    """Whether a message offers sums and says how many."""
    return isinstance(posted.message, pb.CandidateSums) and posted.message.HasField("candidates")


SWITCHES = ("histogram_subtraction", "sparse_histograms")


@pytest.mark.parametrize("on", list(itertools.product([True, False], repeat=2)), ids=str)
def test_no_switch_changes_the_trees(on):
    job = made({**dict(zip(SWITCHES, on, strict=True)), "max_depth": 4}, zero=0.6, missing=0.15)
    assert_as_plain(job)


@pytest.mark.parametrize("parties", [HOSTS[:1], (GUEST, *HOSTS[:2])], ids=["one", "all"])
def test_sparse_tables_grow_the_plain_trees(parties):
    job = made({"max_depth": 4}, rows=200, zero=0.8)

    def room(scheme):
        whole = under(job, scheme).room()
        contexts = dict(whole.contexts)
        for party in parties:
            frame = contexts[party].frame
            sparse = replace(frame, values=csc_array(frame.values))
            contexts[party] = replace(contexts[party], frame=sparse)
        return Room(whole.protocol, contexts)

    assert_plain_twin(room(LATTICE), room("plain"))


@pytest.mark.parametrize("bits", [8, 11, 15])
def test_fewer_bits_are_the_plain_schemes_fewer_bits(bits):
    done = assert_as_plain(made({"precision_bits": bits}))
    assert done.room.state(GUEST).rules.fixed.bits == bits


@pytest.mark.parametrize("of", [hybrid_jobs.made, made], ids=["hybridtree", "secureboost"])
def test_the_same_job_is_the_same_model_again_and_under_every_scheme_of_as_many_bits(of):
    """Whatever its parties' secrets are: gradients are rounded by what the job's seed draws."""

    def margins(scheme, secrets, seed=0):
        job = of({"precision_bits": 12, "n_estimators": 2, "subsample": 0.8, "seed": seed})
        own = with_seed(under(job, scheme).room(), secrets)
        others = {
            name: altered(context, secrets={"job": context.secrets.attempt.child("job")})
            for name, context in own.contexts.items()
        }
        room = Room(own.protocol, others)
        now(room.walk())
        return room.state(GUEST).margin.tobytes()

    first = margins(LATTICE, b"first")
    for scheme in (*RINGS, "plain", "okamoto-uchiyama"):
        assert margins(scheme, b"second") == first
    assert margins(LATTICE, b"first", seed=1) != first


def test_validation_rows_stop_the_job_where_plain_ones_do():
    more = {"n_estimators": 12, "early_stopping_rounds": 2, "learning_rate": 1.0}
    done = assert_as_plain(made(more, held=0.4))
    assert len(done.room.state(GUEST).history) < 12


NARROW = {
    "hosts without columns to use": {"colsample_bytree": 0.2},
    "no bins": {"max_bin": 2},
    "few rows": {"subsample": 0.02, "min_child_weight": 0.0},
}


@pytest.mark.parametrize("params", NARROW.values(), ids=NARROW)
def test_nodes_with_little_to_offer_grow_the_plain_trees(params):
    job = made({"n_estimators": 5, **params}, (2, 1, 3), missing=0.0)
    constant = {party: values.copy() for party, values in job.columns.items()}
    constant[HOSTS[0]][:] = 1.0  # a column without a threshold
    assert_as_plain(replace(job, columns=constant))


# In parts: what fits into memory, and into a message


def counted(monkeypatch):
    """How many nodes are added up at once, time after time."""
    together, sums = [], host_tree.HostTree.candidates

    def noted(self, rows, nodes, *order):
        together.append(len(nodes))
        return sums(self, rows, nodes, *order)

    monkeypatch.setattr(host_tree.HostTree, "candidates", noted)
    return together


@pytest.mark.some(2)
@pytest.mark.parametrize("kept", [0, 1 << 20, 1 << 29], ids=["nothing kept", "some", "all"])
@pytest.mark.parametrize("params", [{"max_depth": 4}, {"forest": {"n_trees": 3}}], ids=str)
@pytest.mark.parametrize("scheme", ["plain", LATTICE])
def test_nodes_in_small_groups_grow_the_same_trees(scheme, params, kept, monkeypatch):
    job = under(made({**params, "n_estimators": 2}, zero=0.5, categories=4), scheme)
    whole = job.room()
    expected = now(whole.walk())
    together = counted(monkeypatch)
    cell = 16 if scheme == "plain" else 8 * 2050
    monkeypatch.setattr(host_tree, "CELLS_BYTES_MAX", 60 * cell)  # of some thirty cells a node
    monkeypatch.setattr(host_tree, "KEPT_BYTES_MAX", kept * cell // (8 * 2050))
    room = job.room()
    found = now(room.walk())
    assert_same_model(found, expected)
    assert room.state(GUEST).margin.tobytes() == whole.state(GUEST).margin.tobytes()
    assert max(together) <= 3
    parts = [p for p in room.posted if offers(p)]
    assert len(parts) > len([p for p in whole.posted if offers(p)])


def rows_added(monkeypatch, job, data, kept=host_tree.KEPT_BYTES_MAX):
    """How many rows the hosts of a job add up, all nodes together, in groups of so many bytes."""
    added: list[int] = []
    own = host_tree.HostTree._to_add

    def noted(self, nodes):
        chosen = own(self, nodes)
        added.extend(len(self.growth.training.rows(node)) for node in chosen)
        return chosen

    with monkeypatch.context() as patch:
        patch.setattr(host_tree.HostTree, "_to_add", noted)
        patch.setattr(host_tree, "CELLS_BYTES_MAX", data)
        patch.setattr(host_tree, "KEPT_BYTES_MAX", kept)
        now(job.room().walk())
    return sum(added)


@pytest.mark.parametrize("more", [{}, {"forest": {"n_trees": 3}}], ids=["trees", "forests"])
def test_small_groups_add_up_no_row_again(more, monkeypatch):
    job = made({**more, "max_depth": 5, "n_estimators": 1}, rows=400, zero=0.3)
    least = rows_added(monkeypatch, job, 1 << 26)
    assert rows_added(monkeypatch, job, 1) == least
    assert rows_added(monkeypatch, job, 1 << 26, 0) > 1.5 * least


def test_trees_that_grow_at_once_share_the_room_for_cells(monkeypatch):
    held = []
    keep = host_tree.HostTree._keep_cells

    def noted(self, histograms, rows):
        keep(self, histograms, rows)
        held.append((len(self._cells), self.n_bytes(rows)))

    monkeypatch.setattr(host_tree.HostTree, "_keep_cells", noted)
    monkeypatch.setattr(host_tree, "KEPT_BYTES_MAX", 4 << 20)
    now(under(made({"forest": {"n_trees": 4}, "n_estimators": 1}), LATTICE).room().walk())
    assert max(nodes * each for nodes, each in held) <= 1 << 20
    assert max(nodes for nodes, _ in held) > 0


@pytest.mark.parametrize("each", [1, 7])
def test_answers_in_small_parts_grow_the_same_trees(each, monkeypatch):
    monkeypatch.setattr(lattice_answers, "ANSWERS_EACH", each)
    done = assert_as_plain(made({"n_estimators": 2}, categories=4))
    counts = [p.message.packages.count for p in done.room.posted if is_sums(p)]
    assert max(counts) == each


def is_sums(posted):
    return isinstance(posted.message, pb.CandidateSums)


def test_rows_in_small_parts_grow_the_same_trees(monkeypatch):
    monkeypatch.setattr(lattice_answers, "BLOCKS_EACH", 1)
    done = assert_as_plain(made({"n_estimators": 1, "max_depth": 2, "max_bin": 4}, rows=7000))
    sent = [p for p in done.room.posted if isinstance(p.message, pb.EncryptedGradients)]
    assert {p.message.first_row for p in sent} == {0, 2048, 4096}
    assert all(bool(p.message.tree_key) == (p.envelope.part == 0) for p in sent)


# hybridtree


HYBRID = {
    "binary": {},
    "classes": CLASSES,
    "vectors": VECTORS,
    "goss": SAMPLES["goss"],
    "samples": SAMPLES["both"],
    "deep": {"guest_depth": 1, "host_depth": 3},
    "no subtraction": {"histogram_subtraction": False, "host_depth": 3},
    "fewer bits": {"precision_bits": 9},
}


@pytest.mark.some(2)
@pytest.mark.parametrize("answers", ANSWERS)
@pytest.mark.parametrize("params", HYBRID.values(), ids=HYBRID)
def test_hybridtree_grows_the_plain_trees(params, answers):
    done = assert_as_plain(hybrid_jobs.made(params, weighted=True), answers=answers)
    assert sum(len(done.shards[host].arrays["tree"]) for host in HOSTS[:2])


def test_hybridtree_of_many_outputs_grows_the_plain_trees():
    job = hybrid_jobs.made({**MANY, "multi_output": True, "n_estimators": 1}, rows=240)
    pull = np.nansum(job.columns[GUEST], axis=1)
    y = np.digitize(pull, np.quantile(pull, np.arange(1, 6) / 6)).astype(np.float64)
    done = assert_as_plain(replace(job, y=y), LATTICE_4096)
    assert done.room.state(GUEST).outputs_of_tree == 6


TABLES = {
    "missing": {"missing": 0.4},
    "categories": {"categories": 5},
    "sparse": {"zero": 0.8, "sparse": (GUEST, *HOSTS[:2])},
    "uneven": {"shares": [range(3), range(40, 120)]},
}


@pytest.mark.some(2)
@pytest.mark.parametrize("how", TABLES.values(), ids=TABLES)
def test_hybridtree_grows_the_plain_trees_on_every_table(how):
    assert_as_plain(hybrid_jobs.made({"host_depth": 3}, **how))


def test_hosts_of_hybridtree_have_streams_of_their_own_length(monkeypatch):
    monkeypatch.setattr(lattice_answers, "BLOCKS_EACH", 1)
    shares = [range(10), range(6000)]
    job = hybrid_jobs.made({"n_estimators": 1, "max_bin": 4}, rows=6000, shares=shares)
    done = assert_as_plain(job)
    sent = [p for p in done.room.posted if p.envelope.step == "encrypt_gradients"]
    rows: dict[str, list[int]] = {host: [] for host in HOSTS[:2]}
    for posted in sent:
        rows[posted.envelope.receiver].append(posted.message.gradients.rows.count)
    assert [count > 0 for count in rows[HOSTS[0]]] == [True, False, False]
    assert all(rows[HOSTS[1]])


def test_the_guest_rounds_at_random_and_without_bias():
    """Another seed draws other integers for the same gradients; both are one unit apart at most."""
    drawn = []
    for seed in (1, 2):
        job = made({"n_estimators": 1, "max_depth": 1, "seed": seed}, rows=2000)
        room = under(job, LATTICE).room()
        now(room.until("open_layer"))
        drawn.append(room.state(GUEST).round.gh)
    gaps = np.abs(drawn[0] - drawn[1])
    assert gaps.max() == 1
    assert isinstance(job, Job)
    twin = job.room()
    with plain_as(LATTICE):
        now(twin.walk())
    guest = twin.state(GUEST)
    params = guest.params
    assert params.encryption.scheme == "plain"
    fixed, train = guest.rules.fixed, guest.context.parts["train"]
    g, h = guest.objective.gradients(
        np.tile(guest.base_margin, (len(job.y), 1))[train], guest.y[train], guest.weight[train]
    )
    exact = np.column_stack([g / fixed.g_unit, h / fixed.h_unit]).sum(axis=0)
    spread = np.sqrt(len(train)) / 2  # of a sum of rounding errors, at most
    for gh in drawn:
        assert (np.abs(gh[train].sum(axis=0) - exact) < 6 * spread).all()
