"""The owner's policy: each rule allows what it names and denies everything else."""

from dataclasses import replace

import pytest

from fedboost.ground.errors import ConfigError, PolicyError
from fedboost.ground.settings import parse_settings
from fedboost.runtime.config.ask import Ask
from fedboost.runtime.config.daemons import undeclared_names
from fedboost.runtime.config.policy import Policy

OPEN = {
    "coordinators": ["coord"],
    "peers": ["telco", "shop"],
    "datasets": ["credit"],
    "protocols": ["secureboost"],
}
ASK = Ask(
    coordinator="coord",
    peers=("telco",),
    dataset="credit",
    protocol="secureboost",
    scheme="paillier",
    key_bits=2048,
    gradient_bits=7,
    insecure=False,
    contributors=None,
    goes_on=False,
    host_noise=None,
    gradient_check=None,
    key_trees=None,
    quantile_tolerance=None,
    roles=("host",),
    purpose=None,
    guest_replayable=None,
)


def policy(**keys) -> Policy:
    return parse_settings(Policy, {**OPEN, **keys})


def test_what_the_policy_names_is_allowed():
    policy().judge(ASK)
    policy().judge(replace(ASK, peers=("telco", "shop"), key_bits=3072, gradient_bits=6))


def test_a_policy_may_require_a_purpose():
    policy(purpose_required=True).judge(replace(ASK, purpose="credit risk of new customers"))
    with pytest.raises(PolicyError, match="requires a purpose") as caught:
        policy(purpose_required=True).judge(ASK)
    assert caught.value.where["key"] == "policy.purpose_required"
    assert "set purpose in the job" in caught.value.todo


def test_an_empty_policy_denies():
    with pytest.raises(PolicyError) as caught:
        Policy().judge(ASK)
    assert caught.value.where["key"] == "policy.coordinators"


@pytest.mark.parametrize("key", list(OPEN))
def test_an_absent_key_denies(key):
    with pytest.raises(PolicyError) as caught:
        parse_settings(Policy, {name: names for name, names in OPEN.items() if name != key}).judge(
            ASK
        )
    assert caught.value.where["key"] == f"policy.{key}"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"coordinator": "evil"}, "coordinators"),
        ({"peers": ("telco", "evil")}, "peers"),
        ({"dataset": "salaries"}, "datasets"),
        ({"protocol": "gbun"}, "protocols"),
        ({"insecure": True, "scheme": "plain"}, "allow_insecure"),
        ({"key_bits": 2047}, "key_bits_min"),
        ({"gradient_bits": 8}, "gradient_bits_max"),
        ({"key_trees": 2}, "lattice_key_trees_max"),
        ({"contributors": 2}, "aggregation_parties_min"),
        ({"contributors": 3, "goes_on": True}, "aggregation_apart_min"),
    ],
)
def test_each_rule_denies_and_names_its_key(change, key):
    with pytest.raises(PolicyError) as caught:
        policy().judge(replace(ASK, **change))
    assert caught.value.where["key"] == f"policy.{key}"
    assert caught.value.exit_code == 4


def test_schemes_that_an_owner_does_not_name_are_denied():
    own, lattice = policy(schemes=["paillier"]), replace(ASK, scheme="lattice", key_bits=None)
    own.judge(ASK)
    policy().judge(lattice)
    with pytest.raises(PolicyError, match="the scheme lattice, but paillier") as caught:
        own.judge(lattice)
    assert caught.value.where["key"] == "policy.schemes"
    assert "leave encryption.scheme out" in caught.value.todo
    with pytest.raises(ConfigError, match="no encryption scheme 'latice'"):
        policy(schemes=["latice"])


@pytest.mark.parametrize(
    ("keys", "change"),
    [
        ({"coordinators": ["coord", "evil"]}, {"coordinator": "evil"}),
        ({"peers": ["telco", "evil"]}, {"peers": ("telco", "evil")}),
        ({"datasets": ["salaries"]}, {"dataset": "salaries"}),
        ({"protocols": ["gbun"]}, {"protocol": "gbun"}),
        ({"allow_insecure": True}, {"insecure": True, "scheme": "plain"}),
        ({"key_bits_min": 3072}, {"key_bits": 3072}),
        ({"gradient_bits_max": 65}, {"gradient_bits": 65}),
        ({}, {"contributors": 3}),
        ({"aggregation_parties_min": 2}, {"contributors": 2}),
        ({"aggregation_apart_min": 1}, {"contributors": 3, "goes_on": True}),
        ({"aggregation_noise": 2.0}, {"contributors": 3, "goes_on": True}),
        ({"lattice_key_trees_max": 10}, {"key_trees": 10}),
        ({}, {"key_trees": 1}),
        ({"host_noise_min": 0.5}, {"host_noise": 0.5}),
        ({"host_noise_min": 0.5}, {"host_noise": None}),
        ({}, {"host_noise": 0.0}),
        ({}, {"guest_replayable": False}),
        ({}, {"gradient_check": False}),
        ({"gradient_check": True}, {"gradient_check": True}),
        ({"gradient_check": True}, {"gradient_check": None}),
        ({"guest_replayable": True}, {"guest_replayable": True}),
        ({"guest_replayable": True}, {"guest_replayable": None}),
    ],
)
def test_each_rule_allows_what_its_key_says(keys, change):
    policy(**keys).judge(replace(ASK, **change))


