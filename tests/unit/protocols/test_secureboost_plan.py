"""Whose columns a tree sees, and what a job may say about it."""

import numpy as np
import pytest

from fedboost.core.gradient_bits import BITS_ENCRYPTED
from fedboost.core.params import MAX_DEPTH
from fedboost.encrypted.scheme.params import policy_demands
from fedboost.flow import GUEST, HOST, Table
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.settings import parse_settings
from fedboost.protocols.secureboost import plan
from fedboost.protocols.secureboost.params import SecureBoostParams, check_table
from fedboost.protocols.secureboost.plan import Plan, of_round
from tests.support.federated import frame_of

TABLE = Table("bank", ("telco", "shop"))


def said(**params):
    return parse_settings(SecureBoostParams, params)


# Plans


@pytest.mark.parametrize("number", [0, 1, 17])
def test_in_the_default_mode_everybody_competes_in_every_layer(number):
    expected = Plan(("telco", "shop"), 5, guest_competes=True, guest_layers=0)
    assert of_round(said(max_depth=5), TABLE, number) == expected


@pytest.mark.parametrize("number", [0, 1, 17])
def test_layered_trees_are_all_alike(number):
    params = said(mode="layered", host_depth=4, guest_depth=1)
    expected = Plan(("telco", "shop"), 4, guest_competes=False, guest_layers=1)
    assert of_round(params, TABLE, number) == expected
    default = of_round(said(mode="layered"), TABLE, number)
    assert (default.host_layers, default.guest_layers) == (3, 2)


@pytest.mark.parametrize("turns", [1, 2, 5])
@pytest.mark.parametrize("hosts", [("telco",), ("telco", "shop"), ("telco", "shop", "mill")])
def test_in_mix_the_parties_take_turns_guest_first(turns, hosts):
    params = said(mode="mix", trees_per_party=turns, max_depth=4)
    rounds = 3 * turns * (1 + len(hosts))
    plans = [of_round(params, Table("bank", hosts), number) for number in range(rounds)]
    listed = [one.hosts[0] if one.hosts else "bank" for one in plans]
    assert listed == [party for party in ("bank", *hosts) for _ in range(turns)] * 3
    for one in plans:
        assert len(one.hosts) <= 1
        if one.hosts:
            assert one == Plan(one.hosts, 4, guest_competes=False, guest_layers=0)
        else:
            assert (one.host_layers, one.guest_layers) == (0, 4)


@pytest.mark.parametrize("mode", ["default", "mix", "layered"])
def test_no_layer_is_without_a_party_and_no_host_works_for_nothing(mode):
    params = said(mode=mode)
    depth = params.max_depth if mode != "layered" else params.host_depth + params.guest_depth
    for number in range(7):
        one = plan.of_round(params, TABLE, number)
        assert bool(one.hosts) == (one.host_layers > 0)
        assert one.host_layers + one.guest_layers == depth


# What a job may say


@pytest.mark.parametrize("mode", ["default", "mix", "layered"])
@pytest.mark.parametrize(
    ("name", "own"),
    [("trees_per_party", "mix"), ("host_depth", "layered"), ("guest_depth", "layered")],
)
def test_a_modes_setting_is_refused_in_another_mode(name, own, mode):
    if mode == own:
        assert getattr(said(mode=mode, **{name: 1}), name) == 1
        return
    with pytest.raises(ConfigError, match=f"{name} is for mode {own}, the job's is {mode}"):
        said(mode=mode, **{name: 1})


def test_a_setting_is_refused_without_a_mode_even_at_its_default():
    with pytest.raises(ConfigError, match="host_depth is for mode layered"):
        said(host_depth=3)


def test_max_depth_of_a_layered_job_is_the_sum_or_left_out():
    assert said(mode="layered", host_depth=2, guest_depth=4, max_depth=6).host_depth == 2
    with pytest.raises(ConfigError, match="max_depth is 6, host_depth and guest_depth make 5"):
        said(mode="layered", max_depth=6)


