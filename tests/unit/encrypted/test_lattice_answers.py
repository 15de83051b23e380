"""How many sums share a ciphertext of a lattice's answers, and how they are cut."""

from functools import partial

import pytest

from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.parameters import by_name
from fedboost.encrypted.lattice import answers as lattice_answers
from fedboost.encrypted.lattice.answers import VECTORS, best_slots, cost_of, cut_into_runs, in_words
from fedboost.encrypted.scheme.ciphers import AnswersSeen
from fedboost.encrypted.scheme.params import EncryptedTreeParams
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings

ROWS = 30_000


def params(**encryption):
    return parse_settings(
        EncryptedTreeParams,
        {"max_depth": 5, "max_bin": 32, "encryption": {"scheme": "lattice", **encryption}},
    )


def seen(*sums, keys=1):
    return AnswersSeen(last=(keys, list(sums)))


BUDGET = Budget(by_name("lattice"), ROWS)
LARGE = Budget(by_name("lattice-large"), ROWS)


@pytest.mark.parametrize(
    ("sums", "key_trees", "slots"),
    [
        ([5] * 5, 1, VECTORS),
        ([60] * 5, 1, 32),
        ([320, 320, 640, 640, 1080], 1, 32),
        ([403, 806, 1600, 2400, 2400, 2400], 1, 64),
        ([320, 320, 640, 640, 1080], 10, 128),
        ([403, 806, 1600, 2400, 2400, 2400], 25, 256),
    ],
)
def test_more_sums_share_a_ciphertext_where_there_are_more_or_a_key_serves_more_trees(
    sums, key_trees, slots
):
    assert best_slots(params(key_trees=key_trees), BUDGET, seen(*sums)) == slots


def test_what_a_job_says_is_kept_to():
    few, many = seen(5, 5), seen(*[3000] * 4)
    assert best_slots(params(answers="packed"), BUDGET, few) == 32
    assert best_slots(params(answers="vectors"), BUDGET, many) == VECTORS


def test_no_key_is_larger_than_a_part_may_be(monkeypatch):
    monkeypatch.setattr(lattice_answers, "LATTICE_PART_BYTES_MAX", 1 << 20)
    assert best_slots(params(answers="packed"), BUDGET, seen(3000)) == VECTORS


def test_every_host_costs_a_key():
    one, three = (cost_of(params(), BUDGET, seen(320, keys=n), 32).n_bytes for n in (1, 3))
    assert three - one == 2 * (lattice_answers.tree_key_bytes(BUDGET.parameters, 2, 32) - 28672)


def test_before_any_answer_a_small_host_is_expected():
    assert best_slots(params(), BUDGET, AnswersSeen()) == 32
    assert best_slots(params(), Budget(by_name("lattice"), 20), AnswersSeen()) == VECTORS


def test_the_last_tree_says_what_the_next_is_like():
    own = AnswersSeen()
    chosen = iter([64, 32, 128, 256, 512])
    choose = partial(next, chosen)
    assert own.begin(0, 9, None, choose) == 64
    assert own.takes_key("telco")
    assert own.takes_key("shop")
    own.sums += [3, 4]
    assert own.begin(0, 9, None, choose) == 32  # for another host, in hybridtree
    assert own.last is None
    own.begin(1, 9, None, choose)
    assert own.last == (2, [3, 4])
    own.begin(2, 9, None, choose)  # of which nothing came: a tree of the guest's alone
    assert own.last == (2, [3, 4])


def test_trees_that_share_a_key_keep_its_slots_and_each_host_gets_it_once():
    own, choose = AnswersSeen(), partial(next, iter([64, 128]))
    found = []
    for tree in range(4):
        slots = own.begin(tree, 9, tree // 2, choose)
        found.append((slots, own.takes_key("telco"), tree > 0 and own.takes_key("shop")))
    assert found == [(64, True, False), (64, False, True), (128, True, True), (128, False, False)]


def test_the_result_says_what_answers_took_and_would_have_taken_otherwise():
    assert in_words(params(), BUDGET, seen(*[2000] * 5)) == (
        "packed, 64 sums in a ciphertext: 6.0 MB a tree, as vectors 94.9"
    )
    assert in_words(params(), BUDGET, seen(5)).startswith("vectors: 0.0 MB a tree, packed 1.4")
    assert in_words(params(), LARGE, seen(5)) == "vectors: 0.1 MB a tree"


def test_a_ring_that_cannot_pack_has_vectors_whatever_was_asked_before():
    assert best_slots(params(), LARGE, seen(3000)) == VECTORS


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_runs_cut_all_sums_one_after_the_other(size):
    counts = [0, 3, 0, 5, 1]
    every = [(place, n) for place, count in enumerate(counts) for n in range(count)]
    found = [
        [(place, n) for place, cut in run for n in range(cut.start, cut.stop)]
        for run in cut_into_runs(counts, size)
    ]
    assert found == [every[first : first + size] for first in range(0, len(every), size)]


def test_noise_and_a_lasting_key_do_not_go_together():
    raw = {"host_noise": 1.0, "encryption": {"scheme": "lattice", "key_trees": 2}}
    with pytest.raises(ConfigError, match="do not go together"):
        parse_settings(EncryptedTreeParams, raw)


def test_answers_and_keys_are_of_lattices_alone():
    for said in ({"answers": "packed"}, {"key_trees": 2}):
        with pytest.raises(ConfigError, match="not a lattice scheme"):
            params(scheme="paillier", **said)