def test_a_job_with_too_little_noise_is_told_how_much_it_needs():
    for asked in (0.0, 0.49):
        with pytest.raises(PolicyError, match=r"a host_noise of 0.5 at least") as caught:
            policy(host_noise_min=0.5).judge(replace(ASK, host_noise=asked))
        assert caught.value.where["key"] == "policy.host_noise_min"
        assert "set host_noise: 0.5 in the job's params" in str(caught.value.todo)


def test_a_guest_that_cannot_be_checked_is_told_what_the_job_lacks():
    with pytest.raises(PolicyError, match="that it was honest") as caught:
        policy(guest_replayable=True).judge(replace(ASK, guest_replayable=False))
    assert caught.value.where["key"] == "policy.guest_replayable"
    assert "set replayable: true in the job" in str(caught.value.todo)


def test_a_policy_may_want_gradients_checked():
    with pytest.raises(PolicyError, match="hosts check the gradients' bits") as caught:
        policy(gradient_check=True).judge(replace(ASK, gradient_check=False))
    assert caught.value.where["key"] == "policy.gradient_check"
    assert "set gradient_check: true in the job" in str(caught.value.todo)


def test_a_rule_without_object_is_not_asked():
    closed = policy(datasets=[])
    closed.judge(replace(ASK, dataset=None, key_bits=None, gradient_bits=None, scheme=None))


def test_an_error_does_not_tell_what_the_policy_allows_otherwise():
    with pytest.raises(PolicyError) as caught:
        policy(datasets=["credit", "hidden"]).judge(replace(ASK, dataset="salaries"))
    assert "hidden" not in "".join(caught.value.lines())


def test_predictions_need_a_named_peer_and_stay_within_the_day():
    allowed = policy(predict={"peers": ["telco"], "rows_per_day": 10})
    allowed.judge_prediction("telco", 10)
    for peer, rows, key in (("shop", 1, "peers"), ("telco", 11, "rows_per_day")):
        with pytest.raises(PolicyError) as caught:
            allowed.judge_prediction(peer, rows)
        assert caught.value.where["key"] == f"policy.predict.{key}"
    with pytest.raises(PolicyError):
        policy().judge_prediction("telco", 1)
    with pytest.raises(PolicyError):
        policy(predict={"peers": ["telco"]}).judge_prediction("telco", 1)


INF = float("inf")


@pytest.mark.parametrize(
    ("element", "row", "epsilon", "columns", "key"),
    [
        (None, None, 0.1, 1, "epsilon_element_max"),
        (None, INF, 0.1, 1, "epsilon_element_max"),
        (INF, None, 0.1, 1, "epsilon_row_max"),
        (4.0, 40.0, 4.1, 1, "epsilon_element_max"),
        (4.0, 40.0, 4.0, 11, "epsilon_row_max"),
        (4.0, 40.0, INF, 1, "epsilon_element_max"),
        (INF, 40.0, INF, 1, "epsilon_row_max"),
        (4.0, 40.0, 4.0, 10, None),
        (4.0, INF, 4.0, 1000, None),
        (INF, INF, INF, 1000, None),
    ],
)
def test_disclosed_values_are_bounded_one_by_one_and_row_by_row(
    element, row, epsilon, columns, key
):
    given = {"epsilon_element_max": element, "epsilon_row_max": row}
    limits = policy(**{name: most for name, most in given.items() if most is not None})
    if key is None:
        limits.judge_disclosure(epsilon, columns)
        return
    with pytest.raises(PolicyError) as caught:
        limits.judge_disclosure(epsilon, columns)
    assert caught.value.where["key"] == f"policy.{key}"
    assert caught.value.exit_code == 4


def test_a_refusal_of_disclosure_says_what_was_asked_and_what_is_allowed():
    with pytest.raises(PolicyError, match=r"allows epsilon 4 per value, the job asks for no noise"):
        policy(epsilon_element_max=4.0, epsilon_row_max=INF).judge_disclosure(INF, 3)
    with pytest.raises(PolicyError, match="allows no disclosed values per value"):
        policy().judge_disclosure(1.0, 3)


@pytest.mark.parametrize(
    ("epsilon", "before", "key"),
    [
        (4.0, 36.0, None),
        (4.0, 36.1, "epsilon_row_max"),
        (4.0, INF, "epsilon_row_max"),
        (5.0, 0.0, "epsilon_element_max"),
    ],
)
def test_what_earlier_jobs_have_disclosed_counts_for_a_row_and_not_for_a_value(
    epsilon, before, key
):
    limits = policy(epsilon_element_max=4.0, epsilon_row_max=40.0)
    if key is None:
        limits.judge_disclosure(epsilon, 1, before)
        return
    with pytest.raises(PolicyError) as caught:
        limits.judge_disclosure(epsilon, 1, before)
    assert caught.value.where["key"] == f"policy.{key}"
    said = {"epsilon_row_max": "earlier jobs have disclosed", "epsilon_element_max": "per value,"}
    assert said[key] in caught.value.what