def test_a_layered_tree_is_no_deeper_than_any_other():
    assert said(mode="layered", host_depth=MAX_DEPTH - 1, guest_depth=1).guest_depth == 1
    with pytest.raises(ConfigError, match=f"make {MAX_DEPTH + 1} layers; {MAX_DEPTH} is the most"):
        said(mode="layered", host_depth=MAX_DEPTH - 1, guest_depth=2)


@pytest.mark.parametrize(
    "params",
    [
        {"mode": "sideways"},
        {"mode": "mix", "trees_per_party": 0},
        {"mode": "layered", "host_depth": 0},
        {"mode": "layered", "guest_depth": 0},
        {"encryption": {"scheme": "rot13"}},
        {"encryption": {"key_bits": 512}},
        {"gh_packing": "yes"},
        {"unheard_of": 1},
        {"multi_output": True},
        {"goss": {}, "subsample": 0.5},
    ],
    ids=repr,
)
def test_what_means_nothing_is_refused(params):
    with pytest.raises(ConfigError):
        said(**params)


def test_a_broken_scheme_is_refused_unless_the_job_says_so():
    affine = {"scheme": "iterative-affine"}
    with pytest.raises(ConfigError, match="allow_insecure"):
        said(encryption=affine)
    with pytest.raises(ConfigError, match="allow_insecure"):
        said(encryption=affine, allow_insecure=False)
    assert policy_demands(said(encryption=affine, allow_insecure=True)).insecure


@pytest.mark.parametrize(
    ("scheme", "key_bits", "insecure"),
    [
        ("paillier", 3072, False),
        ("okamoto-uchiyama", 3072, False),
        ("iterative-affine", None, True),
        ("plain", None, True),
    ],
)
def test_a_policy_is_asked_for_what_the_job_needs(scheme, key_bits, insecure):
    params = said(
        encryption={"scheme": scheme, "key_bits": 3072}, allow_insecure=True, precision_bits=20
    )
    found = policy_demands(params)
    assert (found.scheme, found.key_bits, found.insecure) == (scheme, key_bits, insecure)
    assert found.gradient_bits == 20
    own = said(encryption={"scheme": scheme}, allow_insecure=True)
    assert (
        policy_demands(own).gradient_bits == BITS_ENCRYPTED
    )  # and 53 is the most that any rows may have
    own = own.model_copy(update={"precision_bits": None})
    assert policy_demands(own).gradient_bits == 53


# What a guest's table must have


def bank(columns=2, labels=(0.0, 1.0, 0.0, 1.0)):
    values = np.zeros((4, columns), np.float32)
    return frame_of([b"a", b"b", b"c", b"d"], values, labels)


@pytest.mark.parametrize("mode", ["mix", "layered"])
def test_a_guest_without_columns_grows_no_trees_of_its_own(mode):
    with pytest.raises(DataError, match=f"the guest has no columns, and mode {mode}"):
        check_table(GUEST, said(mode=mode), bank(columns=0), held_out=False)
    check_table(GUEST, said(), bank(columns=0), held_out=False)
    check_table(GUEST, said(mode=mode), bank(), held_out=False)


def test_early_stopping_needs_rows_that_are_held_out():
    params = said(early_stopping_rounds=3)
    with pytest.raises(ConfigError, match="early_stopping_rounds needs validation rows"):
        check_table(GUEST, params, bank(), held_out=False)
    check_table(GUEST, params, bank(), held_out=True)
    check_table(HOST, params, frame_of([b"a"], np.zeros((1, 1), np.float32)), held_out=False)


def test_labels_must_be_what_the_objective_learns_from():
    with pytest.raises(DataError, match="no label"):
        check_table(GUEST, said(), frame_of([b"a"], np.zeros((1, 1), np.float32)), held_out=False)
    classes = said(objective="multi:softprob", num_class=3)
    with pytest.raises(DataError):
        check_table(GUEST, classes, bank(labels=(0.0, 1.0, 2.0, 3.0)), held_out=False)
    with pytest.raises(DataError):
        check_table(GUEST, said(), bank(labels=(0.0, 1.0, 2.0, 1.0)), held_out=False)