@pytest.mark.parametrize(
    ("ratio", "before", "warns"),
    [(0.06, 0.0, False), (0.07, 0.0, True), (0.01, 0.06, True), (0.05, 0.1, True)],
)
def test_sums_are_warned_of_together_with_those_of_earlier_jobs(ratio, before, warns):
    assert policy().judge_sums(ratio, before) is warns


@pytest.mark.parametrize(("ratio", "before"), [(0.151, 0.0), (0.01, 0.141), (1e-9, 0.2)])
def test_sums_beyond_the_limit_are_refused(ratio, before):
    with pytest.raises(PolicyError, match="released sums per bin and row") as caught:
        policy().judge_sums(ratio, before)
    assert caught.value.where["key"] == "policy.disclosure_max"
    assert ("earlier jobs" in caught.value.what) is (before > 0)


@pytest.mark.parametrize("limit", [None, INF], ids=["null", ".inf"])
def test_sums_without_limit_are_never_refused(limit):
    wide = policy(disclosure_warn=limit, disclosure_max=limit)
    assert wide.judge_sums(1e6, 1e6) is False


def test_only_named_users_approve():
    policy(approvers=["ana"]).judge_approver("ana")
    with pytest.raises(PolicyError):
        policy(approvers=["ana"]).judge_approver("eve")
    with pytest.raises(PolicyError):
        policy().judge_approver("ana")


def test_a_person_approves_unless_the_owner_says_otherwise():
    assert policy().approve == "always"
    assert policy(approve="never").approve == "never"


@pytest.mark.parametrize(
    "keys",
    [
        {"key_bits_min": 1024},
        {"key_bits_min": "2048"},
        {"epsilon_element_max": 0.0},
        {"epsilon_element_max": float("nan")},
        {"epsilon_row_max": -1.0},
        {"epsilon_row_max": float("nan")},
        {"gradient_bits_max": 0},
        {"disclosure_warn": -0.1},
        {"disclosure_max": float("nan")},
        {"disclosure_max": "much"},
        {"aggregation_parties_min": 1},
        {"aggregation_apart_min": 0},
        {"aggregation_noise": -0.5},
        {"aggregation_noise": 4.5},
        {"host_noise_min": -0.5},
        {"host_noise_min": 65.0},
        {"host_noise_min": float("nan")},
        {"approve": "sometimes"},
        {"approve": True},
        {"peers": ["Telco"]},
        {"peers": "telco"},
        {"peers": ["telco", "telco"]},
        {"peers": [7]},
        {"allow_insecure": 1},
        {"tells": ["labels"]},
        {"predict": {"peers": ["telco"], "rows_per_day": -1}},
        {"predicts": {}},
    ],
)
def test_a_policy_that_means_nothing_is_refused(keys):
    with pytest.raises(ConfigError):
        policy(**keys)


def test_every_key_is_enforced_somewhere():
    judged = {
        "approve", "approvers", "coordinators", "peers", "datasets", "protocols",
        "allow_insecure", "schemes", "key_bits_min", "gradient_bits_max", "predict", "tells",
        "epsilon_element_max", "epsilon_row_max", "aggregation_parties_min",
        "group_rows_min", "own_rows_min", "disclosure_warn", "disclosure_max", "disclosure_apart",
        "host_noise_min",
        "intersection_min", "alignments_per_day", "ids_padded_to", "roles", "holdout_rows_min",
        "quantile_tolerance_min", "jobs_open_max", "jobs_per_day", "metrics_max",
        "aggregation_apart_min", "aggregation_noise", "totals_max", "lattice_key_trees_max",
        "holdout_max", "peer_ids_max", "placed_max", "guest_replayable", "gradient_check",
        "purpose_required",
    }  # fmt: skip
    assert judged == set(Policy.model_fields)


def test_names_nobody_declared_are_found():
    known = {"coordinators": ["coord"], "peers": ["telco"], "datasets": ["credit"]}
    found = undeclared_names(policy(predict={"peers": ["bank"]}), known)
    assert [sentence.split(",")[0] for sentence in found] == [
        "policy.peers names 'shop'",
        "policy.predict.peers names 'bank'",
    ]


def test_rows_placed_are_bounded_below_all_rows_alone():
    for share, before in ((1.0, 0.0), (7.5, 3.0)):
        Policy().judge_placed(share, before)
    tight = Policy(placed_max=0.25)
    tight.judge_placed(0.2, 0.05)
    with pytest.raises(
        PolicyError, match=r"allows 0.25 .* earlier jobs could place 0.1,.* 0.3"
    ) as e:
        tight.judge_placed(0.2, 0.1)
    assert e.value.where["key"] == "policy.placed_max"
    with pytest.raises(PolicyError, match=r"could be 1\n"):
        Policy(placed_max=0.0).judge_placed(4.0)
